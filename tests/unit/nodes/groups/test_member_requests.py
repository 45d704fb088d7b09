"""Commits, releases and farewells: gathered, proposed, answered by the log (G1, G3)."""

from __future__ import annotations

import pytest

from logboom.wire.commands import RegisterBroker
from logboom.wire.errors import InvalidRequest, LogboomError, NotLeader, Unavailable
from logboom.wire.group_commands import CommitOffsets, LeaveGroup, QueueCommit, ReleaseQueues
from logboom.wire.group_messages import GroupCommit, GroupLeave, GroupRelease
from logboom.wire.messages import Propose
from tests.unit.nodes.groups.group_rig import END, GROUP, GroupRig, Member
from tests.unit.nodes.rig import ME


def alone(queues: int = 4) -> GroupRig:
    """A cluster of this broker only: it coordinates every group."""
    return GroupRig(queues, brokers=1)


def members(rig: GroupRig, *names: str) -> list[Member]:
    """Members that share the queues, with everything released that had to be."""
    found = [rig.join(name) for name in names]
    for member in found:
        member.beat()
        if member.revoked:
            member.release(*[member.last(queue, 0) for queue in member.revoked])
    for member in found:
        member.beat()
    rig.settle(0.1)
    return found


def test_a_commit_is_answered_once_it_is_in_the_log() -> None:
    rig = alone()
    (member,) = members(rig, "a")
    rig.deciding = False
    member.ask_commit(member.last(0, 7), member.last(1, 9))
    assert not member.peer.replies
    rig.decide_all()
    assert member.codes() == ["", ""]
    assert (rig.committed(0), rig.committed(1)) == (7, 9)


def test_commits_of_all_members_wait_for_one_command_under_way() -> None:
    rig = alone()
    first, second, third = members(rig, "a", "b", "c")
    rig.deciding = False
    first.ask_commit(first.last(first.kept[0], 1))
    second.ask_commit(second.last(second.kept[0], 2))
    third.ask_commit(third.last(third.kept[0], 3), third.last(third.kept[0], END + 1))
    first.ask_commit(first.last(first.kept[0], 4))
    assert len(rig.commands) == 1
    rig.decide_next()
    assert len(rig.commands) == 1
    command = rig.commands[0][1]
    assert isinstance(command, CommitOffsets)
    assert sum(len(of.queues) for g in command.groups for of in g.members) == 4
    rig.decide_all()
    assert second.codes() == [""]
    assert third.codes() == ["", "BEYOND_END"]
    assert rig.committed(first.kept[0]) == 4


def test_each_gets_its_own_codes() -> None:
    rig = alone()
    first, second = members(rig, "a", "b")
    theirs = second.last(second.kept[0], 5)
    mine = first.last(first.kept[0], 5)
    old = first.last(first.kept[1], 5, owner_epoch=1)
    nowhere = QueueCommit(mine.topic_id, 99, 1, 1, 1)
    assert first.commit(mine, theirs, old, nowhere) == [
        "",
        "NOT_OWNER",
        "STALE_EPOCH",
        "UNKNOWN_QUEUE",
    ]
    assert rig.committed(first.kept[0]) == 5
    assert rig.committed(second.kept[0]) == 0


def test_a_commit_whose_answer_is_lost_is_answered_by_the_first_result() -> None:
    rig = alone()
    (member,) = members(rig, "a")
    rig.deciding = False
    member.ask_commit(member.last(0, 7))
    rig.decide_next(answer=False)
    rig.settle(1.6)
    rig.decide_all()
    assert member.codes() == [""]


def test_a_commit_goes_on_through_an_election() -> None:
    rig = alone()
    (member,) = members(rig, "a")
    rig.deciding = False
    member.ask_commit(member.last(0, 7))
    message, _ = rig.commands.pop(0)
    rig.refuse(message, NotLeader("an election is on", leader=None))
    rig.settle(0.3)
    again, _ = rig.commands[0]
    assert (again.proposer, again.number) == (message.proposer, message.number)
    rig.decide_all()
    assert member.codes() == [""]


