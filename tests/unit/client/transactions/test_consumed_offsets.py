"""Offsets in a transaction: what a consumer used is committed with what it made of it, or neither."""

from __future__ import annotations

import pytest

from logboom.client.transactions.consumed_offsets import ConsumedOffsets
from logboom.client.transactions.transaction_work import TransactionWork
from logboom.wire.errors import GroupError, InvalidRequest, UnknownResource
from logboom.wire.transactions import TransactionOffsetCommit
from tests.unit.client.groups.scripted_group import GroupCluster, Reader, fill, numbers
from tests.unit.client.scripted import WALL_MS
from tests.unit.client.send.test_queue_sender import producer
from tests.unit.client.transactions.test_transactions import Desk, drive


@pytest.fixture
def cluster() -> GroupCluster:
    made = GroupCluster()
    fill(made, 0, 0, 12)
    made.give(0)
    return made


@pytest.fixture
def reader(cluster: GroupCluster) -> Reader:
    return Reader(cluster, commit_every_s=0)


def begin(cluster: GroupCluster, reader: Reader) -> tuple[TransactionWork, Desk]:
    """A transaction that has used the next four messages."""
    desk = Desk(cluster)
    work, _ = desk.begin()
    work.offsets.add_member(reader.intake, reader.read(4))
    return work, desk


def test_a_commit_takes_the_group_on(cluster: GroupCluster, reader: Reader) -> None:
    for start in (0, 4):
        work, desk = begin(cluster, reader)
        desk.commit(work)
        (consumed,) = cluster.decisions.consumed[-1:]
        (offset,) = consumed.offsets
        assert (consumed.group, consumed.member, consumed.epoch) == ("g", "m-1", cluster.epoch)
        assert (offset.offset, offset.seen_end) == (start + 4, 12)
        assert offset.owner_epoch == cluster.owned[0].owner_epoch
        desk.applications.give_back(work.application)
    reader.commit()
    assert cluster.log_of_commits == []  # the group has it already
    cluster.revoke(0)
    assert cluster.run(5, lambda: bool(cluster.releases))
    assert cluster.releases[-1].offset == 8


def test_an_abort_brings_the_same_messages_again(cluster: GroupCluster, reader: Reader) -> None:
    work, desk = begin(cluster, reader)
    assert numbers(reader.read(2)) == [4, 5]
    desk.abort(work)
    desk.applications.give_back(work.application)
    work, desk = begin(cluster, reader)
    desk.commit(work)
    assert [each.offsets[0].offset for each in cluster.decisions.consumed] == [4]
    assert numbers(reader.read(8)) == list(range(4, 12))


def test_an_abort_lets_a_queue_go_that_is_wanted_elsewhere(
    cluster: GroupCluster, reader: Reader
) -> None:
    work, desk = begin(cluster, reader)
    cluster.revoke(0)
    cluster.run(3)
    assert cluster.releases == []  # it waits for what is out
    desk.abort(work)
    assert cluster.run(3, lambda: bool(cluster.releases))
    assert cluster.releases[-1].offset == 0


def test_a_refused_offset_publishes_nothing(cluster: GroupCluster, reader: Reader) -> None:
    work, desk = begin(cluster, reader)
    buffer = work.buffer
    buffer.send("t", b"made of it", queue=1)
    cluster.decisions.refusal = GroupError("another member has t/0", "NOT_OWNER")
    with pytest.raises(GroupError):
        desk.commit(work)
    assert (work.state, cluster.log("t", 1).values()) == ("aborted", [])
    cluster.decisions.refusal = None
    assert numbers(reader.read(12)) == list(range(12))


def test_a_queue_that_was_lost_and_won_back_counts_anew(
    cluster: GroupCluster, reader: Reader
) -> None:
    used = reader.read(4)
    cluster.fence()
    cluster.run(2)
    offsets = ConsumedOffsets()
    with pytest.raises(GroupError) as caught:
        offsets.add_member(reader.intake, used)
    assert caught.value.code == "NOT_OWNER"
    cluster.give(0, start=4)  # another member has done these
    assert numbers(reader.read(2)) == [4, 5]
    with pytest.raises(GroupError, match="not after 4"):
        offsets.add_member(reader.intake, used)
    with pytest.raises(GroupError):
        offsets.add_member(reader.intake, {("t", 0): 4})
    assert not offsets


def test_no_message_is_left_out(cluster: GroupCluster, reader: Reader) -> None:
    used = reader.read(4)
    offsets = ConsumedOffsets()
    with pytest.raises(InvalidRequest, match="message 1 of t/0"):
        offsets.add_member(reader.intake, [used[0], used[3]])
    offsets.add_member(reader.intake, used[:2])
    offsets.add_member(reader.intake, used[2:])
    with pytest.raises(GroupError) as caught:
        offsets.add_member(reader.intake, {("t", 0): 5})
    assert caught.value.code == "BEYOND_END"
    (consumed,) = drive(cluster, offsets.consumed(5))
    assert [each.offset for each in consumed.offsets] == [4]


def test_a_group_is_named_if_it_has_no_members(cluster: GroupCluster) -> None:
    offsets = ConsumedOffsets()
    offsets.add("reports", {("t", 0): 3})
    offsets.add("reports", {("t", 0): 2, ("t", 1): 0})
    (consumed,) = drive(cluster, offsets.consumed(5))
    assert isinstance(consumed, TransactionOffsetCommit)
    assert (consumed.group, consumed.member) == ("reports", "")
    assert [(each.queue, each.offset, each.seen_end) for each in consumed.offsets] == [
        (0, 3, 12),
        (1, 0, 0),
    ]
    offsets.add("reports", {("t", 1): 1})
    with pytest.raises(GroupError) as caught:
        drive(cluster, offsets.consumed(5))
    assert caught.value.code == "BEYOND_END"


@pytest.mark.parametrize("wrong", [-1, True, "3", None])
def test_an_offset_is_a_whole_number(wrong: int) -> None:
    with pytest.raises(InvalidRequest):
        ConsumedOffsets().add("reports", {("t", 0): wrong})


def test_only_groups_and_their_consumers_have_offsets() -> None:
    with pytest.raises(InvalidRequest, match="not object"):
        ConsumedOffsets().add(object(), {("t", 0): 1})


def test_a_queue_that_is_not_there_is_refused(cluster: GroupCluster) -> None:
    work = TransactionWork(Desk(cluster).open(), None, producer(cluster))
    work.offsets.add("reports", {("t", 9): 3})
    with pytest.raises(UnknownResource):
        drive(cluster, work.commit(WALL_MS, 5))
    assert work.state == "aborted"
