"""The producer for threads.

By hand in both clients: here `send` blocks its caller where it has to wait, and otherwise goes to
the buffer without a call in between, because every call costs on the way of each message. The
producer for asyncio keeps such a send for later, and its future is settled in the loop.
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

# A wrong argument is reported by these functions, under the names that their callers know.
SendBuffer.send.__qualname__ = "Producer.send"
SendBuffer.send_many.__qualname__ = "Producer.send_many"


class Producer(Scope):
    """Sends messages; made by `Client.producer`. Any number of threads may share one.

    `send` gives messages to their queue in the order of its calls, and they are stored in that
    order, each once, whatever fails on the way.
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
        # One call less on the way of every message.
        self.send = self._buffer.send  # type: ignore[method-assign]  # same signature as below

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[SendOptions]
    ) -> SendFuture:
        """Send one message; returns the future of its SendResult at once.

        The queue is the given one, else that of the key's hash, else one after the other by
        batches. It blocks while more than `buffer_bytes` wait for acknowledgement.

        With `delay_s`, or `deliver_at` (ms since 1970 UTC, or a datetime with its time zone), nobody
        reads the message before that time, at most 40 days ahead. It is acknowledged as soon as it
        is safe; the result then says where it waits, for `recall`. Each such message travels
        alone: of many, use `send_many`. RocketMQ's levels: `delay_s=delay_level(3)`.

        Args:
            options: key, tag, headers, timestamp_ms, queue, delay_s and deliver_at, as
                `SendOptions` says.

        Raises:
            InvalidRequest: a wrong type, or TOO_LARGE with the limit.
            UnknownResource: no such topic or queue.
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
        """Send whole columns at once; returns the future of [(queue, first offset, count)].

        Rows go to the given queue, else to that of their key's hash, else all to one queue (the
        next one each time). They are cut into batches of at most `max_batch_bytes`. With a delay
        the offset is -1, and `parked` of the future says where the batches wait.

        Args:
            options: queue, tags, headers, timestamps_ms, delay_s and deliver_at, as
                `SendManyOptions` says.

        Raises:
            InvalidRequest: as `send`; or columns of unequal length.
        """
        return ManyFuture(self._buffer.send_many(topic, values, keys, **options))

    def transaction(self, app_id: str | None = None, sequence: int | None = None) -> Transaction:
        """Begin a transaction: what is sent in it is published all at once for each queue, and all
        or nothing across queues and topics. `with producer.transaction() as txn: txn.send(…)`
        commits at the end, and aborts on an exception.

        Args:
            app_id: whose transaction it is; who begins one under the same id in another process
                fences this one. None: an id that this producer makes up.
            sequence: each sequence of an application id is committed once, ever, and only ones
                greater than all before: repeat one whose end you do not know, and `duplicate`
                tells. None: the next.

        Raises:
            InvalidRequest: a transaction of this application id is open in this client; or an
                argument that cannot be.
            Refused: FENCED, another process has taken the application id over.
            TimedOut: no name server answered.
        """
        self._buffer.check()
        return self._desk.begin(app_id, sequence)

    def transactional_sender(
        self, *, group: str, check: Callable[[Message], object]
    ) -> TransactionalSender:
        """A sender of half messages (RocketMQ's transactional messages): each is published once a
        local transaction says so.

        Args:
            group: the producer group: whoever sends for it may be asked about any of its messages.
            check: called with a message whose local transaction never told its end: "commit",
                "rollback" or "unknown" (then it is called again, later). In a thread of its own.

        Raises:
            InvalidRequest: a group's name that cannot be.
        """
        self._buffer.check()
        inner = Producer(self._io, transactional(self._buffer.options), self._timeout_s)
        made = TransactionalSender(self._io, inner, group, check, self._timeout_s)
        self._senders.add(made)
        return made

    @property
    def buffer(self) -> SendBuffer[SendFuture]:
        """What waits for acknowledgement."""
        return self._buffer

    def wait_buffered(self) -> None:
        """Do nothing: `send` has put every message into the buffer when it returns."""

    def send_batches(
        self, batches: Iterable[ToPark], parks: TransactionBatches, now_ms: int
    ) -> list[ProducerBatch]:
        """Put encoded batches on their queues; they wait for the decision of `parks`.

        Raises:
            LogboomError: as `Client.park`.
        """
        return send_all(self._buffer, batches, parks, now_ms)

    def recall(self, sent: SendResult | Parking) -> bool:
        """Take back what waits for its time: True if it is never delivered, False if it was
        released before. Of a `send_many` all messages of the batch are taken back.

        Raises:
            InvalidRequest: it does not wait.
            TimedOut: the queue's leader did not answer in time: recall it again.
        """
        parked = sent if isinstance(sent, Parking) else sent.parked
        answer, _ = self._io.run(recall_call(parked, self._timeout_s))
        return was_recalled(answer)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is piled up now, and wait until it is acknowledged or given up.

        Raises:
            TimedOut: not yet, after `timeout_s` seconds.
        """
        call = Flush(self._buffer)
        self._io.check_may_wait()
        self._io.expect(call.outcome)
        self._io.submit(call)
        if not wait(call.outcome, timeout_s):
            raise TimedOut(f"not all messages are acknowledged after {timeout_s} s")
        call.outcome.get()

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end; a second call does nothing. What is not acknowledged after `timeout_s`
        seconds (None: the delivery time-out) fails with ClientClosed."""
        if self._closed:
            return
        self._closed = True
        for sender in list(self._senders):
            sender.close()
        self._desk.close()
        try:
            self.flush(timeout_s)
        except (TimedOut, ClientClosed):
            pass  # what is left fails below, or has failed
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
            # The core may have freed bytes, and called, before we were on its list.
            if self.full:
                event.wait(1.0)

    def check(self) -> None:
        """Raises ClientClosed once it, or its client, is closed."""
        self._io.check()
        if self.closed:
            raise ClientClosed("this producer is closed: make another with client.producer()")
