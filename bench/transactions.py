"""Transactions with three name servers and three brokers: duration and cost of commits."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared, percentile
from bench.references import Reference
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
RATE: Final = 0.75
COMMIT: Final = 1.5


def rows(commits: int, transactions: int, rounds: int) -> list[Figure]:
    """Time commits beside plain acknowledgements, and compare transactions with plain sends.

    Args:
        commits: How many are timed in each round.
        transactions: How many of 10,000 messages each are in a burst.
        rounds: The number of bursts of each kind.
    """
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        for topic in ("timed", "plain", "transacted", "one"):
            boom.admin.create_topic(topic, queues=QUEUES, replicas=3)
        with boom.producer() as producer:
            acknowledged = Reference(
                "8 plain send_many of 1,000 acknowledged, ms",
                lambda: acknowledgements(producer, commits),
            )
            sent = Reference(
                "plain send_many, 3 replicas, msg/s",
                lambda: [plain(producer, "plain", transactions)],
            )
            # The first ones find routes and connections.
            times(producer, 5)
            plain(producer, "plain", transactions)
            commit_p50, commit_p99, whole_p50, whole_p99 = acknowledged.beside(
                rounds, lambda _: times(producer, commits)
            )
            (one,) = sent.beside(rounds, lambda _: [transacted(producer, "one", transactions, 1)])
            (many,) = sent.beside(
                rounds, lambda _: [transacted(producer, "transacted", transactions, AT_ONCE)]
            )
        assert counted(boom, "transacted") == rounds * transactions * BATCHES * len(BATCH)
    name = f"transactions of {BATCHES * len(BATCH):,}"
    return [
        compared("commit, 8 queues x 1,000 messages, p50", commit_p50, "ms", COMMIT, "less"),
        compared("commit, 8 queues x 1,000 messages, p99", commit_p99, "ms"),
        compared("sends and commit together, p50", whole_p50, "ms"),
        compared("sends and commit together, p99", whole_p99, "ms"),
        compared(f"{name}, one at a time", one, "msg/s"),
        compared(f"{name}, {AT_ONCE} at a time", many, "msg/s", RATE),
    ]


def acknowledgements(producer: Producer, count: int) -> tuple[float, float]:
    """Return p50 and p99 of the ms until a plain batch for each queue is acknowledged."""
    taken = []
    for _ in range(count):
        begun = time.monotonic()
        for future in [producer.send_many("plain", BATCH, queue=queue) for queue in range(QUEUES)]:
            future.result(30)
        taken.append((time.monotonic() - begun) * 1_000)
    return percentile(taken, 0.5), percentile(taken, 0.99)


def times(producer: Producer, count: int) -> tuple[float, float, float, float]:
    """Return p50 and p99 of the ms of commits, and of sends and commit together.

    A commit begins when everything is parked.
    """
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
    return (
        percentile(commit_ms, 0.5),
        percentile(commit_ms, 0.99),
        percentile(whole_ms, 0.5),
        percentile(whole_ms, 0.99),
    )


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
