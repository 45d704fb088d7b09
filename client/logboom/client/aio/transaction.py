"""Transactions: messages that are published together, or not at all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Unpack

from logboom.client.aio.bridge import drive
from logboom.client.aio.futures import ManyFuture, SendFuture, make_future, make_many
from logboom.client.aio.resource import Scope
from logboom.client.argument_checks import BytesLike
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import ProducerOptions
from logboom.client.send.producer_batch import ignored
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.send_options import ColumnOptions, MessageOptions
from logboom.client.transactions.applications import ApplicationIdPool, check_chosen, opened
from logboom.client.transactions.consumed_offsets import Offsets
from logboom.client.transactions.transaction_work import (
    TransactionBase,
    TransactionWork,
    transactional,
)
from logboom.wire.errors import LogboomError

LOG = logging.getLogger("logboom.client")


class TransactionProducer(Protocol):
    """The producer of a transaction, which sends for one transaction at a time."""

    @property
    def buffer(self) -> SendBuffer[Any]:
        """The messages that wait for acknowledgement."""

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[MessageOptions]
    ) -> SendFuture:
        """Send one message."""

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        **options: Unpack[ColumnOptions],
    ) -> ManyFuture:
        """Send whole columns."""

    async def wait_buffered(self) -> None:
        """Wait until every sent message is in the buffer or has failed."""

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush and close."""


class OffsetSource(Protocol):
    """A consumer whose offsets a transaction may commit."""

    @property
    def intake(self) -> GroupFetchCollector:
        """The collector of its messages."""


class Transaction(TransactionBase, Scope):
    """Messages of any topics that `commit` publishes together; `Producer.transaction` begins it.

    Leaving `async with` commits, or aborts after an exception.
    """

    def __init__(
        self, pool: TransactionPool, inner: TransactionProducer, work: TransactionWork
    ) -> None:
        self._pool = pool
        self._inner = inner
        super().__init__(work)
        self._given_back = False

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[MessageOptions]
    ) -> SendFuture:
        """Send one message, which nobody reads before the commit. The result has no offset, because
        the message gets one when it is released. Everything else is as in `Producer.send`.

        Raises:
            TransactionError: TRANSACTION_CLOSED: the transaction was committed or aborted.
            InvalidRequest: as `Producer.send`; or TOO_LARGE: the transaction is too large.
        """
        self._work.check_room()
        if self._work.duplicate:
            return make_future(ignored(topic, options.get("queue"), 1), 0)
        return self._inner.send(topic, value, **options)

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        **options: Unpack[ColumnOptions],
    ) -> ManyFuture:
        """Send whole columns, as `Producer.send_many` does; the errors are those of `send`."""
        self._work.check_room()
        if self._work.duplicate:
            return make_many([ignored(topic, options.get("queue"), len(values))])
        return self._inner.send_many(topic, values, keys, **options)

    def send_offsets(self, group: str | OffsetSource, offsets: Offsets) -> None:
        """Commit offsets of a group with this transaction. Do not acknowledge the same messages in
        another way. If the transaction aborts, the consumer continues at the committed offsets.

        Args:
            group: a consumer of the group, which must still own the queues at the commit; or the
                name of a group without members.
            offsets: the messages that this transaction has processed; or (topic, queue) → the
                offset after the last of them.

        Raises:
            GroupError: NOT_OWNER: the queue belongs to another member; or BEYOND_END.
            InvalidRequest: messages before the given ones are in no transaction.
        """
        self._work.check_room()
        self._work.offsets.add(group, offsets)

    async def commit(self) -> None:
        """Publish everything, and return when every queue has released it. A second call does
        nothing.

        Raises:
            TransactionError: TRANSACTION_ABORTED: it took longer than the brokers wait (15 min).
            Refused: FENCED: another producer has taken the application id over.
            GroupError: a queue of `send_offsets` belongs to another member.
            TimedOut: with a field `decided`: it is committed, and a queue is late. Without it the
                outcome is unknown: call `commit` again, or begin again with the same application id
                and sequence, which is a duplicate if it was committed.
            LogboomError: a message could not be sent. Nothing is published then, nor after the
                errors above other than TimedOut.
        """
        try:
            await self._inner.wait_buffered()
            await self._pool.commit(self._work)
        finally:
            await self._ended()

    async def abort(self) -> None:
        """Publish nothing. A second call does nothing.

        Raises:
            TransactionError: TRANSACTION_CLOSED: it is committed.
            TimedOut: no name server answered. Unless it was committed before, it never will be.
        """
        try:
            await self._pool.abort(self._work)
        finally:
            await self._ended()

    async def _ended(self) -> None:
        if self._work.over and not self._given_back:
            self._given_back = True
            await self._pool.take_back(self._work)

    async def _leave(self, error: BaseException | None) -> None:
        if error is None:
            if self._work.state != "aborted":
                await self.commit()
            return
        if self._work.state == "open":
            try:
                await self.abort()
            except LogboomError as fault:
                # The exception that led here matters more. The brokers abort automatically.
                LOG.warning(
                    "a transaction could not be aborted now; the brokers will abort it: %s", fault
                )


class TransactionPool:
    """The transactions of one producer: its own application ids, and the producers that send for
    them."""

    def __init__(
        self,
        io: IoThread,
        options: ProducerOptions,
        timeout_s: float,
        make: Callable[[ProducerOptions], TransactionProducer],
    ) -> None:
        """Create a pool.

        Args:
            make: creates a producer that sends for one application at a time.
        """
        self._io = io
        self._options = transactional(options)
        self._timeout_s = timeout_s
        self._make = make
        self._own = ApplicationIdPool(io.secret_name)
        self._idle: dict[str, TransactionProducer] = {}
        """Application id → the producer that sent for it last, and has nothing in flight."""
        self._open: dict[int, tuple[TransactionWork, TransactionProducer]] = {}

    async def begin(self, app_id: str | None, sequence: int | None) -> Transaction:
        """Begin a transaction. The errors are those of `Producer.transaction`."""
        if app_id is None:
            name, gone = self._own.take(wall_ms())
            for idle in [self._idle.pop(other) for other in gone if other in self._idle]:
                await idle.close(0)
        else:
            check_chosen(app_id)
            name = app_id
        application = self._io.applications.take(name)
        inner: TransactionProducer | None = None
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
        """Commit a transaction, as `Transaction.commit`."""
        await drive(self._io, work.commit(wall_ms(), self._options.delivery_timeout_s))

    async def abort(self, work: TransactionWork) -> None:
        """Abort a transaction, as `Transaction.abort`."""
        await drive(self._io, work.abort(wall_ms(), self._timeout_s))

    async def take_back(self, work: TransactionWork) -> None:
        """Take back the producer of a transaction that has ended. A second call does nothing."""
        name = work.application.app_id
        found = self._open.pop(id(work), None)
        if found is None:
            return  # `close` has taken it back
        if work.state == "committed":
            self._idle[name] = found[1]
        else:
            await found[1].close(0)  # its buffer may hold messages of the failed transaction
        self._own.give_back(name, wall_ms())
        self._io.applications.give_back(work.application)

    async def close(self) -> None:
        """Abort all open transactions, because the producer closes."""
        for work, _ in list(self._open.values()):
            with contextlib.suppress(LogboomError):
                # If this fails, the brokers abort automatically.
                await self.abort(work)
            await self.take_back(work)
        for inner in self._idle.values():
            await inner.close(0)
        self._idle.clear()
