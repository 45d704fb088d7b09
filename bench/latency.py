"""Latency from `send` to the reader, at 1,000 messages per second."""

from __future__ import annotations

import time
from typing import Final

from bench.figures import Figure, compared, percentile
from bench.reader import ReaderProcess
from bench.references import ROUND_TRIP, ROUND_TRIP_THRICE, Reference
from logboom.client import Client, connect
from logboom.deploy import Cluster

MEDIAN: Final = {1: 16.0, 3: 30.0}
TAIL: Final = 8.0
"""Wide, because a message passes more processes than an echo: all of them wait on a busy machine."""


def latencies(boom: Client, endpoints: list[str], topic: str, seconds: float) -> list[float]:
    """Return the ms of each message, without the first half second, when nothing is warm."""
    count = int(1_000 * (seconds + 0.5))
    reader = ReaderProcess(endpoints, topic, count, "latency")
    with boom.producer(acks="all") as producer:
        due = time.monotonic()
        for _ in range(count):
            while (wait := due - time.monotonic()) > 0:
                # This is no wait but the pace of the open loop: 1,000 messages per second.
                time.sleep(wait)
            producer.send(topic, time.monotonic_ns().to_bytes(8, "little"), queue=0)
            due += 0.001
        producer.flush()
    return reader.report().latencies_ms[500:]


def rows(seconds: float, rounds: int) -> list[Figure]:
    """Return p50 and p99 with one broker and with three replicas, of rounds of some seconds."""
    return [
        *cluster_rows("produce → consume, 1 broker", 1, ROUND_TRIP, seconds, rounds),
        *cluster_rows(
            "produce → consume, 3 brokers, 3 replicas", 3, ROUND_TRIP_THRICE, seconds, rounds
        ),
    ]


def cluster_rows(
    name: str, brokers: int, reference: Reference, seconds: float, rounds: int
) -> list[Figure]:
    """Return p50 and p99 with as many replicas as brokers."""
    with (
        Cluster(name_servers=1, brokers=brokers) as cluster,
        connect(cluster.endpoints) as boom,
    ):

        def once(number: int) -> tuple[float, float]:
            topic = f"latency-{number}"
            boom.admin.create_topic(topic, queues=1, replicas=brokers)
            taken = latencies(boom, cluster.endpoints, topic, seconds)
            return percentile(taken, 0.5), percentile(taken, 0.99)

        p50, p99 = reference.beside(rounds, once)
    return [
        compared(f"{name}, p50", p50, "ms", MEDIAN[brokers], "less"),
        compared(f"{name}, p99", p99, "ms", TAIL, "less"),
    ]
