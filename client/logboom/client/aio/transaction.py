"""Transactions for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from logboom.client.admin import wall_ms
from logboom.client.aio.bridge import drive
from logboom.client.argument_checks import BytesLike
from logboom.client.io_thread import IoThread
from logboom.client.producer_options import ProducerOptions
from logboom.client.send.producer_batch import ignored
from logboom.client.transactions.applications import ApplicationIdPool, check_chosen, opened
from logboom.client.transactions.consumed_offsets import Offsets
from logboom.client.transactions.transaction_work import (
    TransactionBase,
    TransactionWork,
    transactional,
)
from logboom.wire.errors import LogboomError

if TYPE_CHECKING:
    from logboom.client.aio.futures import ManyFuture
    from logboom.client.aio.group_consumer import GroupConsumer
    from logboom.client.aio.producer import Producer, Sent

LOG = logging.getLogger("logboom.client")


class Transaction(TransactionBase):
    """As `logboom.client`'s; `commit` and `abort` are awaited."""

    def __init__(self, desk: TransactionPool, inner: Producer, work: TransactionWork) -> None:
        self._desk = desk
        self._inner = inner
        super().__init__(work)
        self._given_back = False

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
    ) -> Sent:
        """Send one message; nobody reads it before the commit. The awaitable need not be awaited:
        the commit waits for all, and fails with the first that failed."""
        self._work.check_room()
        if self._work.duplicate:
            return self._inner.future_of(ignored(topic, queue, 1), 0)
        sent = self._inner.send(
            topic,
            value,
            key=key,
            tag=tag,
            headers=headers,
            timestamp_ms=timestamp_ms,
            queue=queue,
        )
        sent.add_done_callback(self._look)
        return sent

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
    ) -> ManyFuture:
        """Send whole columns; as `send`."""
        self._work.check_room()
        if self._work.duplicate:
            return self._inner.runs_of([ignored(topic, queue, len(values))])
        sent = self._inner.send_many(
            topic,
            values,
            keys,
            queue=queue,
            tags=tags,
            headers=headers,
            timestamps_ms=timestamps_ms,
        )
        sent.add_done_callback(self._look)
        return sent

    def send_offsets(self, group: str | GroupConsumer, offsets: Offsets) -> None:
        """Commit offsets of a group with this transaction, as `logboom.client`'s does."""
        self._work.check_room()
        self._work.offsets.add(group, offsets)

    async def commit(self) -> None:
        """Publish everything; done when every queue has released it. The errors are those of
        `logboom.client.transaction.Transaction.commit`."""
        try:
            await self._inner.hurried()
            await self._desk.commit(self._work)
        finally:
            await self._ended()

    async def abort(self) -> None:
        """Publish nothing; the errors are those of `logboom.client`'s."""
        try:
            await self._desk.abort(self._work)
        finally:
            await self._ended()

    def _look(self, sent: asyncio.Future[Any]) -> None:
        """One that could not even be given to the buffer (an unknown topic) spoils the commit."""
        error = None if sent.cancelled() else sent.exception()
        if isinstance(error, LogboomError) and self._work.parks.error is None:
            self._work.parks.error = error

    async def _ended(self) -> None:
        if self._work.over and not self._given_back:
            self._given_back = True
            await self._desk.take_back(self._work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            if self._work.state != "aborted":
                await self.commit()
            return
        if self._work.state == "open":
            try:
                await self.abort()
            except LogboomError as fault:
                # The exception that led here matters more; the brokers abort by themselves.
                LOG.warning("a transaction is aborted later than now: %s", fault)


class TransactionContext:
    """What `Producer.transaction` returns: `await` it, or enter it with `async with`."""

    def __init__(self, desk: TransactionPool, app_id: str | None, sequence: int | None) -> None:
        self._desk = desk
        self._asked = (app_id, sequence)
        self._made: Transaction | None = None

    def __await__(self) -> Generator[Any, None, Transaction]:
        return self._desk.begin(*self._asked).__await__()

    async def __aenter__(self) -> Transaction:
        self._made = await self._desk.begin(*self._asked)
        return self._made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)


class TransactionPool:
    """The transactions of one producer, as `logboom.client.transaction` has it."""

    def __init__(
        self,
        io: IoThread,
        options: ProducerOptions,
        timeout_s: float,
        make: Callable[[ProducerOptions], Producer],
    ) -> None:
        self._io = io
        self._options = transactional(options)
        self._timeout_s = timeout_s
        self._make = make
        self._own = ApplicationIdPool(io.member_id)
        self._idle: dict[str, Producer] = {}
        self._open: dict[int, tuple[TransactionWork, Producer]] = {}

    async def begin(self, app_id: str | None, sequence: int | None) -> Transaction:
        """Begin a transaction."""
        if app_id is None:
            name, gone = self._own.take(wall_ms())
            for idle in [self._idle.pop(other) for other in gone if other in self._idle]:
                await idle.close(0)
        else:
            check_chosen(app_id)
            name = app_id
        application = self._io.applications.take(name)
        inner: Producer | None = None
        work: TransactionWork | None = None
        try:
            await drive(self._io, opened(application, wall_ms(), self._timeout_s))
            inner = self._idle.pop(name, None) or self._make(self._options)
            work = TransactionWork(application, sequence, inner.buffer, own=name in self._own)
            self._open[id(work)] = (work, inner)
            return Transaction(self, inner, work)
        finally:
            if work is None:
                if inner is not None:
                    self._idle[name] = inner
                self._own.give_back(name, wall_ms())
                self._io.applications.give_back(application)

    async def commit(self, work: TransactionWork) -> None:
        """As `Transaction.commit`."""
        await drive(self._io, work.commit(wall_ms(), self._options.delivery_timeout_s))

    async def abort(self, work: TransactionWork) -> None:
        """As `Transaction.abort`."""
        await drive(self._io, work.abort(wall_ms(), self._timeout_s))

    async def take_back(self, work: TransactionWork) -> None:
        """A transaction has ended; said again it changes nothing."""
        name = work.application.app_id
        found = self._open.pop(id(work), None)
        if found is None:
            return  # by `close`, before
        if work.state == "committed":
            self._idle[name] = found[1]
        else:
            await found[1].close(0)  # it may hold what belongs to nobody any more
        self._own.give_back(name, wall_ms())
        self._io.applications.give_back(work.application)

    async def close(self) -> None:
        """Abort what is open; the producer ends."""
        for work, _ in list(self._open.values()):
            with contextlib.suppress(LogboomError):
                # What cannot be said now the brokers do by themselves.
                await self.abort(work)
            await self.take_back(work)
        for inner in self._idle.values():
            await inner.close(0)
        self._idle.clear()
