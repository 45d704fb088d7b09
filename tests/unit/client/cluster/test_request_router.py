"""A question reaches the leader wherever it goes, and ends in time with an answer or a reason."""

from __future__ import annotations

import itertools

import pytest

from logboom.client.calls import AskLeader, AskNode, AskRaftLeader
from logboom.client.delays import Parking, recall_call
from logboom.wire.batch import encode_batch, validate_batch
from logboom.wire.errors import LogboomError, TimedOut, UnknownResource
from logboom.wire.messages import AnyMessage, Failure, Pull, Pulled, RemoveNameServer, Stats
from logboom.wire.parking import Recall
from tests.unit.client.scripted import BROKERS, NAME_SERVER, WALL_MS, Cluster


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t")
    return made


def store(cluster: Cluster, value: bytes) -> None:
    entry = encode_batch([value], now_ms=WALL_MS)
    cluster.log("t").append(entry, validate_batch(entry, stamped=False))


def ask(
    cluster: Cluster, wait_ms: int = 0, timeout: float = 5.0, topic: str = "t", queue: int = 0
) -> AskLeader:
    call = AskLeader(
        topic,
        queue,
        lambda left: Pull(0, left, topic, queue, 0, 1 << 20, min(wait_ms, left)),
        timeout,
    )
    cluster.call(call)
    return call


def error_of(
    cluster: Cluster, call: AskLeader | AskNode | AskRaftLeader, seconds: float
) -> LogboomError:
    assert cluster.run(seconds, lambda: call.outcome.done)
    error = call.outcome.error
    assert isinstance(error, LogboomError)
    return error


def test_an_answer_comes_with_its_batches(cluster: Cluster) -> None:
    store(cluster, b"x")
    call = ask(cluster)
    assert cluster.run(1, lambda: call.outcome.done)
    message, batches = call.outcome.get()
    assert isinstance(message, Pulled)
    assert (message.status, len(batches)) == ("FOUND", 1)


def test_a_held_question_moves_with_the_leader(cluster: Cluster) -> None:
    call = ask(cluster, wait_ms=60_000, timeout=90)
    cluster.run(2)
    cluster.dead.add(BROKERS[0])
    cluster.move("t", 0, BROKERS[1])
    cluster.run(5)
    assert not call.outcome.done
    store(cluster, b"x")
    cluster.run(60)
    assert call.outcome.done
    assert call.outcome.error is None


def test_busy_is_asked_again(cluster: Cluster) -> None:
    store(cluster, b"x")
    refusals = [Failure(0, "BUSY", "busy", retryable=True)] * 3
    cluster.intercept = lambda _, m: refusals.pop() if isinstance(m, Pull) and refusals else None
    call = ask(cluster)
    assert cluster.run(5, lambda: call.outcome.done)
    assert call.outcome.error is None
    assert not refusals


def test_refusals_are_further_apart_each_time_whatever_the_metadata_says(cluster: Cluster) -> None:
    asked: list[float] = []

    def refuse(_endpoint: str, message: AnyMessage) -> Failure | bool | None:
        if not isinstance(message, Pull):
            return isinstance(message, Stats) or None
        asked.append(cluster.now)
        return Failure(0, "BUSY", "busy", retryable=True)

    cluster.intercept = refuse
    ask(cluster, timeout=3.0)
    for _ in range(300):
        cluster.version += 1
        # With the next message, the view that is held comes, too.
        cluster.call(AskNode(BROKERS[0], Stats(0, 1), 0.005))
        cluster.run(0.01)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert len(pauses) < 20
    assert pauses[-2] > 3 * pauses[0]


def test_a_request_that_waits_for_a_leader_is_sent_to_the_first(cluster: Cluster) -> None:
    store(cluster, b"x")
    cluster.move("t", 0, None)
    call = ask(cluster, timeout=30.0)
    cluster.run(3)
    assert not call.outcome.done
    cluster.move("t", 0, BROKERS[1])
    assert cluster.run(1.5, lambda: call.outcome.done)
    assert call.outcome.error is None


