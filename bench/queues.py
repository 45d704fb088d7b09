"""Topics of 1,024 queues that are created as fast as clients can, and what that costs the brokers.

A broker whose loop is held up for longer than its lease serves less, and one that is silent for a
session is fenced: thousands of queues change their leaders then. A client sends and reads meanwhile,
and the processors have other work: a loop of Python for each core.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from bench import python_loop, rolling
from bench.figures import Figure
from bench.metadata_scale import Prober
from logboom.client import RetryableError, connect
from logboom.deploy import Cluster
from logboom.wire.errors import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logboom.client import Client

QUEUES: Final = 1_024
BUSY: Final = "busy"
"""The topic of the client that sends and reads meanwhile."""
PATIENCE_S: Final = 600.0


def rows(topics: int, seconds: float, nodes: int) -> list[Figure]:
    """Create topics at the same time, and watch the cluster until some seconds after.

    Args:
        topics: How many.
        seconds: How long to watch once each queue has been written.
        nodes: How many name servers, brokers, and replicas of each queue.
    """
    with (
        Cluster(name_servers=nodes, brokers=nodes) as cluster,
        connect(cluster.endpoints) as boom,
        ThreadPoolExecutor(topics) as pool,
        _other_work(),
    ):
        boom.admin.create_topic(BUSY, queues=rolling.QUEUES, replicas=nodes)
        load = rolling.SteadyLoad(boom, BUSY)
        prober = Prober(cluster.endpoints)
        try:
            load.await_flow(rolling.QUEUES)
            prober.start()
            began = time.monotonic()
            list(pool.map(lambda number: create(boom, f"t{number}", nodes), range(topics)))
            created_s = time.monotonic() - began
            write(boom, topics)
            written_s = time.monotonic() - began
            # A session ends, and shows in the figures, seconds after what has cost it: nothing
            # tells that none will, so the time itself is what is measured.
            time.sleep(seconds)
            slowest_ms = 1_000 * prober.end()
        finally:
            load.close()
        fenced = figure(boom, "fencings")
        moved = figure(boom, "leaderships") - topics * QUEUES - rolling.QUEUES
        lapsed = sum(cluster.log(node).count(" lease_lost ") for node in cluster.nodes)
    waits = (*load.acked.longest_s.values(), *load.read.longest_s.values())
    return [
        Figure(
            f"{topics} topics of {QUEUES:,} queues, {nodes} brokers: fenced", fenced, "", 0, "less"
        ),
        Figure("  … leaderships that moved", moved, "", 0, "less"),
        Figure("  … leases that lapsed", lapsed, "", 0, "less"),
        Figure("  … errors of a client meanwhile", len(load.errors) + load.lost, "", 0, "less"),
        Figure("  … the longest that one of its queues stood still", max(waits), "s"),
        Figure("  … all created", created_s, "s"),
        Figure("  … each written", written_s, "s"),
        Figure("  … slowest answer of a broker", slowest_ms, "ms"),
    ]


@contextmanager
def _other_work() -> Iterator[None]:
    spawn = multiprocessing.get_context("spawn")
    loops = [spawn.Process(target=_loop, daemon=True) for _ in range(os.cpu_count() or 1)]
    for each in loops:
        each.start()
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.join()


def _loop() -> None:
    while True:
        python_loop.turn()


def create(boom: Client, name: str, replicas: int) -> None:
    """Create one topic, however long it takes."""
    while True:
        try:
            boom.admin.create_topic(name, QUEUES, replicas)
        except RetryableError:
            continue
        except AlreadyExists:
            return
        return


def write(boom: Client, topics: int) -> None:
    """Write a message into each queue, topic by topic."""
    with boom.producer() as producer:
        for topic in range(topics):
            sent = [producer.send(f"t{topic}", b"first", queue=each) for each in range(QUEUES)]
            for each in sent:
                each.result(PATIENCE_S)


def figure(boom: Client, name: str) -> int:
    """Return a figure of STATS, of all brokers together."""
    return sum(int(node.counters.get(name, 0)) for node in boom.admin.stats())
