"""The features level: who is asked before it is raised, and what is refused below it (M7)."""

from __future__ import annotations

import pytest

from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.log_commands import encode_entry, entry_of, level_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.access.access_commands import AddRule, RemoveRule
from logboom.wire.access.access_rules import AccessRule
from logboom.wire.commands import AlterTopic, AnyCommand, NewTerm, RemoveBroker
from logboom.wire.errors import InvalidRequest, LogboomError, NotLeader
from logboom.wire.features import FEATURES, SOFTWARE
from logboom.wire.messages import (
    AnyMessage,
    DescribeVersions,
    FinalizeUpgrade,
    HeartbeatGranted,
    NodeVersion,
    Ok,
    Propose,
    VersionsDescribed,
)
from logboom.wire.operation_commands import AlterSettings, EndFilling, RaiseFeatures, SetBrokerMode
from logboom.wire.transactions import OpenApplication
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group

BEFORE = NewTerm(1, "name-1", "founded by the release before", 0)


class OldGroup(Group):
    """Name servers of this release, on the log of a cluster that the release before has founded."""

    def __init__(self) -> None:
        super().__init__()
        self.leader()
        for name in self.processes:
            self.core(name).cluster.features = 0

    def described(self) -> VersionsDescribed:
        """What the leader says of the versions."""
        answer = self.ask(self.leader(), DescribeVersions(0, 1_000))
        assert isinstance(answer, VersionsDescribed)
        return answer

    def finalize(self, level: int = FEATURES) -> AnyMessage | LogboomError:
        """How a finalization ends."""
        return self.ask(self.leader(), FinalizeUpgrade(0, 2_000, level), "operator")

    def levels(self) -> list[int]:
        """The level that each name server shows, in order."""
        self.run(1.0)
        return [self.view(name).features for name in sorted(self.processes)]


def test_a_new_cluster_has_the_level_of_its_release() -> None:
    group = Group()
    group.leader()
    group.run(0.5)
    assert [group.view(name).features for name in group.processes] == [FEATURES] * 3


def test_every_node_is_described() -> None:
    group = OldGroup()
    epochs = {broker: group.register(broker, 0) for broker in ("a", "b", "c")}
    group.heartbeat("a", epochs["a"], features=FEATURES)
    group.heartbeat("b", epochs["b"], features=0)
    found = group.described()
    assert (found.features, found.offered) == (0, FEATURES)
    assert found.nodes[:3] == [
        NodeVersion(f"name-{n}", "name-server", SOFTWARE, FEATURES, "") for n in (1, 2, 3)
    ]
    assert found.nodes[3] == NodeVersion("a", "broker", SOFTWARE, FEATURES, "")
    assert [node.features for node in found.nodes[3:]] == [FEATURES, 0, -1]
    assert found.nodes[4].hinders == f"b reads features level 0, not {FEATURES}: upgrade it"
    assert "c was not heard: start it" in found.nodes[5].hinders


def test_m7_the_level_is_raised_once_all_were_heard() -> None:
    group = OldGroup()
    epoch = group.register("a", 0)
    answer = group.finalize()
    assert isinstance(answer, InvalidRequest)
    assert "a was not heard" in answer.text
    group.heartbeat("a", epoch, features=0)
    answer = group.finalize()
    assert isinstance(answer, InvalidRequest)
    assert "upgrade it" in answer.text
    assert group.levels() == [0, 0, 0]
    # A new process of the broker: what the former one told does not count.
    group.heartbeat("a", epoch)
    epoch = group.register("a", 0)
    assert isinstance(group.finalize(), InvalidRequest)
    group.heartbeat("a", epoch)
    assert isinstance(group.finalize(), Ok)
    assert group.levels() == [FEATURES] * 3
    assert isinstance(group.finalize(), Ok), "it is done already"


def test_a_name_server_that_is_down_hinders_and_so_does_an_older_one() -> None:
    group = OldGroup()
    leader = group.leader()
    first, second = group.followers()
    group.kill(first)
    group.run(3.0)
    answer = group.finalize()
    assert isinstance(answer, InvalidRequest)
    assert answer.text == (
        f"{first} was not heard: start it, or `logboom name-server remove {first}` if it is gone "
        "for good"
    )
    group.core(leader).links.software[second] = ("", 0)
    answer = group.finalize()
    assert isinstance(answer, InvalidRequest)
    assert f"{second} reads features level 0" in answer.text


