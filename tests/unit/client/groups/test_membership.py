"""Members of groups: what they get, drain, commit, release; fenced, moved and altered."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from logboom.client.groups import offset_committer
from logboom.client.groups.member import CloseMember, CommitMember
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.client.results import Message
from logboom.wire.errors import (
    ClientClosed,
    GroupError,
    InvalidRequest,
    Refused,
    TimedOut,
    UnknownResource,
)
from logboom.wire.group_messages import (
    GroupCommit,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupRelease,
)
from logboom.wire.messages import AnyMessage, Failure, Pull, Watch
from tests.unit.client.groups.scripted_group import GroupCluster, Reader, fill, numbers, proof_of
from tests.unit.client.scripted import BROKERS


@pytest.fixture
def cluster() -> GroupCluster:
    made = GroupCluster()
    fill(made, 0, 0, 30)
    fill(made, 1, 100, 30)
    return made


def test_it_reads_what_it_is_given_and_commits_what_is_acknowledged(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, start=4)
    messages = reader.read(10)
    assert numbers(messages) == list(range(4, 14))
    reader.intake.ack(messages[:6])
    reader.commit()
    assert (cluster.commits[0].offset, cluster.commits[0].seen_end) == (10, 30)
    pulls = [m for m in cluster.seen if isinstance(m, Pull)]
    owned = cluster.owned[0].owner_epoch
    assert {(pull.group, pull.owner_epoch, pull.queue) for pull in pulls} == {("g", owned, 0)}


def test_pulls_have_the_proof_of_the_owner_epoch(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.read(4)
    pulls = [m for m in cluster.seen if isinstance(m, Pull)]
    assert {pull.owner_proof for pull in pulls} == {proof_of(cluster.owned[0])}
    # A reset gives a new epoch, and with it another proof.
    cluster.give(0, start=20)
    reader.read(10)
    last = [m for m in cluster.seen if isinstance(m, Pull)][-1]
    assert last.owner_proof == proof_of(cluster.owned[0]) != pulls[0].owner_proof


def test_a_coordinator_that_is_upgraded_gives_proofs_of_what_a_member_has(
    cluster: GroupCluster,
) -> None:
    cluster.proving = False
    reader = Reader(cluster)
    cluster.give(0)
    reader.read(4)
    pulls = [m for m in cluster.seen if isinstance(m, Pull)]
    assert {pull.owner_proof for pull in pulls} == {b""}
    cluster.proving = True
    cluster.assigned_version += 1
    reader.read(26)
    cluster.run(10)
    last = [m for m in cluster.seen if isinstance(m, Pull)][-1]
    assert last.owner_proof == proof_of(cluster.owned[0])


def test_commits_come_by_themselves_every_five_seconds(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(7))
    cluster.run(5.5)
    assert cluster.commits[0].offset == 7
    cluster.run(20)
    assert len(cluster.log_of_commits) == 1, "what did not change is not committed again"


def test_finished_messages_above_the_commit_point_are_not_read_again(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(12)
    reader.intake.ack([m for m in messages if m.offset not in (3, 7)])
    reader.close(0)
    last = cluster.leaves[0][0]
    assert last.offset == 3
    again = Reader(cluster)
    cluster.give(0, last.offset, last.ranges)
    assert numbers(again.read(5)) == [3, 7, 12, 13, 14]


def test_a_revoked_queue_is_drained_and_then_released_with_its_last_commit(
    cluster: GroupCluster,
) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    cluster.give(1)
    messages = reader.read(8)
    first = [m for m in messages if m.queue == messages[0].queue]
    queue = first[0].queue
    other = 1 - queue
    cluster.revoke(queue)
    cluster.run(2)
    assert not cluster.releases, "what is handed out is waited for"
    rest = reader.read(12)
    assert {m.queue for m in rest} == {other}, "nothing more of it is handed out"
    reader.intake.ack(first)
    cluster.run(1)
    assert [(r.queue, r.offset) for r in cluster.releases] == [(queue, len(first))]
    assert not [
        c for c in cluster.seen if isinstance(c, GroupCommit) and c.queues[0].queue == queue
    ]
    assert [key[1] for key in reader.member.holdings] == [other]


def test_a_queue_that_stays_after_all_goes_on_where_it_was(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(5)
    cluster.revoke(0)
    cluster.run(1)
    cluster.revoke(0, revoking=False)
    more = reader.read(7)
    assert numbers(messages + more) == list(range(12))
    reader.intake.ack(messages + more)
    reader.commit()
    assert cluster.commits[0].offset == 12
    assert not cluster.releases


def test_a_drain_that_takes_too_long_is_released_unfinished(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(5)
    reader.intake.ack([messages[0], messages[2]])
    cluster.revoke(0)
    cluster.run(20)
    assert not cluster.releases
    cluster.run(3)  # 0.7 of the drain time of 30 s
    release = cluster.releases[0]
    assert (release.offset, OffsetTracker(1, release.ranges).ranges) == (1, [(2, 3)])


def test_a_lost_answer_to_a_release_changes_nothing(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    lost: list[AnyMessage] = []

    def once(_: str, message: AnyMessage) -> Failure | bool | None:
        if isinstance(message, GroupRelease) and not lost:
            lost.append(message)
            return False
        return None

    cluster.intercept = once
    cluster.revoke(0)
    cluster.run(10)
    assert [r.offset for r in cluster.releases] == [5]
    assert not reader.member.holdings


def test_a_reset_drops_what_is_buffered_and_goes_on_from_there(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    old = reader.read(5)
    cluster.give(0, start=2)
    cluster.run(1)
    reader.intake.ack(old[3:])  # handed out before: they say nothing now
    assert numbers(reader.read(6)) == [2, 3, 4, 5, 6, 7]
    reader.commit()
    assert cluster.commits == {}


def test_what_was_not_given_to_a_member_can_not_be_settled_there(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0, start=5)
    messages = reader.read(5)
    beyond = msgspec.structs.replace(messages[-1], offset=10)
    elsewhere = msgspec.structs.replace(messages[0], queue=1)
    unknown = msgspec.structs.replace(messages[0], topic="u")
    for foreign in (beyond, elsewhere, unknown):
        with pytest.raises(InvalidRequest, match=r"not given to this consumer.*that read it"):
            reader.intake.ack([messages[0], foreign])
        with pytest.raises(InvalidRequest, match="not given to this consumer"):
            reader.intake.nack(foreign, None, "no luck", cluster.now)
        with pytest.raises(InvalidRequest, match="not given to this consumer"):
            reader.intake.reject(foreign, "never", cluster.now)
    reader.commit()
    assert cluster.commits[0].offset == 6, "what came before a foreign one counts"
    assert numbers(reader.read(2)) == [10, 11]


def test_messages_of_several_queues_are_finished_in_any_order(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    cluster.give(1)
    messages = reader.read(30)
    both = {queue: [each for each in messages if each.queue == queue] for queue in (0, 1)}
    first = [each for pair in zip(both[0][:6], both[1][:6], strict=True) for each in pair]
    reader.intake.ack(iter([*first[::-1], *first, both[0][8], both[0][7], both[0][6]]))
    reader.commit()
    assert [cluster.commits[queue].offset for queue in (0, 1)] == [9, 6]


def test_what_came_before_an_error_of_the_programs_iterator_is_finished(
    cluster: GroupCluster,
) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(5)

    def some() -> Iterator[Message]:
        yield from messages[:3]
        raise OSError("no luck")

    with pytest.raises(OSError, match="no luck"):
        reader.intake.ack(some())
    with pytest.raises(InvalidRequest, match=r"must be a whole number, not 3\.0"):
        reader.intake.ack(msgspec.structs.replace(messages[3], offset=3.0))
    reader.commit()
    assert cluster.commits[0].offset == 3


def test_columns_that_were_not_given_to_a_member_can_not_be_settled_there(
    cluster: GroupCluster,
) -> None:
    cluster.give(1)
    other = Reader(cluster)
    cluster.run(2)
    foreign = other.intake.take_columns(cluster.now)
    assert {each.queue for each in foreign} == {1}
    again = GroupCluster()
    fill(again, 0, 0, 30)
    reader = Reader(again)
    again.give(0)
    reader.read(3)
    with pytest.raises(InvalidRequest, match="messages 0 to 29 of t/1 were not given"):
        reader.intake.ack(foreign)


def test_what_a_member_was_given_once_may_always_be_settled(cluster: GroupCluster) -> None:
    """Whoever holds a message cannot know that its queue was reset, lost, or is read again."""
    reader = Reader(cluster)
    cluster.give(0)
    old = reader.read(9)
    reader.intake.seek("t", 0, 2)
    reader.intake.ack(old[4:])  # read again from 2
    reader.intake.seek("t", 0, "last")
    reader.intake.ack(old[4:])  # where it reads is not known yet
    cluster.give(0, start=1)
    assert cluster.run(5, lambda: reader.member.holdings[key(cluster, 0)].handed == 1)
    reader.intake.ack(old[4:])  # reset
    reader.intake.nack(old[5], None, "no luck", cluster.now)
    del cluster.owned[0]
    cluster.assigned_version += 1
    assert cluster.run(5, lambda: not reader.member.holdings)
    reader.intake.ack(old[4:])  # with another member
    reader.intake.reject(old[5], "never", cluster.now)
    cluster.give(0, start=1)
    assert numbers(reader.read(3)) == [1, 2, 3]
    reader.intake.ack(old[4:])  # back again, and not given anew yet
    beyond = [msgspec.structs.replace(old[0], offset=offset) for offset in (9, 10)]
    with pytest.raises(InvalidRequest, match=r"^messages 9 to 10 of t/0 were not given"):
        reader.intake.ack([*old[7:], *beyond])  # those before them were
    reader.commit()
    assert cluster.commits == {}


def key(cluster: GroupCluster, queue: int) -> tuple[int, int]:
    """The key of a queue of topic "t"."""
    return cluster.topic_ids["t"], queue


def test_who_is_fenced_drops_all_and_joins_again(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    old = reader.read(5)
    holding = next(iter(reader.member.holdings.values()))
    cluster.fence()
    cluster.run(0.5)
    assert holding.cancelled
    assert len(cluster.joins) == 2
    assert reader.member.joins == 2
    cluster.give(0)
    assert numbers(reader.read(5)) == numbers(old)


def test_the_coordinator_may_move_or_fall_silent(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    cluster.dead.add(cluster.coordinator)
    cluster.coordinator, cluster.coordinator_epoch = BROKERS[2], 4
    cluster.version += 1
    reader.commit()
    assert cluster.commits[0].offset == 5
    assert len(cluster.joins) == 1
    cluster.coordinator, cluster.coordinator_epoch = BROKERS[0], 5
    reader.intake.ack(reader.read(5))
    reader.commit()
    assert cluster.commits[0].offset == 10


def test_all_that_was_asked_of_a_fenced_broker_is_asked_elsewhere(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    cluster.dead.add(cluster.coordinator)
    call = CommitMember(reader.member)
    cluster.call(call)
    cluster.run(0.1)
    cluster.coordinator, cluster.coordinator_epoch = BROKERS[2], 4
    cluster.version += 1
    cluster.give(1, start=100)
    assert cluster.run(1.0, lambda: call.outcome.done and len(reader.member.holdings) == 2)


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "FORBIDDEN"])
def test_a_refused_heartbeat_is_told_to_who_polls_and_may_pass(
    cluster: GroupCluster, code: str
) -> None:
    reader = Reader(cluster)
    cluster.run(1)
    refusal = Failure(0, code, "not allowed", retryable=False)
    cluster.intercept = lambda _, message: refusal if isinstance(message, GroupHeartbeat) else None
    assert cluster.run(10, lambda: reader.member.error is not None)
    with pytest.raises(Refused, match="not allowed"):
        reader.intake.has_queue()
    cluster.intercept = lambda *_: None
    cluster.give(0)
    assert cluster.run(10, lambda: reader.member.error is None)
    assert len(reader.read(5)) == 5


def test_one_heartbeat_is_held(cluster: GroupCluster) -> None:
    Reader(cluster)
    cluster.run(30)
    beats = [m for m in cluster.seen if isinstance(m, GroupHeartbeat)]
    assert 10 <= len(beats) <= 14
    assert beats[0].seen == -1
    assert beats[0].wait_ms == 0
    assert all(beat.wait_ms == 3_000 for beat in beats[1:])


def test_another_subscription_is_refused_with_the_difference(cluster: GroupCluster) -> None:
    reader = Reader(cluster, join=False, subscription={"t": "late"})
    cluster.call(reader.opened)
    cluster.run(6, lambda: reader.opened.outcome.done)
    with pytest.raises(GroupError, match="subscription") as caught:
        reader.opened.outcome.get()
    assert caught.value.code == "SUBSCRIPTION_MISMATCH"
    Reader(cluster, subscription={"t": "late"}, replace=True)
    assert cluster.subscription == {"t": "late"}


def test_a_newer_subscription_is_adopted_without_doubles(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    fill(cluster, 0, 30, 6, tags="late")
    cluster.give(0)
    messages = reader.read(5)
    cluster.alter({"t": "late"})
    cluster.run(4)
    assert len(cluster.joins) == 1, "first what is out is finished"
    reader.intake.ack(messages)
    cluster.run(4)
    assert cluster.joins[1].subscription == {"t": "late"}
    assert cluster.commits[0].offset == 5
    assert numbers(reader.read(6)) == list(range(30, 36))


def test_filtered_messages_are_finished_without_being_seen(cluster: GroupCluster) -> None:
    cluster.subscription = {"t": "late"}
    fill(cluster, 0, 30, 3, tags=["late", "early", "late"])
    fill(cluster, 0, 33, 3, tags="early")
    reader = Reader(cluster, subscription={"t": "late"})
    cluster.give(0)
    messages = reader.read(2)
    assert numbers(messages) == [30, 32]
    reader.intake.ack(messages)
    assert reader.read(1, 1) == []
    reader.commit()
    assert cluster.commits[0].offset == 36


def test_a_message_given_back_comes_again_and_holds_the_commit_point(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(30)
    reader.intake.ack(messages[1:])
    reader.intake.nack(messages[0], None, "no luck", cluster.now)
    reader.commit()
    assert cluster.commits[0].offset == 0
    assert reader.read(1, 9.5) == []
    (again,) = reader.read(1, 1)
    assert (again.value, again.attempt, again.offset) == (messages[0].value, 2, 0)
    reader.intake.nack(again, 0, "no luck", cluster.now)
    (again,) = reader.read(1, 0.1)
    assert again.attempt == 3
    reader.intake.ack(again)
    reader.commit()
    assert cluster.commits[0].offset == 30
    with pytest.raises(InvalidRequest, match="delay_s"):
        reader.intake.nack(again, -1, "", cluster.now)


def test_pulls_that_keep_being_refused_are_told(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(30)
    reader.intake.ack(messages)
    holding = reader.member.holding("t", 0)
    assert holding is not None

    def refuse(_: str, message: AnyMessage) -> Failure | None:
        if isinstance(message, Pull):
            return Failure(0, "STALE_EPOCH", "another has this queue", retryable=True)
        return None

    cluster.intercept = refuse
    # The pull that is held ends first.
    cluster.run(25)
    status = holding.status(cluster.now, cluster.now)
    assert status is not None
    assert status.state == "lock refused"
    cluster.intercept = lambda _, __: None
    cluster.run(10)
    fill(cluster, 0, 30, 3)
    assert numbers(reader.read(3)) == [30, 31, 32]
    assert holding.status(cluster.now, cluster.now) is None


def test_commits_are_neither_beyond_the_end_nor_back(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.read(5)
    with pytest.raises(GroupError, match="ends at 30") as caught:
        reader.intake.skip_to("t", 0, 31)
    assert caught.value.code == "BEYOND_END"
    reader.intake.skip_to("t", 0, 5)
    reader.commit()
    with pytest.raises(InvalidRequest, match="reset_offsets"):
        reader.intake.skip_to("t", 0, 4)
    with pytest.raises(UnknownResource, match="does not have queue 1"):
        reader.intake.skip_to("t", 1, 1)


@pytest.mark.parametrize("wrong", [None, "5", 4.5, float("nan")])
def test_only_whole_offsets_are_committed(cluster: GroupCluster, wrong: Any) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.read(10)
    with pytest.raises(InvalidRequest, match="an offset must be"):
        reader.intake.skip_to("t", 0, wrong)
    reader.intake.skip_to("t", 0, 4)
    reader.commit()
    assert cluster.commits[0].offset == 4


def test_a_refused_commit_tells_why(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    cluster.codes[0] = "BEYOND_END"
    with pytest.raises(GroupError, match="ends at 30"):
        reader.commit()
    cluster.codes[0] = "NOT_OWNER"
    with pytest.raises(GroupError, match="another member"):
        reader.commit()


def test_a_commit_that_nobody_answers_says_so(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    cluster.intercept = lambda _, m: True if isinstance(m, GroupCommit) else None
    with pytest.raises(TimedOut, match="coordinator"):
        reader.commit()


def test_pause_keeps_and_seek_moves(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    cluster.give(1)
    reader.read(2)
    reader.intake.pause("t", 0)
    assert {m.queue for m in reader.read(20)} == {1}
    reader.intake.resume("t", 0)
    reader.intake.pause("t", 1)
    reader.intake.seek("t", 0, 20)
    assert numbers(reader.read(3)) == [20, 21, 22]
    assert reader.intake.position("t", 0) == 23
    reader.intake.seek("t", 0, "last")
    assert reader.read(1, 1) == []
    fill(cluster, 0, 30, 3)
    messages = reader.read(3)
    assert numbers(messages) == [30, 31, 32]
    reader.intake.ack(messages)
    reader.commit()
    assert cluster.commits[0].offset == 33


def test_a_queue_that_comes_back_is_paused_as_it_was(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(2))
    reader.intake.pause("t", 0)
    cluster.revoke(0)
    assert cluster.run(5, lambda: not reader.member.holdings)
    cluster.give(0, 2)
    assert cluster.run(5, lambda: bool(reader.member.queues()))
    assert reader.read(1, 2) == []
    reader.intake.resume("t", 0)
    assert numbers(reader.read(2)) == [2, 3]


def test_a_queue_that_is_away_can_be_resumed(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(2))
    reader.intake.pause("t", 0)
    cluster.revoke(0)
    assert cluster.run(5, lambda: not reader.member.holdings)
    reader.intake.resume("t", 0)
    with pytest.raises(UnknownResource, match="does not have queue 0"):
        reader.intake.resume("t", 0)
    cluster.give(0, 2)
    assert numbers(reader.read(2)) == [2, 3]


def test_columns_are_handed_out_without_what_was_finished(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    done = OffsetTracker(2)
    done.finish(4, 7)
    cluster.give(0, 2, done.encode())
    cluster.run(2)
    batches = reader.intake.take_columns(cluster.now)
    offsets = [n for b in batches for n in range(b.columns.base_offset, b.columns.next_offset)]
    assert offsets == [2, 3, *range(7, 30)]
    reader.intake.ack(batches)
    reader.commit()
    assert cluster.commits[0].offset == 30


def test_leaving_waits_for_what_is_out(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    messages = reader.read(5)
    cluster.run(0.1)
    start = cluster.now

    def ack_later(_: str, message: AnyMessage) -> Failure | bool | None:
        if cluster.now > start + 2:
            reader.intake.ack(messages)
        return None

    cluster.intercept = ack_later
    reader.close(10)
    assert cluster.leaves[0][0].offset == 5
    assert 2 < cluster.now - start < 6


def knows_no_member(
    _: str, message: AnyMessage, losing: tuple[type[AnyMessage], ...] = ()
) -> Failure | bool | None:
    """A coordinator for which the member has expired; it gets nothing of some kinds."""
    if isinstance(message, GroupLeave):
        return Failure(0, "UNKNOWN_MEMBER", "not a member", retryable=False)
    return True if isinstance(message, losing) else None


def test_who_leaves_a_group_that_it_is_out_of_is_told_what_may_come_again(
    cluster: GroupCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Expired while the coordinator could not be reached: its farewell is the first to be refused."""
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))

    cluster.intercept = partial(knows_no_member, losing=(GroupHeartbeat, GroupCommit))
    reader.close(1)
    assert "left without farewell: not a member: what it finished" in caplog.text
    assert "may be delivered again" in caplog.text


