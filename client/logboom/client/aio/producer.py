"""The producer for asyncio.

Written by hand in both clients. Here a message that cannot be buffered at once, because its topic
is not known or the buffer is full, waits in a queue of the producer, and the loop settles its
future. The producer for threads blocks its caller instead, and must not spend a call between `send`
and the buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, Unpack

from logboom.client.aio.bridge import OpenContext, run, wait_done
from logboom.client.aio.futures import ManyFuture, SendFuture, make_future, make_many
from logboom.client.aio.resource import Scope
from logboom.client.aio.transaction import Transaction, TransactionPool
from logboom.client.aio.transactional_sender import TransactionalSender
from logboom.client.argument_checks import BytesLike
from logboom.client.delays import Parking, recall_call, was_recalled
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import ABANDON_S, ProducerOptions
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
from logboom.client.send_options import SendManyOptions, SendOptions, check_options
from logboom.client.transactions.parked_batches import ToPark, send_all
from logboom.client.transactions.transaction_work import transactional
from logboom.wire.errors import ClientClosed, LogboomError, TimedOut

F = TypeVar("F", bound="asyncio.Future[Any]")
_Late: TypeAlias = tuple[
    str, int | None, Callable[[], "asyncio.Future[Any]"], "asyncio.Future[Any]"
]


class _ProducerBuffer(SendBuffer[SendFuture]):
    """A buffer with a clock."""

    def wall_ms(self) -> int:
        return wall_ms()


class Producer(Scope):
    """A producer; `Client.producer` creates it. Any number of tasks of one loop may share it.

    The messages of a queue are stored in the order of the calls of `send`, each of them once,
    whatever fails on the way. The producer opens with `async with` or the first send.
    """

    def __init__(self, io: IoThread, options: ProducerOptions, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s
        self._buffer = _ProducerBuffer(
            options, make_future, threading.Lock(), time.monotonic, io.ring
        )
        io.buffers.add(self._buffer)
        self._late: deque[_Late] = deque()
        """Sends that wait for their topic or for space in the buffer, in order."""
        self._hurrying: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._desk = TransactionPool(
            io, options, timeout_s, lambda chosen: Producer(io, chosen, timeout_s)
        )
        self._senders: weakref.WeakSet[TransactionalSender] = weakref.WeakSet()

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

        def send() -> ManyFuture:
            return make_many(self._buffer.send_many(topic, values, keys, **options))

        return self._now_or_late(topic, options, send, ManyFuture)

    def transaction(
        self, app_id: str | None = None, sequence: int | None = None
    ) -> OpenContext[Transaction]:
        """Begin a transaction: its messages are published all at once for each queue, and all or
        nothing across queues and topics. `async with producer.transaction() as txn: txn.send(…)`
        commits at the end, and aborts after an exception. After `txn = await
        producer.transaction()`, call `commit` or `abort`.

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
        self._check()
        return OpenContext(self._desk.begin(app_id, sequence))

    def transactional_sender(
        self, *, group: str, check: Callable[[Message], object]
    ) -> TransactionalSender:
        """Create a sender of half messages (RocketMQ's transactional messages): each is published
        or dropped by the result of a local transaction.

        Args:
            group: the producer group. Every sender of the group may be asked about any of its
                messages.
            check: called with a message whose local transaction never reported its end. It returns
                "commit", "rollback", or "unknown" to be called again later. It may be a coroutine
                function.

        Raises:
            InvalidRequest: the name of the group is invalid.
        """
        self._check()
        inner = Producer(self._io, transactional(self._buffer.options), self._timeout_s)
        made = TransactionalSender(self._io, inner, group, check, self._timeout_s)
        self._senders.add(made)
        return made

    @property
    def buffer(self) -> SendBuffer[SendFuture]:
        """The messages that wait for acknowledgement."""
        return self._buffer

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
        piles: list[ProducerBatch] = []
        for each in batches:
            await self._find(each[0], each[1])
            await self._room()
            piles += send_all(self._buffer, [each], parks, now_ms)
        return piles

    async def recall(self, sent: SendResult | Parking) -> bool:
        """Take back a delayed message, or all messages of a batch of `send_many`. Return False if
        it has been released already.

        Raises:
            InvalidRequest: the message was not delayed.
            TimedOut: the leader of the queue did not answer in time: recall the message again.
        """
        parked = sent if isinstance(sent, Parking) else sent.parked
        answer, _ = await run(self._io, recall_call(parked, self._timeout_s))
        return was_recalled(answer)

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

    async def _enter(self) -> None:
        await self._open()

    async def _leave(self, error: BaseException | None) -> None:
        await self.close(None if error is None else ABANDON_S)

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
    ) -> F:
        self._check()
        queue = options.get("queue")
        if not self._late and self._knows(topic, queue) and not self._buffer.full:
            return send()
        if kind is ManyFuture:
            check_options("Producer.send_many", options, SendManyOptions)
        else:
            check_options("Producer.send", options, SendOptions)
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
        """Add the waiting messages to the buffer, one after the other."""
        while self._late:
            topic, queue, send, future = self._late[0]
            try:
                await self._open()
                await self._find(topic, queue)
                await self._room()
                sent = send()
            except LogboomError as error:
                parks = self._buffer.parks
                if parks is not None and parks.error is None:
                    # The buffer does not know this message, but the commit must fail because of it.
                    parks.error = error
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
            # The core may have freed bytes, and run the callbacks, before ours was registered.
            if not self._buffer.full:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await wait_done(room)


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
