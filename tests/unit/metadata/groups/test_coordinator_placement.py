"""Who coordinates which group, over the coming and going of brokers (R13)."""

from __future__ import annotations

from collections import Counter

from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.group_commands import AlterGroup, DeleteGroup, ExpireMembers
from logboom.wire.operation_commands import SetBrokerMode
from tests.unit.metadata.groups.tables import GroupTables


def make(tables: GroupTables, count: int) -> None:
    # Not in the order of their names, in which a snapshot holds them.
    for number in reversed(range(count)):
        tables.done(AlterGroup(f"g{number}", None, {"t": "*"}, True, 0))


def coordinators(tables: GroupTables) -> Counter[str]:
    return Counter(g.coordinator for g in tables.state.cluster.groups.by_name.values())


def epochs(tables: GroupTables) -> dict[str, int]:
    groups = tables.state.cluster.groups.by_name.values()
    return {group.name: group.coordinator_epoch for group in groups}


def test_groups_are_spread_evenly() -> None:
    tables = GroupTables()
    make(tables, 7)
    assert sorted(coordinators(tables).values()) == [2, 2, 3]


def test_a_fenced_brokers_groups_go_to_the_others_in_a_new_epoch() -> None:
    tables = GroupTables()
    make(tables, 6)
    moved = {g.name for g in tables.state.cluster.groups.coordinated["a"]}
    before = epochs(tables)
    tables.fence("a")
    assert coordinators(tables) == {"b": 3, "c": 3}
    after = epochs(tables)
    assert {name for name in after if after[name] > before[name]} == moved
    tables.step_down("b")
    assert coordinators(tables) == {"c": 6}


def test_a_broker_that_is_not_active_gives_its_groups_away_until_no_other_is_there() -> None:
    tables = GroupTables()
    make(tables, 6)
    tables.done(SetBrokerMode("a", "maintenance", 0))
    assert coordinators(tables) == {"b": 3, "c": 3}
    tables.done(SetBrokerMode("b", "draining", 0))
    assert coordinators(tables) == {"c": 6}
    tables.fence("c")
    assert coordinators(tables) == {"a": 3, "b": 3}, "better than nobody"


def test_deleted_groups_weigh_nothing() -> None:
    tables = GroupTables()
    make(tables, 6)
    own = [g.name for g in tables.state.cluster.groups.coordinated["a"]]
    for name in own:
        tables.done(DeleteGroup(name, 0))
    assert coordinators(tables) == {"b": 2, "c": 2}
    for name in own:
        tables.done(AlterGroup(name, None, {"t": "*"}, True, 0))
    assert coordinators(tables) == {"a": 2, "b": 2, "c": 2}


def test_a_broker_that_begins_again_keeps_its_groups_in_a_new_epoch() -> None:
    tables = GroupTables()
    make(tables, 6)
    before = epochs(tables)
    own = {g.name for g in tables.state.cluster.groups.coordinated["a"]}
    tables.register("a")
    assert coordinators(tables) == {"a": 2, "b": 2, "c": 2}
    after = epochs(tables)
    assert {name for name in after if after[name] > before[name]} == own


def test_without_any_broker_nobody_coordinates_until_one_comes() -> None:
    tables = GroupTables()
    make(tables, 3)
    for broker in "abc":
        tables.fence(broker)
    assert coordinators(tables) == {"": 3}
    make(tables, 4)
    tables.register("d")
    assert coordinators(tables) == {"d": 4}


def test_the_former_coordinator_can_do_nothing_more() -> None:
    tables = GroupTables()
    epoch = tables.join("m1")
    group = tables.group
    former, its_epoch = group.coordinator, group.coordinator_epoch
    joining = tables.joining("m2")
    tables.fence(former)
    tables.register(former)
    late = ExpireMembers("g", former, its_epoch, [("m1", epoch)], 0)
    answer = tables.apply(late)
    assert (answer.code, answer.fields["leader"]) == ("NOT_COORDINATOR", group.coordinator)
    assert answer.fields["epoch"] == group.coordinator_epoch
    assert tables.apply(joining).code == "NOT_COORDINATOR"
    assert list(group.members) == ["m1"]


def test_a_restored_name_server_places_them_alike() -> None:
    tables = GroupTables()
    make(tables, 12)
    twin = GroupTables()
    twin.epochs, twin.state = dict(tables.epochs), StateMachine()
    twin.state.restore(tables.state.snapshot())
    for each in (tables, twin):
        each.fence("b")
    assert tables.state.snapshot() == twin.state.snapshot()