def test_the_end_of_the_heartbeat_is_not_the_answer_to_the_farewell(
    cluster: GroupCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator ends the heartbeat as soon as the member is out, for whatever reason."""
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    fenced = False

    def fence(_: str, message: AnyMessage) -> Failure | bool | None:
        nonlocal fenced
        if isinstance(message, GroupLeave) and not fenced:
            fenced = True
            cluster.fence()
            return True  # lost; the heartbeat is answered before it is sent again
        return knows_no_member(_, message)

    cluster.intercept = fence
    reader.close(10)
    assert "left without farewell: not a member" in caplog.text


def test_who_leaves_with_everything_committed_is_told_nothing(
    cluster: GroupCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(cluster)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    reader.commit()

    cluster.intercept = partial(knows_no_member, losing=(GroupHeartbeat,))
    reader.close(1)
    assert "without farewell" not in caplog.text


def test_joins_follow_the_coordinator(cluster: GroupCluster) -> None:
    Reader(cluster)
    asked = [m for m in cluster.seen if isinstance(m, GroupJoin)]
    assert 1 <= len(asked) <= 2
    assert asked[-1].member == "m-1"


def test_each_owner_of_a_queue_has_a_greater_epoch(cluster: GroupCluster) -> None:
    reader = Reader(cluster)
    with pytest.raises(UnknownResource, match="does not have queue 0"):
        reader.member.owner_epoch("t", 0)
    cluster.give(0)
    reader.read(1)
    before = reader.member.owner_epoch("t", 0)
    assert before == cluster.owned[0].owner_epoch
    cluster.give(0, start=10)
    cluster.run(1)
    assert numbers(reader.read(1)) == [10]
    assert reader.member.owner_epoch("t", 0) == cluster.owned[0].owner_epoch > before


def test_who_finds_another_process_of_its_name_stays_out(cluster: GroupCluster) -> None:
    def taken(_: str, message: AnyMessage) -> Failure | None:
        if isinstance(message, GroupJoin) and message.again:
            return Failure(0, "INSTANCE_TAKEN", "it is another's", retryable=False)
        return None

    reader = Reader(cluster, instance="left")
    cluster.give(0)
    reader.read(5)
    cluster.intercept = taken
    cluster.fence()
    cluster.run(30)
    with pytest.raises(GroupError, match="another's"):
        reader.read(1)
    assert [join.again for join in cluster.joins] == [False]
    asked = [message for message in cluster.seen if isinstance(message, GroupJoin)]
    assert sum(join.again for join in asked) == 1
    reader.close(1)


def test_a_static_member_that_ends_commits_and_stays_in_its_group(cluster: GroupCluster) -> None:
    reader = Reader(cluster, instance="left", commit_every_s=60.0)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    reader.close(1)
    assert {last.offset for (last,) in cluster.stays} == {5}
    beats = sum(isinstance(message, GroupHeartbeat) for message in cluster.seen)
    cluster.run(30)
    assert not cluster.leaves
    assert sum(isinstance(message, GroupHeartbeat) for message in cluster.seen) == beats
    with pytest.raises(ClientClosed):
        reader.commit()


def test_a_static_member_leaves_its_group_when_told_to(cluster: GroupCluster) -> None:
    reader = Reader(cluster, instance="left", commit_every_s=60.0)
    cluster.give(0)
    reader.intake.ack(reader.read(5))
    reader.close(1, leave=True)
    assert [last.offset for (last,) in cluster.leaves] == [5]


def idle(reader: Reader) -> list[str]:
    """What the coordinator was told last."""
    beats = [m for m in reader.cluster.seen if isinstance(m, GroupHeartbeat)]
    return [each.state for each in beats[-1].status]


def test_a_member_that_nobody_polls_leaves_and_its_next_poll_joins_again(
    cluster: GroupCluster,
) -> None:
    reader = Reader(cluster, max_poll_interval_ms=60_000)
    cluster.give(0)
    messages = reader.read(8)
    reader.intake.ack(messages[:5])
    cluster.run(30)
    assert idle(reader) == ["not polled"]
    assert not cluster.leaves
    cluster.run(31.5)
    assert len(cluster.leaves) == 1
    assert cluster.commits[0].offset == 5, "what was acknowledged is committed"
    assert not reader.member.holdings
    reader.intake.ack(messages[5:])  # of what others have by now: it says nothing
    with pytest.raises(GroupError, match=r"no poll for 60 s \(max_poll_interval_ms\).*next poll"):
        reader.commit()
    cluster.run(300)
    assert (len(cluster.joins), len(cluster.leaves)) == (1, 1), "it stays away by itself"
    assert reader.read(1, seconds=5.0) == []
    assert [join.again for join in cluster.joins] == [False, True]
    cluster.give(0, start=5)
    assert numbers(reader.read(4)) == [5, 6, 7, 8]
    reader.intake.ack(messages[5:])
    reader.commit()
    assert cluster.commits[0].offset == 8


def test_a_member_that_nobody_polls_commits_all_before_it_leaves(
    cluster: GroupCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its last commits are more than the farewell holds."""
    monkeypatch.setattr(offset_committer, "MAX_ROUND_BYTES", 1)
    reader = Reader(cluster, max_poll_interval_ms=5_000)
    cluster.give(0)
    cluster.give(1)
    messages = reader.read(60)
    unheard_until = cluster.now + 6.0
    cluster.intercept = lambda _, message: (
        False if isinstance(message, GroupCommit) and cluster.now < unheard_until else None
    )
    reader.intake.ack(messages)
    cluster.run(60, lambda: bool(cluster.leaves))
    assert cluster.leaves
    assert [cluster.commits[queue].offset for queue in (0, 1)] == [30, 30]


def test_who_leaves_with_more_commits_than_its_farewell_holds_is_told_what_may_come_again(
    cluster: GroupCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its coordinator hears nothing until its time is over."""
    monkeypatch.setattr(offset_committer, "MAX_ROUND_BYTES", 1)
    reader = Reader(cluster)
    cluster.give(0)
    cluster.give(1)
    reader.intake.ack(reader.read(60))
    cluster.intercept = lambda _, message: False if isinstance(message, GroupCommit) else None
    reader.close(1)
    assert sorted(commit.offset for commit in cluster.commits.values()) == [30]
    assert (
        "what it finished after its last commit in 1 queues may be delivered again" in caplog.text
    )


def test_polls_and_acknowledgements_keep_a_member(cluster: GroupCluster) -> None:
    reader = Reader(cluster, max_poll_interval_ms=60_000)
    cluster.give(0)
    for _ in range(3):
        messages = reader.read(4)
        for message in messages:  # 160 s for what one poll brought
            cluster.run(40)
            reader.intake.ack(message)
    cluster.run(55)
    reader.intake.take_columns(cluster.now)
    cluster.run(55)
    reader.intake.take(1, cluster.now)
    cluster.run(55)
    assert not cluster.leaves
    assert len(cluster.joins) == 1


def test_a_poll_that_comes_while_it_leaves_joins_again(cluster: GroupCluster) -> None:
    reader = Reader(cluster, max_poll_interval_ms=5_000)
    cluster.give(0)
    reader.intake.ack(reader.read(2))
    cluster.intercept = lambda _, message: False if isinstance(message, GroupLeave) else None
    cluster.run(5.7)
    with pytest.raises(GroupError, match="max_poll_interval_ms"):
        reader.commit()  # also while it is on its way
    reader.intake.take(1, cluster.now)
    cluster.intercept = lambda *_: None
    cluster.run(10, lambda: len(cluster.joins) == 2)
    cluster.give(0, start=2)
    assert numbers(reader.read(2)) == [2, 3]


@pytest.mark.parametrize("seconds", [5.6, 20])
def test_a_member_that_left_by_itself_can_be_closed(cluster: GroupCluster, seconds: float) -> None:
    reader = Reader(cluster, max_poll_interval_ms=5_000)
    cluster.give(0)
    reader.intake.ack(reader.read(2))
    cluster.intercept = lambda _, message: False if isinstance(message, GroupLeave) else None
    cluster.run(seconds)
    cluster.intercept = lambda *_: None
    reader.close(0)
    reader.intake.take(1, cluster.now)
    cluster.run(10)
    assert len(cluster.joins) == 1


def test_a_listener_needs_no_polls(cluster: GroupCluster) -> None:
    reader = Reader(cluster)  # as a push consumer's member: no bound
    cluster.give(0)
    cluster.run(900)
    assert not cluster.leaves
    assert idle(reader) == []


def test_who_has_no_queue_is_told_so_once(
    cluster: GroupCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reader = Reader(cluster)

    def poll(seconds: float) -> None:
        assert reader.read(1, seconds) == []
        reader.intake.found_nothing(cluster.now)

    poll(0.5)
    assert (reader.member.assigned, reader.intake.has_queue(), caplog.records) == (False, False, [])
    poll(2)
    poll(2)
    (record,) = caplog.records
    assert "no queue (yet)" in record.getMessage()
    assert "wait_assigned()" in record.getMessage()
    cluster.give(0, start=30)
    poll(2)
    assert reader.intake.has_queue()
    assert len(caplog.records) == 1, "with a queue, nothing is the end"
    cluster.revoke(0)
    poll(2)
    assert len(caplog.records) == 2, "another spell without"


def test_who_waits_for_a_queue_is_told_why_none_will_come(cluster: GroupCluster) -> None:
    reader = Reader(cluster, instance="one")

    def taken(_: str, message: AnyMessage) -> Failure | None:
        if isinstance(message, GroupJoin):
            return Failure(0, "INSTANCE_TAKEN", "another process is it", retryable=False)
        return None

    cluster.intercept = taken
    cluster.fence()
    cluster.run(2)
    with pytest.raises(GroupError, match="another process is it"):
        reader.intake.has_queue()


def test_a_farewell_may_end_with_news_of_the_metadata(cluster: GroupCluster) -> None:
    """As in a turn that was late: its time is over when its coordinator is known to be fenced."""
    followed: list[str] = []

    def note(endpoint: str, message: AnyMessage) -> bool | None:
        if isinstance(message, Watch):
            followed.append(endpoint)
        return True if isinstance(message, GroupLeave) else None

    cluster.intercept = note
    cluster.run(1)
    cluster.coordinator = next(each for each in BROKERS if each != followed[-1])
    reader = Reader(cluster)
    call = CloseMember(reader.member, 0)
    cluster.call(call)
    cluster.run(0.5)
    cluster.dead.add(cluster.coordinator)
    cluster.version += 1
    cluster.delay = lambda: 10.0
    cluster.run(0.6)  # the news is on its way
    assert not call.outcome.done
    cluster.now += 10.0
    assert cluster.run(0.01, lambda: call.outcome.done)
