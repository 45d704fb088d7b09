"""One transaction of a producer, as far as threads and asyncio share it: its states and flows.

The skins (`logboom.client.transaction` and its asyncio twin) drive its flows.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Final, Literal, TypeAlias

from logboom.client.flows import Flow
from logboom.client.producer_options import ProducerOptions
from logboom.client.send.send_buffer import CloseProducer, Flush, SendBuffer
from logboom.client.send.transaction_batches import (
    MAX_TRANSACTION_BYTES,
    TransactionBatches,
    ended,
    listed,
)
from logboom.client.transactions.applications import Application, next_sequence
from logboom.client.transactions.consumed_offsets import ConsumedOffsets
from logboom.client.transactions.decisions import Decision, carried_out, clear, decide
from logboom.wire.errors import (
    ClientClosed,
    InternalError,
    InvalidRequest,
    LogboomError,
    Refused,
    TimedOut,
    TransactionError,
)
from logboom.wire.transactions import Decide, ParkedBatches, TransactionId, TransactionOffsetCommit

LOG = logging.getLogger("logboom.client")

UNKNOWN_OUTCOME_ERRORS: Final = (TimedOut, ClientClosed, InternalError)
"""Errors of a decision that leave open whether it was made."""
State: TypeAlias = Literal["open", "deciding", "committed", "aborted", "unknown"]
"""unknown: no name server answered whether it is committed; `commit` asks again."""


def transactional(options: ProducerOptions) -> ProducerOptions:
    """Return the options for a transaction's messages, which all in-sync replicas acknowledge.

    Only messages that are safe can be decided on.
    """
    return dataclasses.replace(options, acks="all")


class TransactionWork:
    """One transaction."""

    def __init__(
        self,
        application: Application,
        sequence: int | None,
        buffer: SendBuffer[Any],
        *,
        own: bool = False,
    ) -> None:
        """Start a transaction.

        Args:
            application: opened, and taken for this transaction.
            sequence: its sequence; None: the next one.
            buffer: takes what the transaction sends, and nothing else meanwhile.
            own: True if nobody else knows the application id, so that an empty commit need not
                be told.
        """
        self.application: Final = application
        self.sequence: Final = next_sequence(application, sequence)
        self.duplicate = self.sequence <= application.committed
        """True if this sequence was committed before: messages are ignored."""
        self.state: State = "open"
        self.offsets: Final = ConsumedOffsets()
        application.last = max(application.last, self.sequence)
        attempt = application.attempt()
        self.parks: Final = TransactionBatches(
            TransactionId(application.app_id, self.sequence, attempt)
        )
        self._own = own
        self.buffer: Final = buffer
        self._begun = buffer.added
        self._numbered = sequence is None
        """True if the sequence is generated, so that nobody else has a reason to commit it."""
        self._asked = self._asked_before = False
        """True if a commit was proposed; the second, if by an earlier call than the last."""
        buffer.parks = self.parks

    @property
    def over(self) -> bool:
        """True if another transaction of this application may start."""
        return self.state in ("committed", "aborted", "unknown")

    def check_room(self) -> None:
        """Check that the transaction may send more.

        Raises:
            TransactionError: TRANSACTION_CLOSED, it was committed or aborted.
            InvalidRequest: TOO_LARGE; the transaction can only be aborted.
        """
        if self.state != "open":
            raise ended(self.application.app_id)
        if self.buffer.added - self._begun > MAX_TRANSACTION_BYTES:
            text = (
                f"a transaction holds at most {MAX_TRANSACTION_BYTES} bytes: it is aborted; send "
                "less at once"
            )
            self.parks.error = InvalidRequest(text, "TOO_LARGE", limit=MAX_TRANSACTION_BYTES)
            raise self.parks.error

    # Commit.

    def commit(self, wall_ms: int, timeout: float) -> Flow[None]:
        """Park all that was sent, decide, and wait until every queue has released it.

        A second call does nothing. An error before the decision aborts the transaction. After a
        TimedOut without a field `decided` the outcome is unknown; another call asks again.

        Raises:
            LogboomError: why it is aborted; or TimedOut.
        """
        if self.state == "committed":
            return
        if self.state not in ("open", "unknown"):
            raise ended(self.application.app_id)
        self.parks.sealed = True
        if self.duplicate or (self._own and not self.parks and not self.offsets):
            self.offsets.rewind()
            self.state = "committed"
            return
        self.state = "deciding"
        try:
            decision = yield from self._decide(wall_ms, timeout)
        except LogboomError as error:
            found = yield from self._failed(error, wall_ms, timeout)
            if error.code != "TRANSACTION_CLOSED" or found is None or found.outcome != "commit":
                raise
            # A queue already knew that this sequence is committed.
            yield from self._check_fence(wall_ms, timeout)
            if self._numbered:
                raise
            self._committed(again=True)
            decision = found
        finally:
            if self.state == "deciding":  # it was interrupted, or its time is up
                self.state = "unknown"
        yield from carried_out(decision, self.parks.names(), timeout)

    def _decide(self, wall_ms: int, timeout: float) -> Flow[Decision]:
        """Make the decision that our queues apply."""
        yield Flush(self.buffer)
        self.parks.check()
        consumed = yield from self.offsets.consumed(timeout)
        command = self._command(listed(self.parks.parked()), consumed, wall_ms)
        before, self._asked = self._asked, True
        self._asked_before = before
        decision = yield from decide(command, timeout)
        if decision.again and not before and self._numbered:
            text = (
                f"sequence {self.sequence} of {self.application.app_id!r} was committed by somebody "
                "else: nothing of this transaction is published; begin another"
            )
            raise TransactionError(text, "TRANSACTION_CLOSED")
        # Committed before: by an earlier call of ours, or by another attempt.
        self._committed(again=decision.again and not before)
        if decision.again:
            decision = yield from self._clear(wall_ms, timeout)
        return decision

    def _command(
        self, parked: list[ParkedBatches], consumed: list[TransactionOffsetCommit], wall_ms: int
    ) -> Decide:
        epoch, attempt = self.application.epoch, self.parks.transaction.attempt
        app_id = self.application.app_id
        return Decide(app_id, epoch, self.sequence, attempt, True, parked, consumed, wall_ms)

    def _check_fence(self, wall_ms: int, timeout: float) -> Flow[None]:
        """Check that no other producer may have committed this sequence.

        Raises:
            Refused: FENCED: it may have been another producer.
        """
        try:
            yield from decide(self._command([], [], wall_ms), timeout)
        except Refused as error:
            self.application.error = error
            raise

    def _committed(self, *, again: bool) -> None:
        self.duplicate = again
        self.application.committed = max(self.application.committed, self.sequence)
        if again:
            self.offsets.rewind()
        else:
            self.offsets.committed()
        self.state = "committed"

    def _failed(self, error: LogboomError, wall_ms: int, timeout: float) -> Flow[Decision | None]:
        """Abort, unless the outcome is unknown; return what the name servers answered."""
        if self.state == "committed" or (self._asked and isinstance(error, UNKNOWN_OUTCOME_ERRORS)):
            return None
        if error.code == "FENCED":
            self.application.error = error
            if self._asked_before:  # it may have been committed then
                self.state = "unknown"
                return None
        try:
            return (yield from self._drop(wall_ms, timeout))
        except LogboomError as fault:
            # The queues' leaders propose the same once they have waited long enough (see
            # docs/SAFETY.md, T2).
            LOG.warning("a transaction is aborted later than now: %s", fault)
            return None

    # Abort.

    def abort(self, wall_ms: int, timeout: float) -> Flow[None]:
        """Drop all that was sent. A second call does nothing.

        Raises:
            TransactionError: TRANSACTION_CLOSED, it is committed.
            TimedOut: no name server answered. Unless it was committed before, it will be
            aborted when the leaders of its queues have waited long enough.
        """
        if self.state == "aborted" or (self.state == "committed" and self.duplicate):
            return
        if self.state not in ("open", "unknown"):
            raise ended(self.application.app_id)
        decision = yield from self._drop(wall_ms, timeout)
        if self._asked and decision is not None and decision.outcome == "commit":
            self.state = "unknown"
            yield from self._check_fence(wall_ms, timeout)
            self._committed(again=False)
            raise ended(self.application.app_id)

    def _drop(self, wall_ms: int, timeout: float) -> Flow[Decision | None]:
        self.parks.sealed = True
        self.state = "aborted"
        self.offsets.rewind()
        text = f"transaction {self.sequence} of {self.application.app_id!r} was aborted"
        yield CloseProducer(self.buffer, error=TransactionError(text))
        return (yield from self._clear(wall_ms, timeout)) if self.parks else None

    def _clear(self, wall_ms: int, timeout: float) -> Flow[Decision]:
        """Drop what this attempt has parked and no commit has released."""
        whose = self.parks.transaction
        names = self.parks.names()
        return (
            yield from clear(whose.app_id, whose.sequence, whose.attempt, names, wall_ms, timeout)
        )


class TransactionBase:
    """The properties of one transaction, for threads and for asyncio."""

    def __init__(self, work: TransactionWork) -> None:
        self._work = work

    @property
    def app_id(self) -> str:
        """The application id."""
        return self._work.application.app_id

    @property
    def sequence(self) -> int:
        """The sequence; each is committed once, whoever tries."""
        return self._work.sequence

    @property
    def duplicate(self) -> bool:
        """True if this sequence was committed before: nothing of this transaction is published."""
        return self._work.duplicate
