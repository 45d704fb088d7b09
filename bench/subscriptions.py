"""Subscriptions: throughput of consumers that share a queue, and the cost of holes and deaths."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import load
from bench.figures import Figure, compared, percentile
from bench.idle import cpu_seconds
from bench.references import PYTHON, compare
from bench.subscriber import SubscriberProcess, SubscriberReport
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until
from logboom.nodes.disk.rocks_storage import RocksStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Comparison
    from logboom.client import Client, ManyFuture, Message, SubscriptionConsumer

CONSUMERS: Final = 4
KEYS: Final = 10_000
SESSION_MS: Final = 2_000
"""The session timeout of the consumer that is killed."""
HELD: Final = 500
"""The number of messages that it holds."""
SHARED: Final = 0.1
KEY_SHARED: Final = 0.044
TAKEN_OVER: Final = 1.5
HOLES: Final = 3.0


def fill(boom: Client, topic: str, items: Sequence[bytes], keys: Sequence[bytes]) -> None:
    """Send all items to one queue, 1,000 per batch."""
    sent: list[ManyFuture] = []
    with boom.producer() as producer:
        for at in range(0, len(items), load.BATCH):
            stop = at + load.BATCH
            future = producer.send_many(topic, items[at:stop], keys=keys[at:stop], queue=0)
            sent.append(future)
        for future in sent:
            future.result(120)


def unacked(boom: Client, topic: str) -> int:
    """Return the number of unacknowledged messages of the subscription."""
    found = boom.admin.subscriptions.describe(topic, "work")
    return sum(each.state.unacked for each in found)


def once(boom: Client, cluster: Cluster, kind: str, topic: str, count: int) -> SharedRun:
    """Produce, deliver to four processes, and acknowledge each message."""
    boom.admin.create_topic(topic, queues=1, replicas=1)
    source = random.Random(3)
    keys = [b"key-%d" % source.randrange(KEYS) for _ in range(count)]
    items = load.values(count)
    consumers = [
        SubscriberProcess(cluster.endpoints, topic, "work", kind, f"consumer-{n}")
        for n in range(CONSUMERS)
    ]
    try:
        for consumer in consumers:
            consumer.ready()
        broker = cluster.pid("broker-1")
        began, used = time.monotonic(), cpu_seconds(broker)
        fill(boom, topic, items, keys)
        left = ask_until(lambda: unacked(boom, topic), lambda left: not left, 180, 0.02)
        seconds = time.monotonic() - began
        if left:
            raise TimeoutError(f"{left} of {count} messages were not acknowledged")
        used = cpu_seconds(broker) - used
        reports = [consumer.report() for consumer in consumers]
    finally:
        for consumer in consumers:
            consumer.kill()
    boom.admin.delete_topic(topic)
    return SharedRun(count, seconds, used, reports)


class SharedRun:
    """The figures of one run."""

    def __init__(
        self, count: int, seconds: float, used_s: float, reports: list[SubscriberReport]
    ) -> None:
        self.rate = count / seconds
        counts = [report.count for report in reports]
        if sum(counts) != count:
            raise RuntimeError(f"{sum(counts)} messages came, {count} were sent")
        self.largest_share = max(counts) * len(counts) / count
        self.cpu_us = (used_s + sum(report.cpu_s for report in reports)) / count * 1e6


def several(boom: Client, cluster: Cluster, kind: str, count: int, rounds: int) -> list[Comparison]:
    """Return the rate, the largest share, and the processor time of some runs.

    The processor time is that of broker and consumers in µs per message.
    """

    def run(number: int) -> tuple[float, float, float]:
        done = once(boom, cluster, kind, f"{kind}-{number}", count)
        return done.rate, done.largest_share, done.cpu_us

    return PYTHON.beside(rounds, run)


def takeover(boom: Client, endpoints: list[str]) -> float:
    """Return the seconds from the kill of a consumer until another one has all that it held."""
    boom.admin.create_topic("killed", queues=1, replicas=1)
    holder = SubscriberProcess(endpoints, "killed", "work", "shared", "holder", SESSION_MS, "hold")
    try:
        holder.ready()
        fill(boom, "killed", load.values(HELD), [b"k"] * HELD)
        held = ask_until(lambda: holding(boom), lambda held: held == HELD, 30, 0.02)
        if held != HELD:
            raise TimeoutError(f"{held} of {HELD} messages are held")
        with boom.subscribe(
            "killed", subscription="work", type="shared", session_ms=SESSION_MS
        ) as heir:
            holder.kill()
            began = time.monotonic()
            take(heir, HELD)
            return time.monotonic() - began
    finally:
        holder.kill()


def holding(boom: Client) -> int:
    """Return the number of messages that consumers hold."""
    found = boom.admin.subscriptions.describe("killed", "work")
    return sum(each.state.held for each in found)


def take(consumer: SubscriptionConsumer, count: int) -> list[Message]:
    """Receive this many messages without acknowledging any."""
    found: list[Message] = []
    deadline = time.monotonic() + 120
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} messages came")
        found += consumer.poll(10_000, timeout_s=1.0)
    return found


class AckTimes(NamedTuple):
    """The ms of single acknowledgements."""

    calls: list[float]
    """Until `ack` returned and the consumer continues."""
    confirmed: list[float]
    """Until it was on disk and the message is not delivered again; about as long as a send."""


def holes(boom: Client, count: int, samples: int) -> tuple[AckTimes, AckTimes]:
    """Measure single acknowledgements, without and with holes.

    For the holes, every other of twice `count` messages is not acknowledged.
    """
    boom.admin.create_topic("holes", queues=1, replicas=1)
    fill(boom, "holes", [b"x" * load.WIDTH] * (2 * count), [b"k"] * (2 * count))
    most = 4 * count
    with boom.subscribe(
        "holes",
        subscription="work",
        type="shared",
        start="first",
        window=20_000,
        most_unacked=most,
        most_unacked_all=most,
    ) as consumer:
        messages = take(consumer, 2 * count)
        before = ack_times(consumer, messages[:samples])
        rest = messages[samples:]
        consumer.ack(rest[1::2])
        consumer.flush(60)
        return before, ack_times(consumer, random.Random(5).sample(rest[::2], samples))


def ack_times(consumer: SubscriptionConsumer, messages: Sequence[Message]) -> AckTimes:
    """Acknowledge each message separately."""
    times = AckTimes([], [])
    for message in messages:
        began = time.perf_counter()
        consumer.ack(message)
        times.calls.append((time.perf_counter() - began) * 1000)
        consumer.flush()
        times.confirmed.append((time.perf_counter() - began) * 1000)
    return times


def cursor_bytes(folder: Path) -> int:
    """Return the bytes of all cursors in a broker's store."""
    storage = RocksStorage(folder, "broker-1")
    try:
        return sum(
            len(key) + len(value) for key, value in storage.scan("cursor", b"", b"\xff" * 32)
        )
    finally:
        storage.close()


