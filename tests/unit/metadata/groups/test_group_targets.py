"""Targets of groups: what the raft leader allocates, in which parts and at which pace."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from logboom.metadata.groups.group_targets import (
    MAX_PER_TURN,
    MAX_ROW_BYTES,
    GroupTargets,
    targets_of,
)
from logboom.metadata.groups.target_commands import pack_places, unpack_places
from logboom.metadata.raft.log_commands import encode_entry, entry_of
from logboom.metadata.raft.raft_config import MAX_COMMAND_BYTES
from logboom.wire.commands import AlterTopic
from logboom.wire.group_commands import NOBODY, AlterGroup, SetTarget
from logboom.wire.group_view import GroupConfig, StrategyOptions
from tests.unit.metadata.groups.tables import GroupTables


def target(tables: GroupTables) -> SetTarget:
    """g's target, in one part."""
    (part,) = targets_of(tables.state.cluster, tables.group, 7)
    return part


def test_a_target_names_places_of_members_by_name() -> None:
    tables = GroupTables(queues=5)
    for member in ("m2", "m1"):
        tables.join(member, config=GroupConfig(strategy="averagely"))
    part = target(tables)
    assert (part.group_epoch, part.last) == (tables.group.group_epoch, True)
    assert (part.fault, part.time_ms) == ("", 7)
    assert part.rows == [(tables.key(0)[0], pack_places([0, 0, 0, 1, 1]))]
    assert list(unpack_places(part.rows[0][1]) or ()) == [0, 0, 0, 1, 1]
    tables.allocate()
    assert [len(tables.owned(member)) for member in ("m1", "m2")] == [3, 2]


def test_static_members_are_allocated_by_their_instance() -> None:
    tables = GroupTables(queues=2)
    tables.join("a", instance="right", config=GroupConfig(strategy="averagely"))
    tables.join("z", instance="left")
    tables.settle()
    assert tables.owned("z") == [tables.key(0)]


def test_a_join_of_one_moves_only_what_it_must() -> None:
    tables = GroupTables(queues=12)
    for member in ("m1", "m2", "m3"):
        tables.join(member)
        tables.settle()
    before = {m: set(tables.owned(m)) for m in ("m1", "m2", "m3")}
    epochs = {key: tables.last(key, 0).owner_epoch for keys in before.values() for key in keys}
    tables.join("m4")
    tables.settle()
    assert len(tables.owned("m4")) == 3
    for member, had in before.items():
        kept = set(tables.owned(member))
        assert kept < had
        assert all(tables.last(key, 0).owner_epoch == epochs[key] for key in kept)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"group": "none"}, "UNKNOWN_GROUP"),
        ({"group_epoch": 1}, "STALE_EPOCH"),
        ({"rows": [(99, pack_places([0]))]}, "INVALID_ARGUMENT"),
        ({"rows": [(1, pack_places([0, 0]))]}, "INVALID_ARGUMENT"),
        ({"rows": [(1, b"odd")]}, "INVALID_ARGUMENT"),
        ({"rows": [(1, pack_places([0, 0, 0, 2]))]}, "INVALID_ARGUMENT"),
    ],
)
def test_a_target_that_does_not_fit_changes_nothing(changed: dict[str, object], code: str) -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.join("m2")
    part = target(tables)
    values = {field: getattr(part, field) for field in part.__struct_fields__}
    before = tables.state.snapshot()
    result = tables.apply(SetTarget(**{**values, **changed}))
    assert result.code == code
    assert tables.state.snapshot() == before


def test_a_target_is_set_once() -> None:
    tables = GroupTables()
    tables.join("m1")
    part = target(tables)
    tables.done(part)
    assert tables.apply(part).code == "STALE_EPOCH"


def test_a_strategy_that_cannot_allocate_says_why_and_leaves_all_as_it_is() -> None:
    tables = GroupTables()
    tables.join("m1", config=GroupConfig(strategy="machine_room_nearby"))
    part = target(tables)
    assert (part.rows, "member 'm1' has no room, which" in part.fault) == ([], True)
    tables.done(part)
    assert "start it with room=" in tables.group.fault
    assert tables.group not in tables.state.cluster.groups.pending
    tables.done(AlterGroup("g", GroupConfig(), None, False, 0))
    tables.settle()
    assert (tables.group.fault, len(tables.owned("m1"))) == ("", 4)