def test_a_request_that_waits_for_a_leader_is_sent_to_the_old_one_if_that_comes_back(
    cluster: Cluster,
) -> None:
    store(cluster, b"x")

    def step_down(_endpoint: str, message: AnyMessage) -> Failure | None:
        if not isinstance(message, Pull):
            return None
        cluster.move("t", 0, None)
        return Failure(0, "BUSY", "on the way out", retryable=True)

    cluster.intercept = step_down
    call = ask(cluster, timeout=30.0)
    cluster.run(3)
    assert not call.outcome.done
    cluster.intercept = lambda *_: None
    cluster.move("t", 0, BROKERS[0])
    assert cluster.run(1.5, lambda: call.outcome.done)
    assert call.outcome.error is None


def test_a_hint_goes_before_older_metadata(cluster: Cluster) -> None:
    store(cluster, b"x")
    call = ask(cluster)
    assert cluster.run(1, lambda: call.outcome.done)
    log = cluster.log("t")
    log.leader, log.epoch = BROKERS[2], log.epoch + 1  # the metadata does not say so yet
    again = ask(cluster)
    assert cluster.run(1, lambda: again.outcome.done)
    assert again.outcome.error is None


def test_a_definite_refusal_ends_at_once(cluster: Cluster) -> None:
    refusal = Failure(0, "DATA_DAMAGED", "no good copy", retryable=False)
    cluster.intercept = lambda _, m: refusal if isinstance(m, Pull) else None
    began = cluster.now
    assert error_of(cluster, ask(cluster), 5).code == "DATA_DAMAGED"
    assert cluster.now - began < 1


def test_in_vain_ends_in_time_with_the_last_reason(cluster: Cluster) -> None:
    refusal = Failure(0, "BUSY", "the disk is slow", retryable=True)
    cluster.intercept = lambda _, m: refusal if isinstance(m, Pull) else None
    began = cluster.now
    error = error_of(cluster, ask(cluster, timeout=3), 9)
    assert isinstance(error, TimedOut)
    assert "the disk is slow" in str(error)
    assert cluster.now - began == pytest.approx(3, abs=0.1)


def test_no_leader_is_said(cluster: Cluster) -> None:
    cluster.move("t", 0, None)
    assert "has no leader" in str(error_of(cluster, ask(cluster, timeout=2), 9))


def test_an_unknown_topic_is_said(cluster: Cluster) -> None:
    assert isinstance(error_of(cluster, ask(cluster, topic="nope"), 9), UnknownResource)


def test_a_topic_deleted_meanwhile_is_said(cluster: Cluster) -> None:
    call = ask(cluster, wait_ms=5_000, timeout=30)
    cluster.run(1)
    cluster.drop_topic("t")
    assert isinstance(error_of(cluster, call, 4), UnknownResource)


@pytest.mark.parametrize("known", [True, False])
def test_a_recall_from_a_topic_that_was_created_again_ends_at_once(
    cluster: Cluster, known: bool
) -> None:
    meant = cluster.topic_ids["t"]
    if not known:
        first = ask(cluster)
        assert cluster.run(5, lambda: first.outcome.done)
    cluster.drop_topic("t")
    cluster.add_topic("t")

    def refuse(_endpoint: str, message: AnyMessage) -> Failure | None:
        wanted = isinstance(message, Recall)
        return Failure(0, "NOT_LEADER", "made anew", retryable=True) if wanted else None

    cluster.intercept = refuse
    call = recall_call(Parking("t", 0, 7, 0, WALL_MS + 60_000, meant), 30.0)
    cluster.call(call)
    error = error_of(cluster, call, 4)
    assert isinstance(error, UnknownResource)
    assert "deleted, with its messages, and created again" in str(error)


