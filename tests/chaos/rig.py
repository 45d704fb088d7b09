"""A cluster on a bench where everything about it can be broken, and seen to be whole again."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.asking import Asker
from logboom.wire.errors import StartError
from logboom.wire.messages import StatsResult
from logboom.wire.view import TopicView, View
from tests.chaos.disk import SmallDisk
from tests.chaos.links import CLIENT, ProxyLinks
from tests.chaos.machine import Machine

TOPIC: Final = "flights"
WHOLE_S: Final = 120.0
"""A cluster that is not whole by then will not be."""
AGAIN_S: Final = 1.0
"""A service manager starts a node again after so long."""
SMALL: Final = "broker-3"
"""The broker on the small disk."""
BROKER_SETTINGS: Final = {"scrub_every_s": 4.0, "scrub_bytes_per_s": 64 * 1024 * 1024}


ASK_S: Final = 1.0
"""What a node gets to answer; one that is as good as whole needs a few ms."""


class Rig:
    """Three name servers, some brokers, their links, machines and disks."""

    def __init__(self, folder: Path, queues: int, brokers: int = 3) -> None:
        """Start everything and create the topic."""
        self.folder = folder
        self.queues = queues
        self.down: set[str] = set()
        """Nodes that are down because a fault wants it."""
        self.next_version: set[str] = set()
        """Nodes that start as the next version."""
        self.ended: list[str] = []
        """Nodes that ended by themselves, and their last words."""
        self._again: dict[str, float] = {}
        self._epochs: dict[str, int] = {}
        """Broker → the instance epoch that it had when it was last seen."""
        self._past: dict[str, int] = {}
        """Broker → the instance epoch of a process of it that is gone: metadata that still speaks
        of that one says nothing of the next."""
        self.set_aside = 0
        """Damaged stores that brokers gave up, removed here to save room."""
        self.machine = Machine(folder)
        self.disk = SmallDisk(folder / SMALL)
        self.links = ProxyLinks()
        try:
            self.cluster = Cluster(
                3,
                brokers,
                folder,
                broker_settings=BROKER_SETTINGS,
                adjust=self._adjust,
                launcher=self._launcher,
            )
        except BaseException:
            self.links.close()
            self.disk.close()
            raise
        self.endpoints = [self.links.reached(endpoint) for endpoint in self.cluster.endpoints]
        """Where clients dial."""
        try:
            with connect(self.endpoints) as boom:
                boom.admin.create_topic(TOPIC, queues=queues, replicas=3, retention_ms=-1)
            self.wait_whole()
        except BaseException:
            self.close()
            raise

    def _adjust(self, settings: dict[str, Any]) -> dict[str, Any]:
        small = self.disk.settings if settings["id"] == SMALL else {}
        return self.links.adjust(settings) | small

    def _launcher(self, name: str) -> list[str]:
        words = self.machine.launcher(name)
        if name in self.next_version:
            words += [sys.executable, "-m", "tests.chaos.next_version"]
        return words

    # -- who is who ---------------------------------------------------------------------------

    @property
    def brokers(self) -> list[str]:
        """The brokers' names."""
        return [name for name in self.cluster.nodes if name.startswith("broker-")]

    @property
    def servers(self) -> list[str]:
        """The name servers' names."""
        return [name for name in self.cluster.nodes if name.startswith("name-")]

    def others(self, *names: str) -> list[str]:
        """All other nodes, and the clients."""
        return [name for name in (*self.cluster.nodes, CLIENT) if name not in names]

    def leader(self, rng: random.Random) -> str:
        """The broker that leads some queue."""
        return self.cluster.leader(TOPIC, rng.randrange(self.queues))

    def topic(self) -> TopicView:
        """The topic, as the newest metadata has it."""
        return _topic(self.cluster.view([TOPIC]))

    # -- breaking and mending -----------------------------------------------------------------

    def kill(self, names: Collection[str]) -> None:
        """SIGKILL, one right after the other."""
        for name in names:
            self._goes(name)
            if self.cluster.running(name):
                self.cluster.kill(name)

    def _goes(self, name: str) -> None:
        self.down.add(name)
        self._past[name] = self._epochs.get(name, -1)

    def start(self, names: Collection[str]) -> None:
        """Start nodes; one that ends at once is started again later, as by a service manager."""
        waiting = [name for name in names if not self.cluster.running(name)]
        self.down.difference_update(names)
        if not waiting:
            return
        with ThreadPoolExecutor(len(waiting)) as together:
            for name, error in zip(waiting, together.map(self._start, waiting), strict=True):
                if error:
                    self.ended.append(f"{name} did not start: {error}")
                    self._again[name] = time.monotonic() + AGAIN_S

    def _start(self, name: str) -> str:
        try:
            self.cluster.start(name, wait=False)
        except StartError as error:
            return str(error)
        return ""

    def take_down(self, name: str) -> None:
        """Stop a node in good order."""
        self._goes(name)
        if self.cluster.running(name):
            self.cluster.stop(name)

    def restart(self, name: str) -> None:
        """Stop a node in good order and start it again."""
        self.take_down(name)
        self.start([name])

    def tend(self) -> None:
        """Start nodes that ended by themselves."""
        for name in self.cluster.nodes:
            if name in self.down or self.cluster.running(name):
                continue
            now = time.monotonic()
            if name not in self._again:
                last = self.cluster.log(name).strip().splitlines()
                self.ended.append(f"{name} ended: {last[-1] if last else ''}")
                self._again[name] = now + AGAIN_S
                self._past[name] = self._epochs.get(name, -1)
            elif now >= self._again[name]:
                del self._again[name]
                self.start([name])

    def sleep(self, seconds: float) -> None:
        """Let time pass, and tend to the nodes."""
        self.wait(lambda: False, seconds)

    def wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds; whether it did in time."""
        end = time.monotonic() + seconds
        while not holds():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, 0.1))
            self.tend()
        return True

    # -- being whole --------------------------------------------------------------------------

    def wait_whole(self) -> None:
        """Wait until all nodes run, and all replicas of all queues are in sync.

        Raises:
            StartError: it does not come to that.
        """
        if not self.wait(lambda: not self.missing(), WHOLE_S):
            raise StartError(f"not whole after {WHOLE_S:.0f} s: {self.missing()}")
        self.clear_asides()

    def missing(self) -> str:
        """What keeps the cluster from being whole; "" when nothing does."""
        for name in self.cluster.nodes:
            if not self.cluster.running(name):
                return f"{name} does not run"
        ends = {name: self.cluster.endpoint(name) for name in self.cluster.nodes}
        with Asker() as asker:
            views = asker.views(list(ends.values()), ASK_S, [TOPIC])
        if silent := [name for name, end in ends.items() if end not in views]:
            return f"{silent[0]} does not answer"
        newest = max(views.values(), key=lambda view: view.version)
        if late := [n for n in self.servers if views[ends[n]].version < newest.version]:
            return f"{late[0]} does not follow"
        self._epochs = {broker.id: broker.instance_epoch for broker in newest.brokers}
        for broker in newest.brokers:
            if not broker.alive or broker.instance_epoch <= self._past.get(broker.id, -1):
                return f"{broker.id} is not back"
        for number, queue in enumerate(_topic(newest).queues):
            if queue.leader is None or len(queue.isr) < len(queue.replicas):
                return f"queue {number}: leader {queue.leader}, in sync {queue.isr}"
        return ""

    def counters(self) -> dict[str, Counter[str]]:
        """The counters of each node that answers, as far as they are whole numbers."""
        by_endpoint = {
            self.cluster.endpoint(name): name
            for name in self.cluster.nodes
            if self.cluster.running(name)
        }
        with Asker() as asker:
            answers: dict[str, StatsResult] = asker.stats(list(by_endpoint), 2.0)
        return {
            by_endpoint[endpoint]: Counter(
                {k: v for k, v in (answer.counters or {}).items() if isinstance(v, int)}
            )
            for endpoint, answer in answers.items()
        }

    def wait_scrubbed(self) -> None:
        """Wait until every broker has read all that it holds, from now on, and found it good.

        Raises:
            StartError: damage that does not heal.
        """
        before = self.counters()
        asked = time.monotonic()

        def good() -> bool:
            now = self.counters()
            # The pass that runs now began before; a node that restarts counts from 0 again.
            return not self.missing() and all(
                name in now
                and now[name]["damaged"] == 0
                and now[name]["scrub_passes"]
                >= (before[name]["scrub_passes"] + 2 if name in before else 2)
                for name in self.brokers
            )

        while not self.wait(good, WHOLE_S / 4):
            # Whoever restarted since has not got the number of passes that it had.
            for name, counters in self.counters().items():
                if name in before and counters["scrub_passes"] < before[name]["scrub_passes"]:
                    before[name] = Counter()
            if time.monotonic() - asked > WHOLE_S:
                what = self.missing() or f"{self.counters()}"
                raise StartError(f"not scrubbed after {WHOLE_S:.0f} s: {what}")

    def clear_asides(self) -> None:
        """Remove stores that were found damaged and replaced."""
        for broker in self.brokers:
            for aside in (self.folder / broker / "data").glob("damaged-*"):
                shutil.rmtree(aside)
                self.set_aside += 1

    def folders(self) -> dict[str, Path]:
        """Broker → its data folder."""
        return {name: self.folder / name / "data" for name in self.brokers}

    # -- the end ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop all nodes in good order; their data stays until `close`."""
        self.links.heal()
        self.cluster.close()

    def close(self) -> None:
        """Give everything back."""
        self.cluster.close()
        self.links.close()
        self.disk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _topic(view: View) -> TopicView:
    return next(topic for topic in view.topics if topic.name == TOPIC)
