"""Retries and dead letters of subscriptions, between real clients and nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from logboom.client import Client, Message, SubscriptionConsumer, aio, connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.wire.copy_receipts import ATTEMPT_HEADER, CAUSE, ORIGIN
from logboom.wire.errors import GroupError, InvalidRequest
from logboom.wire.view import TopicConfig


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    with embedded() as started:
        yield started


@pytest.fixture
def boom(node: Embedded) -> Iterator[Client]:
    with connect(node.endpoints) as client:
        yield client


def fill(boom: Client, topic: str, count: int) -> None:
    """A topic with numbered messages."""
    boom.admin.create_topic(topic, queues=1)
    with boom.producer() as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, key=b"k%d" % n, tag="t").result()


def take(consumer: SubscriptionConsumer, count: int) -> list[Message]:
    """So many messages, none acknowledged."""
    found: list[Message] = []
    end = time.monotonic() + 200
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} came"
        found += consumer.poll(count - len(found), timeout_s=1)
    return found


def dead_letters(boom: Client, name: str, count: int) -> list[Message]:
    """So many dead letters, as anybody reads them."""
    with boom.consumer(f"%DLQ%{name}", start="first") as reader:
        found: list[Message] = []
        end = time.monotonic() + 200
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} came"
            found += reader.poll(timeout_s=1)
        return found


def unacked(boom: Client, topic: str, name: str) -> int:
    """Messages that are not acknowledged."""
    found = boom.admin.subscriptions.describe(topic, name)
    return sum(each.state.unacked for each in found)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_what_fails_too_often_becomes_a_dead_letter(boom: Client, kind: str) -> None:
    topic = f"{kind}-orders"
    fill(boom, topic, 3)
    with boom.subscribe(
        topic, subscription="billing", type=kind, start="first", max_attempts=2
    ) as consumer:
        good, bad, other = take(consumer, 3)
        consumer.ack([good, other])
        consumer.nack(bad, delay_s=0)
        (again,) = take(consumer, 1)
        assert (again.offset, again.attempt) == (bad.offset, 2)
        consumer.nack(again, delay_s=0, cause="no such\ncustomer")
        (dead,) = dead_letters(boom, f"{topic}%billing", 1)
        consumer.flush()
        assert unacked(boom, topic, "billing") == 0
    assert (dead.key, dead.value, dead.tag) == (bad.key, bad.value, bad.tag)
    headers = dead.headers or {}
    assert headers[ORIGIN] == f"{topic}/0/{bad.offset}".encode()
    assert (headers[ATTEMPT_HEADER], headers[CAUSE]) == (b"2", b"no such customer")


def test_what_is_never_acknowledged_becomes_a_dead_letter(boom: Client) -> None:
    fill(boom, "silent", 1)
    with boom.subscribe(
        "silent",
        subscription="s",
        type="shared",
        start="first",
        max_attempts=2,
        ack_timeout_s=0.3,
    ) as consumer:
        attempts = [message.attempt for message in take(consumer, 2)]
        while not boom.admin.offsets("%DLQ%silent%s")[0][1]:
            attempts += [message.attempt for message in consumer.poll(timeout_s=0.1)]
        assert attempts == [1, 2]
        consumer.flush()
    (dead,) = dead_letters(boom, "silent%s", 1)
    assert (dead.headers or {})[CAUSE] == b"delivered 2 times and never acknowledged"
    assert unacked(boom, "silent", "s") == 0


def test_a_retry_waits_in_its_topic_and_comes_as_what_it_was(boom: Client) -> None:
    fill(boom, "retried", 2)
    with boom.subscribe(
        "retried", subscription="s", type="shared", start="first", max_attempts=3
    ) as consumer:
        first, second = take(consumer, 2)
        consumer.ack(second)
        consumer.retry(first, delay_s=0.2, cause="busy")
        consumer.flush()
        # Acknowledged where it was, as its copy is safe.
        assert unacked(boom, "retried", "s") == 0
        (again,) = take(consumer, 1)
        assert (again.topic, again.queue, again.offset) == ("retried", 0, first.offset)
        assert (again.value, again.attempt) == (first.value, 2)
        consumer.nack(again, delay_s=0)
        (third,) = take(consumer, 1)
        assert (third.offset, third.attempt) == (first.offset, 3)
        consumer.retry(third, delay_s=0, cause="busy still")
        with pytest.raises(InvalidRequest, match="settled already"):
            consumer.ack(third)
        (dead,) = dead_letters(boom, "retried%s", 1)
        assert (dead.headers or {})[ORIGIN] == b"retried/0/%d" % first.offset
        consumer.flush()
        assert unacked(boom, "%RETRY%retried%s", "s") == 0


def test_a_retry_that_came_is_acknowledged_as_any_message(boom: Client) -> None:
    fill(boom, "again", 2)
    with boom.subscribe(
        "again", subscription="s", type="shared", start="first", max_attempts=9
    ) as consumer:
        first, second = take(consumer, 2)
        consumer.retry(first, delay_s=0)
        (copy,) = take(consumer, 1)
        consumer.ack([copy, second])
        consumer.flush()
    assert unacked(boom, "again", "s") == unacked(boom, "%RETRY%again%s", "s") == 0


def test_what_cannot_be_is_said(boom: Client) -> None:
    boom.admin.create_topic("plain", queues=1)
    for kind in ("exclusive", "failover"):
        with pytest.raises(InvalidRequest, match="shared and key_shared"):
            boom.subscribe("plain", subscription="o", type=kind, max_attempts=3)
    with pytest.raises(InvalidRequest, match="without %"):
        boom.subscribe("plain", subscription="a%b", type="shared", max_attempts=3)
    with pytest.raises(InvalidRequest, match="max_attempts is 0"):
        boom.subscribe("plain", subscription="n", type="shared", max_attempts=-1)
    fill(boom, "plainer", 1)
    with boom.subscribe("plainer", subscription="s", type="shared", start="first") as consumer:
        (message,) = take(consumer, 1)
        with pytest.raises(InvalidRequest, match="subscribe with max_attempts"):
            consumer.retry(message)
        consumer.ack(message)


def test_retries_of_asyncio(node: Embedded) -> None:
    async def play() -> None:
        async with aio.connect(node.endpoints) as boom:
            await boom.admin.create_topic("later", queues=1)
            async with boom.producer() as producer:
                await producer.send("later", b"x")
            consumer = boom.subscribe(
                "later", subscription="s", type="shared", start="first", max_attempts=2
            )
            async with consumer:
                (first,) = await consumer.poll(1, timeout_s=200)
                consumer.retry(first, delay_s=0, cause="busy")
                (second,) = await consumer.poll(1, timeout_s=200)
                assert (second.topic, second.attempt) == ("later", 2)
                consumer.nack(second, delay_s=0, cause="no use")
                await consumer.flush()
            async with boom.consumer("%DLQ%later%s", start="first") as reader:
                (dead,) = await reader.poll(1, timeout_s=200)
            assert (dead.headers or {})[CAUSE] == b"no use"

    asyncio.run(play())


def test_what_is_as_large_as_its_topic_takes_is_retried_and_given_up_as_all_is(
    boom: Client,
) -> None:
    # The two topics were made with the usual limit, and a copy has headers more than its original.
    boom.admin.create_topic("large", queues=1, max_message_bytes=8 * 1024 * 1024)
    usual = TopicConfig().max_message_bytes
    values = {b"x" * usual, b"y" * (usual + 1)}
    with boom.producer() as producer:
        for value in values:
            producer.send("large", value).result(200)
    with boom.subscribe(
        "large", subscription="s", type="shared", start="first", max_attempts=2
    ) as consumer:
        consumer.retry(take(consumer, 2), delay_s=0)
        for again in take(consumer, 2):
            assert again.attempt == 2
            consumer.nack(again, delay_s=0)
        dead = dead_letters(boom, "large%s", 2)
    assert {message.value for message in dead} == values


def test_a_second_consumer_of_one_name_is_told_and_costs_no_message(
    node: Embedded, boom: Client
) -> None:
    # They took the name from each other, and 69 of 100 messages became dead letters.
    fill(boom, "twins", 20)

    def me(client: Client) -> SubscriptionConsumer:
        return client.subscribe(
            "twins",
            subscription="s",
            type="shared",
            start="first",
            name="me",
            max_attempts=2,
            session_ms=1_000,
        )

    with me(boom) as consumer:
        first = take(consumer, 20)
        with connect(node.endpoints) as another:
            with pytest.raises(GroupError, match="another process is consumer 'me'") as caught:
                me(another).open()
            assert caught.value.code == "INSTANCE_TAKEN"
        consumer.ack(first)
        consumer.flush()
        assert {message.attempt for message in first} == {1}
        assert boom.admin.offsets("%DLQ%twins%s")[0] == (0, 0)
