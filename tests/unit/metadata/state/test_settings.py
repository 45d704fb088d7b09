"""Settings, modes and the features level in the replicated state."""

from __future__ import annotations

import msgspec
import pytest

from logboom.metadata.raft.log_commands import AnyLogCommand, entry_of
from logboom.metadata.state.setting_commands import MAX_SETTINGS, MAX_VALUE
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import AlterTopic, FinishRestore, NewTerm, RemoveBroker
from logboom.wire.features import EARLIEST, FEATURES
from logboom.wire.group_commands import AlterGroup
from logboom.wire.operation_commands import (
    AlterSettings,
    CancelReassign,
    EndFilling,
    QueueMove,
    RaiseFeatures,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.view import SettingView, View
from tests.unit.metadata.state.states import Tables, three_brokers


def view(tables: Tables, version: int = -1) -> View:
    return view_since(tables.state.cluster, version, None, [], None)


def test_a_cluster_is_founded_at_the_level_of_this_release() -> None:
    tables = Tables()
    tables.begin()
    assert tables.state.cluster.features == FEATURES == view(tables).features
    tables.begin(term=2, features=0)
    assert tables.state.cluster.features == FEATURES, "only the first term founds"
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 7


def test_settings_are_set_and_unset_and_shown_when_they_change() -> None:
    tables = three_brokers()
    version = tables.state.cluster.version
    tables.done(AlterSettings("", {"balance_mode": "off", "log_level": "debug"}, 0))
    tables.done(AlterSettings("a", {"log_level": "info"}, 0))
    assert view(tables, version).settings == view(tables).settings
    assert view(tables).settings == [
        SettingView("", "balance_mode", "off"),
        SettingView("", "log_level", "debug"),
        SettingView("a", "log_level", "info"),
    ]
    version = tables.state.cluster.version
    tables.done(AlterSettings("", {"balance_mode": "off"}, 0))
    assert tables.state.cluster.version == version, "nothing was changed"
    assert view(tables, version).settings is None
    tables.done(AlterSettings("", {"balance_mode": None, "never_set": None}, 0))
    tables.done(AlterSettings("a", {"log_level": None}, 0))
    assert view(tables, version).settings == [SettingView("", "log_level", "debug")]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (AlterSettings("", {"a": "1", "no name": "x"}, 0), "is not allowed"),
        (AlterSettings("", {"a": "x" * (MAX_VALUE + 1)}, 0), "characters"),
        (AlterSettings("no node", {"a": "x"}, 0), "node id 'no node' is not allowed"),
        (AlterSettings("", {f"s{n}": "x" for n in range(MAX_SETTINGS + 1)}, 0), "at most"),
        (SetBrokerMode("a", "resting", 0), "is no mode of a broker"),
        (SetBrokerMode("a", "drained", 0), "still holds replicas of 1 queues"),
    ],
)
def test_impossible_settings_and_modes_are_refused_as_a_whole(
    command: AnyLogCommand, text: str
) -> None:
    tables = three_brokers()
    before = tables.state.snapshot()
    result = tables.apply(command)
    assert result.code == "INVALID_ARGUMENT"
    assert text in result.text
    assert tables.state.snapshot() == before


@pytest.mark.parametrize(
    "command",
    [AlterSettings("", {"a": "1"}, 0), SetBrokerMode("a", "maintenance", 0)],
)
def test_a_cluster_of_before_there_were_levels_is_raised_first(command: AnyLogCommand) -> None:
    tables = three_brokers()
    tables.be_older()
    before = tables.state.snapshot()
    result = tables.apply(command)
    assert result.code == "INVALID_ARGUMENT"
    assert "logboom cluster upgrade finalize" in result.text
    assert tables.state.snapshot() == before
    assert msgspec.msgpack.decode(before)[0] == 1
    tables.done(RaiseFeatures(1, 0))
    tables.done(command)
    version = tables.state.cluster.version
    tables.done(RaiseFeatures(1, 0))
    tables.done(RaiseFeatures(0, 0))
    assert (tables.state.cluster.features, tables.state.cluster.version) == (1, version)


