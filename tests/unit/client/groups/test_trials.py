"""A queue whose last owner ended without leaving: its first message is tried, alone and counted."""

from __future__ import annotations

import pytest

from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.groups.offset_tracker import OffsetTracker, trying_of
from logboom.client.groups.trials import SAY_S, STEP_S
from logboom.client.results import ColumnBatch
from logboom.wire.group_messages import GroupCommit
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import AnyMessage
from tests.unit.client.groups.scripted_group import GroupCluster, Reader, fill, numbers
from tests.unit.client.groups.sinks import Sink

TRIED = 4
"""Where the queue is committed when it comes."""


@pytest.fixture
def cluster() -> GroupCluster:
    made = GroupCluster()
    fill(made, 0, 0, 60)
    return made


def trying(count: int) -> bytes:
    """What an owner has said that began with the message as the `count`th, and then ended."""
    return OffsetTracker(TRIED).encode(count)


def sinking(cluster: GroupCluster, most: int = 3) -> tuple[Reader, Sink]:
    """A reader of a group with few attempts, and where its copies go."""
    cluster.config_of_group = GroupConfig(max_attempts=most)
    reader, sink = Reader(cluster), Sink()
    failures = FailedMessages(reader.member, lambda: cluster.now, sink)
    reader.intake = GroupFetchCollector(reader.member, cluster.call, failures)
    return reader, sink


def test_a_queue_that_came_in_good_order_is_read_as_ever(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED)
    messages = reader.read(20)
    assert numbers(messages) == list(range(TRIED, TRIED + 20))
    assert {message.attempt for message in messages} == {1}
    assert cluster.log_of_commits == []


def test_the_first_message_goes_out_alone_and_the_group_knows_before(
    cluster: GroupCluster,
) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, ended=True)
    (first,) = reader.read(5, STEP_S - 1)
    assert (first.offset, first.attempt) == (TRIED, 2)
    (said,) = cluster.log_of_commits
    assert (said.offset, trying_of(said.ranges)) == (TRIED, 2)
    reader.intake.ack(first)
    (second, third) = reader.read(5, STEP_S - 1)
    assert [(m.offset, m.attempt) for m in (second, third)] == [(5, 1), (6, 1)]
    assert (cluster.commits[0].offset, cluster.commits[0].ranges) == (5, b"")


def test_steps_grow_until_all_that_was_there_is_done() -> None:
    cluster = GroupCluster()
    fill(cluster, 0, 0, 60)
    reader = Reader(cluster)
    cluster.give(0, TRIED, ended=True)
    sizes: list[int] = []
    while sum(sizes) < 60 - TRIED:
        some = reader.read(50, 1.0)
        sizes.append(len(some))
        reader.intake.ack(some)
    assert sizes[:4] == [1, 2, 4, 8]
    assert len(sizes) <= 6
    fill(cluster, 0, 60, 30)
    some = reader.read(30, 1.0)
    assert len(some) == 30
    commits = len(cluster.log_of_commits)
    reader.intake.ack(some)
    cluster.run(1.0)
    assert len(cluster.log_of_commits) == commits, "commits come as seldom as ever"


def test_the_count_goes_on_where_the_last_owner_ended(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, trying(3), ended=True)
    (first,) = reader.read(5, STEP_S - 1)
    assert first.attempt == 4
    assert trying_of(cluster.commits[0].ranges) == 4


def test_a_coordinator_that_forgot_loses_no_count(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, trying(2))
    (first,) = reader.read(5, STEP_S - 1)
    assert first.attempt == 3


def test_after_so_many_it_is_a_dead_letter_with_the_cause(cluster: GroupCluster) -> None:
    reader, sink = sinking(cluster)
    cluster.give(0, TRIED, trying(3), ended=True)
    assert numbers(reader.read(2, 1.0)) == [5, 6]
    ((topic, message, headers, _),) = sink.sent
    assert (topic, message.offset) == ("%DLQ%g", TRIED)
    assert headers["boom-attempt"] == b"3"
    assert headers["boom-cause"] == (
        b"its consumer's process ended 3 times with this message, without leaving group 'g'"
    )
    assert cluster.commits[0].offset == 5


