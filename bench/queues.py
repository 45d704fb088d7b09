"""Topics of 1,024 queues that are created as fast as clients can, and whether brokers stay registered.

A broker whose loop is held up for longer than its session is fenced, and registers again under another
instance epoch; thousands of queues change their leaders then.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from bench.metadata_scale import Prober
from logboom.client import RetryableError, connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until
from logboom.wire.errors import AlreadyExists

if TYPE_CHECKING:
    from logboom.client import Client

QUEUES: Final = 1_024
BROKERS: Final = 3
PATIENCE_S: Final = 600.0


def rows(topics: int, seconds: float) -> list[Figure]:
    """Create this many topics at the same time, and watch the brokers until some seconds after."""
    with (
        Cluster(name_servers=3, brokers=BROKERS) as cluster,
        connect(cluster.endpoints) as boom,
        ThreadPoolExecutor(topics) as pool,
    ):
        boom.admin.create_topic("first", queues=1, replicas=BROKERS)
        before = figure(boom, "registrations")
        prober = Prober([cluster.endpoint(f"broker-{n + 1}") for n in range(BROKERS)])
        prober.start()
        began = time.monotonic()
        list(pool.map(lambda number: create(boom, f"t{number}"), range(topics)))
        created_s = time.monotonic() - began
        wanted = topics * QUEUES + 1
        if not ask_until(lambda: figure(boom, "leading"), lambda led: led >= wanted, PATIENCE_S):
            raise TimeoutError("queues are not led")
        led_s = time.monotonic() - began
        # The measured span: what all these queues cost once they are there.
        time.sleep(seconds)
        slowest_ms = 1_000 * prober.end()
        lost = figure(boom, "registrations") - before
    return [
        Figure(f"{topics} topics of {QUEUES:,} queues: registrations lost", lost, "", 0, "less"),
        Figure("  … all created", created_s, "s"),
        Figure("  … all led", led_s, "s"),
        Figure("  … slowest answer of a broker", slowest_ms, "ms"),
    ]


def create(boom: Client, name: str) -> None:
    """Create one topic, however long it takes."""
    while True:
        try:
            boom.admin.create_topic(name, QUEUES, BROKERS)
        except RetryableError:
            continue
        except AlreadyExists:
            return
        return


def figure(boom: Client, name: str) -> int:
    """Return a figure of STATS, of all brokers together."""
    return sum(int(node.counters.get(name, 0)) for node in boom.admin.stats())