def test_a_broker_in_maintenance_leads_and_coordinates_only_where_no_other_can() -> None:
    tables = three_brokers()
    tables.done(AlterGroup("g", None, {"t": "*"}, True, 0))
    group = tables.state.cluster.groups.by_name["g"]
    assert tables.queue().standing.leader == group.coordinator == "a"
    tables.done(SetBrokerMode("a", "maintenance", 0))
    assert tables.queue().standing.leader == "b"
    assert tables.queue().standing.isr == ("a", "b", "c")
    assert group.coordinator in ("b", "c")
    assert [each.mode for each in view(tables).brokers] == ["maintenance", "active", "active"]
    tables.register("a")
    assert tables.queue().standing.leader == "b"
    assert tables.state.cluster.modes == {"a": "maintenance"}, "a restart does not end it"
    assert tables.change_isr("b", "c", "a") == ""
    tables.done(SetBrokerMode("b", "maintenance", 0))
    tables.fence("c")
    assert {tables.queue().standing.leader, group.coordinator} <= {"a", "b"}
    tables.done(SetBrokerMode("a", "active", 0))
    assert tables.state.cluster.modes == {"b": "maintenance"}


def test_the_only_in_sync_replica_leads_on_in_maintenance() -> None:
    tables = three_brokers()
    tables.fence("b")
    tables.fence("c")
    epoch = tables.queue().epoch
    tables.done(SetBrokerMode("a", "maintenance", 0))
    assert (tables.queue().standing.leader, tables.queue().epoch) == ("a", epoch)


def test_a_broker_that_comes_into_a_cluster_with_replicas_is_filled() -> None:
    tables = three_brokers()
    assert tables.state.cluster.filling == set()
    tables.register("d")
    tables.register("a")
    assert tables.state.cluster.filling == {"d"}
    tables.done(EndFilling("d"))
    tables.done(EndFilling("never"))
    assert tables.state.cluster.filling == set()


def test_what_operates_a_cluster_is_part_of_the_state() -> None:
    tables = three_brokers()
    tables.register("d")
    tables.done(AlterSettings("", {"balance_mode": "off"}, 0))
    tables.done(AlterSettings("a", {"log_level": "info"}, 0))
    tables.done(SetBrokerMode("b", "draining", 0))
    snapshot = tables.state.snapshot()
    twin = StateMachine()
    twin.restore(snapshot)
    for name in ("features", "modes", "filling", "settings", "settings_version"):
        assert getattr(twin.cluster, name) == getattr(tables.state.cluster, name)
    assert twin.cluster.topics["t"].replicas == 3
    assert twin.snapshot() == snapshot


def test_a_broker_that_is_removed_leaves_neither_mode_nor_flag() -> None:
    tables = three_brokers()
    tables.register("d")
    tables.done(SetBrokerMode("d", "draining", 0))
    tables.done(SetBrokerMode("d", "drained", 0))
    tables.fence("d")
    tables.done(RemoveBroker("d"))
    assert (tables.state.cluster.modes, tables.state.cluster.filling) == ({}, set())


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (NewTerm(1, "n", "c", 0), 1),
        (NewTerm(1, "n", "c", 0, EARLIEST), 1),
        (NewTerm(1, "n", "c", 0, FEATURES), 7),
        (AlterTopic("t", 3, None, 0), 1),
        (AlterTopic("t", 3, None, 0, 2), 7),
        (RemoveBroker("a"), 1),
        (RemoveBroker("a", accept_loss=True), 7),
        (Reassign([QueueMove(1, 0, -1, ["a"])], 0), 7),
        (CancelReassign([(1, 0)], 0), 7),
        (SetBrokerMode("a", "active", 0), 7),
        (EndFilling("a"), 7),
        (AlterSettings("", {}, 0), 7),
        (RaiseFeatures(1, 0), 7),
        (FinishRestore("t", 1, "b"), 7),
    ],
)
def test_only_what_older_name_servers_cannot_apply_stops_them(
    command: AnyLogCommand, found: int
) -> None:
    assert entry_of("", 0, 0, command).format == found
