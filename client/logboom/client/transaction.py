# Generated from aio/transaction.py by client/generate_blocking.py: do not edit, run `make generate`.
"""Transactions: messages that are published all at once, or not at all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Unpack

from logboom.client.argument_checks import BytesLike
from logboom.client.bridge import drive
from logboom.client.futures import ManyFuture, SendFuture, make_future, make_many
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.io_thread import IoThread, wall_ms
from logboom.client.producer_options import ProducerOptions
from logboom.client.resource import Scope
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
    """The producer under a transaction, which sends for one at a time."""

    @property
    def buffer(self) -> SendBuffer[Any]:
        """What waits for acknowledgement."""

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

    def wait_buffered(self) -> None:
        """Wait until all that was sent is in the buffer, or has failed."""

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end."""


class OffsetSource(Protocol):
    """A consumer whose offsets a transaction may commit."""

    @property
    def intake(self) -> GroupFetchCollector:
        """The messages it was given."""


class Transaction(TransactionBase, Scope):
    """Messages of any topics that are published all, by `commit`, or not at all; made by
    `Producer.transaction`.

    Leaving an `with` commits, or aborts on an exception.
    """

    def __init__(
        self, desk: TransactionPool, inner: TransactionProducer, work: TransactionWork
    ) -> None:
        self._desk = desk
        self._inner = inner
        super().__init__(work)
        self._given_back = False

    def send(
        self, topic: str, value: BytesLike | None, **options: Unpack[MessageOptions]
    ) -> SendFuture:
        """Send one message; nobody reads it before the commit. As `Producer.send`, but the result
        has no offset: the message gets one when it is released.

        Raises:
            TransactionError: TRANSACTION_CLOSED, it was committed or aborted.
            InvalidRequest: as `Producer.send`; TOO_LARGE also if the transaction is.
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
        """Send whole columns; as `Producer.send_many`, and `send` here."""
        self._work.check_room()
        if self._work.duplicate:
            return make_many([ignored(topic, options.get("queue"), len(values))])
        return self._inner.send_many(topic, values, keys, **options)

    def send_offsets(self, group: str | OffsetSource, offsets: Offsets) -> None:
        """Commit offsets of a group with this transaction; do not acknowledge them otherwise.

        Args:
            group: a consumer that is a member: what it was given counts only while it has the
                queues. Or the name of a group without members.
            offsets: the messages that this transaction has used; or (topic, queue) → the offset
                after the last of them.

        If the transaction aborts, such a consumer reads on from where its group is.

        Raises:
            GroupError: NOT_OWNER, the queue went to another member; BEYOND_END.
            InvalidRequest: of messages: some before them are in no transaction.
        """
        self._work.check_room()
        self._work.offsets.add(group, offsets)

    def commit(self) -> None:
        """Publish everything; returns when every queue has released it. A second call does nothing.

        Raises:
            TransactionError: TRANSACTION_ABORTED: it took longer than the brokers wait (15 min).
            Refused: FENCED: another producer has begun to work under this application id.
            GroupError: what `send_offsets` named went to another member.
            TimedOut: with a field `decided`: it is committed, and a queue is late. Without: nobody
                answered, and it may be committed; `commit` again, or begin again with the same
                application id and sequence, which is then a duplicate if it was.
            LogboomError: why something could not be sent. In all other cases nothing is published.
        """
        try:
            self._inner.wait_buffered()
            self._desk.commit(self._work)
        finally:
            self._ended()

    def abort(self) -> None:
        """Publish nothing. A second call does nothing.

        Raises:
            TransactionError: TRANSACTION_CLOSED, it is committed.
            TimedOut: no name server answered. What was not committed before never will be.
        """
        try:
            self._desk.abort(self._work)
        finally:
            self._ended()

    def _ended(self) -> None:
        if self._work.over and not self._given_back:
            self._given_back = True
            self._desk.take_back(self._work)

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            if self._work.state != "aborted":
                self.commit()
            return
        if self._work.state == "open":
            try:
                self.abort()
            except LogboomError as fault:
                # The exception that led here matters more; the brokers abort by themselves.
                LOG.warning("a transaction is aborted later than now: %s", fault)


class TransactionPool:
    """The transactions of one producer: application ids of its own, and what sends for them."""

    def __init__(
        self,
        io: IoThread,
        options: ProducerOptions,
        timeout_s: float,
        make: Callable[[ProducerOptions], TransactionProducer],
    ) -> None:
        """`make` opens a producer that sends for one application at a time."""
        self._io = io
        self._options = transactional(options)
        self._timeout_s = timeout_s
        self._make = make
        self._own = ApplicationIdPool(io.member_id)
        self._idle: dict[str, TransactionProducer] = {}
        """By application id: what sent for it last, and has nothing under way."""
        self._open: dict[int, tuple[TransactionWork, TransactionProducer]] = {}

    def begin(self, app_id: str | None, sequence: int | None) -> Transaction:
        """Begin a transaction; the errors are those of `Producer.transaction`."""
        if app_id is None:
            name, gone = self._own.take(wall_ms())
            for idle in [self._idle.pop(other) for other in gone if other in self._idle]:
                idle.close(0)
        else:
            check_chosen(app_id)
            name = app_id
        application = self._io.applications.take(name)
        inner: TransactionProducer | None = None
        work: TransactionWork | None = None
        try:
            drive(self._io, opened(application, wall_ms(), self._timeout_s))
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

    def commit(self, work: TransactionWork) -> None:
        """As `Transaction.commit`."""
        drive(self._io, work.commit(wall_ms(), self._options.delivery_timeout_s))

    def abort(self, work: TransactionWork) -> None:
        """As `Transaction.abort`."""
        drive(self._io, work.abort(wall_ms(), self._timeout_s))

    def take_back(self, work: TransactionWork) -> None:
        """A transaction has ended; said again it changes nothing."""
        name = work.application.app_id
        found = self._open.pop(id(work), None)
        if found is None:
            return  # by `close`, before
        if work.state == "committed":
            self._idle[name] = found[1]
        else:
            found[1].close(0)  # it may hold what belongs to nobody any more
        self._own.give_back(name, wall_ms())
        self._io.applications.give_back(work.application)

    def close(self) -> None:
        """Abort what is open; the producer ends."""
        for work, _ in list(self._open.values()):
            with contextlib.suppress(LogboomError):
                # What cannot be said now the brokers do by themselves.
                self.abort(work)
            self.take_back(work)
        for inner in self._idle.values():
            inner.close(0)
        self._idle.clear()
