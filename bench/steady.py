"""Cost of 1,000 members in 100 groups for the name servers while only messages flow.

The members are consumers of a few clients in this process. Each keeps a heartbeat waiting at its
coordinator, reads its queues and commits what it has read every five seconds.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared
from bench.idle import KINDS, cpu_seconds, resident_mb
from bench.references import PYTHON_CPU
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from logboom.client import Client, GroupConsumer

TOPIC: Final = "steady"
QUEUES: Final = 20
CLIENTS: Final = 10
JOIN_AT_ONCE: Final = 16
EVERY_S: Final = 1.0
"""Seconds between two messages of one queue, and between two polls of a member."""
SETTLE_S: Final = 300.0
BUSIEST: Final = 22.0


def _send(boom: Client, ended: threading.Event) -> None:
    with boom.producer() as producer:
        while not ended.wait(EVERY_S):
            for queue in range(QUEUES):
                producer.send(TOPIC, b"steady", queue=queue)


class _Readers(threading.Thread):
    """A thread that reads and acknowledges for all members."""

    def __init__(self, members: list[GroupConsumer]) -> None:
        super().__init__(daemon=True)
        self._members = members
        self._ended = threading.Event()
        self.read = 0

    def run(self) -> None:
        """Run until `end`."""
        while not self._ended.wait(EVERY_S):
            for member in self._members:
                messages = member.poll(timeout_s=0)
                member.ack(messages)
                self.read += len(messages)

    def end(self) -> None:
        """Stop and wait."""
        self._ended.set()
        self.join(60)


def _join(clients: list[Client], members: int, groups: int) -> list[GroupConsumer]:
    def one(number: int) -> GroupConsumer:
        return clients[number % len(clients)].consumer(TOPIC, group=f"group-{number % groups}")

    with ThreadPoolExecutor(JOIN_AT_ONCE) as pool:
        return list(pool.map(one, range(members)))


def _settled(members: list[GroupConsumer], groups: int) -> bool:
    """Return True if every queue of every group has its owner."""
    owned = sum(topic == TOPIC for member in members for topic, _ in member.queues)
    return owned == groups * QUEUES


def rows(members: int, groups: int, seconds: float) -> list[Figure]:
    """Return the shares of a core over a span, and the time until all members joined."""
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic(TOPIC, queues=QUEUES, replicas=1)
        clients = [connect(cluster.endpoints) for _ in range(CLIENTS)]
        ended = threading.Event()
        sender = threading.Thread(target=_send, args=(boom, ended))
        try:
            began = time.monotonic()
            consumers = _join(clients, members, groups)
            joined = time.monotonic() - began
            readers = _Readers(consumers)
            readers.start()
            sender.start()
            left_s = SETTLE_S - joined
            if not ask_until(lambda: _settled(consumers, groups), bool, left_s, pause_s=0.1):
                raise TimeoutError("not every queue has an owner")
            settled = time.monotonic() - began
            # All members commit and send heartbeats once before the span begins.
            time.sleep(min(6.0, seconds))
            pids = {name: cluster.pid(name) for name in cluster.nodes}

            def span(_: int) -> list[float]:
                before = {name: cpu_seconds(pid) for name, pid in pids.items()}
                read, began = readers.read, time.monotonic()
                # The measured span.
                time.sleep(seconds)
                took = time.monotonic() - began
                used = {n: 1_000 * (cpu_seconds(p) - before[n]) / took for n, p in pids.items()}
                busiest = [
                    max(used[n] for n in pids if n.startswith(kind)) for kind in KINDS.values()
                ]
                return [*busiest, (readers.read - read) / took]

            broker, server, read = PYTHON_CPU.beside(1, span)
            memory = max(resident_mb(pid) for name, pid in pids.items() if name[:5] == "name-")
            readers.end()
        finally:
            ended.set()
            for client in clients:
                client.close(1.0)
        sender.join(60)
    name = f"{members:,} members in {groups} groups"
    return [
        compared(f"{name}, busiest name server", server, "ms/s", BUSIEST, "less"),
        Figure("  … its memory", memory, "MiB"),
        compared("  … busiest broker", broker, "ms/s"),
        Figure("  … messages read", read.value, "/s", note="each is committed within 5 s"),
        Figure("  … all joined after", joined, "s"),
        Figure("  … every queue had its owner after", settled, "s"),
    ]
