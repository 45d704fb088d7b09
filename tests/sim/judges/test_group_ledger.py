"""The judge of groups: a recovery of the name servers excuses what comes again, once."""

from __future__ import annotations

import pytest

from logboom.metadata.raft.log_commands import GoOnAlone
from tests.sim.judges.group_ledger import AGAIN, BACK, GroupLedger
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty, Trace
from tests.unit.metadata.groups.tables import GroupTables

QUEUE = Queue("t", 0)


def committed(offset: int) -> GroupTables:
    """The state of name servers that know of this commit."""
    tables = GroupTables(queues=1)
    tables.join("m")
    tables.settle()
    tables.commit("m", tables.last(tables.key(0), offset))
    return tables


def recovered(ledger: GroupLedger, survivor: GroupTables) -> int:
    """A survivor goes on alone; the next owner epoch."""
    survivor.done(GoOnAlone())
    ledger.recovered(survivor.state.cluster)
    return survivor.state.cluster.version + 1


def handle(ledger: GroupLedger, offset: int, epoch: int) -> None:
    """A member is given a message and finishes it."""
    ledger.give("g", QUEUE, epoch, offset, b"", "m")
    ledger.finish("g", QUEUE, epoch, offset, "m", owned=True)


def worked() -> GroupLedger:
    """Ten messages are finished, and eight committed."""
    trace = Trace(lambda: 0.0)
    ledger = GroupLedger(History(trace), trace)
    for offset in range(10):
        handle(ledger, offset, 5)
    ledger.look(committed(8).state.cluster)
    return ledger


def test_without_a_recovery_nothing_goes_back() -> None:
    with pytest.raises(BrokenProperty, match=BACK):
        worked().look(committed(3).state.cluster)


def test_what_a_survivor_does_not_know_comes_again_once() -> None:
    ledger, survivor = worked(), committed(3)
    epoch = recovered(ledger, survivor)
    ledger.look(survivor.state.cluster)
    for offset in range(3, 10):
        handle(ledger, offset, epoch)
    with pytest.raises(BrokenProperty, match=AGAIN):
        handle(ledger, 5, epoch + 1)


def test_what_a_survivor_knows_does_not_come_again() -> None:
    ledger = worked()
    epoch = recovered(ledger, committed(3))
    with pytest.raises(BrokenProperty, match=AGAIN):
        handle(ledger, 2, epoch)


def test_what_is_finished_by_an_epoch_of_before_comes_again() -> None:
    ledger, survivor = worked(), committed(3)
    ledger.give("g", QUEUE, 6, 10, b"", "late")
    epoch = recovered(ledger, survivor)
    ledger.give("g", QUEUE, epoch, 10, b"", "m")
    ledger.finish("g", QUEUE, 6, 10, "late", owned=True)
    ledger.give("g", QUEUE, epoch + 1, 10, b"", "late")


def test_commits_go_back_at_a_recovery_only() -> None:
    ledger = worked()
    recovered(ledger, committed(3))
    with pytest.raises(BrokenProperty, match=BACK):
        ledger.look(committed(2).state.cluster)
