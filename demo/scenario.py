"""The demo: send every flight through a cluster while a broker is killed, and verify them all.

3 name servers and 3 brokers start on free ports; all flights are produced with acks=all and read
back by a consumer group of three processes. While they read, one of them is killed, and the others
continue from its commits. Then the broker that leads most queues is killed with SIGKILL and started
again. Finally the verifier reports whether each flight arrived, unchanged and in order. A further
part (Spark, `spark_scenario`) is passed in as a function of the endpoints.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from demo.flights import Flight
from demo.reader_group import MEMBERS, DemoGroup
from demo.verifier import CarrierDelay, Verifier, VerifierReport
from logboom.client import Client, connect
from logboom.deploy.cluster import Cluster
from logboom.wire.errors import TimedOut

TOPIC: Final = "flights"
QUEUES: Final = 8
REPLICAS: Final = 3
PROBE: Final = "fail-over-probe"
"""A separate topic, so that the probe's messages are not among the flights."""
CHUNK: Final = 2_000
"""Flights per send_many."""
IN_FLIGHT: Final = 16
"""The most unacknowledged chunks."""
KILL_MEMBER_AT: Final = 1 / 4
"""The share of flights read when a consumer is killed."""
KILL_AT: Final = 1 / 2
"""The same for the broker."""
QUIET_S: Final = 60.0
"""Seconds without messages after which reading gives up."""


Then = TypeVar("Then")


@dataclass(frozen=True, slots=True)
class DemoReport(Generic[Then]):
    """The results and durations of the demo."""

    flights: int
    ready_s: float
    """From the start to a cluster that serves."""
    produce_per_s: float
    consume_per_s: float
    """The rate while everything was up, until the first kill."""
    killed: str
    """The broker that was killed, and started again."""
    write_pause_s: float
    """From the kill to the next acks=all acknowledgement in a queue that it led."""
    read_pause_s: float
    """The longest time in which the reader got nothing."""
    back_s: float
    """From its restart until it serves again."""
    again: int
    """Messages that were delivered again because the killed consumer had not committed them."""
    verdict: VerifierReport
    carriers: list[CarrierDelay]
    then: Then
    """The result of the second part."""
    total_s: float


class Steps:
    """The progress of the demo, which the command shows as bars."""

    def step(self, text: str, total: int | None) -> None:
        """Begin a new step. `total` is the number that `done` counts up to."""

    def done(self, count: int) -> None:
        """Report how much of the step is done."""

    def say(self, text: str) -> None:
        """Report an event that is worth a line."""


def run_scenario(
    flights: Sequence[Flight],
    data: Path | None,
    steps: Steps,
    then: Callable[[Sequence[str]], Then],
) -> DemoReport[Then]:
    """Run the whole demo with these flights. Everything that was started is stopped again.

    Args:
        then: the second part, called with the endpoints while the cluster is still up.

    Raises:
        LogboomError: the cluster did not start, or a request failed for good.
    """
    begun = time.monotonic()
    steps.step("starting 3 name servers and 3 brokers", None)
    with Cluster(name_servers=3, brokers=3, data=data) as cluster:
        ready_s = time.monotonic() - begun
        steps.say(f"cluster ready after {ready_s:.2f} s")
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic(TOPIC, queues=QUEUES, replicas=REPLICAS)
            boom.admin.create_topic(PROBE, queues=QUEUES, replicas=REPLICAS)
            produce_s = _produce(boom, flights, steps)
            steps.say(f"{len(flights):,} flights acknowledged in {produce_s:.2f} s")
            reader = _GroupReader(boom, cluster, Verifier(flights), len(flights), steps)
            reader.read()
        found = then(cluster.endpoints)
        steps.step("stopping all", None)
    return DemoReport(
        flights=len(flights),
        ready_s=ready_s,
        produce_per_s=len(flights) / produce_s,
        consume_per_s=reader.consume_per_s,
        killed=reader.broker_kill.victim,
        write_pause_s=reader.broker_kill.write_pause_s,
        read_pause_s=reader.read_pause_s,
        back_s=reader.broker_kill.back_s,
        again=reader.again,
        verdict=reader.verifier.verdict(),
        carriers=reader.verifier.carriers(),
        then=found,
        total_s=time.monotonic() - begun,
    )


