"""Many waiting pulls, and how long each takes to wake when its message arrives."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared, percentile
from bench.references import ROUND_TRIP
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from logboom.client import Client

CLIENTS = 10
PACE_S = 0.005
TAIL: Final = 3.5


def rows(count: int) -> list[Figure]:
    """Wake `count` holds, one per queue, by a message each."""
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("holds", queues=count, replicas=1)
        clients = [connect(cluster.endpoints) for _ in range(CLIENTS)]

        def once(_: int) -> tuple[float, float]:
            times = wake_times(boom, clients, count)
            return percentile(times, 0.5), percentile(times, 0.99)

        try:
            p50, p99 = ROUND_TRIP.beside(1, once)
        finally:
            for client in clients:
                client.close()
    return [
        compared(f"{count:,} idle holds, wake p50", p50, "ms"),
        compared(f"{count:,} idle holds, wake p99", p99, "ms", TAIL, "less"),
    ]


def holds(boom: Client) -> int:
    """Return how many pulls the brokers hold."""
    return sum(int((node.counters or {}).get("holds", 0)) for node in boom.admin.stats())


def wake_times(boom: Client, clients: list[Client], count: int) -> list[float]:
    """Return the ms from each send to its wake."""
    woken: list[tuple[int, float]] = []
    sent: dict[int, float] = {}

    def hold(client: Client, queue: int) -> None:
        result = client.pull("holds", queue=queue, offset=0, max_messages=1, wait_ms=60_000)
        woken.append((queue, time.monotonic()))
        assert result.status == "FOUND", result

    threads = [threading.Thread(target=hold, args=(clients[n % CLIENTS], n)) for n in range(count)]
    for thread in threads:
        thread.start()
    held = ask_until(lambda: holds(boom), lambda held: held == count, 60.0, pause_s=0.25)
    assert held == count, f"{held} of {count} pulls wait"
    # The loops need a moment to be idle again, which no event announces.
    time.sleep(3.0)
    with boom.producer() as producer:
        for queue in range(count):
            sent[queue] = time.monotonic()
            producer.send("holds", b"wake", queue=queue).result(10)
            # The pace, so that each wake is measured separately.
            time.sleep(PACE_S)
    for thread in threads:
        thread.join(60)
    return [(at - sent[queue]) * 1000 for queue, at in woken]
