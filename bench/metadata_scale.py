"""10,000 topics of 4 queues on 3 brokers: creation, restart of a broker, failover.

The longest pauses of the event loops are measured from outside: a request for statistics is always
under way to every node, and the slowest answer counts.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from bench.failover import SESSION
from bench.figures import Figure, compared
from bench.idle import cpu_seconds, resident_mb
from bench.references import PYTHON, compare
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.node_client import NodeClient
from logboom.deploy.polling import ask_until
from logboom.metadata.config import SESSION_TIMEOUT_S

if TYPE_CHECKING:
    from logboom.client import Client

QUEUES = 4
AT_ONCE = 32
"""Topics that are created at the same time, each by a separate thread."""
PATIENCE_S = 60.0
PROBE_S = 0.01
FAILED_OVER: Final = 3.3


class Prober(threading.Thread):
    """A thread that asks some nodes in turn and records the slowest answer."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__(daemon=True)
        self._endpoints = endpoints
        self._ended = threading.Event()
        self.slowest_s = 0.0

    def run(self) -> None:
        """Run until `end`."""
        with NodeClient() as node_client:
            # At a pace, because the requests of the probe must not become the load.
            while not self._ended.wait(PROBE_S):
                for endpoint in self._endpoints:
                    began = time.monotonic()
                    if node_client.stats([endpoint], 5.0):
                        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def end(self) -> float:
        """Stop and wait. Return the slowest answer in seconds."""
        self._ended.set()
        self.join(30)
        return self.slowest_s


def create(boom: Client, topics: int) -> float:
    """Create the topics, and return the seconds until all are committed."""
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda n: boom.admin.create_topic(f"t{n}", QUEUES, 3), range(topics)))
    return time.monotonic() - began


def in_sync(boom: Client, brokers: int) -> bool:
    """Return True if every queue has a leader and this many brokers in its ISR."""
    queues = [queue for topic in boom.admin.topics() for queue in topic.queues]
    return all(queue.leader is not None and len(queue.isr) >= brokers for queue in queues)


def wait_in_sync(boom: Client, brokers: int) -> None:
    """Return when `in_sync`.

    Raises:
        TimeoutError: it is not within a minute.
    """
    if not ask_until(lambda: in_sync(boom, brokers), bool, PATIENCE_S, pause_s=0.25):
        raise TimeoutError("queues are not in sync")


def restart(cluster: Cluster, boom: Client, broker: str) -> tuple[float, float]:
    """Kill and start a broker. Return the seconds until it serves and until it is in every ISR."""
    epoch = next(b.instance_epoch for b in boom.admin.brokers() if b.id == broker)
    cluster.kill(broker)
    began = time.monotonic()
    cluster.start(broker, wait=False)
    cluster.wait_ready(PATIENCE_S, newer_than={broker: epoch})
    served = time.monotonic() - began
    wait_in_sync(boom, 3)
    return served, time.monotonic() - began


def fail_over(cluster: Cluster, boom: Client) -> float:
    """Kill the broker that leads most, and return the seconds until others lead all its queues."""
    led: dict[str, int] = {}
    for topic in boom.admin.topics():
        for queue in topic.queues:
            led[queue.leader or ""] = led.get(queue.leader or "", 0) + 1
    victim = max(led, key=lambda broker: led[broker])
    cluster.kill(victim)
    began = time.monotonic()

    def led_by_others() -> bool:
        topics = boom.admin.topics()
        return not any(q.leader in (victim, None) for topic in topics for q in topic.queues)

    if not ask_until(led_by_others, bool, PATIENCE_S, pause_s=0.1):
        raise TimeoutError(f"{victim} still leads")
    return time.monotonic() - began


def rows(topics: int) -> list[Figure]:
    """Return all figures for this many topics."""
    name = f"{topics:,} topics of {QUEUES} queues"
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("first", QUEUES, 3)
        wait_in_sync(boom, 3)
        first_served, _ = restart(cluster, boom, "broker-2")
        prober = Prober(cluster.name_server_endpoints)
        prober.start()
        (rate,) = PYTHON.beside(1, lambda _: [topics / create(boom, topics)])
        found = [compared(f"{name}: create", rate, "/s")]
        wait_in_sync(boom, 3)
        # Work caused by the creations ends. No event announces that.
        time.sleep(5.0)
        before = {node: cpu_seconds(cluster.pid(node)) for node in cluster.nodes}
        # The measured span.
        time.sleep(5.0)
        for node in ("name-1", "broker-1"):
            share = 20 * (cpu_seconds(cluster.pid(node)) - before[node])
            found.append(Figure(f"  … idle {node}, of a core", share, "%"))
            found.append(Figure(f"  … idle {node}, memory", resident_mb(cluster.pid(node)), "MiB"))
        served, whole = restart(cluster, boom, "broker-2")
        start = compare("the same with one topic, s", [served], [first_served])
        found.append(compared("  … kill -9 and start of a broker, serves", start, "s"))
        found.append(Figure("  … in every ISR again", whole, "s"))
        session = compare(SESSION, [fail_over(cluster, boom)], [SESSION_TIMEOUT_S])
        found.append(compared("  … fail-over of a broker", session, "s", FAILED_OVER, "less"))
        slowest = 1000 * prober.end()
        found.append(Figure("  … slowest answer of a name server", slowest, "ms"))
    return found