def test_one_that_failed_before_has_fewer_left(cluster: GroupCluster) -> None:
    reader, sink = sinking(cluster)
    cluster.give(0, TRIED, trying(2), ended=True)
    (first,) = reader.read(1)
    assert (first.attempt, sink.sent) == (3, [])
    reader.intake.nack(first, None, "it failed", cluster.now)
    assert [topic for topic, *_ in sink.sent] == ["%DLQ%g"], "that was its last attempt"


def test_an_end_that_nobody_announced_buries_nothing(cluster: GroupCluster) -> None:
    reader, sink = sinking(cluster, most=1)
    cluster.give(0, TRIED, ended=True)
    (first,) = reader.read(1)
    assert (first.attempt, sink.sent) == (2, [])


def test_nothing_is_said_before_the_message_is_there(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, 60, ended=True)
    cluster.run(SAY_S + 5)
    assert cluster.log_of_commits == []
    fill(cluster, 0, 60, 3)
    assert numbers(reader.read(1, STEP_S - 1)) == [60]
    assert trying_of(cluster.commits[0].ranges) == 2


@pytest.mark.parametrize("way", ["revoke", "leave"])
def test_who_gives_the_queue_away_has_not_ended_with_it(cluster: GroupCluster, way: str) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, trying(2), ended=True)
    assert len(reader.read(5, 1.0)) == 1
    assert trying_of(cluster.commits[0].ranges) == 3
    if way == "revoke":
        cluster.revoke(0)
        cluster.run(40)
        (last,) = cluster.releases
    else:
        reader.close(0.5)
        ((last,),) = cluster.leaves
    assert (last.offset, trying_of(last.ranges)) == (TRIED, 2)


@pytest.mark.parametrize("way", ["revoke", "leave"])
def test_who_never_hears_that_the_group_knows_has_not_ended_with_it(
    cluster: GroupCluster, way: str
) -> None:
    """The coordinator has stored what the member said, and its answers are lost."""
    reader = Reader(cluster)
    cluster.give(0, TRIED, trying(2), ended=True)
    cluster.intercept = lambda _, message: False if isinstance(message, GroupCommit) else None
    assert reader.read(5, SAY_S - 1) == []
    assert trying_of(cluster.commits[0].ranges) == 3
    if way == "revoke":
        cluster.revoke(0)
        cluster.run(40)
        (last,) = cluster.releases
    else:
        reader.close(0.5)
        ((last,),) = cluster.leaves
    assert (last.offset, trying_of(last.ranges)) == (TRIED, 2)


def test_who_was_taken_for_dead_and_comes_back_has_not_ended_with_it(
    cluster: GroupCluster,
) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, trying(3), ended=True)
    assert reader.read(1)[0].attempt == 4
    ranges = cluster.commits[0].ranges
    cluster.fence()
    cluster.run(3)
    cluster.give(0, TRIED, ranges, ended=True)
    assert reader.read(1)[0].attempt == 4


def test_a_group_that_cannot_be_told_is_not_waited_for_for_ever(cluster: GroupCluster) -> None:
    reader = Reader(cluster)

    def silent(_endpoint: str, message: AnyMessage) -> bool | None:
        return True if isinstance(message, GroupCommit) else None

    cluster.intercept = silent
    cluster.give(0, TRIED, ended=True)
    assert reader.read(1, SAY_S - 1) == []
    assert numbers(reader.read(1, 3)) == [TRIED]


def test_who_finishes_many_at_once_gets_them_after_a_while(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, ended=True)
    taken = reader.read(20, STEP_S + 3)
    assert numbers(taken) == list(range(TRIED, TRIED + 20))
    assert trying_of(cluster.commits[0].ranges) == 2, "it is still the one at the commit point"
    reader.intake.ack(taken)
    reader.commit()
    assert (cluster.commits[0].offset, cluster.commits[0].ranges) == (24, b"")


