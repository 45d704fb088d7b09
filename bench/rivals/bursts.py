"""Short bursts of each rival in turn, in random order, round after round.

The speed of a shared machine drifts within minutes, so whole runs of one rival after the other compare
nothing. Within a round each rival does the same work once, and ratios are taken within the round.
All servers run from the beginning to the end; what that costs is measured too.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from bench.rivals import limits
from bench.rivals.client_process import ClientProcess
from bench.rivals.machine import ForeignLoad
from bench.rivals.results import BurstResult, Setup, percentile
from bench.rivals.rival import RivalFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.rivals.client_process import Burst
    from bench.rivals.results import Work
    from bench.rivals.rival import Rival

MIN_MESSAGES: Final = 2_000
MAX_MESSAGES: Final = 1_500_000
MAX_BURST_BYTES: Final = 400 << 20
PROBE_MESSAGES: Final = 200
"""Messages of the first burst of all, which only shows what the next ones may be."""
SETTLE_S: Final = 0.2
"""The pause behind a burst. What a server still does for it then is counted as its work."""
IDLE_S: Final = 2.0
PACE_INTERVAL_S: Final = 0.001
UNWARM_SHARE: Final = 0.2
"""The share of a latency burst at its beginning that does not count."""


class Plan(Struct, frozen=True):
    """What is measured."""

    sizes: tuple[int, ...] = (100, 1024)
    codecs: tuple[str, ...] = ("none", "lz4")
    rounds: int = 5
    burst_s: float = 0.4
    latency_s: float = 1.5
    warm_up_s: float = 2.0
    """Seconds of load on each rival and setup before the first round: JVMs compile meanwhile."""
    seed: int = 1


def messages_of(rate: float, seconds: float, size: int) -> int:
    """Return how many messages a burst of some seconds has, at a rate of messages per second."""
    most = min(MAX_MESSAGES, MAX_BURST_BYTES // size)
    count = int(min(max(MIN_MESSAGES, rate * seconds), most))
    return count if count < MIN_MESSAGES else count // 1_000 * 1_000


class RunningRival:
    """A rival whose servers and two clients run."""

    def __init__(self, rival: Rival, brokers: int, folder: Path) -> None:
        """Start its servers and clients; `close` ends them, also if this fails half way."""
        self.rival = rival
        self.brokers = brokers
        self._counts: dict[Setup, int] = {}
        self._positions: dict[str, int] = {}
        self._clients: list[ClientProcess] = []
        try:
            rival.start(folder / "data", brokers)
            for role in ("producer", "consumer"):
                log = folder / f"{role}.log"
                words = (type(rival).__module__, rival.address, log)
                self._clients.append(ClientProcess(rival.python, *words))
        # Ctrl-C too: nothing outlives a failed start. The error is raised again.
        except BaseException:
            self.close()
            raise

    @property
    def _producer(self) -> ClientProcess:
        return self._clients[0]

    @property
    def _consumer(self) -> ClientProcess:
        return self._clients[1]

    def cpu_s(self) -> float:
        """Return the processor seconds of servers and clients so far."""
        return self.rival.cpu_s() + sum(client.cpu_s() for client in self._clients)

    def close(self) -> None:
        """End the clients and the servers."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self.rival.close()

    # ── topics ──────────────────────────────────────────────────────────────────────────────────

    def open_topic(self, topic: str) -> None:
        """Create a topic, with a replica on each broker."""
        self._producer.ask("create", topic=topic, replicas=self.brokers)
        self._positions[topic] = 0

    def delete_topics(self) -> None:
        """Delete all topics."""
        for topic in self._positions:
            self._producer.ask("delete", topic=topic)
        self._positions.clear()

    # ── bursts ──────────────────────────────────────────────────────────────────────────────────

    def _produce(self, topic: str, setup: Setup, count: int, *, singly: bool) -> Burst:
        words = {"topic": topic, "count": count, "size": setup.size, "codec": setup.codec}
        return self._producer.ask("produce", **words, singly=singly)

    def _begin_consuming(self, topic: str, count: int, *, prompt: bool = False) -> None:
        start = self._positions[topic]
        self._consumer.tell("consume", topic=topic, start=start, count=count, prompt=prompt)
        self._consumer.answer()
        self._positions[topic] += count

    def transfer(self, topic: str, setup: Setup, number: int, *, singly: bool) -> list[BurstResult]:
        """Produce some messages, and then let a fresh consumer read them."""
        count = self._counts.get(setup, PROBE_MESSAGES)
        before_s = self.rival.cpu_s()
        produced = self._produce(topic, setup, count, singly=singly)
        settle()
        between_s = self.rival.cpu_s()
        self._begin_consuming(topic, count)
        consumed = self._consumer.answer()
        settle()
        after_s = self.rival.cpu_s()
        self._check(produced, consumed)
        works: tuple[Work, Work] = ("singly" if singly else "produce", "consume")
        return [
            self._result(works[0], setup, number, produced, between_s - before_s),
            self._result(works[1], setup, number, consumed, after_s - between_s),
        ]

    def send_singly(self, topic: str, setup: Setup, number: int) -> list[BurstResult]:
        """Produce messages with one call for each; they are read as a check alone."""
        return self.transfer(topic, setup, number, singly=True)[:1]

    def touch(self, topic: str, setup: Setup) -> None:
        """Send and read a few messages, so that the topic is not cold."""
        self._produce(topic, setup, PROBE_MESSAGES, singly=False)
        self._begin_consuming(topic, PROBE_MESSAGES)
        self._consumer.answer()

    def both(self, topic: str, setup: Setup, number: int) -> list[BurstResult]:
        """Produce messages while a consumer that waits already reads them."""
        count = self._counts.get(setup, PROBE_MESSAGES)
        self._begin_consuming(topic, count)
        before_s = self.rival.cpu_s()
        produced = self._produce(topic, setup, count, singly=False)
        consumed = self._consumer.answer()
        settle()
        self._check(produced, consumed)
        cpu_s = self.rival.cpu_s() - before_s
        ended = max(produced["ended"], consumed["ended"])
        whole: Burst = {
            "began": produced["began"],
            "ended": ended,
            "messages": count,
            "cpu_s": produced["cpu_s"] + consumed["cpu_s"],
        }
        return [self._result("both", setup, number, whole, cpu_s)]

    def latency(self, topic: str, setup: Setup, number: int, seconds: float) -> list[BurstResult]:
        """Send at a steady pace to a consumer that waits."""
        count = int(seconds / PACE_INTERVAL_S)
        self._begin_consuming(topic, count, prompt=True)
        before_s = self.rival.cpu_s()
        words = {"topic": topic, "count": count, "size": setup.size, "interval_s": PACE_INTERVAL_S}
        sent = self._producer.ask("pace", **words)
        received = self._consumer.answer()
        cpu_s = self.rival.cpu_s() - before_s
        skipped = int(count * UNWARM_SHARE)
        acknowledged, delivered = sent["ms"][skipped:], received["ms"][skipped:]
        result = BurstResult(
            self.rival.name,
            "latency",
            setup,
            number,
            count,
            sent["ended"] - sent["began"],
            cpu_s,
            sent["cpu_s"] + received["cpu_s"],
            (percentile(acknowledged, 0.5), percentile(acknowledged, 0.99)),
            (percentile(delivered, 0.5), percentile(delivered, 0.99)),
        )
        return [result]

    def _result(
        self, work: Work, setup: Setup, number: int, burst: Burst, server_cpu_s: float
    ) -> BurstResult:
        seconds = burst["ended"] - burst["began"]
        times_s = (seconds, server_cpu_s, burst["cpu_s"])
        return BurstResult(self.rival.name, work, setup, number, burst["messages"], *times_s)

    def _check(self, produced: Burst, consumed: Burst) -> None:
        if produced["checksum"] != consumed["checksum"]:
            raise RivalFailed("what was read differs from what was sent")

    def warm_up(self, setup: Setup, plan: Plan) -> None:
        """Load the rival, and find how many messages a burst of this setup has."""
        topic = f"warm-{setup.size}-{setup.codec}"
        self.open_topic(topic)
        deadline = time.monotonic() + plan.warm_up_s
        while True:
            produced = self.transfer(topic, setup, 0, singly=False)[0]
            self._counts[setup] = messages_of(produced.rate, plan.burst_s, setup.size)
            if time.monotonic() > deadline and produced.messages > PROBE_MESSAGES:
                break
        if self.rival.sends_singly:
            self.transfer(topic, setup, 0, singly=True)
        self.both(topic, setup, 0)


