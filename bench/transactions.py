"""Transactions with three name servers and three brokers: duration and cost of commits."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from bench.latency import percentile
from logboom.client import connect
from logboom.deploy import Cluster

if TYPE_CHECKING:
    from logboom.client import Client, ManyFuture, Producer

QUEUES: Final = 8
BATCH: Final = [b"x" * 100] * 1_000
BATCHES: Final = 10
"""Batches of a transaction, for the rate: 10,000 messages."""
AT_ONCE: Final = 6
"""Open transactions of one producer, for the rate: about as many batches are in flight
as with the plain sends."""
UNDER_WAY: Final = 64


def rows(commits: int, transactions: int) -> list[Figure]:
    """Time `commits` alone, and compare `transactions` of 10,000 messages with plain sends."""
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        for topic in ("timed", "plain", "transacted", "one"):
            boom.admin.create_topic(topic, queues=QUEUES, replicas=3)
        with boom.producer() as producer:
            commit_ms, whole_ms = times(producer, commits)
            plain(producer, "plain", transactions // 4)
            plain_rate = plain(producer, "plain", transactions)
            one_rate = transacted(producer, "one", transactions, 1)
            rate = transacted(producer, "transacted", transactions, AT_ONCE)
        assert counted(boom, "transacted") == transactions * BATCHES * len(BATCH)
    name = f"transactions of {BATCHES * len(BATCH):,}"
    return [
        Figure(
            "commit, 8 queues x 1,000 messages, p50", percentile(commit_ms, 0.5), "ms", 20.0, "less"
        ),
        Figure("commit, 8 queues x 1,000 messages, p99", percentile(commit_ms, 0.99), "ms"),
        Figure("sends and commit together, p50", percentile(whole_ms, 0.5), "ms"),
        Figure("send_many, 3 replicas, 8 queues", plain_rate, "msg/s"),
        Figure(
            f"{name}, one at a time", one_rate, "msg/s", note=f"{one_rate / plain_rate:.2f} x plain"
        ),
        Figure(
            f"{name}, {AT_ONCE} at a time",
            rate,
            "msg/s",
            0.6 * plain_rate,
            note=f"{rate / plain_rate:.2f} x plain",
        ),
    ]


def times(producer: Producer, count: int) -> tuple[list[float], list[float]]:
    """Return the ms of each commit after everything is parked, and of sends and commit together."""
    commit_ms, whole_ms = [], []
    for _ in range(count):
        begun = time.monotonic()
        with producer.transaction("timed") as txn:
            sent = [txn.send_many("timed", BATCH, queue=queue) for queue in range(QUEUES)]
            for future in sent:
                future.result(30)
            parked = time.monotonic()
        ended = time.monotonic()
        commit_ms.append((ended - parked) * 1_000)
        whole_ms.append((ended - begun) * 1_000)
    return commit_ms, whole_ms


def plain(producer: Producer, topic: str, count: int) -> float:
    """Return messages per second without transactions, with the messages of `count` of them."""
    begun = time.monotonic()
    waiting: deque[ManyFuture] = deque()
    for n in range(count * BATCHES):
        waiting.append(producer.send_many(topic, BATCH, queue=n % QUEUES))
        if len(waiting) >= UNDER_WAY:
            waiting.popleft().result(60)
    producer.flush()
    return count * BATCHES * len(BATCH) / (time.monotonic() - begun)


def transacted(producer: Producer, topic: str, count: int, at_once: int) -> float:
    """Return messages per second in transactions, `at_once` of which are open."""

    def one(number: int) -> None:
        with producer.transaction() as txn:
            for n in range(BATCHES):
                txn.send_many(topic, BATCH, queue=(number + n) % QUEUES)

    begun = time.monotonic()
    with ThreadPoolExecutor(at_once) as threads:
        for future in [threads.submit(one, number) for number in range(count)]:
            future.result()
    return count * BATCHES * len(BATCH) / (time.monotonic() - begun)


def counted(boom: Client, topic: str) -> int:
    """Return the number of messages that can be read."""
    return sum(end - first for first, end in boom.admin.offsets(topic).values())
