"""The producer for threads.

Written by hand in both clients. Here `send` blocks its caller when it has to wait, and else is the
method of the buffer itself, because every call in between would slow down each message. The
producer for asyncio keeps messages that have to wait, and the loop settles their futures.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from logboom.client.argument_checks import BytesLike
from logboom.client.delays import Parking, recall_call, was_recalled
from logboom.client.futures import ManyFuture, SendFuture, wait
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import ABANDON_S, ProducerOptions
from logboom.client.resource import Scope
from logboom.client.results import Message, SendResult
from logboom.client.send.producer_batch import ProducerBatch, TopicAccumulator
from logboom.client.send.send_buffer import (
    CloseProducer,
    Flush,
    OpenProducer,
    OpenTopic,
    SendBuffer,
)
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.client.send_options import SendManyOptions, SendOptions
from logboom.client.transaction import Transaction, TransactionPool
from logboom.client.transactional_sender import TransactionalSender
from logboom.client.transactions.parked_batches import ToPark, send_all
from logboom.client.transactions.transaction_work import transactional
from logboom.wire.errors import ClientClosed, TimedOut

# These functions report wrong arguments, under the names that callers know.
SendBuffer.send.__qualname__ = "Producer.send"
SendBuffer.send_many.__qualname__ = "Producer.send_many"


class Producer(Scope):
    """A producer; `Client.producer` creates it. Any number of threads may share it.

    The messages of a queue are stored in the order of the calls of `send`, each of them once,
    whatever fails on the way.
    """

    def __init__(self, io: IoThread, options: ProducerOptions, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._buffer = _ProducerBuffer(io, options, timeout_s)
        io.buffers.add(self._buffer)
        io.run(OpenProducer(self._buffer, timeout_s))
        self._closed = False
        self._senders: weakref.WeakSet[TransactionalSender] = weakref.WeakSet()
        self._desk = TransactionPool(
            io, options, timeout_s, lambda chosen: Producer(io, chosen, timeout_s)
        )
        # This saves a call for every message.
        self.send = self._buffer.send  # type: ignore[method-assign]  # same signature as below

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[SendOptions]
    ) -> SendFuture:
        """Send one message. It returns at once, with a future of the SendResult.

        Without `queue`, messages with a key go to the queue of its hash, and those without fill one
        batch of a queue after the other. While more than `buffer_bytes` wait for acknowledgement,
        `send` blocks.

        With `delay_s`, or `deliver_at` (ms since 1970 UTC, or a datetime with its time zone),
        nobody reads the message before that time, which is at most 40 days ahead. It is
        acknowledged as soon as it is safe, and `parked` of the result serves to `recall` it. Such a
        message has a batch of its own, so use `send_many` for many. For RocketMQ's delay levels
        write `delay_s=delay_level(3)`.

        Args:
            options: key, tag, headers, timestamp_ms, queue, delay_s and deliver_at, as described in
                `SendOptions`.

        Raises:
            InvalidRequest: an argument has the wrong type; or TOO_LARGE, with the limit.
            UnknownResource: there is no such topic or queue.
            ClientClosed: the client or the producer was closed, or the process forked.
        """
        return self._buffer.send(topic, value, **options)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        **options: Unpack[SendManyOptions],
    ) -> ManyFuture:
        """Send whole columns. It returns at once, with a future of [(queue, first offset, count)].

        Without `queue`, messages with keys go to the queues of their hashes, and all others to one
        queue, another one in each call. They are cut into batches of at most `max_batch_bytes`.
        With a delay the offset is -1, and `parked` of the future serves to recall the batches.

        Args:
            options: queue, tags, headers, timestamps_ms, delay_s and deliver_at, as described in
                `SendManyOptions`.

        Raises:
            InvalidRequest: as `send`; or the columns have different lengths.
        """
        return ManyFuture(self._buffer.send_many(topic, values, keys, **options))

    def transaction(self, app_id: str | None = None, sequence: int | None = None) -> Transaction:
        """Begin a transaction: its messages are published all at once for each queue, and all or
        nothing across queues and topics. `with producer.transaction() as txn: txn.send(…)`
        commits at the end, and aborts after an exception.

        Args:
            app_id: the application id of the transaction. A process that begins one under the same
                id fences all others. None: an id that this producer makes up.
            sequence: the number of the transaction. Each is committed at most once, and must be
                greater than all committed before. If the outcome of one is unknown, repeat it:
                `duplicate` is true if it was committed. None: the next number.

        Raises:
            InvalidRequest: a transaction of this application id is open in this client, or an
                argument is invalid.
            Refused: FENCED: another process has taken the application id over.
            TimedOut: no name server answered.
        """
        self._buffer.check()
        return self._desk.begin(app_id, sequence)

    def transactional_sender(
        self, *, group: str, check: Callable[[Message], object]
    ) -> TransactionalSender:
        """Create a sender of half messages (RocketMQ's transactional messages): each is published
        or dropped by the result of a local transaction.

        Args:
            group: the producer group. Every sender of the group may be asked about any of its
                messages.
            check: called, in a thread of its own, with a message whose local transaction never
                reported its end. It returns "commit", "rollback", or "unknown" to be called again
                later.

        Raises:
            InvalidRequest: the name of the group is invalid.
        """
        self._buffer.check()
        inner = Producer(self._io, transactional(self._buffer.options), self._timeout_s)
        made = TransactionalSender(self._io, inner, group, check, self._timeout_s)
        self._senders.add(made)
        return made

    @property
    def buffer(self) -> SendBuffer[SendFuture]:
        """The messages that wait for acknowledgement."""
        return self._buffer

    def wait_buffered(self) -> None:
        """Do nothing, because every message is in the buffer when `send` returns."""

    def send_batches(
        self, batches: Iterable[ToPark], parks: TransactionBatches, now_ms: int
    ) -> list[ProducerBatch]:
        """Add encoded batches to their queues, for the decision of `parks`.

        Raises:
            LogboomError: as `Client.park`.
        """
        return send_all(self._buffer, batches, parks, now_ms)

    def recall(self, sent: SendResult | Parking) -> bool:
        """Take back a delayed message, or all messages of a batch of `send_many`. Return False if
        it has been released already.

        Raises:
            InvalidRequest: the message was not delayed.
            TimedOut: the leader of the queue did not answer in time: recall the message again.
        """
        parked = sent if isinstance(sent, Parking) else sent.parked
        answer, _ = self._io.run(recall_call(parked, self._timeout_s))
        return was_recalled(answer)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered messages, and wait until they are acknowledged or given up.

        Raises:
            TimedOut: some are neither after `timeout_s` seconds.
        """
        call = Flush(self._buffer)
        self._io.check_may_wait()
        self._io.expect(call.outcome)
        self._io.submit(call)
        if not wait(call.outcome, timeout_s):
            raise TimedOut(f"not all messages are acknowledged after {timeout_s} s")
        call.outcome.get()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and close. Messages that are not acknowledged after `timeout_s` seconds (None: the
        delivery time-out) fail with ClientClosed. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for sender in list(self._senders):
            sender.close()
        self._desk.close()
        try:
            self.flush(timeout_s)
        except (TimedOut, ClientClosed):
            pass  # the remaining messages fail below, or have failed
        finally:
            self._buffer.topics.clear()
            self._buffer.closed = True
            if self._io.running:
                self._io.run(CloseProducer(self._buffer))

    def _leave(self, error: BaseException | None) -> None:
        self.close(None if error is None else ABANDON_S)


class _ProducerBuffer(SendBuffer[SendFuture]):
    """A buffer whose hooks block the calling thread."""

    def __init__(self, io: IoThread, options: ProducerOptions, timeout_s: float) -> None:
        super().__init__(options, SendFuture, threading.Lock(), time.monotonic, io.ring)
        self.closed = False
        self._io = io
        self._timeout_s = timeout_s

    def find_topic(self, topic: str) -> TopicAccumulator:
        while True:
            self.check()
            self._io.run(OpenTopic(self, topic, self._timeout_s))
            lane = self.topics.get(topic)
            if lane is not None:
                return lane

    def find_queue(self, lane: TopicAccumulator, queue: int) -> TopicAccumulator:
        self._io.run(OpenTopic(self, lane.name, self._timeout_s, queue + 1))
        return self.topics.get(lane.name) or self.find_topic(lane.name)

    def wall_ms(self) -> int:
        return wall_ms()

    def wait_for_room(self) -> None:
        self._io.check_may_wait()
        while self.full:
            self.check()
            event = threading.Event()
            self.room_wanted.append(event.set)
            # The core may have freed bytes, and run the callbacks, before ours was registered.
            if self.full:
                event.wait(1.0)

    def check(self) -> None:
        """Check that neither the producer nor its client is closed.

        Raises:
            ClientClosed: one of them is.
        """
        self._io.check()
        if self.closed:
            raise ClientClosed("this producer is closed: make another with client.producer()")
