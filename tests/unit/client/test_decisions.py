"""Decisions that meet something else: another producer, a deleted topic, a strange answer."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.transactions.decisions import (
    check_size,
    read_decision,
)
from logboom.client.transactions.transaction_work import TransactionWork
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InternalError, InvalidRequest, Refused, TimedOut, TransactionError
from logboom.wire.messages import AnyMessage
from logboom.wire.transactions import NOT_FENCED, AwaitDecided, CheckParked, Decide, ParkedBatches
from tests.unit.client.groups.scripted_group import GroupCluster, Reader, fill
from tests.unit.client.scripted import WALL_MS, Cluster
from tests.unit.client.send.test_queue_sender import producer
from tests.unit.client.transactions.test_parked_batches import decide, park
from tests.unit.client.transactions.test_transactions import Desk, only_decides, published


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t", queues=3)
    return made


def test_a_transaction_of_its_own_with_nothing_but_offsets_commits_them() -> None:
    cluster = GroupCluster()
    fill(cluster, 0, 0, 12)
    cluster.give(0)
    reader = Reader(cluster, commit_every_s=0)
    desk = Desk(cluster)
    work = TransactionWork(desk.open("own"), None, producer(cluster), own=True)
    work.offsets.add_member(reader.intake, reader.read(4))
    desk.commit(work)
    (consumed,) = cluster.decisions.consumed
    assert [each.offset for each in consumed.offsets] == [4]


def test_an_abort_does_not_say_aborted_of_what_another_has_committed(cluster: Cluster) -> None:
    desk = Desk(cluster)
    work, buffer = desk.begin()
    buffer.send("t", b"old", queue=0)
    cluster.intercept = only_decides(keep=True)
    with pytest.raises(TimedOut):
        desk.commit(work)
    cluster.intercept = only_decides(keep=None)
    newer = Desk(cluster)
    other, buffer = newer.begin()
    buffer.send("t", b"new", queue=0)
    newer.commit(other)
    assert other.sequence == work.sequence
    with pytest.raises(Refused) as caught:
        desk.abort(work)
    assert (caught.value.code, work.state) == ("FENCED", "unknown")
    assert published(cluster) == [b"new"]


def delete_at(cluster: Cluster, kind: type[AwaitDecided | CheckParked]) -> None:
    """The topic is deleted before a request of this kind comes; its brokers say nothing."""

    def intercept(_: str, message: AnyMessage) -> bool | None:
        if not isinstance(message, kind):
            return None
        if "t" in cluster.topics:
            cluster.drop_topic("t")
        return True

    cluster.intercept = intercept


def test_a_topic_that_was_deleted_since_has_nothing_to_carry_out(cluster: Cluster) -> None:
    desk = Desk(cluster)
    work, buffer = desk.begin()
    buffer.send("t", b"0", queue=0)
    buffer.send("t", b"1", queue=1)
    delete_at(cluster, AwaitDecided)
    desk.commit(work)
    assert work.state == "committed"


def test_all_handles_of_a_deleted_topic_are_unknown(cluster: Cluster) -> None:
    handles = park(cluster, [("t", 0, [b"a"]), ("t", 1, [b"b"]), ("t", 1, [b"c"])])
    delete_at(cluster, CheckParked)
    with pytest.raises(TransactionError) as caught:
        decide(cluster, handles)
    assert (caught.value.code, caught.value.fields["unknown"]) == ("UNKNOWN_HANDLES", 3)


@pytest.mark.parametrize("value", [None, 7, "commit", ["commit", "1"], ["maybe", "1", "first"], []])
def test_an_answer_that_says_nothing_is_no_decision(value: Any) -> None:
    with pytest.raises(InternalError, match="please report it"):
        read_decision(CommandResult(1, value=value))


def test_a_decision_that_the_log_would_not_take_is_refused_here() -> None:
    parked = [ParkedBatches((1 << 40) + n, n, [(1 << 50, n)]) for n in range(2_900)]
    command = Decide("app", NOT_FENCED, 0, 0, True, parked, [], WALL_MS)
    with pytest.raises(InvalidRequest, match="of 2900 batches") as caught:
        check_size(command)
    assert caught.value.code == "TOO_LARGE"
