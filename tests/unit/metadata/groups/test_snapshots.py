"""Groups in snapshots, beside those of before there were groups, and damaged ones."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.log_commands import ENTRY_FORMAT, entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.commands import Barrier
from logboom.wire.group_commands import AlterGroup, DeleteGroup
from logboom.wire.group_view import GroupConfig
from tests.unit.metadata.groups.tables import GroupTables

FORMAT_1 = Path(__file__).parents[3] / "data" / "snapshots" / "format-1.msgpack"
"""Brokers a (fenced), b (suspect, registered twice) and c; topics t, flights and late; a fourth
name server; results kept for one client. Written by the last version without groups."""


def busy() -> GroupTables:
    """Members that own, drain and wait for queues; offsets, ranges, a former topic, a reset."""
    tables = GroupTables(queues=8)
    tables.create("u", queues=2)
    tables.join("m1", {"t": "*", "u": "late"}, config=GroupConfig(start="last"))
    tables.start((tables.key(n), 10 + n) for n in range(7))
    tables.settle()
    tables.join("process-1", {"t": "*", "u": "late"}, instance="left", room="north")
    tables.allocate()
    kept = tables.owned("m1", revoking=False)[0]
    tables.commit("m1", tables.last(kept, 12, ranges=b"14-15"))
    tables.done(AlterGroup("h", None, {"u": "*"}, True, 0))
    tables.done(AlterGroup("h", None, {"t": "*"}, True, 0))
    return tables


def test_a_restored_state_is_the_same() -> None:
    tables, twin = busy(), StateMachine()
    snapshot = tables.state.snapshot()
    twin.restore(snapshot)
    assert twin.snapshot() == snapshot
    group = twin.cluster.groups.by_name["g"]
    assert list(group.unstarted) == list(tables.group.unstarted)
    for name, member in tables.group.members.items():
        assert sorted(group.members[name].owned) == sorted(member.owned)
    assert group.names["left"] is group.members["process-1"]
    assert list(twin.cluster.groups.pending) == []


def test_members_of_users_are_restored_and_others_are_stored_as_before() -> None:
    tables = busy()
    before = tables.state.snapshot()
    member = tables.group.members["m1"]
    member.user = 7
    assert tables.state.snapshot() != before
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    users = {name: each.user for name, each in twin.cluster.groups.by_name["g"].members.items()}
    assert users == {"m1": 7, "process-1": 0}
    member.user = 0
    assert tables.state.snapshot() == before


def test_machines_of_either_byte_order_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = busy()
    topic = next(iter(tables.group.topics.values()))
    own = msgspec.msgpack.decode(tables.state.snapshot())
    column = topic.committed[:]
    # The columns of this machine's order look to the other kind as if each were turned around.
    monkeypatch.setattr(sys, "byteorder", {"little": "big", "big": "little"}[sys.byteorder])
    other = tables.state.snapshot()
    assert msgspec.msgpack.decode(other) != own
    assert topic.committed == column, "what is served is left alone"
    twin = StateMachine()
    twin.restore(other)
    assert twin.cluster.groups.by_name["g"].topics[topic.id].committed == column


def test_a_snapshot_of_before_there_were_groups_is_read() -> None:
    stored = FORMAT_1.read_bytes()
    state = StateMachine()
    state.restore(stored)
    cluster = state.cluster
    assert sorted(cluster.topics) == ["flights", "late", "t"]
    assert (sorted(cluster.brokers), sorted(cluster.alive)) == (["a", "b", "c"], ["b", "c"])
    assert list(cluster.name_servers) == ["name-4"]
    assert list(state.dedup.windows) == ["client:me"]
    assert cluster.groups.by_name == {}
    # Nothing but groups makes it another: name servers of both versions agree on its hash.
    assert state.snapshot() == stored


def test_groups_can_begin_in_a_state_of_before() -> None:
    tables = GroupTables()
    tables.state.restore(FORMAT_1.read_bytes())
    tables.join("m1")
    tables.settle()
    assert len(tables.owned("m1")) == 1
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 2


def test_where_a_group_was_once_its_id_is_remembered() -> None:
    tables = GroupTables()
    tables.done(AlterGroup("g", None, None, True, 0))
    tables.done(DeleteGroup("g", 0))
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    assert twin.cluster.groups.next_id == 2


def test_commands_of_groups_stop_a_name_server_that_does_not_know_them() -> None:
    assert entry_of("", 0, 0, DeleteGroup("g", 0)).format == 2 < ENTRY_FORMAT
    assert entry_of("", 0, 0, Barrier()).format == 1


@pytest.mark.parametrize("column", ["targets", "owners", "owner_epochs", "committed"])
@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x09\x00" * 4])
def test_a_damaged_column_is_malformed(column: str, damage: bytes) -> None:
    rows = msgspec.msgpack.decode(busy().state.snapshot())
    topic = rows[16][0][-1][0]
    assert isinstance(topic[2], bytes)
    topic[{"targets": 2, "owners": 3, "owner_epochs": 4, "committed": 5}[column]] = damage
    with pytest.raises(JournalError, match="malformed"):
        StateMachine().restore(msgspec.msgpack.encode(rows))
