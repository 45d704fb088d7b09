"""Offsets of consumer groups: commits, their fences, starts and resets (SAFETY G1, G3, R13)."""

from __future__ import annotations

from typing import Literal

import pytest

from logboom.wire.commands import AlterTopic, CreateTopic, DeleteTopic
from logboom.wire.group_commands import (
    AlterGroup,
    CommitOffsets,
    GroupCommits,
    MemberCommits,
    ResetOffsets,
    SetStart,
)
from logboom.wire.group_view import MAX_OFFSET, GroupConfig
from logboom.wire.view import TopicConfig
from tests.unit.metadata.groups.tables import GroupTables, codes


def one_member(start: Literal["first", "last"] = "first") -> GroupTables:
    """m1 alone in g, which begins in t by this rule."""
    tables = GroupTables()
    tables.join("m1", config=GroupConfig(start=start))
    tables.settle()
    return tables


def reset(tables: GroupTables, *offsets: tuple[tuple[int, int], int]) -> list[str]:
    named = [(*key, offset) for key, offset in offsets]
    return codes(tables.done(ResetOffsets("g", named, 0)))


def test_a_commit_goes_forward_only() -> None:
    tables = one_member()
    key = tables.key(0)
    assert tables.commit("m1", tables.last(key, 10)) == [""]
    assert tables.commit("m1", tables.last(key, 10), tables.last(key, 4)) == ["", ""]
    assert tables.committed(0) == 10


def test_a_commit_may_go_to_the_end_that_was_seen_and_not_beyond() -> None:
    tables = one_member()
    key = tables.key(0)
    assert tables.commit("m1", tables.last(key, 11, seen_end=10)) == ["BEYOND_END"]
    assert tables.committed(0) == 0
    assert tables.commit("m1", tables.last(key, 10, seen_end=10)) == [""]
    # A leader after a fail-over shows a smaller end for a while: what was seen stays seen.
    assert tables.commit("m1", tables.last(key, 10, seen_end=5)) == [""]
    assert tables.commit("m1", tables.last(key, 11, seen_end=5)) == ["BEYOND_END"]


def test_finished_ranges_are_kept_until_they_are_passed() -> None:
    tables = one_member()
    key = tables.key(0)
    tables.commit("m1", tables.last(key, 5, ranges=b"7-9"))
    assert tables.group.topics[key[0]].ranges == {0: b"7-9"}
    tables.commit("m1", tables.last(key, 5, ranges=b"7-12"))
    assert tables.group.topics[key[0]].ranges == {0: b"7-12"}
    tables.commit("m1", tables.last(key, 4, ranges=b"old"))
    assert tables.group.topics[key[0]].ranges == {0: b"7-12"}
    tables.commit("m1", tables.last(key, 13))
    assert tables.group.topics[key[0]].ranges == {}
    assert tables.commit("m1", tables.last(key, 13, ranges=bytes(4097))) == ["INVALID_ARGUMENT"]


def test_every_commit_has_its_own_answer() -> None:
    tables = one_member()
    tables.join("m2")
    tables.settle()
    mine, other = tables.owned("m1")[0], tables.owned("m2")[0]
    answer = tables.commit(
        "m1",
        tables.last(mine, 5),
        tables.last(other, 5),
        tables.last(mine, 6, epoch=1),
        tables.last((99, 0), 5, epoch=1),
        tables.last(mine, -1),
        tables.last(mine, 1, seen_end=MAX_OFFSET),
        tables.last(mine, 7),
    )
    assert answer == [
        "",
        "NOT_OWNER",
        "STALE_EPOCH",
        "UNKNOWN_QUEUE",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
        "",
    ]
    assert tables.committed(mine[1]) == 7


@pytest.mark.parametrize("queue", [-1, 4, 1 << 40])
def test_a_queue_that_does_not_exist(queue: int) -> None:
    tables = one_member()
    where = (tables.key(0)[0], queue)
    assert tables.commit("m1", tables.last(where, 5, epoch=1)) == ["UNKNOWN_QUEUE"]
    assert reset(tables, (where, 5)) == ["UNKNOWN_QUEUE"]
    assert tables.start([(where, 5)]) == ["UNKNOWN_QUEUE"]


def test_commits_of_several_groups_are_fenced_each_by_its_coordinator() -> None:
    tables = one_member()
    g, member = tables.group, tables.member("m1")
    mine = MemberCommits("m1", member.epoch, [tables.last(tables.key(0), 5)])
    stranger = MemberCommits("m9", 1, [tables.last(tables.key(0), 5)])
    stale = MemberCommits("m1", member.epoch - 1, [tables.last(tables.key(0), 5)])
    groups = [
        GroupCommits("none", 1, [mine, mine]),
        GroupCommits("g", g.coordinator_epoch + 1, [mine]),
        GroupCommits("g", g.coordinator_epoch, [stranger, stale, mine]),
    ]
    answer = codes(tables.done(CommitOffsets(g.coordinator, groups, 0)))
    assert answer == [
        "UNKNOWN_GROUP",
        "UNKNOWN_GROUP",
        "NOT_COORDINATOR",
        "UNKNOWN_MEMBER",
        "STALE_EPOCH",
        "",
    ]
    late = CommitOffsets("another", groups[2:], 0)
    assert codes(tables.done(late)) == ["NOT_COORDINATOR"] * 3


def test_commits_are_no_change_of_metadata() -> None:
    tables = one_member()
    version = tables.state.version
    tables.commit("m1", tables.last(tables.key(0), 5))
    assert tables.state.version == version


# ── starts ──────────────────────────────────────────────────────────────────────────────────────


