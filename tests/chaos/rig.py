"""A cluster on a bench where everything about it can be broken, and seen to be whole again."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from logboom.client import Client, connect
from logboom.deploy.closeable import Closeable
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE
from logboom.wire.errors import RetryableError, StartError
from logboom.wire.view import TopicView, View
from tests.chaos.account import Account
from tests.chaos.disk import ROOM_BYTES, SmallDisk
from tests.chaos.health import Health, ScrubPasses, topic_of
from tests.chaos.links import CLIENT, Links, adjusted
from tests.chaos.machine import Machine
from tests.chaos.members import ChangingCluster

TOPIC: Final = "flights"
T = TypeVar("T")
WHOLE_S: Final = 120.0
"""A cluster that is not whole by then will not be."""
AGAIN_S: Final = 1.0
"""A service manager starts a node again after so long."""
MUST_BE_REPLACED: Final = "new raft id"
"""In the last words of a name server whose journal or snapshot is damaged (R9)."""
SMALL: Final = "broker-3"
"""The broker on the small disk."""
SCRUB_BYTES_PER_S: Final = 64 * 1024 * 1024
DELETE_GRACE_S: Final = 1.0
"""After which a replica that was moved away is deleted, so that this happens within a run."""

ORDER_S: Final = 5.0
COMMAND_S: Final = 180.0
"""What a command of an operator may take."""


class Rig(Closeable):
    """Three name servers, some brokers, their links, machines and disks."""

    def __init__(
        self,
        folder: Path,
        queues: int,
        links: Links,
        *,
        brokers: int = 3,
        scrub_every_s: float = 4.0,
        room: int = ROOM_BYTES,
    ) -> None:
        """Start everything and create the topic."""
        self.folder = folder
        self.queues = queues
        self.down: set[str] = set()
        """Nodes that are down because a fault wants it."""
        self.next_version: set[str] = set()
        """Nodes that start as the next version."""
        self.account = Account(folder)
        """What nodes did by themselves."""
        self._again: dict[str, float] = {}
        self.losses: list[tuple[float, float]] = []
        """From when to when name servers may have forgotten what they were told: a survivor lagged
        and went on alone."""
        self.recoveries = 0
        self.kept_aside = 0
        """Acknowledged messages of topics that a survivor has never heard of, as documented."""
        self.backups = folder.with_name("backups")
        self.backed_up_at: float | None = None
        """When the newest backup began that ended well."""
        self.set_aside = 0
        """Damaged stores that brokers gave up, removed here to save room."""
        self.machine = Machine(folder)
        self.disk = SmallDisk(folder / SMALL, room)
        self.links = links
        try:
            self.cluster = ChangingCluster(
                3,
                brokers,
                folder,
                broker_settings={
                    "scrub_every_s": scrub_every_s,
                    "scrub_bytes_per_s": SCRUB_BYTES_PER_S,
                    "replica_delete_grace_s": DELETE_GRACE_S,
                },
                adjust=self._adjust,
                launcher=self._launcher,
            )
        # Ctrl-C too: processes and links are given back. It is raised on.
        except BaseException:
            self.links.close()
            self.disk.close()
            raise
        self.health = Health(self.cluster, TOPIC)
        """What the nodes say of themselves."""
        try:
            with connect(self.endpoints, timeout_s=WHOLE_S) as boom:
                boom.admin.create_topic(TOPIC, queues=queues, replicas=3, retention_ms=-1)
            self.wait_whole()
        # Ctrl-C too: processes and links are given back. It is raised on.
        except BaseException:
            self.close()
            raise

    def _adjust(self, settings: dict[str, Any]) -> dict[str, Any]:
        small = self.disk.settings if settings["id"] == SMALL else {}
        return adjusted(self.links, settings) | small

    def _launcher(self, name: str) -> list[str]:
        words = self.links.launcher(name) + self.machine.launcher(name)
        node = "next_version" if name in self.next_version else "watched_node"
        return [*words, sys.executable, "-m", f"tests.chaos.{node}"]

    # -- who is who ---------------------------------------------------------------------------

    @property
    def brokers(self) -> list[str]:
        """The brokers' names."""
        return [name for name in self.cluster.nodes if name.startswith("broker-")]

    @property
    def servers(self) -> list[str]:
        """The name servers' names."""
        return [name for name in self.cluster.nodes if name.startswith("name-")]

    @property
    def endpoints(self) -> list[str]:
        """Where clients dial."""
        return [self.links.front(name, self.cluster.endpoint(name)) for name in self.brokers]

    def others(self, *names: str) -> list[str]:
        """All other nodes, and the clients."""
        return [name for name in (*self.cluster.nodes, CLIENT) if name not in names]

    def leader(self, rng: random.Random) -> str:
        """The broker that leads some queue."""
        queue = rng.randrange(self.queues)
        return self._told(lambda: self.cluster.leader(TOPIC, queue))

    def raft_leader(self) -> str:
        """The name server that leads."""
        return self._told(self.cluster.raft_leader)

    def view(self, topics: list[str]) -> View:
        """The newest metadata."""
        return self._told(lambda: self.cluster.view(topics))

    def _told(self, ask: Callable[[], T]) -> T:
        """An answer of the cluster: a machine that is busy with other things may give it late."""
        answers: list[T] = []

        def asked() -> bool:
            # One after the other is asked until the time is over; `missing` says why not.
            with contextlib.suppress(StartError):
                answers.append(ask())
            return bool(answers)

        # While nodes are down on purpose there may be no leader, and nobody brings them back before
        # this is answered: a second fault asks once.
        if not self.wait(asked, 0.0 if self.down else WHOLE_S):
            raise StartError(f"no node answers: {self.missing()}")
        return answers[0]

    def topic(self) -> TopicView:
        """The topic, as the newest metadata has it."""
        return topic_of(self.cluster.view([TOPIC]))

    @contextlib.contextmanager
    def operator(self) -> Iterator[Client]:
        """A client that may change the cluster."""
        key = read_key(self.cluster.data / KEY_FILE)
        with connect(self.cluster.endpoints, timeout_s=ORDER_S, cluster_key=key) as boom:
            yield boom

    def order(self, give: Callable[[], None]) -> None:
        """Have an operator's order carried out, which may be given again if nobody answers.

        Raises:
            StartError: nobody does in time.
        """

        def given() -> bool:
            try:
                give()
            except RetryableError:
                return False
            return True

        if not self.wait(given, WHOLE_S):
            raise StartError(f"nobody carries out an order: {self.missing()}")

    # -- breaking and mending -----------------------------------------------------------------

    def kill(self, names: Collection[str]) -> None:
        """SIGKILL, one right after the other."""
        for name in names:
            self._goes(name)
            if self.cluster.running(name):
                self.cluster.kill(name)

    def _goes(self, name: str) -> None:
        # What is about to be ended may have ended before.
        self._see(name)
        self._again.pop(name, None)
        self.down.add(name)
        self.health.goes(name)

    def start(self, names: Collection[str]) -> None:
        """Start nodes; one that ends at once is started again later, as by a service manager."""
        waiting = [name for name in names if not self.cluster.running(name)]
        self.down.difference_update(names)
        if not waiting:
            return
        for name in waiting:
            self._again.pop(name, None)
        with ThreadPoolExecutor(len(waiting)) as together:
            for name, error in zip(waiting, together.map(self._start, waiting), strict=True):
                if error:
                    self.account.end(name, error)
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

    def lose_disk(self, name: str) -> None:
        """A dead node's data are gone."""
        shutil.rmtree(self.folder / name / "data")
        self.machine.forget(name)

    def replace(self, lost: str) -> None:
        """Put a new name server in the place of one, as an operator does."""
        self.kill([lost])
        joiner = self.cluster.put_in_place(lost, self.links)
        self.down.discard(lost)
        self.down.add(joiner["id"])
        self.must("name-server", "remove", lost, "--yes")
        self._join(joiner)

    def renew(self, lost: Sequence[str]) -> None:
        """Put new name servers in the place of those without which a survivor went on alone."""
        for name in lost:
            self.cluster.members.pop(name, None)
        for name in lost:
            joiner = self.cluster.put_in_place(name, self.links)
            self.down.discard(name)
            self._join(joiner)

    def _join(self, joiner: dict[str, str]) -> None:
        self.start([joiner["id"]])
        self.must("name-server", "add", joiner["id"], joiner["endpoint"], joiner["raft_endpoint"])

    def words(self, *words: str, cluster: bool = True) -> list[str]:
        """A command of `logboom`; `cluster`: with what says where the cluster is."""
        command = [sys.executable, "-m", "logboom.cli", *words]
        if cluster:
            command += ["--servers", ",".join(self.endpoints)]
            command += ["--key-file", str(self.cluster.data / KEY_FILE)]
        return command

    def must(self, *words: str, cluster: bool = True) -> None:
        """Have a command of `logboom` carried out.

        Raises:
            StartError: it failed.
        """
        done = subprocess.run(
            self.words(*words, cluster=cluster),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode:
            raise StartError(f"{' '.join(words)}: {done.stderr.strip()}")

    def stranger(self, advertise: str) -> list[str]:
        """The command of one more broker, whose file says that others reach it at `advertise`."""
        return self.cluster.stranger(self.brokers[0], advertise)

    def tend(self) -> None:
        """Start nodes that ended by themselves; replace name servers that say that they must be."""
        for name in self.cluster.nodes:
            if name in self.down or self.cluster.running(name):
                continue
            if self._see(name):
                self.health.goes(name)
            elif MUST_BE_REPLACED in self.account.last_line(name):
                self.replace(name)
            elif time.monotonic() >= self._again[name]:
                self.start([name])

    def _see(self, name: str) -> bool:
        """Whether a node that was to run has ended since it was looked at last."""
        if name in self.down or name in self._again or self.cluster.running(name):
            return False
        self.account.end(name, f"{name} ended: {self.account.last_line(name)}")
        self._again[name] = time.monotonic() + AGAIN_S
        return True

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
            # Other processes' state changes without a signal to us, and they must be tended.
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
        return self.health.missing()

    def wait_scrubbed(self) -> None:
        """Wait until every broker has read all that it holds, from now on, and found it good.

        Raises:
            StartError: damage that does not heal.
        """
        passes = ScrubPasses(self.health)
        if not self.wait(passes.done, WHOLE_S):
            what = self.missing() or f"{self.health.counters()}"
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
