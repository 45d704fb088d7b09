"""What a scrape costs: the throughput of a broker that is scraped every second, and the time of a
scrape of a broker with many replicas."""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Final

from bench import load
from bench.figures import Figure, compared
from bench.references import with_and_without
from bench.throughput import IN_FLIGHT
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.node_client import open_node_client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from logboom.client import Producer

SCRAPED: Final = 0.98
"""Part of the rate without scrapes that is reached with one a second."""
SCRAPE_MS: Final = 50.0
HOLD_MS: Final = 2.0
EVERY_S: Final = 1.0
MESSAGES: Final = 100_000
"""Messages that are sent over and over."""
QUEUES_OF_A_TOPIC: Final = 100
SCRAPES: Final = 50


def rows(seconds: float, rounds: int, replicas: int) -> list[Figure]:
    """Return the rates beside those without scrapes, each over some seconds, and the times of
    scrapes."""
    return [_throughput(seconds, rounds), *_many_replicas(replicas)]


def _throughput(seconds: float, rounds: int) -> Figure:
    chunks = [*load.chunks(load.values(MESSAGES))]
    with (
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(cluster.endpoints, timeout_s=60) as boom,
    ):
        endpoint = cluster.metrics_endpoint("broker-1")

        def rate(scraped: bool, run: str) -> float:
            topic = f"scraped-{run}"
            boom.admin.create_topic(topic, queues=1)
            with boom.producer() as producer, _scraped(endpoint if scraped else ""):
                found = _rate(producer, topic, chunks, seconds)
            boom.admin.delete_topic(topic)
            return found

        comparison = with_and_without("not scraped, msg/s", rounds, rate)
    return compared("produce 100 B, scraped every second", comparison, "msg/s", SCRAPED)


def _rate(
    producer: Producer, topic: str, chunks: Sequence[Sequence[bytes]], seconds: float
) -> float:
    """Return the messages per second that are acknowledged over some seconds."""
    sent = 0
    waiting = []
    began = time.monotonic()
    for chunk in cycle(chunks):
        if time.monotonic() - began >= seconds:
            break
        waiting.append(producer.send_many(topic, chunk, queue=0))
        sent += len(chunk)
        if len(waiting) >= IN_FLIGHT:
            waiting.pop(0).result(60)
    producer.flush()
    return sent / (time.monotonic() - began)


@contextmanager
def _scraped(endpoint: str) -> Iterator[None]:
    """Let another process scrape a node every second, from now until the end; "" for none."""
    if not endpoint:
        yield
        return
    scraper = subprocess.Popen([sys.executable, "-m", "bench.scrape", endpoint])
    try:
        yield
    finally:
        scraper.terminate()
        scraper.wait()


def _scrape(endpoint: str) -> tuple[float, int]:
    """Return the seconds that a scrape took, and its bytes."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(endpoint, timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"a scrape was refused: {text.decode()}")
    return time.monotonic() - began, len(text)


def _many_replicas(replicas: int) -> list[Figure]:
    """Return the time of scrapes of a broker that leads half of its replicas and follows half."""
    with (
        Cluster(name_servers=1, brokers=2) as cluster,
        connect(cluster.endpoints, timeout_s=120) as boom,
    ):
        for number in range(replicas // QUEUES_OF_A_TOPIC):
            boom.admin.create_topic(f"many-{number}", queues=QUEUES_OF_A_TOPIC, replicas=2)
        with boom.producer() as producer:
            for number in range(replicas // QUEUES_OF_A_TOPIC):
                for queue in range(QUEUES_OF_A_TOPIC):
                    producer.send(f"many-{number}", b"x" * 100, queue=queue)
        endpoint = cluster.metrics_endpoint("broker-1")
        took: list[float] = []
        size = 0
        for _ in range(SCRAPES):
            seconds, size = _scrape(endpoint)
            took.append(seconds * 1000)
            time.sleep(0.1)  # as a scraper leaves the node alone between two scrapes
        with open_node_client(None) as nodes:
            (answer,) = nodes.stats([cluster.endpoint("broker-1")], 60.0).values()
    held = float(answer.counters["replicas"])
    note = f"{size} bytes, fastest {min(took):.1f} ms, slowest {max(took):.1f} ms"
    hold_ms, work_ms = (
        float(answer.counters[name]) for name in ("scrape_hold_ms", "scrape_work_ms")
    )
    load_now = os.getloadavg()[0]
    seen = f"{hold_ms:.1f} ms passed, at a load of {load_now:.0f}"
    return [
        Figure(
            f"scrape with {held:.0f} replicas",
            statistics.median(took),
            "ms",
            SCRAPE_MS,
            "less",
            note,
        ),
        # By the processor's time: what passes on a busy machine is mostly the others' doing.
        Figure("longest hold of the loop by a scrape", work_ms, "ms", HOLD_MS, "less", seen),
    ]


if __name__ == "__main__":
    # What `_scraped` starts: a process of its own, as Prometheus is one.
    while True:
        passed_s, _ = _scrape(sys.argv[1])
        time.sleep(max(0.0, EVERY_S - passed_s))  # until the next second
