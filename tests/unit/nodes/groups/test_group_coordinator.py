"""The coordinator on real tables: members join, hear what they have, and are found dead (R13, G2)."""

from __future__ import annotations

import pytest

from logboom.wire.actor import note
from logboom.wire.commands import DeleteTopic
from logboom.wire.errors import (
    GroupError,
    InvalidFilter,
    InvalidRequest,
    LogboomError,
    NotLeader,
    Unavailable,
    UnknownResource,
)
from logboom.wire.group_commands import AlterGroup, DeleteGroup, ExpireMembers, JoinGroup
from logboom.wire.group_messages import GroupJoined, GroupStatus, GroupStatusResult, QueueStatus
from logboom.wire.group_view import GroupConfig, StrategyOptions
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig, Member
from tests.unit.nodes.rig import ME


def alone(queues: int = 4) -> GroupRig:
    """A cluster of this broker only: it coordinates every group."""
    return GroupRig(queues, brokers=1)


def error_of(member: Member) -> LogboomError:
    """Why a member's heartbeat is refused."""
    with pytest.raises(LogboomError) as caught:
        member.beat()
    return caught.value


# ── joining ─────────────────────────────────────────────────────────────────────────────────────


def test_the_first_member_makes_the_group_and_gets_all_queues() -> None:
    rig = alone()
    config = GroupConfig(session_ms=6_000, heartbeat_ms=2_000)
    member = Member(rig, "a")
    joined = member.join(config=config)
    assert (joined.config, joined.subscription_version) == (config, 1)
    told = member.beat()
    assert told is not None
    assert member.kept == [0, 1, 2, 3]
    assert set(told.topics.values()) >= {"flights"}
    assert told.config == config
    assert all(queue.start == 0 for queue in told.queues)


def test_a_known_group_is_joined_in_its_own_settings() -> None:
    rig = alone()
    first = rig.join("a", config=GroupConfig(drain_ms=7_000))
    second = Member(rig, "b")
    joined = second.join(config=GroupConfig(drain_ms=1))
    assert joined.config.drain_ms == 7_000
    assert joined.epoch > first.epoch
    assert joined.subscription_version == 1


def test_another_coordinator_is_named() -> None:
    rig = GroupRig()
    rig.done(AlterGroup(GROUP, GroupConfig(), {"flights": "*"}, True, 0))
    # Whoever has fewest coordinates: a second group is another broker's.
    rig.done(AlterGroup("other", GroupConfig(), {"flights": "*"}, True, 0))
    where = {g.name: g.coordinator for g in rig.state.cluster.groups.by_name.values()}
    elsewhere = next(name for name, broker in where.items() if broker != ME)
    client = rig.client()
    message = Member(rig, "a").joining()
    message.group = elsewhere
    client.ask(message)
    with pytest.raises(NotLeader) as caught:
        client.answer()
    group = rig.state.cluster.groups.by_name[elsewhere]
    assert caught.value.code == "NOT_COORDINATOR"
    assert caught.value.fields["coordinator"] == group.coordinator
    assert caught.value.fields["epoch"] == group.coordinator_epoch
    assert caught.value.fields["endpoint"] == f"b{group.coordinator[-1]}:7711"


def test_a_group_unknown_here_but_not_in_the_log_is_found_out_there() -> None:
    rig = GroupRig()
    rig.telling = False
    rig.apply(AlterGroup(GROUP, GroupConfig(), {"flights": "*"}, True, 0))
    member = Member(rig, "a")
    member.peer.ask(member.joining())
    with pytest.raises(NotLeader) as caught:
        member.peer.answer()
    assert caught.value.fields["coordinator"] == rig.group.coordinator


def test_a_join_is_answered_once_this_brokers_own_copy_has_it() -> None:
    rig = alone()
    rig.join("a")
    rig.telling = False
    member = Member(rig, "b")
    member.peer.ask(member.joining())
    assert not member.peer.replies
    rig.telling = True
    rig.tell()
    member.epoch = member.peer.answer().epoch
    assert member.beat() is not None


