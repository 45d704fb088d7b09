"""One run: a cluster under load, faults one after the other, and the verdict."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from logboom.client import connect
from logboom.deploy.asking import Asker
from logboom.wire.errors import LogboomError
from logboom.wire.view import View
from tests.chaos.faults import FAULTS, Fault
from tests.chaos.ledger import Verdict, judge
from tests.chaos.links import CLIENT, ProxyLinks
from tests.chaos.namespaces import NamespaceLinks
from tests.chaos.outages import Event, with_outages
from tests.chaos.record import Acked, Read, Record, load
from tests.chaos.replicas import stored
from tests.chaos.rig import TOPIC, Rig

PRODUCERS: Final = 2
"""Processes; each has two producers in threads of their own."""
THREADS: Final = 2
READERS: Final = 3
"""The first reads all queues, the others share them."""
WARM_UP_S: Final = 1.0
REST_S: Final = (0.5, 3.0)
"""Between a cluster that is whole again and the next fault."""
TOGETHER: Final = 0.2
"""Share of faults that strike with a second one."""
METADATA: Final = "name servers hold the same state"
LEVEL_S: Final = 20.0
"""Name servers that have not heard of everything by then do not follow."""
END_S: Final = 200.0
"""Workers that have not ended by then hang."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do."""

    seed: int
    seconds: float
    """How long to go on; each fault strikes once in any case, in the order given."""
    faults: Sequence[str]
    rate: float
    """Messages per second, all producers together."""
    folder: Path
    links: str = ProxyLinks.kind
    queues: int = 6
    say: Callable[[str], None] = lambda line: None


@dataclass(slots=True)
class Result:
    """What came of it."""

    plan: Plan
    verdict: Verdict
    events: list[Event]
    seconds: float
    """Of load."""
    acks_a_second: list[int]
    reads_a_second: list[int]
    ended: list[str] = field(default_factory=list)
    """Nodes that ended by themselves and were started again."""
    stores_set_aside: int = 0

    @property
    def longest_outage(self) -> float:
        """Of one queue, after one fault; faults that struck together are left out."""
        return max((event.longest for event in self.events if "+" not in event.name), default=0.0)


class Workers:
    """The processes of producers and readers."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self.records = plan.folder / "records"
        self.records.mkdir(parents=True)
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, role: str, name: str, threads: int) -> None:
        """Start a worker."""
        command = self._rig.links.launcher(CLIENT)
        command += [sys.executable, "-m", "tests.chaos.worker", role, name]
        command += ["--endpoints", ",".join(self._rig.endpoints), "--topic", TOPIC]
        command += ["--queues", str(self._plan.queues), "--folder", str(self.records)]
        command += ["--threads", str(threads)]
        command += ["--rate", str(self._plan.rate / (PRODUCERS * THREADS))]
        with (self._plan.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_ready(self) -> None:
        """Wait until all are connected."""
        for name, process in self._processes.items():
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{name} did not start: {self._said(name)}")

    def _said(self, name: str) -> str:
        return (self._plan.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def end(self, names: Sequence[str], last_words: str, verdict: Verdict) -> None:
        """Tell workers to end, and wait until they have."""
        for name in names:
            stdin = self._processes[name].stdin
            assert stdin is not None
            stdin.write(last_words)
            stdin.close()
        for name in names:
            process = self._processes[name]
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            assert process.stdout is not None
            process.stdout.close()
            if code or self._said(name):
                verdict.found(
                    "clients go on", f"{name} ended with {code}: {self._said(name)[-400:]}"
                )

    def kill(self) -> None:
        """End whoever still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None and not pipe.closed:
                    pipe.close()


class Weather:
    """Strikes one fault after the other."""

    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._rng = random.Random(plan.seed)
        self.began = time.monotonic()
        self.events: list[Event] = []

    def blow(self) -> None:
        """Every fault once, in order, then at random until the time is over."""
        chosen = [FAULTS[name] for name in self._plan.faults]
        for fault in chosen:
            self._strike([fault])
        while time.monotonic() - self.began < self._plan.seconds:
            together = [self._rng.choice(chosen)]
            if together[0].combines and self._rng.random() < TOGETHER:
                others = [f for f in chosen if f.combines and f is not together[0]]
                together += self._rng.sample(others, min(1, len(others)))
            self._strike(together)

    def _strike(self, faults: list[Fault]) -> None:
        at = time.monotonic() - self.began
        if self.events:
            last = self.events[-1]
            self.events[-1] = Event(
                last.name, last.whom, last.struck, last.mended, at, last.served, {}
            )
        struck = []
        for fault in faults:
            try:
                struck.append(fault.strike(self._rig, self._rng))
            except LogboomError as error:
                # The first of two left nobody whom the second could hit.
                if not struck:
                    raise
                self._plan.say(f"{fault.name} not possible: {error}")
        self._rig.sleep(max(one.lasts for one in struck))
        # What a mending takes, such as the start of a process, counts as outage.
        mended = time.monotonic() - self.began
        for one in struck:
            one.mend()
        name = " + ".join(fault.name for fault in faults[: len(struck)])
        whom = "; ".join(one.whom for one in struck)
        served = len(struck) == 1 and faults[0].served
        self.events.append(Event(name, whom, at, mended, mended, served, {}))
        self._rig.wait_whole()
        now = time.monotonic() - self.began
        self._plan.say(f"{at:7.1f} s  {name}: {whom}; whole {now - mended:.1f} s after the mending")
        self._rig.sleep(self._rng.uniform(*REST_S))