def test_one_node_is_asked_once(cluster: Cluster) -> None:
    cluster.dead.add(BROKERS[2])
    call = AskNode(BROKERS[2], Stats(0, 1_000), 1.0)
    cluster.call(call)
    assert isinstance(error_of(cluster, call, 3), TimedOut)


def test_an_idle_connection_is_hung_up(cluster: Cluster) -> None:
    cluster.move("t", 0, BROKERS[1])
    store(cluster, b"x")
    call = ask(cluster)
    assert cluster.run(2, lambda: call.outcome.done)
    cluster.run(65)
    heard: list[str] = []
    cluster.intercept = lambda endpoint, _: heard.append(endpoint)
    cluster.run(5)
    assert set(heard) == {BROKERS[0]}, "only the node that is watched hears of us"
    again = ask(cluster)
    assert cluster.run(2, lambda: again.outcome.done)
    assert again.outcome.error is None


def test_a_queue_that_is_not_known_yet_is_looked_up_before_it_is_refused(cluster: Cluster) -> None:
    known = ask(cluster)
    assert cluster.run(1, lambda: known.outcome.done)
    cluster.grow("t")
    call = ask(cluster, queue=1)
    assert cluster.run(1, lambda: call.outcome.done)
    call.outcome.get()


def test_a_queue_that_nobody_knows_is_refused_soon(cluster: Cluster) -> None:
    known = ask(cluster)
    assert cluster.run(1, lambda: known.outcome.done)
    for queue in (1, 7, -1):
        error = error_of(cluster, ask(cluster, queue=queue), 0.5)
        assert isinstance(error, UnknownResource)
        assert f"has queues 0 to 0, not {queue}" in str(error)


def test_without_name_servers_a_queue_is_refused_by_what_is_known(cluster: Cluster) -> None:
    known = ask(cluster)
    assert cluster.run(1, lambda: known.outcome.done)
    cluster.dead.add(NAME_SERVER)
    call = ask(cluster, queue=1, timeout=3.0)
    assert cluster.run(4, lambda: call.outcome.done)
    assert call.outcome.error is not None


def remove_name_server(cluster: Cluster, timeout: float) -> AskRaftLeader:
    cluster.run(1)
    call = AskRaftLeader(lambda ms: RemoveNameServer(0, ms, "name-3"), timeout)
    cluster.call(call)
    return call


def test_the_raft_leader_is_asked_wherever_it_is(cluster: Cluster) -> None:
    fields = {"leader": "name-2", "endpoint": BROKERS[2]}
    asked: list[str] = []
    times: list[float] = []

    def answer(endpoint: str, message: AnyMessage) -> Failure | None:
        if not isinstance(message, RemoveNameServer):
            return None
        asked.append(endpoint)
        times.append(cluster.now)
        if endpoint == NAME_SERVER:
            return Failure(0, "NOT_LEADER", "name-2 leads", retryable=True, fields=fields)
        return Failure(0, "INVALID_ARGUMENT", "no such name server", retryable=False)

    cluster.intercept = answer
    error = error_of(cluster, remove_name_server(cluster, 5.0), 1)
    assert error.code == "INVALID_ARGUMENT"
    assert asked == [NAME_SERVER, BROKERS[2]]
    assert times[1] - times[0] < 0.01, "a hint needs no pause"


def test_a_raft_leader_that_is_gone_is_not_awaited_for_long(cluster: Cluster) -> None:
    times: list[float] = []

    def lose(_endpoint: str, message: AnyMessage) -> bool | None:
        if isinstance(message, RemoveNameServer):
            times.append(cluster.now)
            return True
        return None

    cluster.intercept = lose
    call = remove_name_server(cluster, 10.0)
    began = cluster.now
    assert isinstance(error_of(cluster, call, 12), TimedOut)
    assert cluster.now - began == pytest.approx(10, abs=0.1)
    assert len(times) == 4
