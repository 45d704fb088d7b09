"""The producer for threads.

Written by hand in both clients. Here `send` blocks its caller when it has to wait, and else is the
method of the buffer itself, because every call in between would slow down each message. The
producer for asyncio keeps messages that have to wait, and the loop settles their futures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Unpack

from logboom.client.argument_checks import BytesLike
from logboom.client.futures import ManyFuture, SendFuture, wait
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_base import ProducerBase
from logboom.client.producer_options import ProducerOptions
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
from logboom.client.tracing.loading import load_producer_tracer
from logboom.client.transactions.parked_batches import ToPark, send_all
from logboom.wire.errors import ClientClosed, TimedOut

# These functions report wrong arguments, under the names that callers know.
SendBuffer.send.__qualname__ = SendBuffer.send_with_options.__qualname__ = "Producer.send"
SendBuffer.send_many.__qualname__ = "Producer.send_many"


class Producer(ProducerBase):
    """A producer; `Client.producer` creates it. Any number of threads may share it.

    The messages of a queue are stored in the order of the calls of `send`, each of them once,
    whatever fails on the way.
    """

    def __init__(self, io: IoThread, options: ProducerOptions, timeout_s: float) -> None:
        buffer = _ProducerBuffer(io, options, timeout_s)
        super().__init__(io, buffer, timeout_s, lambda other: Producer(io, other, timeout_s))
        self._buffer: _ProducerBuffer = buffer
        self._many: Callable[..., list[ProducerBatch]] = buffer.send_many
        io.run(OpenProducer(buffer, timeout_s))
        # This saves a call for every message.
        self.send = self._buffer.send  # type: ignore[method-assign]  # it takes what the method below takes
        if options.tracing:
            self._tracer = load_producer_tracer()
            buffer.watch = self._tracer.watch
            shortened = self._tracer.shorten(buffer.send, self._send_traced)
            self.send = shortened  # type: ignore[method-assign]  # it takes the same
            self._many = self._send_many_traced

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
        return ManyFuture(self._many(topic, values, keys, **options))

    def _send_traced(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        key: BytesLike | None = None,
        queue: int | None = None,
        **options: Any,
    ) -> SendFuture:
        creation = self._tracer.create(topic, options.get("headers"))
        if creation is None:
            return self._buffer.send(topic, value, key=key, queue=queue, **options)
        with creation:
            options["headers"] = {**(options.get("headers") or {}), **creation.headers}
            future = self._buffer.send(topic, value, key=key, queue=queue, **options)
        creation.added((future.batch,))
        return future

    def _send_many_traced(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        **options: Unpack[SendManyOptions],
    ) -> list[ProducerBatch]:
        creation = self._tracer.create(topic, shared=False)
        if creation is None:
            return self._buffer.send_many(topic, values, keys, **options)
        with creation:
            options["headers"] = creation.spread(options.get("headers"), len(values))
            batches = self._buffer.send_many(topic, values, keys, **options)
        creation.added(batches)
        return batches

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

    def _check(self) -> None:
        self._buffer.check()

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
        self._pool.close()
        try:
            self.flush(timeout_s)
        except (TimedOut, ClientClosed):
            pass  # the remaining messages fail below, or have failed
        finally:
            self._buffer.topics.clear()
            self._buffer.closed = True
            if self._io.running:
                self._io.run(CloseProducer(self._buffer))


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
            topic_accumulator = self.topics.get(topic)
            if topic_accumulator is not None:
                return topic_accumulator

    def find_queue(self, topic_accumulator: TopicAccumulator, queue: int) -> TopicAccumulator:
        self._io.run(OpenTopic(self, topic_accumulator.name, self._timeout_s, queue + 1))
        return self.topics.get(topic_accumulator.name) or self.find_topic(topic_accumulator.name)

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