def test_a_join_sent_again_makes_one_member_epoch() -> None:
    rig = alone()
    rig.deciding = False
    member = Member(rig, "a")
    member.peer.ask(member.joining())
    first = member.peer.replies
    member.peer.ask(member.joining())
    assert [type(c) for _, c in rig.commands if isinstance(c, JoinGroup)] == [JoinGroup]
    rig.decide_all()
    assert first == []
    found = [reply.message for reply in member.peer.taken()]
    assert {each.epoch for each in found if isinstance(each, GroupJoined)} == {
        rig.group.members["a"].epoch
    }


@pytest.mark.parametrize(
    ("subscription", "code", "words"),
    [
        ({"flights": "a || "}, "INVALID_FILTER", "flights"),
        ({"flights": "x WHERE price >"}, "INVALID_FILTER", "flights"),
        ({f"t{n}": "*" for n in range(1_025)}, "INVALID_ARGUMENT", "1024"),
        ({f"t{n}": "x" * 1_000 for n in range(60)}, "TOO_LARGE", "at most"),
    ],
)
def test_a_bad_subscription_is_refused(subscription: dict[str, str], code: str, words: str) -> None:
    rig = alone()
    member = Member(rig, "a")
    member.peer.ask(member.joining(subscription=subscription))
    with pytest.raises(InvalidRequest) as caught:
        member.peer.answer()
    assert caught.value.code == code
    assert words in f"{caught.value.text} {caught.value.fields}"
    assert GROUP not in rig.state.cluster.groups.by_name


def test_a_filter_that_cannot_be_read_is_pointed_at() -> None:
    rig = alone()
    member = Member(rig, "a")
    member.peer.ask(member.joining(subscription={"flights": "* WHERE price ! 3"}))
    with pytest.raises(InvalidFilter) as caught:
        member.peer.answer()
    assert caught.value.fields["topic"] == "flights"
    assert "^" in caught.value.pointer()


def test_the_same_filter_written_otherwise_is_the_same_subscription() -> None:
    rig = alone()
    rig.join("a", subscription={"flights": "late||early"})
    rig.join("b", subscription={"flights": " early || late "})
    assert rig.group.subscription == {"flights": "early || late"}


def test_another_subscription_is_refused_with_the_difference() -> None:
    rig = alone()
    rig.join("a")
    member = Member(rig, "b")
    member.peer.ask(member.joining(subscription={"flights": "late"}))
    with pytest.raises(GroupError) as caught:
        member.peer.answer()
    assert caught.value.code == "SUBSCRIPTION_MISMATCH"
    assert caught.value.fields["different"] == "flights"


def test_a_replaced_subscription_is_told_to_all_members() -> None:
    rig = alone()
    first = rig.join("a")
    first.beat()
    assert first.beat(3_000) is None
    rig.join("b", subscription={"flights": "late"}, replace=True)
    told = first.told()
    assert (told.subscription, told.subscription_version) == ({"flights": "late"}, 2)


