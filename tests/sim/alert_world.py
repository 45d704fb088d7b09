"""A simulated cluster under load whose nodes are scraped, and what can be done to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from logboom.console.exporter.exporter_families import cluster_families
from logboom.console.exporter.exporter_sample import ExporterSample
from logboom.console.exporter.exporter_text import exposed_families
from logboom.metadata.name_server import NameServer
from logboom.nodes.broker import Broker
from logboom.nodes.log.keys import queue_of
from logboom.wire.actor import Call
from logboom.wire.batch import encode_batch
from logboom.wire.commands import CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.exposition import Snapshot, families_of
from logboom.wire.hello import Identity
from logboom.wire.messages import AnyMessage, Produce
from logboom.wire.operation_commands import SetBrokerMode
from logboom.wire.operation_messages import ClusterDescribed, DescribeCluster
from logboom.wire.view import TopicConfig
from tests.alert_series import Recording, Sample, sample_of
from tests.sim.cast.wire_client import WireClient
from tests.sim.world.machine import Machine
from tests.sim.world.process import Process
from tests.sim.world.world import CLUSTER_KEY, World

TOPICS: Final = {"alone": (1, 0), "pair": (2, 2), "all": (3, 2)}
"""Topic → (replicas, min_in_sync)."""
PRODUCE_S: Final = 0.5
JOBS: Final = {"broker": "logboom-brokers", "name-server": "logboom-name-servers"}


class AlertWorld:
    """The cluster; `run` lets its time pass."""

    def __init__(self, seed: int, pace: float) -> None:
        self.world = world = World(seed, name_servers=3, brokers=3, scrub_every_s=1.0)
        self.recording = Recording(pace)
        endpoints = [machine.listeners["main"] for machine in world.nodes()]
        self.client = WireClient("operator", endpoints, random.Random(seed))
        self.client.identity = Identity("operator", cluster_key=CLUSTER_KEY)
        world.add("operator", "client", {}, lambda: self.client)
        for machine in list(world.machines.values()):
            world.boot(machine.name)
        for name, (replicas, least) in TOPICS.items():
            config = TopicConfig(retention_ms=-1, min_in_sync=least)
            command = CreateTopic(name, 2, replicas, config, 1)
            self.at(2.0, partial(self.create, command))
        self.at(1.0, self._produce)
        self._described: ClusterDescribed | None = None

    @property
    def now(self) -> float:
        """True time, which is that of the recording."""
        return self.world.scheduler.now

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a true time."""
        self.world.scheduler.at(when, action)

    def run(self, until: float) -> None:
        """Let time pass, with a sample at each interval."""
        while self.recording.seconds < until:
            self.recording.add(self._sample())
            self.world.scheduler.run(self.now + self.recording.step_s)

    # ── what is told ────────────────────────────────────────────────────────────────────────────

    def _sample(self) -> Sample:
        found: Sample = {}
        for machine in self.world.nodes():
            if machine.process is not None:
                labels = {"job": JOBS[machine.kind], "instance": machine.name}
                found.update(sample_of(families_of(snapshot_of(machine)), labels))
        if self._described is not None:
            now = self.recording.seconds
            shown = ExporterSample(0, now, now, 0.0, 0, cluster=self._described)
            told = exposed_families(cluster_families(shown).families)
            found.update(sample_of(told, {"job": "logboom-exporter", "instance": "exporter"}))
        self._call(lambda: self.client.operate(DescribeCluster(0, 1_000), self._told))
        return found

    def _told(self, answer: AnyMessage | None, error: LogboomError | None) -> None:
        if isinstance(answer, ClusterDescribed):
            self._described = answer

    # ── what happens ────────────────────────────────────────────────────────────────────────────

    def create(self, command: CreateTopic) -> None:
        """Create a topic, once there are enough brokers."""
        self._call(lambda: self.client.propose(command, lambda result: again(result.code)))

        def again(code: str) -> None:
            if code == "TOO_FEW_BROKERS":
                self.at(self.now + 0.5, partial(self.create, command))
            else:
                assert code == "", code

    def set_mode(self, broker: str, mode: str) -> None:
        """Set the mode of a broker."""
        command = SetBrokerMode(broker, mode, 1)
        self._call(lambda: self.client.propose(command, lambda result: self._agree(result.code)))

    @staticmethod
    def _agree(code: str) -> None:
        assert code == "", code

    def _call(self, action: Callable[[], None]) -> None:
        process = self.world.machines["operator"].process
        assert process is not None
        process.deliver(Call(action))

    def _produce(self) -> None:
        """Send a message to every queue that has a leader."""
        self.at(self.now + PRODUCE_S, self._produce)
        routes = self.client.routes
        for name, topic in routes.topics.items():
            for queue, view in enumerate(topic.queues):
                if view.leader in routes.brokers:
                    endpoint = routes.brokers[view.leader].endpoint
                    self._call(partial(self._send, endpoint, name, queue))

    def _send(self, endpoint: str, topic: str, queue: int) -> None:
        batch = encode_batch([b"a message"], now_ms=1)
        message = Produce(0, 2_000, topic, queue, "leader")
        self.client.request(endpoint, message, lambda *_: None, 2.0, [batch])

    # ── whom it is about ────────────────────────────────────────────────────────────────────────

    def raft_leader(self) -> str:
        """The name server that leads."""
        for machine in self.world.nodes("name-server"):
            core = self.world.name_server(machine.name)
            if core is not None and core.raft.is_leader:
                return machine.name
        return "name-1"

    def follower(self) -> str:
        """A name server that does not lead."""
        leader = self.raft_leader()
        return next(m.name for m in self.world.nodes("name-server") if m.name != leader)

    def keeper(self, topic: str) -> str:
        """The first broker that has a topic."""
        return self.client.routes.topics[topic].queues[0].replicas[0]

    def flip(self, topic: str) -> None:
        """Flip a bit of a topic on the disk of one of its brokers."""
        topic_id = self.client.routes.topics[topic].id
        storage = self.world.machines[self.keeper(topic)].storage
        assert storage is not None
        assert storage.flip(random.Random(1), lambda key: queue_of(key)[0] == topic_id)


def snapshot_of(machine: Machine) -> Snapshot:
    """What a node tells, as its skin asks for it."""
    assert machine.process is not None
    core = running_core(machine.process)
    if isinstance(core, Broker):
        figures: dict[str, int | float | str] = {}
        for part in core.figure_steps(machine.process.clock.instant().mono):
            figures.update(part)
        return Snapshot("broker", {}, figures, core.stats.histograms)
    return Snapshot("name-server", {}, core.figures(), core.stats.histograms)


def running_core(process: Process) -> Broker | NameServer:
    """The core of a node."""
    core = process.core
    assert isinstance(core, Broker | NameServer)
    return core