def test_only_operators_finalize_and_only_the_leader_knows() -> None:
    group = OldGroup()
    refused = group.ask(group.leader(), FinalizeUpgrade(0, 1_000, FEATURES))
    assert isinstance(refused, LogboomError)
    assert refused.code == "UNAUTHENTICATED"
    follower = group.followers()[0]
    assert isinstance(group.ask(follower, DescribeVersions(0, 1_000)), NotLeader)
    assert isinstance(
        group.ask(follower, FinalizeUpgrade(0, 1_000, FEATURES), "operator"), NotLeader
    )


def test_a_level_that_the_leader_does_not_know_is_refused() -> None:
    answer = OldGroup().finalize(FEATURES + 1)
    assert isinstance(answer, InvalidRequest)
    assert "upgrade the name servers first" in answer.text


@pytest.mark.parametrize(
    "command",
    [
        AlterSettings("", {"balance_mode": "off"}, 0),
        SetBrokerMode("a", "maintenance", 0),
        RemoveBroker("a", accept_loss=True),
        AlterTopic("t", None, None, 0, replicas=2),
    ],
)
def test_below_the_level_nothing_that_older_ones_cannot_read_enters_the_log(
    command: AnyCommand,
) -> None:
    group = OldGroup()
    leader = group.leader()
    before = group.core(leader).raft.applied_index
    answer = group.ask(leader, Propose(0, 1_000, "", 0, command), "operator")
    assert isinstance(answer, InvalidRequest)
    assert "`logboom cluster upgrade finalize`" in answer.text
    assert group.core(leader).raft.applied_index == before


def test_m7_nothing_that_the_leader_plans_is_beyond_the_level() -> None:
    group = OldGroup()
    outcomes: list[object] = []
    leader = group.core(group.leader())
    leader.submit(EndFilling("a"), outcomes.append)
    assert "too low" in str(outcomes)
    leader.submit(RaiseFeatures(FEATURES, 0), outcomes.append)
    group.run(1.0)
    leader.submit(EndFilling("a"), outcomes.append)
    group.run(1.0)
    assert len(outcomes) == 3
    assert "too low" not in str(outcomes[1:])


def test_an_older_broker_is_refused_with_the_remedy() -> None:
    group = OldGroup()
    epoch = group.register("a", 0)
    group.heartbeat("a", epoch)
    group.finalize()
    with pytest.raises(AssertionError, match="install the release of the other nodes"):
        group.register("a", 0)
    answer = group.heartbeat("a", epoch, features=0)
    assert isinstance(answer, InvalidRequest)
    assert "install the release" in answer.text
    assert isinstance(group.heartbeat("a", epoch), HeartbeatGranted)
    assert group.register("a") > epoch


def test_m7_a_name_server_ends_where_the_level_is_beyond_it() -> None:
    state = StateMachine()
    state.apply(encode_entry(entry_of("", 0, 0, BEFORE)))
    with pytest.raises(JournalError, match="install the release"):
        state.apply(encode_entry(entry_of("", 0, 0, RaiseFeatures(FEATURES + 1, 0))))
    newer = StateMachine()
    newer.cluster.cluster_id = "x"
    newer.cluster.features = FEATURES + 1
    newer.cluster.bump()
    with pytest.raises(JournalError, match="install the release"):
        state.restore(newer.snapshot())


def test_commands_have_the_level_of_what_they_need() -> None:
    commands: list[tuple[AnyCommand, int]] = [
        (BEFORE, 0),
        (NewTerm(1, "n", "x", 0, 1), 1),
        (RemoveBroker("a"), 0),
        (AlterTopic("t", 3, None, 0), 0),
        (AlterTopic("t", None, TopicConfig(), 0), 0),
        (AlterTopic("t", None, TopicConfig(delete_retention_ms=1), 0), 1),
        (OpenApplication("a", 0), 0),
        (OpenApplication("a", 0, "query 1"), 1),
        (RaiseFeatures(1, 0), 1),
        (AddRule("role:r", AccessRule(True, "read", "group", "g")), 0),
        (AddRule("role:r", AccessRule(True, "read", "subscription", "t/s")), 3),
        (RemoveRule("role:r", AccessRule(True, "read", "subscription", "t/s")), 3),
    ]
    for command, level in commands:
        assert level_of(command) == level
        assert (entry_of("", 0, 0, command).format == 7) is (level > 0)