def settle() -> None:
    """Wait a little."""
    time.sleep(SETTLE_S)  # what a server does behind its last answer announces no end


class Measured(Struct):
    """What a `Contest` found."""

    results: list[BurstResult] = []
    idle_cores: dict[str, float] = {}
    """Rival → cores that its servers take while nothing is asked of them."""
    foreign_cores: float = 0.0
    failures: dict[str, str] = {}
    """Rival → why it was taken out. Its earlier bursts stay."""


class Contest:
    """Rivals of one number of brokers that run beside each other; a context manager."""

    def __init__(self, plan: Plan, brokers: int, folder: Path, say: Callable[[str], None]) -> None:
        """Prepare, without starting anything.

        Args:
            plan: What to measure.
            brokers: How many brokers each rival has.
            folder: Where the data goes.
            say: Tells the user how far it is.
        """
        self._plan = plan
        self._brokers = brokers
        self._folder = folder
        self._say = say
        self._running: list[RunningRival] = []
        self._stack = ExitStack()
        self.found = Measured()

    def __enter__(self) -> Self:
        """Return the contest."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes."""
        self._stack.close()

    def enter(self, rival: Rival) -> None:
        """Start a rival and warm it up."""
        self._say(f"{rival.title}: starting {self._brokers} of its brokers, and warming up")
        # Beforehand, so that Ctrl-C during the start ends its servers too.
        self._stack.callback(rival.close)
        try:
            one = RunningRival(rival, self._brokers, self._folder / rival.name)
        except RivalFailed as error:
            self.take_out(rival, str(error))
            return
        self._stack.callback(one.close)
        self._running.append(one)
        self._attempt(one, partial(self._warm_up, one))

    def take_out(self, rival: Rival, reason: str) -> None:
        """Note why a rival takes no part any more."""
        self.found.failures[rival.name] = reason
        self._say(f"{rival.title} is out: {reason}")

    def _attempt(self, one: RunningRival, work: Callable[[], list[BurstResult] | None]) -> None:
        """Do one piece of work of a rival, and take the rival out if it fails."""
        if one not in self._running:
            return
        try:
            self.found.results.extend(work() or ())
        except RivalFailed as error:
            self._running.remove(one)
            one.close()
            self.take_out(one.rival, str(error))

    def _setups(self, one: RunningRival) -> list[Setup]:
        return [
            Setup(self._brokers, size, codec)
            for size in self._plan.sizes
            for codec in self._plan.codecs
            if codec in one.rival.codecs
        ]

    @property
    def _latency_setup(self) -> Setup:
        return Setup(self._brokers, self._plan.sizes[0], "none")

    def _warm_up(self, one: RunningRival) -> None:
        for setup in self._setups(one):
            one.warm_up(setup, self._plan)
        one.open_topic("warm-latency")
        one.latency("warm-latency", self._latency_setup, 0, self._plan.latency_s)
        one.delete_topics()

    def run(self) -> None:
        """Carry out all rounds."""
        self.found.idle_cores = self._idle_cores()
        foreign = ForeignLoad(self._own_cpu_s)
        for number in range(1, self._plan.rounds + 1):
            self._say(f"round {number} of {self._plan.rounds}")
            self._round(number, random.Random(f"{self._plan.seed}/{number}"))
        self.found.foreign_cores = foreign.cores()

    def _round(self, number: int, rng: random.Random) -> None:
        running = list(self._running)
        for one in running:
            self._attempt(one, partial(self._open_topics, one, number))
        steps = [
            partial(self._attempt, one, work)
            for one in running
            for work in self._works(one, number)
        ]
        steps += [
            partial(self._measure_limits, Setup(self._brokers, size, codec), number)
            for size in self._plan.sizes
            for codec in self._plan.codecs
        ]
        rng.shuffle(steps)
        for step in steps:
            step()
        for one in running:
            self._attempt(one, one.delete_topics)

    @staticmethod
    def _topic(setup: Setup, number: int) -> str:
        return f"round-{number}-{setup.size}-{setup.codec}"

    def _open_topics(self, one: RunningRival, number: int) -> None:
        for setup in self._setups(one):
            one.open_topic(topic := self._topic(setup, number))
            one.touch(topic, setup)
        one.open_topic(f"round-{number}-latency")

    def _works(self, one: RunningRival, number: int) -> list[Callable[[], list[BurstResult]]]:
        """Return the bursts of a rival in one round."""
        paced = (f"round-{number}-latency", self._latency_setup, number, self._plan.latency_s)
        found: list[Callable[[], list[BurstResult]]] = [partial(one.latency, *paced)]
        for setup in self._setups(one):
            topic = self._topic(setup, number)
            found.append(partial(one.transfer, topic, setup, number, singly=False))
            found.append(partial(one.both, topic, setup, number))
            if one.rival.sends_singly:
                found.append(partial(one.send_singly, topic, setup, number))
        return found

    def _measure_limits(self, setup: Setup, number: int) -> None:
        seconds = self._plan.burst_s / 2
        self.found.results += limits.measure(self._folder, setup, number, seconds)
        settle()

    def _own_cpu_s(self) -> float:
        return time.process_time() + sum(one.cpu_s() for one in self._running)

    def _idle_cores(self) -> dict[str, float]:
        time.sleep(1.0)  # what the warm-up left to do is mostly done by then
        before_s = {one.rival.name: one.rival.cpu_s() for one in self._running}
        time.sleep(IDLE_S)  # the measured span
        return {
            one.rival.name: (one.rival.cpu_s() - before_s[one.rival.name]) / IDLE_S
            for one in self._running
        }
