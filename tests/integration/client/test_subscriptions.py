"""Subscriptions between real clients and nodes: each type, whoever goes, whoever leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from logboom.client import Client, Message, SubscriptionConsumer, aio, connect
from logboom.deploy import Cluster
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import GroupError, InvalidRequest, Refused, UnknownResource
from logboom.wire.hashing import slot_of
from tests.integration.waiting import wait_until


def send(boom: Client, topic: str, count: int, keys: int = 7) -> None:
    """Numbered messages, with as many keys."""
    with boom.producer() as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, key=b"k%d" % (n % keys))
        producer.flush()


def take(
    consumer: SubscriptionConsumer, count: int, *, ack: bool = True, timeout_s: float = 200
) -> list[Message]:
    """So many messages."""
    found: list[Message] = []
    end = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} came"
        messages = consumer.poll(count - len(found), timeout_s=1)
        found += messages
        if ack:
            consumer.ack(messages)
    return found


def take_all(
    consumers: list[SubscriptionConsumer], count: int, done: Callable[[Message], object]
) -> int:
    """So many messages of several consumers or some more, acknowledged; how many."""
    end = time.monotonic() + 200
    came = 0
    while came < count:
        assert time.monotonic() < end, f"{came} of {count} came"
        for consumer in consumers:
            messages = consumer.poll(timeout_s=0.05)
            for message in messages:
                done(message)
            consumer.ack(messages)
            came += len(messages)
    return came


def test_an_exclusive_subscription_remembers_and_lets_one_in(boom: Client) -> None:
    boom.admin.create_topic("alone", queues=2)
    with boom.subscribe("alone", subscription="billing", start="first") as consumer:
        send(boom, "alone", 20)
        messages = take(consumer, 20, ack=False)
        by_queue = {message.queue: message for message in messages}
        with pytest.raises(Refused, match="exclusive"):
            boom.subscribe("alone", subscription="billing")
        for message in by_queue.values():
            consumer.ack_cumulative(message)
        consumer.flush()
    with boom.subscribe("alone", subscription="billing") as again:
        assert again.poll(1, timeout_s=0.3) == []
        send(boom, "alone", 1)
        assert [message.value for message in take(again, 1)] == [b"0"]


def test_shared_gives_each_message_to_one(boom: Client) -> None:
    boom.admin.create_topic("shared", queues=2)
    consumers = [
        boom.subscribe("shared", subscription="s", type="shared", start="first", name=f"c{n}")
        for n in range(3)
    ]
    for _ in range(10):
        send(boom, "shared", 100)
    seen: dict[tuple[int, int], int] = {}

    def done(message: Message) -> None:
        place = message.queue, message.offset
        seen[place] = seen.get(place, 0) + 1

    take_all(consumers, 1_000, done)
    assert len(seen) == 1_000
    assert set(seen.values()) == {1}
    for consumer in consumers:
        consumer.close()


def test_key_shared_keeps_the_order_of_each_key(boom: Client) -> None:
    boom.admin.create_topic("keys", queues=1)
    first = boom.subscribe("keys", subscription="s", type="key_shared", start="first", name="one")
    values: dict[bytes | None, list[int]] = {}

    def done(message: Message) -> None:
        values.setdefault(message.key, []).append(int(message.value or b""))

    send(boom, "keys", 300)
    half = take_all([first], 100, done)
    second = boom.subscribe("keys", subscription="s", type="key_shared", name="two")
    send(boom, "keys", 300)
    take_all([first, second], 600 - half, done)
    for key, numbers in values.items():
        once = [n for n in range(300) if b"k%d" % (n % 7) == key]
        assert numbers == once + once
    first.close()
    second.close()


def test_a_nack_comes_again_and_is_counted(boom: Client) -> None:
    boom.admin.create_topic("again", queues=1)
    with boom.subscribe("again", subscription="s", type="shared", start="first") as consumer:
        send(boom, "again", 3)
        one, two, three = take(consumer, 3, ack=False)
        consumer.nack(two, delay_s=0.2)
        consumer.ack([one, three])
        [back] = take(consumer, 1)
        assert (back.offset, back.attempt) == (1, 2)
        with pytest.raises(InvalidRequest, match="not delivered"):
            consumer.ack(two)
        with pytest.raises(InvalidRequest, match="ack_cumulative"):
            consumer.ack_cumulative(back)
        with pytest.raises(InvalidRequest, match="delay"):
            consumer.nack([], delay_s=-1)


def test_an_exclusive_nack_brings_back_all_that_follow_in_order(boom: Client) -> None:
    boom.admin.create_topic("order", queues=1)
    with boom.subscribe("order", subscription="s", start="first") as consumer:
        for _ in range(4):
            send(boom, "order", 5)
        got = take(consumer, 8, ack=False)
        consumer.ack(got[:3])
        consumer.nack(got[4], delay_s=0.1)
        back = take(consumer, 17)
        assert [message.offset for message in back] == list(range(3, 20))
        assert [message.attempt for message in back[:3]] == [1, 2, 1]
        consumer.flush()
        assert consumer.poll(1, timeout_s=0.2) == []


def test_what_is_not_acknowledged_in_time_goes_to_another(boom: Client) -> None:
    boom.admin.create_topic("late", queues=1)
    settings = {"subscription": "s", "type": "shared", "start": "first", "ack_timeout_s": 3.0}
    one = boom.subscribe("late", **settings)  # type: ignore[arg-type]  # of several types
    send(boom, "late", 2)
    held = take(one, 2, ack=False)
    one.pause()
    two = boom.subscribe("late", **settings)  # type: ignore[arg-type]  # of several types
    back = take(two, 2)
    # The first has permits left: it may have got one of them once more, and then that comes last.
    assert {message.offset for message in back} == {message.offset for message in held}
    assert min(message.attempt for message in back) >= 2
    one.close()
    two.close()


def test_only_a_window_is_on_its_way_and_a_pause_stops_it(boom: Client) -> None:
    boom.admin.create_topic("window", queues=1)
    with boom.producer() as producer:
        for n in range(100):
            producer.send("window", b"%d" % n).result(200)
    with boom.subscribe("window", subscription="s", start="first", window=10) as consumer:
        first = take(consumer, 10, ack=True)
        consumer.pause()
        while messages := consumer.poll(timeout_s=0.3):
            first += messages
            consumer.ack(messages)
        assert 10 <= len(first) < 50
        consumer.resume()
        rest = take(consumer, 100 - len(first))
        assert [int(m.value or b"") for m in first + rest] == list(range(100))


def test_what_cannot_be_is_refused(boom: Client) -> None:
    boom.admin.create_topic("bad", queues=1)
    there = boom.subscribe("bad", subscription="s", type="shared")
    with pytest.raises(GroupError, match="shared"):
        boom.subscribe("bad", subscription="s", type="failover")
    there.close()
    wrong: list[dict[str, Any]] = [
        {"type": "half"},
        {"start": "middle"},
        {"window": 0},
        {"type": "shared", "ranges": [(0, 1)]},
        {"ranges": []},
        {"type": "key_shared", "ranges": [(5, 1)]},
        {"type": "key_shared", "ranges": []},
        {"nonsense": 1},
        {"most_unacked": "many"},
        {"filter": "a >"},
    ]
    for options in wrong:
        with pytest.raises(InvalidRequest):
            boom.subscribe("bad", subscription="x", **options)


def test_the_asyncio_twin(node: Embedded) -> None:
    async def run() -> list[int]:
        async with aio.connect(node.endpoints) as boom:
            await boom.admin.create_topic("twin", queues=1)
            found: list[int] = []
            async with boom.subscribe("twin", subscription="s", type="shared") as consumer:
                async with boom.producer() as producer:
                    for n in range(10):
                        await producer.send("twin", b"%d" % n)
                async for message in consumer:
                    found.append(message.offset)
                    consumer.ack(message)
                    if len(found) == 10:
                        break
                await consumer.flush()
                consumer.pause()
                consumer.resume()
                assert await consumer.poll(timeout_s=0.1) == []
            return found

    assert sorted(asyncio.run(run())) == list(range(10))


def test_a_fail_over_redelivers_only_what_was_not_acknowledged() -> None:
    with (
        Cluster(name_servers=1, brokers=3) as cluster,
        connect(cluster.endpoints, timeout_s=200) as boom,
    ):
        boom.admin.create_topic("moved", queues=1, replicas=3)
        consumer = boom.subscribe("moved", subscription="s", type="shared", start="first")
        for _ in range(10):
            send(boom, "moved", 10)
        first = take(consumer, 60)
        consumer.flush()
        acked = {message.offset for message in first}
        cluster.kill(cluster.leader("moved", 0))
        rest: set[int] = set()
        end = time.monotonic() + 200
        while not (confirmed(consumer) and nothing_unacked(boom, "moved", "s")):
            assert time.monotonic() < end, f"{len(rest)} came"
            messages = consumer.poll(timeout_s=1)
            consumer.ack(messages)
            for message in messages:
                assert message.offset not in acked
                rest.add(message.offset)
        assert len(rest | acked) == 100
        consumer.close()


def confirmed(consumer: SubscriptionConsumer) -> bool:
    """Whether all acknowledgements are; a new leader refuses what its predecessor had delivered."""
    try:
        consumer.flush()
    except GroupError as error:
        if error.code != "ACK_REFUSED":
            raise
        return False
    return True


def test_queues_that_come_later_and_a_topic_made_anew_are_read_from_their_first(
    boom: Client,
) -> None:
    boom.admin.create_topic("grown", queues=1)
    with boom.subscribe("grown", subscription="s", type="shared") as consumer:
        boom.admin.alter_topic("grown", queues=2)
        with boom.producer() as producer:
            producer.send("grown", b"late", queue=1).result(200)
        assert [message.value for message in take(consumer, 1)] == [b"late"]
        consumer.flush()
        boom.admin.delete_topic("grown")
        boom.admin.create_topic("grown", queues=2)
        with boom.producer() as producer:
            producer.send("grown", b"new", queue=1).result(200)
        end = time.monotonic() + 200
        found: list[Message] = []
        while not found:
            assert time.monotonic() < end
            try:
                found = consumer.poll(timeout_s=1)
            except UnknownResource:
                continue  # for a moment there was none
        assert [message.value for message in found] == [b"new"]


def nothing_unacked(boom: Client, topic: str, name: str) -> bool:
    """Whether a subscription has acknowledged everything; what nobody wants counts as well."""
    found = boom.admin.subscriptions.describe(topic, name)
    return not any(each.state.unacked for each in found)


def test_an_exclusive_consumer_may_want_some_keys_only(boom: Client) -> None:
    boom.admin.create_topic("halves", queues=2)
    keys = [b"key-%d" % (n % 20) for n in range(200)]
    with boom.producer() as producer:
        producer.send_many("halves", keys, keys).result()
    got: list[set[bytes]] = []
    for name, first, last in (("low", 0, 32_767), ("high", 32_768, 65_535)):
        wanted = {key for key in keys if first <= slot_of(key) <= last}
        count = sum(key in wanted for key in keys)
        with boom.subscribe(
            "halves", subscription=name, start="first", ranges=[(first, last)]
        ) as consumer:
            messages = take(consumer, count)
            consumer.flush()
            assert consumer.poll(timeout_s=0.2) == []
            found = boom.admin.subscriptions.describe("halves", name)
            seats = [seat.ranges for each in found for seat in each.state.consumers]
            assert seats == [[(first, last)]] * len(found)
            wait_until(partial(nothing_unacked, boom, "halves", name), "all is acknowledged")
        got.append({bytes(message.key or b"") for message in messages})
        assert got[-1] == wanted
    assert got[0] | got[1] == set(keys)
