"""Pauses of writes when a node dies, and effects of a Raft outage."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared
from bench.references import compare
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until
from logboom.metadata.config import SESSION_TIMEOUT_S
from logboom.wire.errors import LogboomError

if TYPE_CHECKING:
    from logboom.client import Client

PACE_S = 0.005
TIMES = 3
SESSION: Final = "configured session of a broker, s"
"""A timer decides when writes resume, on every machine."""
RESUMED: Final = {"queue's leader": 1.4, "raft leader": 0.3}
BEFORE: Final = "the same before the outage, ms"
OUTAGE: Final = 8.0
FIRST_S: Final = 60.0


class Writer(threading.Thread):
    """A thread that sends messages one by one with acks=all and records their acknowledgements."""

    def __init__(self, boom: Client, topic: str) -> None:
        super().__init__(daemon=True)
        self._boom, self._topic = boom, topic
        self._ended = threading.Event()
        self.acked: list[float] = []
        self.errors: list[LogboomError] = []

    def run(self) -> None:
        """Run until `end`."""
        with self._boom.producer(acks="all") as producer:
            # At a pace, because at full load the benchmark would not measure the pause.
            while not self._ended.wait(PACE_S):
                try:
                    producer.send(self._topic, b"tick", queue=0).result(60)
                except LogboomError as error:
                    self.errors.append(error)
                self.acked.append(time.monotonic())

    def await_first(self) -> None:
        """Wait until the first message is acknowledged, which opens connections and finds routes.

        Raises:
            TimeoutError: it is not within a minute.
        """
        if not ask_until(lambda: self.acked, bool, FIRST_S):
            raise TimeoutError(f"nothing is acknowledged: {self.errors[:1]}")

    def end(self) -> None:
        """Stop and wait."""
        self._ended.set()
        self.join(60)

    def longest_pause(self, since: float) -> float:
        """Return the longest time between two acknowledgements, the later one after `since`."""
        pairs = zip(self.acked, self.acked[1:], strict=False)
        return max((b - a for a, b in pairs if b >= since), default=0.0)


def rows() -> list[Figure]:
    """Kill the queue's leader, then the Raft leader, a few times each. Return the worst pauses."""
    found = []
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("failover", queues=1, replicas=3)
        writer = Writer(boom, "failover")
        writer.start()
        writer.await_first()
        for what, bar in RESUMED.items():
            pauses: list[float] = []
            for _ in range(TIMES):
                of_queue = what.startswith("queue")
                victim = cluster.leader("failover", 0) if of_queue else cluster.raft_leader()
                began = time.monotonic()
                cluster.kill(victim)
                # The measured span, long enough for a session to end and writes to resume.
                # Waiting for the first acknowledgement would miss a second pause after it.
                time.sleep(6.0)
                cluster.start(victim)
                # Measured too, because the return of the victim must not stop writes either.
                time.sleep(4.0)
                pauses.append(writer.longest_pause(began))
            worst = compare(SESSION, [max(pauses)], [SESSION_TIMEOUT_S])
            found.append(compared(f"kill -9 of the {what}, writes resume", worst, "s", bar, "less"))
        writer.end()
    found.append(Figure("  … errors that reached the producer", len(writer.errors), "", 0, "less"))
    return found


def outage_rows(seconds: float) -> list[Figure]:
    """Kill all name servers, and measure acks=all writes and pulls on known routes."""
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("outage", queues=1, replicas=3)
        writer = Writer(boom, "outage")
        writer.start()
        pauses: list[float] = []
        ended = threading.Event()

        def read() -> None:
            offset, last = 0, time.monotonic()
            while not ended.is_set():
                result = boom.pull("outage", queue=0, offset=offset, wait_ms=1_000)
                now = time.monotonic()
                if result.status == "FOUND":
                    pauses.append(now - last)
                    last, offset = now, result.next_offset

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        # The first ones find routes and do not count.
        writer.await_first()
        ask_until(lambda: pauses, bool, FIRST_S)
        pauses.clear()
        began = time.monotonic()
        # The measured span of the reference, as long as the outage.
        time.sleep(seconds)
        usual_write, usual_read = writer.longest_pause(began), max(pauses)
        pauses.clear()
        began = time.monotonic()
        servers = [name for name in cluster.nodes if name.startswith("name-")]
        for name in servers:
            cluster.kill(name)
        # The measured span, in which the group is down.
        time.sleep(seconds)
        write_pause, read_pause = writer.longest_pause(began), max(pauses)
        for name in servers:
            cluster.start(name, wait=False)
        cluster.wait_ready()
        ended.set()
        reader.join(10)
        writer.end()
    name = f"raft group away for {seconds:.0f} s"
    writes = compare(BEFORE, [1_000 * write_pause], [1_000 * usual_write])
    reads = compare(BEFORE, [1_000 * read_pause], [1_000 * usual_read])
    return [
        compared(f"{name}, longest pause of acks=all", writes, "ms", OUTAGE, "less"),
        compared(f"{name}, longest pause of pulls", reads, "ms", OUTAGE, "less"),
        Figure("  … errors that reached the producer", len(writer.errors), "", 0, "less"),
    ]