def _produce(boom: Client, flights: Sequence[Flight], steps: Steps) -> float:
    """Send all flights with acks=all, and return the seconds until the last acknowledgement."""
    steps.step("producing", len(flights))
    begun = time.monotonic()
    with boom.producer(acks="all") as producer:
        waiting: deque[Any] = deque()
        for start in range(0, len(flights), CHUNK):
            chunk = flights[start : start + CHUNK]
            waiting.append(
                producer.send_many(
                    TOPIC,
                    [flight.value for flight in chunk],
                    keys=[flight.key for flight in chunk],
                    timestamps_ms=[flight.timestamp_ms for flight in chunk],
                )
            )
            while len(waiting) > IN_FLIGHT:
                waiting.popleft().result()
            steps.done(start)
        for future in waiting:
            future.result()
    return time.monotonic() - begun


class _BrokerKill:
    """The kill of the broker that leads most queues, in a thread that measures the failover."""

    def __init__(self, boom: Client, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._boom = boom
        self._cluster = cluster
        self._say = say
        topics = {t.name: t for t in cluster.view([TOPIC, PROBE]).topics}
        leaders = Counter(queue.leader for queue in topics[TOPIC].queues)
        self.victim = str(leaders.most_common(1)[0][0])
        self._probe_queue = next(
            n for n, queue in enumerate(topics[PROBE].queues) if queue.leader == self.victim
        )
        self.led = leaders[self.victim]
        self.write_pause_s = self.back_s = 0.0
        self._run: Future[None] | None = None

    @property
    def started(self) -> bool:
        """True once `start` was called."""
        return self._run is not None

    def start(self) -> None:
        """Kill the broker in a thread, and start it again."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="demo-kill")
        self._run = thread.submit(self._kill)
        thread.shutdown(wait=False)

    def _kill(self) -> None:
        with self._boom.producer(acks="all") as producer:
            # The producer id and the route are known before the clock starts.
            producer.send(PROBE, b"before", queue=self._probe_queue).result()
            self._cluster.kill(self.victim)
            begun = time.monotonic()
            self._say(f"killed {self.victim} (kill -9), which led {self.led} of {QUEUES} queues")
            producer.send(PROBE, b"after", queue=self._probe_queue).result()
            self.write_pause_s = time.monotonic() - begun
        self._say(f"writes to its queues went on after {self.write_pause_s:.2f} s")
        begun = time.monotonic()
        self._cluster.start(self.victim)
        self.back_s = time.monotonic() - begun
        self._say(f"started {self.victim} again: serves after {self.back_s:.2f} s")

    def finish(self) -> None:
        """Wait for the end, and raise any error of the thread."""
        if self._run is not None:
            self._run.result()


class _GroupReader:
    """A reader of all flights by a group, which kills a broker and a member on the way."""

    def __init__(
        self, boom: Client, cluster: Cluster, verifier: Verifier, total: int, steps: Steps
    ) -> None:
        self.verifier = verifier
        self.broker_kill = _BrokerKill(boom, cluster, steps.say)
        self.consume_per_s = self.read_pause_s = 0.0
        self.again = 0
        self._cluster = cluster
        self._total = total
        self._steps = steps

    def read(self) -> None:
        """Read until each queue's end.

        Raises:
            TimedOut: no more messages arrived before the end was reached.
        """
        self._steps.step("reading while a consumer and a broker are killed", self._total)
        with DemoGroup(self._cluster.endpoints, TOPIC) as group:
            group.start()
            self._read(group)
            self.broker_kill.finish()
            # Messages that arrive now were not sent, and the verifier must see them too.
            self.verifier.see(group.poll(0.5))
            self.again = group.again

    def _read(self, group: DemoGroup) -> None:
        read, killed = 0, False
        begun = heard = time.monotonic()
        while read < self._total:
            messages = group.poll(1.0)
            now = time.monotonic()
            if messages:
                self.read_pause_s = max(self.read_pause_s, now - heard)
                heard = now
                self.verifier.see(messages)
                read += len(messages)
                self._steps.done(read)
            elif now - heard > QUIET_S:
                text = f"nothing to read for {QUIET_S:.0f} s, {self._total - read} are missing"
                raise TimedOut(text)
            if read >= self._total * KILL_AT and not self.broker_kill.started:
                self.broker_kill.start()
            if read >= self._total * KILL_MEMBER_AT and not killed:
                killed = True
                self.consume_per_s = read / (now - begun)
                pid = group.kill()
                self._steps.say(f"killed one of {MEMBERS} consumers (process {pid}, kill -9)")
