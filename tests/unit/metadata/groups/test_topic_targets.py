"""A group's topics are allocated one by one, its retries by themselves: under every strategy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.allocate import STRATEGIES, allocate
from logboom.wire.group_commands import AlterGroup
from logboom.wire.group_view import GroupConfig, QueueKey, StrategyOptions
from tests.unit.metadata.groups.tables import GroupTables

RETRIES = "%RETRY%g"
ZONES = {"a": "north", "b": "south", "c": "north"}
ROOMS = ("north", "south", "west")
EVEN = ("averagely", "averagely_by_circle", "sticky")


def tables_of(counts: list[int]) -> GroupTables:
    """Topics t0, t1 … with so many queues, in zones, and the retries of g."""
    tables = GroupTables(queues=1)
    for broker, zone in ZONES.items():
        tables.register(broker, zone=zone)
    for number, count in enumerate(counts):
        tables.create(f"t{number}", queues=count, replicas=1)
    tables.create(RETRIES, queues=1, replicas=1)
    return tables


def config_of(strategy: str, counts: list[int], members: list[str]) -> GroupConfig:
    """A strategy with options that give every other queue to somebody."""
    config: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
    for number, count in enumerate(counts):
        for queue in range(0, count, 2):
            config[members[(number + queue) % len(members)]].append((f"t{number}", queue))
    return GroupConfig(strategy=strategy, options=StrategyOptions(config, ["south"]))


def owner_of(tables: GroupTables, key: QueueKey) -> str:
    """Who has a queue; "": nobody."""
    owner = tables.group.topics[key[0]].owners[key[1]]
    return "" if owner is None else owner.id


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    steps=st.lists(st.integers(1, 6), min_size=1, max_size=3),
)
def test_every_queue_has_an_owner_or_a_reason(
    strategy: str, counts: list[int], steps: list[int]
) -> None:
    tables = tables_of(counts)
    subscription = {f"t{number}": "*" for number in range(len(counts))}
    config = config_of(strategy, counts, [f"m{number}" for number in range(6)])
    here: list[str] = []
    for count in steps:
        while len(here) < count:
            member = f"m{len(here)}"
            room = ROOMS[len(here) % 3]
            tables.join(member, subscription, config=config, room=room)
            here.append(member)
        while len(here) > count:
            tables.leave(here.pop())
        group = tables.group
        if group in tables.state.cluster.groups.pending:
            tables.settle()
        assert group.target_epoch == group.group_epoch
        for topic in subscription:
            known = group.topics[tables.state.cluster.topics[topic].id]
            unowned = [queue for queue in range(len(known)) if known.owners[queue] is None]
            if strategy not in {"by_config", "machine_room"}:
                assert unowned == []
            elif unowned:
                assert group.fault.startswith("no member gets ")
            if strategy in EVEN:
                sizes = [known.owners.count(group.members[member]) for member in here]
                assert max(sizes) - min(sizes) <= 1
        assert owner_of(tables, tables.key(0, RETRIES)) in here, "the retries have an owner"


@pytest.mark.parametrize("strategy", [*EVEN, "consistent_hash"])
@pytest.mark.parametrize("queues", [2, 4])
def test_two_members_have_as_many_queues_whoever_has_the_retries(
    strategy: str, queues: int
) -> None:
    for first, second in (("a", "b"), ("b", "a"), ("p1", "p0"), ("x-7", "x-31")):
        tables = tables_of([queues])
        tables.join(first, {"t0": "*"}, config=GroupConfig(strategy=strategy))
        tables.settle()
        tables.join(second, {"t0": "*"})
        tables.settle()
        topic_id = tables.key(0, "t0")[0]
        # `consistent_hash` is not even, but what it gives is that of the topic alone, too.
        keys = [(topic_id, number) for number in range(queues)]
        alone = allocate(strategy, keys, [first, second])
        for member in (first, second):
            mine = [key for key in tables.owned(member) if key[0] == topic_id]
            assert len(mine) == len(alone[member])
            assert len(mine) == queues // 2 or strategy not in EVEN


def test_the_retries_stay_where_they_are_and_else_go_to_who_has_least() -> None:
    tables = tables_of([3])
    tables.join("a", {"t0": "*"})
    tables.settle()
    retries = tables.key(0, RETRIES)
    assert owner_of(tables, retries) == "a"
    epoch = tables.last(retries, 0).owner_epoch
    tables.join("b", {"t0": "*"})
    tables.settle()
    assert tables.last(retries, 0).owner_epoch == epoch
    tables.join("c", {"t0": "*"})
    tables.settle()
    tables.leave("a")
    tables.settle()
    sizes = {m: sum(key != retries for key in tables.owned(m)) for m in "bc"}
    assert owner_of(tables, retries) == min(sizes, key=lambda member: (sizes[member], member))


def test_a_configuration_may_name_who_gets_the_retries() -> None:
    tables = tables_of([2])
    options = StrategyOptions({"a": [("t0", 0)], "b": [("t0", 1), (RETRIES, 0)]})
    config = GroupConfig(strategy="by_config", options=options)
    for member in "abc":
        tables.join(member, {"t0": "*"}, config=config)
    tables.settle()
    retries = tables.key(0, RETRIES)
    assert owner_of(tables, retries) == "b"
    tables.leave("b")
    tables.settle()
    assert owner_of(tables, retries) == "a", "not c, whom the configuration gives nothing"
    assert "t0/1" in tables.group.fault


def test_nearby_the_retries_stay_in_their_room() -> None:
    tables = tables_of([4])
    zone = tables.state.cluster.brokers[
        tables.state.cluster.topics[RETRIES].queues[0].standing.leader or ""
    ].zone
    away = "south" if zone == "north" else "north"
    tables.join("a", {"t0": "*"}, room=away, config=GroupConfig(strategy="machine_room_nearby"))
    tables.settle()
    assert owner_of(tables, tables.key(0, RETRIES)) == "a"
    tables.join("b", {"t0": "*"}, room=zone)
    tables.settle()
    assert owner_of(tables, tables.key(0, RETRIES)) == "b"


def test_other_strategies_give_a_running_groups_retries_to_somebody_too() -> None:
    tables = tables_of([4])
    tables.join("a", {"t0": "*"})
    tables.settle()
    for strategy in STRATEGIES:
        config = config_of(strategy, [4], ["a"])
        tables.done(AlterGroup("g", config, None, False, 0))
        tables.settle()
        if strategy != "machine_room_nearby":  # a has no room: all stays as it is
            assert tables.group.target_epoch == tables.group.group_epoch
        assert owner_of(tables, tables.key(0, RETRIES)) == "a"
