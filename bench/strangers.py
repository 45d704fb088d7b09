"""What connections that say nothing cost a broker, and whoever it serves meanwhile."""

from __future__ import annotations

import resource
import socket
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, percentile
from bench.idle import resident_mb
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from logboom.client import Client

MEMORY_MB: Final = 64
SLOWER: Final = 2.0
OTHER_FILES: Final = 1_000
"""Descriptors that this process needs besides."""


def rows(count: int, seconds: float, rounds: int) -> list[Figure]:
    """Measure a producer without and with `count` silent connections, in turn."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + OTHER_FILES), hard))
    alone, beside, grown = list[float](), list[float](), list[float]()
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("strangers", queues=1, replicas=1)
        pid = cluster.pid("broker-1")
        acknowledged(boom, seconds)
        for _ in range(rounds):
            alone.append(percentile(acknowledged(boom, seconds), 0.99))
            before = resident_mb(pid)
            with ExitStack() as stack:
                host, _, port = cluster.endpoint("broker-1").rpartition(":")
                for _ in range(count):
                    stack.enter_context(socket.create_connection((host, int(port)), 30.0))
                beside.append(percentile(acknowledged(boom, seconds), 0.99))
                grown.append(resident_mb(pid) - before)
            if not ask_until(lambda: connections(boom), lambda found: found < count / 2, 60.0):
                raise RuntimeError("the broker does not forget connections that have ended")
    reference, value = statistics.median(alone), statistics.median(beside)
    ratio = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
    return [
        Figure(f"{count:,} silent connections, memory", max(grown), "MiB", MEMORY_MB, "less"),
        Figure(
            f"{count:,} silent connections, acknowledgement p99",
            value,
            "ms",
            SLOWER,
            "less",
            reference="without them",
            reference_value=reference,
            ratio=ratio,
        ),
    ]


def acknowledged(boom: Client, seconds: float) -> list[float]:
    """Send one message after the other; return the ms until each was acknowledged."""
    took: list[float] = []
    until = time.monotonic() + seconds
    with boom.producer(linger_ms=0) as producer:
        while time.monotonic() < until:
            began = time.monotonic()
            producer.send("strangers", b"x" * 100).result(60)
            took.append(1_000 * (time.monotonic() - began))
    return took


def connections(boom: Client) -> int:
    """Return how many connections the broker has."""
    return sum(
        int(node.counters["connections"])
        for node in boom.admin.stats()
        if "parked" in node.counters
    )