def test_rooms_are_zones_of_leaders_and_what_members_said() -> None:
    tables = GroupTables(queues=1)
    for broker, zone in (("d", "north"), ("e", "south")):
        tables.register(broker, zone=zone)
    for broker in "abc":
        tables.fence(broker)
    tables.create("u", queues=2, replicas=1)
    zones = {
        tables.state.cluster.brokers[q.standing.leader or ""].zone: q.index
        for q in tables.state.cluster.topics["u"].queues
    }
    nearby = GroupConfig(strategy="machine_room_nearby")
    tables.join("m1", {"u": "*"}, config=nearby, room="south")
    tables.join("m2", {"u": "*"}, room="north")
    tables.settle()
    assert tables.owned("m1") == [tables.key(zones["south"], "u")]
    assert tables.owned("m2") == [tables.key(zones["north"], "u")]
    only = GroupConfig(strategy="machine_room", options=StrategyOptions(rooms=["north"]))
    tables.done(AlterGroup("g", only, None, False, 0))
    tables.settle()
    held = tables.owned("m1") + tables.owned("m2")
    assert held == [tables.key(zones["north"], "u")], "the other room's queue has no owner"
    left = (
        f"u/{zones['south']} (its leader is in none of the rooms that machine_room consumes: north)"
    )
    assert left in tables.group.fault


def test_by_config_says_which_queues_nobody_gets_and_why() -> None:
    chosen = {"m1": [("t", 2), ("t", 9), ("none", 0)], "m9": [("t", 0)]}
    tables = GroupTables()
    config = GroupConfig(strategy="by_config", options=StrategyOptions(config=chosen))
    tables.join("m1", config=config)
    tables.settle()
    assert tables.owned("m1") == [tables.key(2)]
    assert tables.group.fault == (
        "no member gets t/0 (by_config gives it to 'm9', who is not in the group), "
        "t/1 (by_config gives it to nobody), t/3 (by_config gives it to nobody): "
        "see `logboom group alter --strategy`"
    )
    assert tables.group.target_epoch == tables.group.group_epoch
    tables.join("m9")
    tables.settle()
    assert tables.owned("m9") == [tables.key(0)]
    assert "t/0" not in tables.group.fault


def test_by_config_without_a_configuration_leaves_all_as_it_is() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.settle()
    tables.done(AlterGroup("g", GroupConfig(strategy="by_config"), None, False, 0))
    tables.settle()
    assert "by_config needs a configuration" in tables.group.fault
    assert len(tables.owned("m1")) == 4


def test_one_queue_for_two_members_is_named() -> None:
    tables = GroupTables()
    options = StrategyOptions(config={"m1": [("t", 0)], "m2": [("t", 0)]})
    tables.join("m1", config=GroupConfig(strategy="by_config", options=options))
    (part,) = targets_of(tables.state.cluster, tables.group, 0)
    assert (part.rows, part.fault) == (
        [],
        "by_config gives t/0 to 'm1' and to 'm2': give it to one of them",
    )


def test_a_large_target_goes_in_parts_and_counts_with_the_last() -> None:
    tables = GroupTables(queues=1)
    for number in range(30):
        tables.create(f"t{number}", queues=1024, replicas=1)
    tables.join("m1", {f"t{number}": "*" for number in range(30)})
    parts = targets_of(tables.state.cluster, tables.group, 0)
    assert [part.last for part in parts] == [False, True]
    assert all(sum(len(row) for _, row in part.rows) <= MAX_ROW_BYTES for part in parts)
    for part in parts:
        assert len(encode_entry(entry_of("", 0, 0, part))) < MAX_COMMAND_BYTES
    tables.done(parts[0])
    assert tables.group.target_epoch < tables.group.group_epoch
    assert 0 < len(tables.owned("m1")) < 30 * 1024
    tables.done(parts[1])
    assert tables.group.target_epoch == tables.group.group_epoch
    assert len(tables.owned("m1")) == 30 * 1024