def run(plan: Plan) -> Result:
    """Do it.

    Raises:
        StartError: the cluster does not become whole again.
    """
    verdict = Verdict()
    links = NamespaceLinks() if plan.links == NamespaceLinks.kind else ProxyLinks()
    with Rig(plan.folder / "cluster", plan.queues, links) as rig:
        workers = Workers(plan, rig)
        try:
            producers = [f"p{n}" for n in range(PRODUCERS)]
            for name in producers:
                workers.start("producer", name, THREADS)
            workers.start("reader", "r", READERS)
            workers.wait_ready()
            weather = Weather(plan, rig)
            rig.sleep(WARM_UP_S)
            weather.blow()
            seconds = time.monotonic() - weather.began
            workers.end(producers, "", verdict)
            ends = _ends(rig)
            workers.end(["r"], ends, verdict)
            # Everything can be read from the first offset on, also by who comes late.
            workers.start("reader", "late", 1)
            workers.end(["late"], ends, verdict)
        finally:
            workers.kill()
        rig.wait_whole()
        rig.wait_scrubbed()
        _metadata(rig, verdict)
        topic_id = rig.topic().id
        rig.stop()
        held = stored(rig.folders(), topic_id, plan.queues, verdict)
    records = load(workers.records)
    return _result(
        plan, rig, weather, seconds, records, judge(records, held, _shares(plan), verdict)
    )


def _ends(rig: Rig) -> str:
    """The end offset of each queue, as the readers want it."""
    with connect(rig.endpoints) as boom:
        ends = boom.admin.offsets(TOPIC)
    return json.dumps({queue: end for queue, (_, end) in ends.items()})


def _shares(plan: Plan) -> dict[str, set[int]]:
    """Which reader has to have read which queues (as `worker` deals them out)."""
    everything = set(range(plan.queues))
    shares = {"r-0": everything, "late-0": everything}
    others = READERS - 1
    return shares | {f"r-{n + 1}": set(range(n, plan.queues, others)) for n in range(others)}


def _metadata(rig: Rig, verdict: Verdict) -> None:
    """P12: the name servers hold the same state at the same index, and answer alike."""
    for name, counters in rig.health.counters().items():
        if counters["state_hash_mismatches"]:
            verdict.found(METADATA, f"{name} found its state unlike the leader's")
    endpoints = [rig.cluster.endpoint(name) for name in rig.servers]
    views: dict[str, View] = {}

    def level() -> bool:
        with Asker() as asker:
            views.update(asker.views(endpoints, 1.0))
        return len(views) == len(endpoints) and len({v.version for v in views.values()}) == 1

    if not rig.wait(level, LEVEL_S):
        verdict.found(METADATA, f"versions {[view.version for view in views.values()]}")
        return
    # Who leads them is a guess of each.
    alike = [msgspec.structs.replace(view, raft_leader=None) for view in views.values()]
    if any(view != alike[0] for view in alike):
        verdict.found(METADATA, f"at version {alike[0].version}: {alike}")


def _result(
    plan: Plan, rig: Rig, weather: Weather, seconds: float, records: list[Record], verdict: Verdict
) -> Result:
    acks: defaultdict[int, list[float]] = defaultdict(list)
    rates: dict[type[Record], Counter[int]] = {Acked: Counter(), Read: Counter()}
    for record in records:
        if isinstance(record, Acked | Read):
            at = record.at - weather.began
            rates[type(record)][int(at)] += record.count
            if isinstance(record, Acked):
                acks[record.queue].append(at)
    times = {queue: sorted(acks[queue]) for queue in range(plan.queues)}
    events = list(weather.events)
    if events:
        last = events[-1]
        events[-1] = Event(last.name, last.whom, last.struck, last.mended, seconds, last.served, {})
    return Result(
        plan,
        verdict,
        [with_outages(event, times) for event in events],
        seconds,
        [rates[Acked][second] for second in range(int(seconds) + 1)],
        [rates[Read][second] for second in range(int(seconds) + 1)],
        rig.ended,
        rig.set_aside,
    )