def rows(count: int, rounds: int, unacked_count: int) -> list[Figure]:
    """Return the figures of subscriptions, with one broker."""
    with tempfile.TemporaryDirectory(prefix="logboom-bench-") as folder:
        data = Path(folder)
        with (
            Cluster(name_servers=1, brokers=1, data=data) as cluster,
            connect(cluster.endpoints) as boom,
        ):
            shared, _, shared_us = several(boom, cluster, "shared", count, rounds)
            keyed, share, keyed_us = several(boom, cluster, "key_shared", count, rounds)
            taken_s = takeover(boom, cluster.endpoints)
            before, acks = holes(boom, unacked_count, min(500, unacked_count // 2))
        size = cursor_bytes(data / "broker-1" / "data")
    session = compare("configured session, s", [taken_s], [SESSION_MS / 1_000])
    calls = compare(
        "the same without holes, ms",
        [percentile(acks.calls, 0.99)],
        [percentile(before.calls, 0.99)],
    )
    confirmed = [
        compare(
            "the same without holes, ms",
            [percentile(acks.confirmed, share)],
            [percentile(before.confirmed, share)],
        )
        for share in (0.5, 0.99)
    ]
    at = f"{unacked_count:,} unacked with holes"
    return [
        compared("shared, 4 consumers, ack each", shared, "msg/s", SHARED),
        Figure("  … processor time of broker and consumers", shared_us.value, "µs/msg"),
        compared("key_shared, 4 consumers, 10,000 keys", keyed, "msg/s", KEY_SHARED),
        Figure("  … processor time of broker and consumers", keyed_us.value, "µs/msg"),
        Figure("  … largest share, of the mean", share.value, "x", 1.25, "less"),
        compared("consumer killed: another has its messages", session, "s", TAKEN_OVER, "less"),
        compared(f"{at}, ack() p99", calls, "ms", HOLES, "less"),
        compared("  … until it is on disk and confirmed, p50", confirmed[0], "ms"),
        compared("  … the same p99", confirmed[1], "ms"),
        Figure(f"{at}, cursor on disk", size / 1024, "KiB", 1024, "less"),
    ]
