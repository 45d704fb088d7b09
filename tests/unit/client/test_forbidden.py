"""What no rule allows is told at once and sent once; what is allowed later works again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logboom.client.calls import AskLeader, AskRaftLeader, ProposeCommand
from logboom.wire.commands import DeleteTopic
from logboom.wire.errors import Forbidden
from logboom.wire.messages import (
    AnyMessage,
    DescribeAccess,
    Failure,
    Offsets,
    Produce,
    Propose,
    Pull,
)
from tests.unit.client.fetch.test_fetcher import Reader, fill, numbers
from tests.unit.client.scripted import Cluster
from tests.unit.client.send.test_queue_sender import number, producer

FIELDS = {"verb": "write", "kind": "topic", "name": "t"}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t")
    return made


def forbid(cluster: Cluster, *kinds: type[AnyMessage]) -> Callable[[], int]:
    """Forbid requests of these types, and return a count of those that came."""
    came: list[AnyMessage] = []

    def refuse(_: str, message: AnyMessage) -> Failure | None:
        if not isinstance(message, kinds):
            return None
        came.append(message)
        return Failure(0, "FORBIDDEN", "no rule allows it", retryable=False, fields=FIELDS)

    cluster.intercept = refuse
    return lambda: len(came)


def test_a_producer_fails_the_message_and_goes_on_when_it_may(cluster: Cluster) -> None:
    buffer = producer(cluster)
    sent = forbid(cluster, Produce)
    pile, _ = buffer.send("t", number(0))
    assert cluster.run(2, lambda: pile.done)
    cluster.run(20)
    assert isinstance(pile.error, Forbidden)
    assert pile.error.fields == FIELDS
    assert sent() == 1
    cluster.intercept = lambda *_: None
    piles = [buffer.send("t", number(n))[0] for n in range(1, 4)]
    assert cluster.run(5, lambda: all(each.done for each in piles))
    assert [each.error for each in piles] == [None] * 3
    assert cluster.log("t").values() == [number(n) for n in range(1, 4)]


def test_a_reader_is_told_and_reads_on_when_it_may(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 6)
    forbid(cluster, Pull)
    reader = Reader(cluster)
    with pytest.raises(Forbidden):
        reader.read(1)
    cluster.intercept = lambda *_: None
    found: list[bytes | None] = []

    def read_on() -> bool:
        try:
            found.extend(message.value for message in reader.intake.take(6 - len(found)))
        except Forbidden:
            return False  # from before it was allowed
        return len(found) == 6

    assert cluster.run(30, read_on)
    assert found == numbers(0, 6)


def test_a_command_is_proposed_once(cluster: Cluster) -> None:
    sent = forbid(cluster, Propose)
    call = ProposeCommand(DeleteTopic("t", 0), 30.0)
    cluster.call(call)
    assert cluster.run(2, lambda: call.outcome.done)
    cluster.run(20)
    assert isinstance(call.outcome.error, Forbidden)
    assert sent() == 1


def test_a_request_is_sent_once(cluster: Cluster) -> None:
    sent = forbid(cluster, Offsets, DescribeAccess)
    of_queue = AskLeader("t", 0, lambda left: Offsets(0, left, "t", [0]), 30.0)
    of_raft = AskRaftLeader(lambda left: DescribeAccess(0, left, "alice"), 30.0)
    cluster.call(of_queue)
    cluster.call(of_raft)
    assert cluster.run(2, lambda: of_queue.outcome.done and of_raft.outcome.done)
    cluster.run(20)
    assert isinstance(of_queue.outcome.error, Forbidden)
    assert isinstance(of_raft.outcome.error, Forbidden)
    assert sent() == 2
