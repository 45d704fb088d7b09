"""The life of messages of an embedded node, as its admin tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logboom.client import Client, Message, connect
from logboom.client.admin_flows.message_life import MessageLife, ReaderLife
from logboom.deploy import embedded
from logboom.deploy.cluster_key import read_key
from logboom.deploy.embedded import Embedded
from logboom.deploy.layout import KEY_FILE
from tests.integration.waiting import wait_until

HASTY: dict[str, Any] = {
    "heartbeat_ms": 100,
    "session_ms": 30_000,
    "retry": "exponential",
    "commit_every_s": 0.1,
}


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    """A node with a folder, whose cluster key can be read."""
    with embedded() as started:
        yield started


@pytest.fixture
def boom(node: Embedded) -> Iterator[Client]:
    """A client with the cluster key."""
    with connect(node.endpoints, cluster_key=read_key(node.data / KEY_FILE)) as client:
        yield client


def life_when(
    boom: Client, topic: str, offset: int, ready: Callable[[MessageLife], bool]
) -> MessageLife:
    """The life of a message of queue 0, once it is ready."""
    found: list[MessageLife] = []

    def look() -> bool:
        found.append(boom.admin.message_life(topic, 0, offset))
        return ready(found[-1])

    wait_until(look, "the life of the message shows it")
    return found[-1]


def reader_of(life: MessageLife) -> ReaderLife:
    """The only reader."""
    (reader,) = life.readers
    return reader


def test_a_message_that_was_delayed_and_one_of_a_transaction(boom: Client) -> None:
    boom.admin.create_topic("waited", queues=1)
    with boom.producer() as producer:
        producer.send("waited", b"now", headers={"a": b"b"}, queue=0).result()
        with producer.transaction("bank", 5) as transaction:
            transaction.send("waited", b"decided", queue=0)
        parked = producer.send("waited", b"later", queue=0, delay_s=0.05).result().parked
    wait_until(lambda: boom.admin.offsets("waited")[0][1] == 3, "all are released")
    plain, decided, later = (boom.admin.message_life("waited", 0, n) for n in range(3))
    assert plain.waited is None
    assert plain.origin is not None
    assert plain.origin.producer_id is not None
    assert decided.waited is not None
    assert (decided.waited.kind, decided.waited.app_id) == ("transaction", "bank")
    assert decided.waited.sequence == 5
    assert parked is not None
    assert later.waited is not None
    assert (later.waited.kind, later.waited.due_ms) == ("delayed", parked.due_ms)
    assert [event.what for event in later.events] == ["produced", "parked", "released"]
    assert boom.admin.message_life("waited", 0, 3).state == "not yet"


def test_retries_a_dead_letter_and_its_redrive(boom: Client) -> None:
    boom.admin.create_topic("wages", queues=1)

    def refuse(message: Message) -> None:
        raise OSError("the bank is closed")

    with boom.producer() as producer:
        producer.send("wages", b"1", key=b"k", queue=0).result()
        slow = {**HASTY, "max_attempts": 2, "retry_first_ms": 7_200_000}
        with boom.push_consumer("wages", group="slow", listener=refuse, **slow):
            waiting = life_when(boom, "wages", 0, lambda life: bool(reader_of(life).copies))
        assert (reader_of(waiting).state, reader_of(waiting).attempts) == ("retries", 1)
        (copy,) = reader_of(waiting).copies
        assert (copy.offset, copy.attempt) == (-1, 2)
        assert copy.cause == "OSError: the bank is closed"
        assert copy.due_ms is not None
        boom.admin.delete_group("slow")
        quick = {**HASTY, "max_attempts": 2, "retry_first_ms": 1}
        with boom.push_consumer("wages", group="quick", listener=refuse, **quick):
            dead = life_when(boom, "wages", 0, lambda life: reader_of(life).state == "dead letter")
        assert reader_of(dead).attempts == 2
        assert [event.what for event in dead.events] == [
            "produced",
            "stored",
            "retry",
            "dead letter",
        ]
        # As `logboom dlq redrive` does.
        letter = boom.admin.get_message("%DLQ%quick", 0, reader_of(dead).copies[-1].offset)
        headers = {**(letter.headers or {}), "boom-attempt": b"1"}
        producer.send(
            "%RETRY%quick", letter.value, headers=headers, timestamp_ms=letter.timestamp_ms
        ).result()
    with boom.push_consumer("wages", group="quick", listener=lambda message: None, **quick):
        again = life_when(boom, "wages", 0, lambda life: reader_of(life).state == "finished")
    assert (reader_of(again).redriven, reader_of(again).attempts) == (1, 1)


def test_a_subscription(boom: Client, node: Embedded) -> None:
    boom.admin.create_topic("flights", queues=1)
    with boom.producer() as producer:
        producer.send_many("flights", [b"1", b"2", b"3"], queue=0).result()
    with boom.subscribe(
        "flights", subscription="s", type="shared", start="first", max_attempts=3, name="one"
    ) as consumer:
        got: list[Message] = []
        while len(got) < 3:
            got += consumer.poll(timeout_s=5)
        consumer.ack(got[0])
        consumer.retry(got[1], delay_s=86_400, cause="no crew")
        consumer.flush()
        lives = [boom.admin.message_life("flights", 0, n) for n in range(3)]
        assert [reader_of(life).state for life in lives] == ["finished", "retries", "held"]
        assert reader_of(lives[2]).holder == "one"
        assert reader_of(lives[1]).copies[0].cause == "no crew"
        # Without the cluster key, what waits is not seen, and it says so.
        with connect(node.endpoints) as other:
            less = other.admin.message_life("flights", 0, 1)
    assert reader_of(less).state == "finished"
    assert any("cluster key" in each for each in less.unknown)