def test_the_groups_own_topics_are_made_when_it_is_first_seen() -> None:
    rig = alone()
    rig.join("a")
    rig.settle()
    assert {f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"} <= rig.state.cluster.topics.keys()
    member = rig.join("b")
    member.beat()
    told = [m.beat() for m in (member, rig.join("c"))]
    assert all(told)
    rig.settle(3.0)
    assert len(rig.state.cluster.topics) == 3


def test_a_broadcasting_group_has_no_topics_of_its_own() -> None:
    rig = alone()
    member = rig.join("a", config=GroupConfig(mode="broadcasting"))
    told = member.beat()
    assert told is not None
    assert told.queues == []
    rig.settle(3.0)
    assert set(rig.state.cluster.topics) == {"flights"}


# ── heartbeats ──────────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_is_held_until_something_changes_for_its_member() -> None:
    rig = alone()
    first = rig.join("a")
    first.beat()
    rig.settle(2.0)
    assert first.beat() is not None
    assert first.beat(3_000) is None
    second = rig.join("b")
    told = first.told()
    assert len(first.revoked) == 2
    assert told.version > second.epoch
    # Of the second one's own changes the first need not hear.
    assert first.beat(3_000) is None
    second.beat()
    assert second.beat(3_000) is None
    assert first.release(*[first.last(q, 0) for q in first.revoked]) == ["", ""]
    assert second.told().queues
    assert len(second.kept) == 2


def test_a_hold_ends_at_the_groups_heartbeat_time_exactly() -> None:
    rig = alone()
    member = rig.join("a", config=GroupConfig(heartbeat_ms=700))
    rig.settle(2.0)
    member.beat()
    member.beat(60_000)
    begun = rig.mono
    rig.settle(0.699)
    assert not member.held.replies
    rig.settle(0.002)
    assert member.told().version == member.seen
    assert rig.mono - begun < 0.71


def test_a_second_heartbeat_ends_the_first() -> None:
    rig = alone()
    member = rig.join("a")
    member.beat()
    rig.settle(2.0)
    member.beat()
    other = rig.client("the same one, reconnected")
    assert member.beat(3_000) is None
    member.held, before = other, member.held
    assert member.beat(3_000) is None
    assert len(before.replies) == 1
    assert len(rig.broker.parts.coordinator.holds) == 1


def test_a_heartbeat_waits_for_metadata_as_new_as_its_member() -> None:
    rig = alone()
    member = rig.join("a")
    rig.telling = False
    result = rig.apply(
        JoinGroup(
            GROUP,
            "b",
            "",
            "",
            "",
            {"flights": "*"},
            False,
            GroupConfig(),
            rig.group.coordinator_epoch,
            0,
        )
    )
    other = Member(rig, "b")
    assert isinstance(result.value, int)
    other.epoch = result.value
    assert other.beat() is None
    rig.telling = True
    rig.tell()
    assert other.told() is not None
    # What is not known after that never was.
    other.epoch += 1_000
    assert other.beat() is None
    rig.settle(1.1)
    with pytest.raises(Unavailable):
        other.told()
    assert member.beat() is not None


def test_strangers_and_former_epochs_are_told_so() -> None:
    rig = alone()
    member = rig.join("a")
    again = Member(rig, "a")
    again.join()
    assert error_of(member).code == "STALE_EPOCH"
    nobody = Member(rig, "nobody")
    nobody.epoch = 1
    assert error_of(nobody).code == "UNKNOWN_MEMBER"
    rig.leave_all(again)
    rig.done(DeleteGroup(GROUP, 0))
    assert error_of(again).code == "UNKNOWN_GROUP"


# ── silence ─────────────────────────────────────────────────────────────────────────────────────


def test_a_silent_member_is_expired_and_the_others_get_its_queues() -> None:
    rig = alone()
    first, second = rig.join("a"), rig.join("b")
    for _ in range(5):
        rig.settle(2.5)
        first.beat()
    assert list(rig.group.members) == ["a"]
    first.beat()
    assert first.kept == [0, 1, 2, 3]
    assert error_of(second).code == "UNKNOWN_MEMBER"


def test_the_session_ends_exactly_at_its_time() -> None:
    rig = alone()
    member = rig.join("a", config=GroupConfig(session_ms=4_000, heartbeat_ms=500))
    rig.settle(2.0)
    member.beat()
    rig.settle(3.99)
    assert list(rig.group.members) == ["a"]
    rig.settle(0.02)
    assert not rig.group.members


def test_every_request_of_a_member_is_a_sign_of_life() -> None:
    rig = alone()
    member = rig.join("a")
    member.beat()
    for round_ in range(8):
        rig.settle(3.0)
        assert member.commit(member.last(0, round_)) == [""]
    assert list(rig.group.members) == ["a"]


def test_a_request_of_a_former_epoch_is_none() -> None:
    rig = alone()
    former = rig.join("a")
    again = Member(rig, "a")
    again.join()
    for _ in range(5):
        rig.settle(2.5)
        assert error_of(former).code in ("STALE_EPOCH", "UNKNOWN_MEMBER")
    assert not rig.group.members


def test_a_member_that_does_not_release_in_time_is_fenced() -> None:
    """G2: a handler that hangs keeps no queue for ever."""
    rig = alone()
    first = rig.join("a", config=GroupConfig(drain_ms=8_000))
    first.beat()
    second = rig.join("b")
    waited = 0.0
    while "a" in rig.group.members and waited < 20:
        first.beat(1_000)
        second.beat(1_000)
        rig.settle(0.5)
        waited += 0.5
    assert 8.0 <= waited <= 8.5
    second.beat()
    assert second.kept == [0, 1, 2, 3]
    assert error_of(first).code == "UNKNOWN_MEMBER"


def test_who_gets_its_queue_back_has_nothing_more_to_drain() -> None:
    rig = alone()
    first = rig.join("a", config=GroupConfig(drain_ms=8_000, session_ms=60_000))
    first.beat()
    second = rig.join("b")
    rig.settle(7.0)
    rig.leave_all(second)
    first.beat()
    assert first.revoked == []
    rig.settle(9.0)
    rig.join("c")
    rig.settle(7.5)
    assert sorted(rig.group.members) == ["a", "c"]
    rig.settle(1.0)
    assert sorted(rig.group.members) == ["c"]


def test_shorter_sessions_hold_from_when_they_are_told() -> None:
    rig = alone()
    rig.join("a", config=GroupConfig(session_ms=60_000))
    rig.settle(2.0)
    rig.done(AlterGroup(GROUP, GroupConfig(session_ms=5_000), None, False, 0))
    rig.settle(2.9)
    assert list(rig.group.members) == ["a"]
    rig.settle(0.2)
    assert not rig.group.members


def test_a_new_coordinator_grants_full_sessions_first() -> None:
    rig = GroupRig()
    rig.done(AlterGroup(GROUP, GroupConfig(), {"flights": "*"}, True, 0))
    if rig.group.coordinator == ME:
        rig.fence(ME)
        rig.settle(3.0)
    assert rig.group.coordinator != ME
    result = rig.done(
        JoinGroup(
            GROUP,
            "a",
            "",
            "",
            "",
            {"flights": "*"},
            False,
            GroupConfig(),
            rig.group.coordinator_epoch,
            0,
        )
    )
    rig.settle(30.0)
    rig.coordinate()
    rig.settle(9.9)
    assert list(rig.group.members) == ["a"]
    member = Member(rig, "a")
    assert isinstance(result.value, int)
    member.epoch = result.value
    assert member.beat() is not None
    rig.settle(10.1)
    assert not rig.group.members


def test_a_loop_that_was_away_grants_full_sessions_first() -> None:
    rig = alone()
    rig.join("a")
    rig.mono += 30.0
    rig.settle(9.5)
    assert list(rig.group.members) == ["a"]
    rig.settle(1.0)
    assert not rig.group.members


def test_nobody_is_expired_for_what_nobody_could_hear() -> None:
    """Without its lease a coordinator serves nobody, so silence means nothing (Q11, R13)."""
    rig = alone()
    member = rig.join("a")
    rig.granting = False
    rig.settle(2.5)
    error = error_of(member)
    assert isinstance(error, Unavailable)
    assert "name servers" in error.text
    rig.settle(20.0)
    assert list(rig.group.members) == ["a"]
    assert not rig.commands
    rig.granting = True
    rig.settle(9.0)
    assert list(rig.group.members) == ["a"]
    rig.settle(2.5)
    assert not rig.group.members


def test_a_refused_expiry_is_tried_again_a_session_later() -> None:
    rig = alone()
    member = rig.join("a")
    rig.deciding = False
    while not any(isinstance(command, ExpireMembers) for _, command in rig.commands):
        rig.settle(0.5)
    again = Member(rig, "a")
    again.peer.ask(again.joining())
    # The member's new epoch is decided first.
    rig.commands.sort(key=lambda each: not isinstance(each[1], JoinGroup))
    rig.decide_all()
    assert list(rig.group.members) == ["a"]
    again.epoch = again.peer.answer().epoch
    assert again.beat() is not None
    assert error_of(member).code == "STALE_EPOCH"


# ── what the members say of themselves ──────────────────────────────────────────────────────────


def test_what_members_say_of_their_queues_is_told() -> None:
    rig = alone()
    member = rig.join("a")
    rig.join("b")
    stuck = QueueStatus(1, 0, "handler running", 70_000, 3, 300)
    member.beat(status=[stuck])
    rig.settle(1.0)
    asker = rig.client()
    asker.ask(GroupStatus(0, 1_000, GROUP))
    answer = asker.answer()
    assert isinstance(answer, GroupStatusResult)
    assert [(m.member, m.queues) for m in answer.members] == [("a", [stuck]), ("b", [])]
    assert 900 <= answer.members[0].silent_ms <= 1_100
    asker.ask(GroupStatus(0, 1_000, "nobody's"))
    with pytest.raises(UnknownResource):
        asker.answer()


# ── handing over ────────────────────────────────────────────────────────────────────────────────


def test_a_broker_that_stops_hands_its_groups_over_though_it_leads_nothing() -> None:
    rig = GroupRig()
    rig.coordinate_or_create(GroupConfig(mode="broadcasting"))
    member = Member(rig, "a")
    member.join()
    member.beat()
    rig.done(DeleteTopic("flights", 0))
    assert not rig.broker.queues.led
    assert member.beat(3_000) is None
    rig.call_stop()
    rig.settle(1.0)
    assert rig.group.coordinator not in (ME, "")
    with pytest.raises(NotLeader) as caught:
        member.told()
    assert caught.value.fields["coordinator"] == rig.group.coordinator
    assert rig.stop == ""


def test_queues_that_a_strategy_gives_to_nobody_are_logged_once() -> None:
    rig = alone()
    written = {"a": [("flights", 0), ("flights", 1), ("flights", 2)], "b": [("flights", 3)]}
    by_config = GroupConfig(strategy="by_config", options=StrategyOptions(written))
    rig.coordinate_or_create(by_config)
    rig.join("a")
    rig.tell()
    text = (
        "no member gets flights/3 (by_config gives it to 'b', who is not in the group): see "
        "`logboom group alter --strategy`"
    )
    failed = note("allocation_failed", group="billing", strategy="by_config", text=text)
    assert [each for each in rig.notes if each.event.startswith("allocation")] == [failed]
    rig.join("b")
    assert [each for each in rig.notes if each.event.startswith("allocation")] == [
        failed,
        note("allocation_complete", group="billing"),
    ]


def test_members_that_are_silent_are_logged_once() -> None:
    rig = alone()
    rig.join("a").beat()
    silent = rig.join("b")
    silent.beat()
    rig.settle(60.0)
    expired = [each.fields["member"] for each in rig.notes if each.event == "member_expired"]
    assert len(expired) == len({*expired})
    assert silent.name in expired


def ended(member: Member) -> list[int]:
    """Queues that a member is told of as those of one that ended without leaving."""
    assert member.assigned is not None
    flights = member.rig.state.cluster.topics["flights"].id
    return sorted(queue for topic, queue in member.assigned.ended if topic == flights)


def test_who_gets_queues_of_one_that_fell_silent_is_told_so() -> None:
    rig = alone()
    first = rig.join("a")
    first.beat()
    second = rig.join("b")
    first.beat()
    first.release(*(first.last(queue, 0) for queue in first.revoked))
    second.beat()
    assert (len(second.kept), ended(second)) == (2, [])
    theirs = sorted(set(range(4)) - set(second.kept))
    for _ in range(30):
        rig.settle(0.5)
        second.beat()
    assert (second.kept, ended(second)) == ([0, 1, 2, 3], theirs)
    third = rig.join("c")
    second.beat()
    given = second.revoked
    assert second.release(*(second.last(queue, 0) for queue in given)) == [""] * len(given)
    third.beat()
    assert (third.kept, ended(third)) == (given, []), "who releases a queue has not ended with it"


def test_who_leaves_or_was_only_taken_for_dead_has_not_ended() -> None:
    rig = alone()
    first = rig.join("a")
    first.beat()
    first.leave()
    second = rig.join("b")
    second.beat()
    assert (len(second.kept), ended(second)) == (4, [])
    rig.settle(15.0)
    with pytest.raises(LogboomError):
        second.beat()
    second.join()
    second.beat()
    assert (len(second.kept), ended(second)) == (4, [])


def test_a_static_member_that_is_closed_and_started_again_has_not_ended() -> None:
    rig = alone()
    first = rig.join("a", instance="one")
    first.beat()
    first.leave(stays=True)
    again = rig.join("b", instance="one")
    again.beat()
    assert (again.kept, ended(again)) == ([0, 1, 2, 3], [])


def test_a_static_member_that_is_restarted_has_ended_before() -> None:
    rig = alone()
    first = rig.join("a", instance="one")
    first.beat()
    again = rig.join("b", instance="one")
    again.beat()
    assert (again.kept, ended(again)) == ([0, 1, 2, 3], [0, 1, 2, 3])