def test_large_commits_go_in_commands_that_the_name_servers_take() -> None:
    rig = alone(queues=40)
    (member,) = members(rig, "a")
    sizes: list[int] = []
    ranges = bytes(4_000)
    lasts = [member.last(queue, 3, ranges=ranges) for queue in range(40)]
    rig.deciding = False
    member.ask_commit(*lasts)
    while rig.commands:
        command = rig.commands[0][1]
        assert isinstance(command, CommitOffsets)
        sizes.append(
            sum(len(q.ranges) for g in command.groups for m in g.members for q in m.queues)
        )
        rig.decide_next()
    assert member.codes() == [""] * 40
    assert len(sizes) == 4
    assert max(sizes) < 55 * 1024


def test_ranges_that_fit_into_no_command_are_refused_alone() -> None:
    rig = alone()
    first, second = members(rig, "a", "b")
    first.ask_commit(first.last(first.kept[0], 1, ranges=bytes(50_000)))
    with pytest.raises(InvalidRequest) as caught:
        first.peer.answer()
    assert caught.value.code == "TOO_LARGE"
    assert second.commit(second.last(second.kept[0], 1)) == [""]


def test_a_release_commits_and_gives_away_in_one_command() -> None:
    """G1: the next owner starts where the last one ended."""
    rig = alone()
    first = rig.join("a")
    first.beat()
    second = rig.join("b")
    second.beat()
    assert second.kept == []
    first.beat()
    queue = first.revoked[0]
    rig.deciding = False
    first.peer.ask(GroupRelease(0, 5_000, GROUP, "a", first.epoch, [first.last(queue, 77)]))
    assert [type(command) for _, command in rig.commands] == [ReleaseQueues]
    assert not first.peer.replies
    rig.decide_all()
    assert first.codes() == [""]
    second.beat()
    assert second.queues[queue].start == 77
    assert queue not in first.kept


def test_a_release_beyond_the_end_is_refused_and_stays_owned() -> None:
    rig = alone()
    first = rig.join("a")
    first.beat()
    second = rig.join("b")
    first.beat()
    one, other = first.revoked
    assert first.release(first.last(one, END + 1), first.last(other, 1)) == ["BEYOND_END", ""]
    first.beat()
    assert first.revoked == [one]
    second.beat()
    assert second.kept == [other]


def test_a_large_release_goes_in_parts_and_is_answered_whole() -> None:
    rig = alone(queues=80)
    first = rig.join("a")
    first.beat()
    second = rig.join("b")
    first.beat()
    lasts = [first.last(queue, 5, ranges=bytes(3_000)) for queue in first.revoked]
    assert first.release(*lasts) == [""] * 40
    second.beat()
    assert len(second.kept) == 40
    assert all(second.queues[queue].start == 5 for queue in second.kept)


def test_a_member_leaves_with_its_last_commits() -> None:
    rig = alone()
    first, second = members(rig, "a", "b")
    wrong = first.last(first.kept[1], END + 5)
    assert first.leave(first.last(first.kept[0], 11), wrong) == ["", "BEYOND_END"]
    second.beat()
    assert second.kept == [0, 1, 2, 3]
    assert second.queues[first.kept[0]].start == 11


def test_a_static_member_that_ends_commits_and_keeps_its_queues_for_its_session() -> None:
    rig = alone()
    member = rig.join("a", instance="one")
    member.beat()
    epoch = rig.group.group_epoch
    assert member.leave(member.last(0, 11), stays=True) == [""]
    assert rig.committed(0) == 11
    assert (list(rig.group.members), rig.group.group_epoch) == (["a"], epoch)
    rig.settle(60.0)
    assert not rig.group.members


def test_a_farewell_larger_than_a_command_loses_no_commit() -> None:
    rig = alone(queues=40)
    (member,) = members(rig, "a")
    lasts = [member.last(queue, 5, ranges=bytes(4_000)) for queue in range(40)]
    rig.deciding = False
    member.peer.ask(GroupLeave(0, 5_000, GROUP, "a", member.epoch, lasts))
    kinds = []
    while rig.commands:
        kinds.append(type(rig.decide_next()))
    assert kinds == [CommitOffsets] * 3 + [LeaveGroup]
    assert member.codes() == [""] * 40
    assert {rig.committed(queue) for queue in range(40)} == {5}
    assert not rig.group.members


