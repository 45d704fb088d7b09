"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from logboom.client.aio.bridge import awaited, call_in, run
from logboom.client.aio.futures import ManyFuture, many
from logboom.client.aio.transaction import TransactionContext, TransactionPool
from logboom.client.aio.transactional_sender import TransactionalSender
from logboom.client.argument_checks import BytesLike
from logboom.client.delays import Parking, recall_call, was_recalled
from logboom.client.io_thread import IoThread
from logboom.client.producer import ABANDON_S
from logboom.client.producer_options import ProducerOptions
from logboom.client.promise import Promise
from logboom.client.results import Message, SendResult
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.send_buffer import (
    CloseProducer,
    Flush,
    OpenProducer,
    OpenTopic,
    SendBuffer,
)
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.client.transactions.parked_batches import ToPark, send_all
from logboom.client.transactions.transaction_work import transactional
from logboom.wire.errors import ClientClosed, LogboomError, TimedOut

F = TypeVar("F", bound="asyncio.Future[Any]")
Sent: TypeAlias = "asyncio.Future[SendResult]"
_Late: TypeAlias = tuple[
    str, int | None, Callable[[], "asyncio.Future[Any]"], "asyncio.Future[Any]"
]


class _ProducerBuffer(SendBuffer[Sent]):
    """A buffer with a clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Producer:
    """Sends messages; made by `Client.producer`, for one event loop."""

    def __init__(self, io: IoThread, options: ProducerOptions, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._buffer = _ProducerBuffer(
            options, self._future, threading.Lock(), time.monotonic, io.ring
        )
        io.buffers.add(self._buffer)
        self._late: deque[_Late] = deque()
        """Sends that wait for their topic or for room, in order."""
        self._hurrying: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._desk = TransactionPool(
            io, options, timeout_s, lambda chosen: Producer(io, chosen, timeout_s)
        )
        self._senders: weakref.WeakSet[TransactionalSender] = weakref.WeakSet()

    def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        key: BytesLike | None = None,
        tag: str | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp_ms: int | None = None,
        queue: int | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> Sent:
        """Send one message; the awaitable gives its SendResult. As `logboom.client`'s, but where
        that blocks for room or for a new topic, this one's awaitable takes longer."""
        send = partial(
            self._buffer.send,
            topic,
            value,
            key=key,
            tag=tag,
            headers=headers,
            timestamp_ms=timestamp_ms,
            queue=queue,
            delay_s=delay_s,
            deliver_at=deliver_at,
        )
        return self._now_or_late(topic, queue, send, asyncio.Future)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        queue: int | None = None,
        tags: str | Sequence[str | None] | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        timestamps_ms: int | Sequence[int] | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> ManyFuture:
        """Send whole columns; the awaitable gives [(queue, first offset, count)]; the offset is -1
        of batches that wait for a time, and its `parked` tells where."""

        def send() -> ManyFuture:
            piles = self._buffer.send_many(
                topic,
                values,
                keys,
                queue=queue,
                tags=tags,
                headers=headers,
                timestamps_ms=timestamps_ms,
                delay_s=delay_s,
                deliver_at=deliver_at,
            )
            return many(piles)

        return self._now_or_late(topic, queue, send, ManyFuture)

    def transaction(
        self, app_id: str | None = None, sequence: int | None = None
    ) -> TransactionContext:
        """Begin a transaction: `async with producer.transaction() as txn: txn.send(…)` commits at
        the end, and aborts on an exception; or `txn = await producer.transaction()`. Arguments and
        errors are those of `logboom.client`'s producer."""
        self._check()
        return TransactionContext(self._desk, app_id, sequence)

    def transactional_sender(
        self, *, group: str, check: Callable[[Message], object]
    ) -> TransactionalSender:
        """A sender of half messages, as `logboom.client`'s producer has it; `check` may be a
        coroutine function."""
        self._check()
        inner = Producer(self._io, transactional(self._buffer.options), self._timeout_s)
        made = TransactionalSender(self._io, inner, group, check, self._timeout_s)
        self._senders.add(made)
        return made

    @property
    def buffer(self) -> SendBuffer[Sent]:
        """What waits for acknowledgement."""
        return self._buffer

    def future_of(self, pile: ProducerBatch, index: int) -> Sent:
        """The awaitable of one message of a pile."""
        return self._future(pile, index)

    def runs_of(self, piles: list[ProducerBatch]) -> ManyFuture:
        """The awaitable of whole piles."""
        return many(piles)

    async def hurried(self) -> None:
        """Wait until all that was sent is in the buffer, or has failed."""
        if self._hurrying is not None:
            await asyncio.shield(self._hurrying)
        await self._open()

    async def send_batches(
        self, batches: Iterable[ToPark], parks: TransactionBatches, now_ms: int
    ) -> list[ProducerBatch]:
        """Put encoded batches on their queues; they wait for the decision of `parks`.

        Raises:
            As `Client.park`.
        """
        await self.hurried()
        piles: list[ProducerBatch] = []
        for each in batches:
            await self._find(each[0], each[1])
            await self._room()
            piles += send_all(self._buffer, [each], parks, now_ms)
        return piles

    async def recall(self, sent: SendResult | Parking) -> bool:
        """Take back what waits for its time, as `logboom.client`'s producer does."""
        parked = sent if isinstance(sent, Parking) else sent.parked
        answer, _ = await run(self._io, recall_call(parked, self._timeout_s))
        return was_recalled(answer)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what is piled up now, and wait until it is acknowledged or given up.

        Raises:
            TimedOut: not yet, after `timeout_s` seconds.
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
        """Flush, then end; a second call does nothing."""
        if self._closed:
            return
        for sender in list(self._senders):
            await sender.close()
        await self._desk.close()
        self._closed = True
        try:
            with contextlib.suppress(TimedOut, ClientClosed):
                await self.flush(timeout_s)
        finally:
            self._buffer.topics.clear()
            for *_, future in self._late:
                future.cancel()
            if self._io.running and self._opening is not None:
                await run(self._io, CloseProducer(self._buffer))

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(None if kind is None else ABANDON_S)

    # Opening, and sends that cannot go at once.

    async def _open(self) -> None:
        if self._opening is None:
            call = OpenProducer(self._buffer, self._timeout_s)
            self._opening = asyncio.create_task(run(self._io, call))
        await asyncio.shield(self._opening)

    def _now_or_late(
        self, topic: str, queue: int | None, send: Callable[[], F], kind: type[F]
    ) -> F:
        self._check()
        if not self._late and self._knows(topic, queue) and not self._buffer.full:
            return send()
        future = kind(loop=asyncio.get_running_loop())
        self._late.append((topic, queue, send, future))
        if self._hurrying is None or self._hurrying.done():
            self._hurrying = asyncio.create_task(self._hurry())
        return future

    def _knows(self, topic: str, queue: int | None) -> bool:
        lane = self._buffer.topics.get(topic)
        return lane is not None and (queue is None or queue < len(lane.queues))

    async def _find(self, topic: str, queue: int | None) -> None:
        if not self._knows(topic, queue):
            least = 0 if queue is None else queue + 1
            await run(self._io, OpenTopic(self._buffer, topic, self._timeout_s, least))

    def _check(self) -> None:
        self._io.check()
        if self._closed:
            raise ClientClosed("this producer is closed: make another with client.producer()")

    async def _hurry(self) -> None:
        """Give the late ones to the buffer, one after the other."""
        while self._late:
            topic, queue, send, future = self._late[0]
            try:
                await self._open()
                await self._find(topic, queue)
                await self._room()
                sent = send()
            except LogboomError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                sent.add_done_callback(partial(_copy, future))
            self._late.popleft()

    async def _room(self) -> None:
        while self._buffer.full:
            self._io.check()
            room: Promise[None] = Promise()
            self._buffer.room_wanted.append(partial(room.resolve, None))
            # The core may have freed bytes, and called, before we were on its list.
            if not self._buffer.full:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await awaited(room)

    @staticmethod
    def _future(pile: ProducerBatch, index: int) -> Sent:
        """A future of the running loop; all of a pile are settled by one call into it."""
        loop = asyncio.get_running_loop()
        future: Sent = loop.create_future()
        if pile.attached is None:
            pile.attached = []
            pile.add_callback(lambda: call_in(loop, _settle, pile))
        pile.attached.append((index, future))
        return future


def _settle(pile: ProducerBatch) -> None:
    for index, future in pile.attached:
        if future.done():
            continue
        if pile.error is not None:
            future.set_exception(pile.error)
        else:
            first = pile.get()
            offset = first + index if first >= 0 else -1
            place = (pile.topic, pile.queue, offset, pile.time_of(index), pile.parked)
            future.set_result(SendResult(*place))
    pile.attached = None


def _copy(future: asyncio.Future[Any], sent: asyncio.Future[Any]) -> None:
    if sent.cancelled():
        future.cancel()
    elif (error := sent.exception()) is not None:
        if not future.done():
            future.set_exception(error)
    elif not future.done():
        if isinstance(future, ManyFuture) and isinstance(sent, ManyFuture):
            future.piles = sent.piles
        future.set_result(sent.result())
