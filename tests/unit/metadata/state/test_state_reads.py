"""READSTATE: everything that a backup keeps, as of one version, from the Raft leader alone."""

from __future__ import annotations

import msgspec
import pytest

from logboom.metadata.state import state_reads
from logboom.metadata.state.state_reads import snapshot_of
from logboom.wire.backup_messages import ClusterSnapshot, ReadState, StateRead
from logboom.wire.commands import CreateTopic
from logboom.wire.errors import LogboomError, NotLeader
from logboom.wire.group_commands import AlterGroup
from logboom.wire.group_view import GroupConfig
from logboom.wire.operation_commands import AlterSettings
from logboom.wire.transactions import Decide, OpenApplication, ParkedBatches
from logboom.wire.view import SettingView, TopicConfig
from tests.unit.metadata.name_servers import Group


def busy() -> Group:
    """Name servers that know a topic, a group, and an application with an open decision."""
    group = Group(3)
    group.register("broker-1")
    for command in (
        CreateTopic("flights", 2, 1, TopicConfig(retention_ms=5), 1),
        AlterGroup("readers", GroupConfig(drain_ms=7), None, True, 1),
        OpenApplication("mover", 1),
    ):
        assert group.propose(command).code == ""
    group.propose(AlterSettings("", {"balance_mode": "off"}, 0), "operator")
    parked = [ParkedBatches(1, 0, [(0, 0), (0, 1)])]
    assert group.propose(Decide("mover", 1, 3, 0, True, parked, [], 1)).code == ""
    return group


def read(group: Group) -> tuple[StateRead, ClusterSnapshot]:
    """The state, as an operator gets it."""
    asked = group.begin(group.leader(), ReadState(0, 5_000), "operator")
    answer = group.wait(asked)
    assert isinstance(answer, StateRead)
    assert asked.reply is not None
    encoded = b"".join(asked.reply.batches)
    assert len(encoded) == answer.size
    return answer, msgspec.msgpack.decode(encoded, type=ClusterSnapshot)


def test_the_state_has_all_that_was_committed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_reads, "FRAME_BYTES", 50)
    group = busy()
    answer, snapshot = read(group)
    cluster = group.core(group.leader()).cluster
    assert answer.version == snapshot.version == cluster.version
    assert [(topic.name, topic.id, len(topic.queues)) for topic in snapshot.topics] == [
        ("flights", 1, 2)
    ]
    assert snapshot.topics[0].config.retention_ms == 5
    assert [each.group.name for each in snapshot.groups] == ["readers"]
    assert snapshot.groups[0].group.config.drain_ms == 7
    assert [(app.app_id, app.epoch, app.committed) for app in snapshot.applications] == [
        ("mover", 1, 3)
    ]
    (decision,) = snapshot.decisions
    assert decision.number <= snapshot.version
    assert decision.queues == [ParkedBatches(1, 0, [(0, 0), (0, 1)])]
    assert snapshot.settings == [SettingView("", "balance_mode", "off")]
    assert (snapshot.next_topic_id, snapshot.cluster_id) == (2, cluster.cluster_id)


def test_all_name_servers_have_the_same_state() -> None:
    group = busy()
    group.run(2.0)
    cores = [group.core(name).cluster for name in (group.leader(), *group.followers())]
    encoded = {msgspec.msgpack.encode(snapshot_of(cluster, [])) for cluster in cores}
    assert len(encoded) == 1


def test_a_later_decision_has_a_greater_number() -> None:
    group = busy()
    _, snapshot = read(group)
    parked = [ParkedBatches(1, 1, [(0, 0)])]
    assert group.propose(Decide("mover", 1, 4, 0, True, parked, [], 1)).code == ""
    _, later = read(group)
    assert later.decisions[-1].number > snapshot.version >= later.decisions[0].number


def test_who_does_not_lead_and_who_may_not_read_are_refused() -> None:
    group = busy()
    assert isinstance(group.ask(group.followers()[0], ReadState(0, 2_000), "operator"), NotLeader)
    refusal = group.ask(group.leader(), ReadState(0, 2_000), "client")
    assert isinstance(refusal, LogboomError)
    assert refusal.code == "UNAUTHENTICATED"
