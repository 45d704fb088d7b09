"""Consumer groups at whole name servers: targets by the raft leader, reads, WATCH, refusals."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from logboom.wire.commands import CreateTopic
from logboom.wire.errors import LogboomError, NotLeader
from logboom.wire.group_commands import AlterGroup, JoinGroup, LeaveGroup, SetTarget
from logboom.wire.group_view import GroupConfig, StrategyOptions
from logboom.wire.messages import (
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    ListGroups,
    Propose,
    Watch,
    WatchResult,
)
from logboom.wire.survey_messages import GroupsSurveyed, GroupSurvey, SurveyGroups
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group


def joining(member: str, epoch: int = 0, name: str = "g") -> JoinGroup:
    return JoinGroup(name, member, "", "me", "", {"t": "*"}, False, GroupConfig(), epoch, 0)


def founded(queues: int = 4) -> Group:
    """Name servers with a broker, topic t, and member m1 of group g."""
    group = Group()
    group.register("b")
    group.propose(CreateTopic("t", queues, 1, TopicConfig(), 0))
    assert group.propose(joining("m1"), "broker").code == ""
    return group


def describe(group: Group, name: str = "g") -> GroupDescribed:
    answer = group.ask(group.leader(), DescribeGroup(0, 2_000, name))
    assert isinstance(answer, GroupDescribed), answer
    return answer


def owned(group: Group) -> dict[str, int]:
    return {m.id: len(m.queues) for m in describe(group).group.members}


def test_the_raft_leader_gives_a_new_member_its_queues() -> None:
    group = founded()
    group.run(0.3)
    assert owned(group) == {"m1": 4}
    assert describe(group).group.fault == ""


def test_a_new_raft_leader_goes_on_allocating() -> None:
    group = founded()
    group.run(0.3)
    group.kill(group.leader())
    group.run(3.0)
    epoch = describe(group).group.coordinator_epoch
    assert group.propose(joining("m2", epoch), "broker").code == ""
    group.run(0.3)
    view = describe(group).group
    assert view.target_epoch == view.group_epoch
    assert sum(queue.revoking for member in view.members for queue in member.queues) == 2


def test_a_burst_of_members_is_all_served() -> None:
    group = founded(queues=64)
    for number in range(2, 18):
        assert group.propose(joining(f"m{number}", 1), "broker").code == ""
    group.run(1.0)
    view = describe(group).group
    assert (view.member_count, view.target_epoch) == (17, view.group_epoch)
    kept = [q for m in view.members if m.id == "m1" for q in m.queues if not q.revoking]
    assert len(kept) in (3, 4)


def test_targets_cost_no_turns_when_nothing_changes() -> None:
    group = founded()
    # Until the silent broker is fenced.
    group.run(5.0)
    leader = group.core(group.leader())
    before = leader.counters()["applied"]
    group.run(5.0)
    assert leader.counters()["applied"] == before


def test_groups_are_read_at_the_raft_leader_alone() -> None:
    group = founded()
    for message in (DescribeGroup(0, 1_000, "g"), ListGroups(0, 1_000)):
        assert isinstance(group.ask(group.followers()[0], message), NotLeader)
    listed = group.ask(group.leader(), ListGroups(0, 1_000))
    assert isinstance(listed, GroupsListed)
    assert [(line.name, line.member_count) for line in listed.groups] == [("g", 1)]
    unknown = group.ask(group.leader(), DescribeGroup(0, 1_000, "none"))
    assert isinstance(unknown, LogboomError)
    assert (unknown.code, unknown.fields["group"]) == ("UNKNOWN_GROUP", "none")


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_all_groups_are_surveyed_page_by_page(limit: int) -> None:
    group = founded()
    for name in ("a", "z", "k"):
        group.propose(joining("m1", name=name), "broker")
    found: list[GroupSurvey] = []
    more = True
    while more:
        after = found[-1].summary.name if found else ""
        answer = group.ask(group.leader(), SurveyGroups(0, 2_000, after, limit))
        assert isinstance(answer, GroupsSurveyed)
        found += answer.groups
        more = answer.more
    assert [each.summary.name for each in found] == ["a", "g", "k", "z"]
    listed = group.ask(group.leader(), ListGroups(0, 1_000))
    assert isinstance(listed, GroupsListed)
    assert [each.summary for each in found] == listed.groups
    assert [each.offsets for each in found] == [
        describe(group, each.summary.name).offsets for each in found
    ]
    assert isinstance(group.ask(group.followers()[0], SurveyGroups(0, 1_000)), NotLeader)


def test_a_page_of_a_survey_is_bounded_by_its_offsets() -> None:
    group = founded(queues=1_000)
    for name in ("a", "b", "c", "d", "e"):
        group.propose(joining("m1", name=name), "broker")
    answer = group.ask(group.leader(), SurveyGroups(0, 2_000))
    assert isinstance(answer, GroupsSurveyed)
    assert [each.summary.name for each in answer.groups] == ["a", "b", "c", "d"]
    assert answer.more


def test_a_description_holds_what_was_answered_before() -> None:
    group = founded()
    for number in range(2, 6):
        version = group.propose(joining(f"m{number}", 1), "broker").version
        answer = describe(group)
        assert f"m{number}" in {member.id for member in answer.group.members}
        assert answer.version >= version


def test_a_held_watch_is_woken_by_its_groups() -> None:
    group = founded()
    group.run(0.5)
    name = group.followers()[0]
    version = group.view(name).version
    mine = group.begin(name, Watch(0, 9_000, version, [], 8_000, ["g"]), "broker")
    other = group.begin(name, Watch(0, 9_000, version, [], 8_000, ["h"]), "broker")
    group.run(0.2)
    assert (mine.reply, other.reply) == (None, None)
    (member,) = describe(group).group.members
    group.propose(LeaveGroup("g", "m1", member.epoch, [], 0), "broker")
    answer = group.wait(mine)
    assert isinstance(answer, WatchResult)
    assert [(g.name, g.gone) for g in answer.view.groups] == [("g", ["m1"])]
    assert (answer.view.topics, other.reply) == ([], None)
    group.propose(AlterGroup("h", None, None, True, 0))
    answer = group.wait(other)
    assert isinstance(answer, WatchResult)
    assert [g.name for g in answer.view.groups] == ["h"]


def test_operators_may_alter_groups_and_clients_may_not_speak_for_members() -> None:
    group = founded()
    assert group.propose(AlterGroup("h", None, {"t": "*"}, True, 0)).code == ""
    leader = group.leader()
    for command, kind in (
        (joining("m2", 1), "client"),
        (SetTarget("g", 1, [], True, "", 0), "client"),
        (SetTarget("g", 1, [], True, "", 0), "broker"),
    ):
        message = Propose(0, 1_000, "me", 1, command)
        asked = group.begin(leader, message, "broker" if kind == "broker" else "client")
        answer = group.wait(asked)
        assert isinstance(answer, LogboomError)
        assert answer.code == "UNAUTHENTICATED"


def test_all_name_servers_lose_power_and_the_group_is_as_it_was() -> None:
    group = founded()
    group.run(0.3)
    before = describe(group).group
    names = list(group.processes)
    for name in names:
        group.kill(name)
    for name in names:
        group.start(name)
    after = describe(group).group
    assert [m.epoch for m in after.members] == [m.epoch for m in before.members]
    assert after.members[0].queues == before.members[0].queues
    group.run(0.5)
    assert len({group.core(name).state.snapshot() for name in names}) == 1


def test_a_strategy_that_cannot_work_does_not_enter_the_log() -> None:
    group = founded()
    bare = GroupConfig(strategy="by_config")
    twice = StrategyOptions({"a": [("t", 0)], "b": [("t", 0)]})
    for config, text in (
        (bare, "by_config needs a configuration"),
        (GroupConfig(strategy="machine_room"), "machine_room needs the rooms"),
        (GroupConfig(strategy="by_config", options=twice), "t/0 to 'a' and to 'b'"),
    ):
        for name, create in (("g", False), ("new", True)):
            command = AlterGroup(name, config, None, create, 0)
            answer = group.ask(group.leader(), Propose(0, 2_000, "me", 1, command))
            assert isinstance(answer, LogboomError)
            assert answer.code == "INVALID_ARGUMENT"
            assert text in answer.text
    founding = replace(joining("m1", 0, "other"), config=bare)
    refused = group.ask(group.leader(), Propose(0, 2_000, "broker", 9, founding))
    assert isinstance(refused, LogboomError)
    assert owned(group) == {"m1": 4}
    # Who joins a group that is there has its settings, whatever its own are.
    epoch = describe(group).group.coordinator_epoch
    assert not group.propose(replace(joining("m2", epoch), config=bare), "broker").code