def test_an_empty_commit_and_an_empty_farewell_are_answered() -> None:
    rig = alone()
    (member,) = members(rig, "a")
    assert member.commit() == []
    assert member.release() == []
    assert member.leave() == []
    assert not rig.group.members


def test_a_former_epoch_and_a_stranger_change_nothing() -> None:
    rig = alone()
    (former,) = members(rig, "a")
    again = Member(rig, "a")
    again.join()
    for request in (
        GroupCommit(0, 5_000, GROUP, "a", former.epoch, [former.last(0, 5)]),
        GroupRelease(0, 5_000, GROUP, "a", former.epoch, [former.last(0, 5)]),
        GroupLeave(0, 5_000, GROUP, "a", former.epoch, [former.last(0, 5)]),
    ):
        former.peer.ask(request)
        with pytest.raises(NotLeader) as caught:
            former.peer.answer()
        assert caught.value.code == "STALE_EPOCH"
    assert rig.committed(0) == 0
    assert list(rig.group.members) == ["a"]


def test_a_coordinator_that_was_replaced_is_found_out_by_the_log() -> None:
    """R13: its copy is old, but what it proposes carries its epoch."""
    rig = GroupRig()
    rig.coordinate_or_create()
    (member,) = members(rig, "a")
    rig.telling = False
    # To the name servers this broker is gone: the group is another's.
    rig.granting = False
    rig.fence(ME)
    assert rig.group.coordinator != ME
    member.ask_commit(member.last(0, 7))
    with pytest.raises(LogboomError) as caught:
        member.peer.answer()
    assert caught.value.retryable
    assert rig.committed(0) == 0


def test_who_is_fenced_ends_all_that_is_open_and_serves_again_in_a_new_epoch() -> None:
    rig = alone()
    (member,) = members(rig, "a")
    epoch = rig.group.coordinator_epoch
    rig.deciding = False
    member.ask_commit(member.last(0, 7))
    side = Member(rig, "b")
    side.peer.ask(side.joining())
    assert len(rig.commands) == 2
    rig.fence(ME)
    rig.settle(1.5)
    for each in (member, side):
        with pytest.raises(Unavailable):
            each.peer.answer()
    rig.commands.clear()
    rig.deciding = True
    rig.settle(3.0)
    assert rig.group.coordinator_epoch > epoch
    assert rig.group.coordinator == ME
    assert member.commit(member.last(0, 8)) == [""]
    side.join()


def test_commands_of_groups_do_not_wait_for_each_other_nor_delay_the_brokers_own() -> None:
    rig = alone()
    members(rig, "a")
    rig.deciding = False
    for number in range(20):
        member = Member(rig, f"m{number}")
        member.peer.ask(member.joining())
    assert len(rig.commands) == 16
    rig.call_stop()
    proposers = {message.proposer for message, _ in rig.commands}
    assert len(proposers) == 2
    # The oldest is not answered: numbers do not run away from it.
    oldest = rig.commands.pop(0)
    for _ in range(15):
        rig.decide_next()
    assert isinstance(oldest[0], Propose)
    assert len([m for m, _ in rig.commands if m.proposer == oldest[0].proposer]) == 0


def test_a_command_that_the_name_servers_will_never_take_stands_in_nobodys_way() -> None:
    rig = alone()
    (member,) = members(rig, "a")
    rig.deciding = False
    member.ask_commit(member.last(0, 7))
    message, command = rig.commands.pop(0)
    assert not isinstance(command, RegisterBroker)
    rig.refuse(message, InvalidRequest("too large", "TOO_LARGE"))
    with pytest.raises(InvalidRequest):
        member.peer.answer()
    rig.deciding = True
    assert member.commit(member.last(0, 8)) == [""]