# ── the duty ────────────────────────────────────────────────────────────────────────────────────


def test_a_paused_group_gives_its_queues_back_and_gets_them_again() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.settle()
    config = tables.group.config
    tables.done(AlterGroup("g", replace(config, paused=True), None, False, 0))
    tables.allocate()
    every = [tables.key(queue) for queue in range(4)]
    assert tables.owned("m1", revoking=True) == every, "they are drained, not torn away"
    tables.release_revoked("m1", 7)
    tables.join("m2")
    tables.settle()
    assert tables.owned("m1") == tables.owned("m2") == []
    assert tables.group.target_epoch == tables.group.group_epoch
    tables.done(AlterGroup("g", config, None, False, 0))
    tables.settle()
    assert sorted(tables.owned("m1") + tables.owned("m2")) == every
    assert [tables.committed(queue) for queue in range(4)] == [7] * 4


def test_a_broadcasting_group_cannot_be_paused() -> None:
    tables = GroupTables()
    config = GroupConfig(mode="broadcasting", paused=True)
    refusal = tables.apply(AlterGroup("g", config, None, True, 0))
    assert (refusal.code, "by themselves" in refusal.text) == ("INVALID_ARGUMENT", True)


def test_the_duty_asks_once_until_it_is_answered() -> None:
    tables, duty = GroupTables(), GroupTargets()
    cluster = tables.state.cluster
    assert (duty.take(cluster, 0.0, 0), duty.deadline(cluster)) == ([], None)
    tables.join("m1")
    assert duty.deadline(cluster) == 0.0
    (part,) = duty.take(cluster, 1.0, 0)
    assert (duty.take(cluster, 9.0, 0), duty.deadline(cluster)) == ([], None)
    # Lost, or the group moved on: it is asked again.
    duty.ended(tables.group.id)
    assert len(duty.take(cluster, 9.0, 0)) == 1
    duty.ended(tables.group.id)
    tables.done(part)
    assert (duty.take(cluster, 20.0, 0), duty.deadline(cluster)) == ([], None)


def test_changes_of_a_large_group_are_taken_together() -> None:
    tables, duty = GroupTables(queues=1000), GroupTargets()
    cluster = tables.state.cluster
    tables.join("m1")
    for part in duty.take(cluster, 5.0, 0):
        tables.done(part)
        duty.ended(tables.group.id)
    tables.join("m2")
    duty.begin_turn()
    again = duty.deadline(cluster)
    assert again is not None
    assert 5.0 < again < 5.2
    assert duty.take(cluster, 5.05, 0) == []
    assert len(duty.take(cluster, again, 0)) == 1


def test_a_turn_allocates_no_more_than_so_much() -> None:
    tables, duty = GroupTables(queues=1000), GroupTargets()
    for number in range(8):
        tables.done(tables.joining("m1", group=f"g{number}", coordinator_epoch=0))
    cluster = tables.state.cluster
    first = duty.take(cluster, 0.0, 0)
    assert 1 < len(first) < 8
    assert sum(len(part.rows[0][1]) // 2 for part in first[:-1]) < MAX_PER_TURN
    assert duty.take(cluster, 0.0, 0) == [], "the duties are looked at several times a turn"
    assert duty.deadline(cluster) == 0.0
    duty.begin_turn()
    assert len(first + duty.take(cluster, 0.0, 0)) == 8


def test_a_new_term_asks_anew() -> None:
    tables, duty = GroupTables(), GroupTargets()
    tables.join("m1")
    assert len(duty.take(tables.state.cluster, 0.0, 0)) == 1
    duty.restart()
    assert len(duty.take(tables.state.cluster, 0.0, 0)) == 1


def test_growing_topics_make_a_target_wanted() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.settle()
    tables.done(AlterTopic("t", 6, None, 0))
    assert list(tables.state.cluster.groups.pending) == [tables.group]
    assert NOBODY not in (unpack_places(target(tables).rows[0][1]) or [NOBODY])
