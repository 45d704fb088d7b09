"""The producer for asyncio.

Written by hand in both clients. Here a message that cannot be buffered at once, because its topic
is not known or the buffer is full, waits in a queue of the producer, and the loop settles its
future. The producer for threads blocks its caller instead, and must not spend a call between `send`
and the buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack

from logboom.client.aio.bridge import run, wait_done
from logboom.client.aio.futures import ManyFuture, SendFuture, make_future, make_many
from logboom.client.aio.producer_base import ProducerBase
from logboom.client.argument_checks import BytesLike
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import ProducerOptions
from logboom.client.promise import Promise
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.send_buffer import (
    CloseProducer,
    Flush,
    OpenProducer,
    OpenTopic,
    SendBuffer,
)
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.client.send_options import SendManyOptions, SendOptions, check_options
from logboom.client.tracing.loading import load_producer_tracer
from logboom.client.transactions.parked_batches import ToPark, send_all
from logboom.wire.errors import ClientClosed, InvalidRequest, LogboomError, TimedOut

if TYPE_CHECKING:
    from logboom.client.tracing.producer_tracer import Creation, ProducerTracer

LOG = logging.getLogger("logboom.client")

F = TypeVar("F", bound="asyncio.Future[Any]")
_Late: TypeAlias = tuple[
    str,
    int | None,
    Callable[[], "asyncio.Future[Any]"],
    "asyncio.Future[Any]",
    "Creation | None",
]


class _ProducerBuffer(SendBuffer[SendFuture]):
    """A buffer with a clock."""

    def wall_ms(self) -> int:
        return wall_ms()


class Producer(ProducerBase):
    """A producer; `Client.producer` creates it. Any number of tasks of one loop may share it.

    The messages of a queue are stored in the order of the calls of `send`, each of them once,
    whatever fails on the way. The producer opens with `async with` or the first send.
    """

    def __init__(self, io: IoThread, options: ProducerOptions, timeout_s: float) -> None:
        make = self._note_batch if options.tracing else make_future
        buffer = _ProducerBuffer(options, make, threading.Lock(), time.monotonic, io.ring)
        super().__init__(io, buffer, timeout_s, lambda other: Producer(io, other, timeout_s))
        self._tracing: ProducerTracer | None = None
        if options.tracing:
            self._tracing = load_producer_tracer()
            buffer.watch = self._tracing.watch
        self._late: deque[_Late] = deque()
        """Sends that wait for their topic or for space in the buffer, in order."""
        self._hurrying: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[SendOptions]
    ) -> SendFuture:
        """Send one message. It returns at once, with an awaitable of the SendResult.

        Without `queue`, messages with a key go to the queue of its hash, and those without fill one
        batch of a queue after the other. While more than `buffer_bytes` wait for acknowledgement,
        and until a new topic is known, messages wait in the producer, and the awaitables take
        longer.

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
        if self._tracing is not None:
            return self._send_traced(self._tracing, topic, value, options)
        send = partial(self._buffer.send, topic, value, **options)
        return self._now_or_late(topic, options, send, asyncio.Future)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        **options: Unpack[SendManyOptions],
    ) -> ManyFuture:
        """Send whole columns. It returns at once, with an awaitable of [(queue, first offset,
        count)].

        Without `queue`, messages with keys go to the queues of their hashes, and all others to one
        queue, another one in each call. They are cut into batches of at most `max_batch_bytes`.
        With a delay the offset is -1, and `parked` of the awaitable serves to recall the batches.

        Args:
            options: queue, tags, headers, timestamps_ms, delay_s and deliver_at, as described in
                `SendManyOptions`.

        Raises:
            InvalidRequest: as `send`; or the columns have different lengths.
        """
        creation = None
        if self._tracing is not None:
            creation = self._tracing.create(topic, shared=False)

        def send() -> ManyFuture:
            return make_many(self._buffer.send_many(topic, values, keys, **options))

        if creation is None:
            return self._now_or_late(topic, options, send, ManyFuture)

        def create() -> ManyFuture:
            with creation:
                future = send()
            creation.added(future.batches)
            return future

        with creation:
            options["headers"] = creation.spread(options.get("headers"), len(values))
            return self._now_or_late(topic, options, create, ManyFuture, creation)

    def _send_traced(
        self, tracing: ProducerTracer, topic: str, value: BytesLike | None, options: SendOptions
    ) -> SendFuture:
        creation = tracing.create(topic, options.get("headers"))
        if creation is None:
            send = partial(self._buffer.send, topic, value, **options)
            return self._now_or_late(topic, options, send, asyncio.Future)

        def create() -> SendFuture:
            with creation:
                future = self._buffer.send(topic, value, **options)
            creation.added([self._noted])
            return future

        with creation:
            options["headers"] = {**(options.get("headers") or {}), **creation.headers}
            return self._now_or_late(topic, options, create, asyncio.Future, creation)

    def _note_batch(self, batch: ProducerBatch, index: int) -> SendFuture:
        """Make a future, and note the batch for its tracing."""
        self._noted = batch
        return make_future(batch, index)

    async def wait_buffered(self) -> None:
        """Wait until every sent message is in the buffer or has failed."""
        if self._hurrying is not None:
            await asyncio.shield(self._hurrying)
        await self._open()

    async def send_batches(
        self, batches: Iterable[ToPark], parks: TransactionBatches, now_ms: int
    ) -> list[ProducerBatch]:
        """Add encoded batches to their queues, for the decision of `parks`.

        Raises:
            LogboomError: as `Client.park`.
        """
        await self.wait_buffered()
        added: list[ProducerBatch] = []
        for each in batches:
            await self._find(each[0], each[1])
            await self._room()
            added += send_all(self._buffer, [each], parks, now_ms)
        return added

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered messages, and wait until they are acknowledged or given up.

        Raises:
            TimedOut: some are neither after `timeout_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                if self._hurrying is not None:
                    await asyncio.shield(self._hurrying)
                if self._opening is not None:
                    await run(self._io, Flush(self._buffer))
        except TimeoutError:
            raise TimedOut(f"not all messages are acknowledged after {timeout_s} s") from None

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and close. Messages that are not acknowledged after `timeout_s` seconds (None: the
        delivery time-out) fail with ClientClosed. A second call does nothing."""
        if self._closed:
            return
        for sender in list(self._senders):
            await sender.close()
        await self._pool.close()
        self._closed = True
        try:
            with contextlib.suppress(TimedOut, ClientClosed):
                await self.flush(timeout_s)
        finally:
            self._buffer.topics.clear()
            for *_, future, creation in self._late:
                future.cancel()
                if creation is not None:
                    creation.fail(ClientClosed("the producer was closed meanwhile"))
            if self._io.running and self._opening is not None:
                await run(self._io, CloseProducer(self._buffer))

    async def _enter(self) -> None:
        await self._open()

    # Opening, and messages that cannot be buffered at once.

    async def _open(self) -> None:
        if self._opening is None:
            call = OpenProducer(self._buffer, self._timeout_s)
            self._opening = asyncio.create_task(run(self._io, call))
        await asyncio.shield(self._opening)

    def _now_or_late(
        self,
        topic: str,
        options: SendOptions | SendManyOptions,
        send: Callable[[], F],
        kind: type[F],
        creation: Creation | None = None,
    ) -> F:
        self._check()
        queue = options.get("queue")
        if not self._late and self._knows(topic, queue) and not self._buffer.full:
            return self._watch(send())
        if kind is ManyFuture:
            check_options("Producer.send_many", options, SendManyOptions)
        else:
            check_options("Producer.send", options, SendOptions)
        future = kind(loop=asyncio.get_running_loop())
        self._late.append((topic, queue, send, future, creation))
        if self._hurrying is None or self._hurrying.done():
            self._hurrying = asyncio.create_task(self._hurry())
            self._hurrying.add_done_callback(self._warn_of_unsent)
        return self._watch(future)

    def _watch(self, future: F) -> F:
        if self._buffer.parks is not None:
            # The commit fails with the first error, so nobody has to await each message.
            future.add_done_callback(_mark_retrieved)
        return future

    def _knows(self, topic: str, queue: int | None) -> bool:
        topic_accumulator = self._buffer.topics.get(topic)
        return topic_accumulator is not None and (
            queue is None or queue < len(topic_accumulator.queues)
        )

    async def _find(self, topic: str, queue: int | None) -> None:
        if not self._knows(topic, queue):
            least = 0 if queue is None else queue + 1
            await run(self._io, OpenTopic(self._buffer, topic, self._timeout_s, least))

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed("this producer is closed: make another with client.producer()")

    async def _hurry(self) -> None:
        """Add the waiting messages to the buffer, one after the other."""
        while self._late:
            topic, queue, send, future, creation = self._late[0]
            try:
                await self._open()
                await self._find(topic, queue)
                await self._room()
                sent = send()
            # A wrong argument must not hold up the messages behind it.
            except Exception as error:  # noqa: BLE001 - the future has it
                parks = self._buffer.parks
                if parks is not None and parks.error is None:
                    # The buffer does not know this message, but the commit must fail because of it.
                    wrong = InvalidRequest(f"a send failed: {error!r}")
                    parks.error = error if isinstance(error, LogboomError) else wrong
                if creation is not None:
                    creation.fail(error)
                if not future.done():
                    future.set_exception(error)
            else:
                sent.add_done_callback(partial(_copy, future))
            self._late.popleft()

    def _warn_of_unsent(self, hurrying: asyncio.Task[None]) -> None:
        """Log that the loop ends before all messages are in the buffer, if it does."""
        if hurrying.cancelled() and self._late and not self._closed:
            LOG.warning(
                "the event loop ends while %d sends wait for their topic, or for room in the buffer, and "
                "their messages are lost: await flush() or close() of the producer, or use it in an "
                "`async with` block",
                len(self._late),
            )

    async def _room(self) -> None:
        while self._buffer.full:
            self._io.check()
            room: Promise[None] = Promise()
            self._buffer.room_wanted.append(partial(room.resolve, None))
            # The core may have freed bytes, and run the callbacks, before ours was registered.
            if not self._buffer.full:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await wait_done(room)


def _mark_retrieved(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _copy(future: asyncio.Future[Any], sent: asyncio.Future[Any]) -> None:
    if sent.cancelled():
        future.cancel()
    elif (error := sent.exception()) is not None:
        if not future.done():
            future.set_exception(error)
    elif not future.done():
        if isinstance(future, ManyFuture) and isinstance(sent, ManyFuture):
            future.batches = sent.batches
        future.set_result(sent.result())