def test_nobody_gets_a_queue_before_its_start_is_known() -> None:
    tables = one_member(start="last")
    keys = [tables.key(n) for n in range(4)]
    assert list(tables.group.unstarted) == keys
    assert tables.owned("m1") == []
    assert tables.start([(keys[0], 40), (keys[1], 0)]) == ["", ""]
    assert tables.owned("m1") == keys[:2]
    assert tables.committed(0) == 40
    assert list(tables.group.unstarted) == keys[2:]
    # Whoever comes second does not move it.
    assert tables.start([(keys[0], 90)]) == [""]
    assert tables.committed(0) == 40
    assert tables.commit("m1", tables.last(keys[0], 41, seen_end=40)) == ["BEYOND_END"]


def test_a_start_of_another_coordinators_time_is_refused() -> None:
    tables = one_member(start="last")
    late = SetStart("g", tables.group.coordinator_epoch - 1, [(*tables.key(0), 1)], 0)
    assert tables.apply(late).code == "NOT_COORDINATOR"
    assert tables.apply(SetStart("none", 1, [], 0)).code == "UNKNOWN_GROUP"
    assert tables.start([(tables.key(0), -1)]) == ["INVALID_ARGUMENT"]


def test_queues_that_come_later_begin_at_zero() -> None:
    tables = one_member(start="last")
    tables.start([(tables.key(n), 40) for n in range(4)])
    tables.done(AlterTopic("t", 6, None, 0))
    assert tables.group.target_epoch < tables.group.group_epoch
    tables.settle()
    assert len(tables.owned("m1")) == 6
    assert [tables.committed(n) for n in range(6)] == [40, 40, 40, 40, 0, 0]


def test_a_topic_that_comes_later_begins_at_zero_and_a_former_one_by_the_rule() -> None:
    tables = one_member(start="last")
    tables.create("old")
    both = {"t": "*", "old": "*", "new": "*"}
    tables.done(AlterGroup("g", None, both, False, 0))
    tables.create("new")
    assert tables.committed(0, "new") == 0
    assert tables.committed(0, "old") == -1


def test_the_retry_topic_belongs_to_the_subscription_and_begins_at_zero() -> None:
    tables = one_member(start="last")
    tables.done(CreateTopic("%RETRY%g", 1, 3, TopicConfig(), 0))
    tables.settle()
    assert tables.owned("m1") == [tables.key(0, "%RETRY%g")]


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    tables = one_member()
    tables.commit("m1", tables.last(tables.key(0), 5))
    tables.done(DeleteTopic("t", 0))
    assert (tables.owned("m1"), tables.group.topics) == ([], {})
    tables.settle()
    tables.create("t", queues=2)
    tables.settle()
    assert len(tables.owned("m1")) == 2
    assert tables.committed(0) == 0


def test_broadcasting_gives_nobody_anything() -> None:
    tables = GroupTables()
    tables.join("m1", config=GroupConfig(mode="broadcasting"))
    group = tables.group
    assert (group.topics, group.target_epoch) == ({}, group.group_epoch)
    tables.done(AlterTopic("t", 6, None, 0))
    assert group.topics == {}


# ── resets ──────────────────────────────────────────────────────────────────────────────────────


def test_a_reset_moves_back_and_fences_what_was_under_way() -> None:
    tables = one_member()
    key = tables.key(0)
    tables.commit("m1", tables.last(key, 50, ranges=b"52-53"))
    late = tables.last(key, 60)
    assert reset(tables, (key, 20)) == [""]
    assert tables.committed(0) == 20
    assert tables.group.topics[key[0]].ranges == {}
    assert tables.owned("m1") == [tables.key(n) for n in range(4)]
    assert tables.commit("m1", late) == ["STALE_EPOCH"]
    assert tables.commit("m1", tables.last(key, 21)) == [""]


def test_a_reset_of_a_queue_that_is_drained_gives_it_away_at_once() -> None:
    tables = one_member()
    tables.join("m2")
    tables.allocate()
    key = tables.owned("m1", revoking=True)[0]
    late = tables.last(key, 60)
    reset(tables, (key, 20))
    assert tables.owned("m2") == [key]
    assert tables.release("m1", late) == ["NOT_OWNER"]
    assert tables.committed(key[1]) == 20


def test_a_reset_works_without_members_and_for_topics_not_subscribed_to() -> None:
    tables = one_member()
    tables.create("u", queues=2)
    tables.leave("m1")
    assert reset(tables, (tables.key(0), 7), (tables.key(1, "u"), 9)) == ["", ""]
    assert reset(tables, ((999, 0), 1), (tables.key(0), -3)) == [
        "UNKNOWN_QUEUE",
        "INVALID_ARGUMENT",
    ]
    tables.join("m1", {"u": "*"}, replace=True)
    tables.settle()
    assert [tables.committed(n, "u") for n in range(2)] == [0, 9]
    assert len(tables.owned("m1")) == 2
    assert tables.apply(ResetOffsets("none", [], 0)).code == "UNKNOWN_GROUP"


def test_a_reset_knows_queues_that_came_since_to_a_topic_not_subscribed_to() -> None:
    tables = one_member()
    tables.create("u", queues=1)
    assert reset(tables, (tables.key(0, "u"), 7)) == [""]
    tables.done(AlterTopic("u", 2, None, 0))
    assert reset(tables, (tables.key(1, "u"), 9)) == [""]
    assert [tables.committed(n, "u") for n in range(2)] == [7, 9]


def test_offsets_can_be_there_before_the_group() -> None:
    tables = GroupTables()
    tables.done(AlterGroup("g", GroupConfig(start="last"), None, True, 0))
    reset(tables, *((tables.key(n), 100 + n) for n in range(3)))
    tables.join("m1")
    tables.settle()
    assert tables.owned("m1") == [tables.key(n) for n in range(3)]
    assert list(tables.group.unstarted) == [tables.key(3)]