def test_who_commits_by_itself_is_not_committed_for(cluster: GroupCluster) -> None:
    reader = Reader(cluster, commit_every_s=0)
    cluster.give(0, TRIED, ended=True)
    first = reader.read(5, 1.0)
    reader.intake.ack(first)
    assert reader.read(5, STEP_S - 2.0) == []
    assert cluster.commits[0].offset == TRIED
    reader.commit()
    assert numbers(reader.read(2, 1.0)) == [5, 6]


def test_a_message_that_is_nothing_for_the_group_is_passed_by(cluster: GroupCluster) -> None:
    made = GroupCluster()
    fill(made, 0, 0, 12, tags=["no"] * 3)
    fill(made, 0, 12, 12, tags=["yes"] * 3)
    made.subscription = {"t": "yes"}
    reader = Reader(made, subscription={"t": "yes"})
    made.give(0, TRIED, ended=True)
    (first, second) = reader.read(2)
    assert [(m.offset, m.attempt) for m in (first, second)] == [(12, 1), (13, 1)]
    assert made.commits[0].offset == 12, "who ends with one of these ends there"


def test_columns_are_cut_into_steps(cluster: GroupCluster) -> None:
    reader, sink = sinking(cluster, most=9)
    cluster.give(0, TRIED, trying(2), ended=True)
    sizes: list[int] = []

    def all_read() -> bool:
        found: list[ColumnBatch] = reader.intake.take_columns(cluster.now)
        if found:
            sizes.append(sum(len(batch.columns) for batch in found))
            reader.intake.ack(found)
        return sum(sizes) == 60 - TRIED

    assert cluster.run(30, all_read)
    assert sizes[:3] == [1, 2, 4]
    assert sink.sent == []
    assert trying_of(cluster.log_of_commits[0].ranges) == 3
    assert cluster.log_of_commits[-1].offset > TRIED


def test_columns_leave_out_a_dead_letter(cluster: GroupCluster) -> None:
    reader, sink = sinking(cluster)
    cluster.give(0, TRIED, trying(3), ended=True)
    offsets: list[int] = []

    def read() -> bool:
        for batch in reader.intake.take_columns(cluster.now):
            offsets.append(batch.columns.base_offset)
            reader.intake.ack(batch)
        return len(offsets) >= 2

    assert cluster.run(10, read)
    assert min(offsets) == TRIED + 1
    assert [message.offset for _, message, _, _ in sink.sent] == [TRIED]


def test_a_seek_ends_it(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, TRIED, trying(2), ended=True)
    assert len(reader.read(5, 1.0)) == 1
    reader.intake.seek("t", 0, 30)
    assert numbers(reader.read(5, 2.0)) == [30, 31, 32, 33, 34]


def two_ended(kept: int) -> tuple[GroupCluster, Reader]:
    """Two queues with one message each, whose owner ended."""
    cluster = GroupCluster()
    for queue in range(2):
        fill(cluster, queue, 0, TRIED + 1)
    reader = Reader(cluster)
    for queue in range(2):
        cluster.give(queue, TRIED, trying(kept), ended=True)
    return cluster, reader


def test_of_two_queues_one_message_is_tried_at_a_time() -> None:
    cluster, reader = two_ended(2)
    (first,) = reader.read(2, STEP_S - 1)
    said = {commit.queue: trying_of(commit.ranges) for commit in cluster.log_of_commits}
    assert said == {first.queue: 3}, "the other one is not counted if this one ends the process"
    reader.intake.ack(first)
    (second,) = reader.read(2, 1.0)
    assert (second.queue, second.offset, second.attempt) == (1 - first.queue, TRIED, 3)
    assert cluster.commits[first.queue].offset == TRIED + 1
    assert trying_of(cluster.commits[second.queue].ranges) == 3


def test_a_message_that_takes_long_does_not_hold_back_the_other_queue_for_ever() -> None:
    _, reader = two_ended(0)
    assert len(reader.read(2, STEP_S - 1)) == 1
    assert len(reader.read(1, 2.0)) == 1
