"""A replicated state with short words for the commands of transactions, for their tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logboom.metadata.tables.transaction_table import ApplicationState, PendingDecision
from logboom.wire.commands import CommandResult
from logboom.wire.transactions import (
    AppliedDecision,
    ConsumedOffset,
    Decide,
    EntryPosition,
    OpenApplication,
    ParkedBatches,
    ReportDecided,
    TransactionOffsetCommit,
)
from tests.unit.metadata.groups.tables import GroupTables


class TransactionTables(GroupTables):
    """Brokers a, b, c, topic t with four queues, group g; application "app"."""

    @property
    def app(self) -> ApplicationState:
        """The application."""
        return self.state.cluster.transactions.apps["app"]

    @property
    def open_decisions(self) -> dict[int, PendingDecision]:
        """Decisions that not all queues have reported, by number."""
        return self.state.cluster.transactions.decisions

    def open(self, app_id: str = "app") -> tuple[int, int]:
        """A producer begins; its epoch, and the highest committed sequence."""
        epoch, committed = values(self.done(OpenApplication(app_id, 0)))
        return int(epoch), int(committed)

    def parked(self, queue: int, *places: EntryPosition, topic: str = "t") -> ParkedBatches:
        """Parked batches of a queue; one at its beginning if none is named."""
        return ParkedBatches(*self.key(queue, topic), list(places) or [(0, 0)])

    def deciding(self, sequence: int, *parked: ParkedBatches, **changed: Any) -> Decide:
        """A commit by attempt 1, not fenced."""
        settings: dict[str, Any] = {
            "app_id": "app",
            "epoch": -1,
            "sequence": sequence,
            "attempt": 1,
            "commit": True,
            "parked": list(parked),
            "consumed": [],
            "time_ms": 0,
        }
        return Decide(**{**settings, **changed})

    def commit_txn(self, sequence: int, *parked: ParkedBatches, **changed: Any) -> list[str]:
        """Commit; the value."""
        return values(self.done(self.deciding(sequence, *parked, **changed)))

    def abort_txn(self, sequence: int, *parked: ParkedBatches, **changed: Any) -> list[str]:
        """Abort; the value."""
        return values(self.done(self.deciding(sequence, *parked, commit=False, **changed)))

    def refused_txn(self, sequence: int, *parked: ParkedBatches, **changed: Any) -> str:
        """Decide what is refused, and therefore changes nothing; the code."""
        return self.refusal(sequence, *parked, **changed).code

    def refusal(self, sequence: int, *parked: ParkedBatches, **changed: Any) -> CommandResult:
        """The same; the whole result."""
        before = self.state.snapshot()
        result = self.apply(self.deciding(sequence, *parked, **changed))
        assert result.code != ""
        assert self.state.snapshot() == before, "what is refused changes nothing"
        return result

    def report(self, number: int, *queues: int, broker: str = "a") -> None:
        """A broker has carried a decision out on queues of t."""
        done = [AppliedDecision(number, *self.key(queue)) for queue in queues]
        self.done(ReportDecided(broker, self.epochs[broker], done))

    def consumed(self, offsets: Iterable[ConsumedOffset], member: str = "", epoch: int = 0) -> Any:
        """Offsets of g that are committed with a transaction."""
        if member and not epoch:
            epoch = self.member(member).epoch
        return TransactionOffsetCommit("g", member, epoch, list(offsets))

    def offset(self, queue: int, offset: int, seen_end: int = 1000, topic: str = "t") -> Any:
        """One of them, under the queue's owner epoch as it is."""
        topic_id, number = self.key(queue, topic)
        known = self.group.topics.get(topic_id)
        epoch = known.owner_epochs[queue] if known is not None and known.has(queue) else 0
        return ConsumedOffset(topic_id, number, epoch, offset, seen_end)


def values(result: CommandResult) -> list[str]:
    """What a command of transactions says."""
    assert isinstance(result.value, list)
    return result.value
