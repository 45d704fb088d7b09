"""A large cluster: 10,000 topics of 4 queues on 3 brokers. No command may take over 50 ms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import permutations, product
from types import FrameType
from typing import Any

import pytest

from logboom.metadata.groups.group_targets import targets_of
from logboom.metadata.raft.log_commands import AnyLogCommand
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.replica_set import intern_replica_set
from logboom.metadata.transactions.decision_commands import MAX_WAITING
from logboom.wire.commands import CreateTopic, DeleteTopic
from logboom.wire.group_view import GroupConfig
from logboom.wire.transactions import MAX_HANDLES
from logboom.wire.view import TopicConfig
from tests.unit.metadata.groups.tables import GroupTables
from tests.unit.metadata.state.states import Tables
from tests.unit.metadata.transactions.tables import TransactionTables

LIMIT = 1_200_000
"""Lines of Python that one command may execute; the dearest executes 1,149,393. Counted, for a clock
tells of the other work of the machine too."""


@pytest.fixture(scope="module")
def large() -> Tables:
    """Every broker holds 40,000 replicas and leads a third of the queues.

    Other clusters of the same names left their replica sets in the cache, each with a tuple of its
    own: that must cost this one nothing.
    """
    for replicas in permutations("abc"):
        for roles in product(("isr", "eligible", "suspect", "none"), repeat=3):
            role = dict(zip(replicas, roles, strict=True))
            isr = [broker for broker in replicas if role[broker] == "isr"]
            suspect = [broker for broker in replicas if role[broker] == "suspect"]
            eligible = suspect + [broker for broker in replicas if role[broker] == "eligible"]
            for leader in (None, *isr):
                intern_replica_set((*replicas,), leader, isr, eligible, suspect)
    tables = Tables()
    tables.begin()
    for broker in "abc":
        tables.register(broker)
    for number in range(10_000):
        tables.create(f"t{number}", queues=4)
    return tables


def lines(action: Callable[[], object]) -> int:
    """Lines of Python that an action executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


def cost(*actions: Callable[[], object]) -> int:
    """Lines of the dearest of some actions."""
    return max(lines(action) for action in actions)


def once(tables: Tables, command: AnyLogCommand) -> int:
    """Lines to apply a command that must be done."""
    return lines(lambda: tables.done(command))


def test_fencing_and_registering_a_broker_stay_below_the_limit(large: Tables) -> None:
    assert cost(lambda: large.fence("a"), lambda: large.register("a")) < LIMIT
    leaders = {q.standing.leader for q in large.state.cluster.brokers["a"].queues}
    assert leaders == {"b", "c"}


def test_stepping_down_and_a_suspect_store_stay_below_the_limit(large: Tables) -> None:
    assert cost(lambda: large.step_down("b"), lambda: large.register("b", suspect=True)) < LIMIT


def test_what_was_reported_of_one_queue_makes_no_other_dear(large: Tables) -> None:
    cluster = large.state.cluster
    cluster.doubted[cluster.topics["t0"].id, 0] = 1
    cluster.tails[cluster.topics["t1"].id, 0] = {}
    # It leads more than a third by now.
    assert cost(lambda: large.fence("c"), lambda: large.register("c")) < 2 * LIMIT
    cluster.doubted.clear()
    cluster.tails.clear()


def test_the_largest_topic_on_many_brokers_stays_below_the_limit() -> None:
    tables = Tables()
    tables.begin()
    for number in range(30):
        tables.register(f"broker-{number}", zone=str(number % 3))
    made = tables.placed(CreateTopic("x", 1024, 3, TopicConfig(), 0))
    assert once(tables, made) < LIMIT


def test_a_group_of_a_thousand_members_stays_below_the_limit() -> None:
    tables = GroupTables(queues=1)
    for number in range(10):
        tables.create(f"t{number}", queues=1000)
    topics = {f"t{number}": "*" for number in range(10)}
    for number in range(1000):
        tables.join(f"member-{number}", topics, config=GroupConfig(strategy="averagely"))
    half = list(tables.group.members)[:500]
    # Each changes what it is applied to, so it is measured once: first all queues are given, then
    # nearly all are to move on by one member.
    assert once(tables, *targets_of(tables.state.cluster, tables.group, 0)) < LIMIT
    assert once(tables, tables.joining("a-first", topics)) < LIMIT
    assert once(tables, *targets_of(tables.state.cluster, tables.group, 0)) < LIMIT
    assert len(tables.owned("a-first")) == 0
    assert sum(len(tables.owned(m, revoking=True)) for m in tables.group.members) > 5_000
    expired: list[object] = []
    assert cost(lambda: expired.extend(tables.expire(*half))) < LIMIT
    assert expired
    assert not any(expired)


def test_ending_all_decisions_that_may_be_open_stays_below_the_limit() -> None:
    tables = TransactionTables()
    tables.create("u", queues=1000)
    for sequence in range(MAX_WAITING // 1000):
        parked = [tables.parked(queue, topic="u") for queue in range(1000)]
        tables.commit_txn(sequence, *parked)
    assert tables.refused_txn(MAX_WAITING, tables.parked(0)) == "BUSY"
    assert once(tables, DeleteTopic("u", 0)) < LIMIT
    assert tables.open_decisions == {}
    most = [(place, 0) for place in range(MAX_HANDLES)]
    assert once(tables, tables.deciding(MAX_WAITING, tables.parked(0, *most))) < LIMIT


def test_a_snapshot_of_it_is_small_and_equal_when_restored(large: Tables) -> None:
    snapshot = large.state.snapshot()
    assert len(snapshot) < 1_000_000
    twin = StateMachine()
    twin.restore(snapshot)
    assert twin.snapshot() == snapshot
