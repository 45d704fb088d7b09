"""A cluster with many queues on slow processors: it is whole again once a cause of trouble is gone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from logboom.metadata.raft.raft_config import RaftConfig
from logboom.wire.actor import Call
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.view import TopicConfig
from tests.sim.cast.wire_client import WireClient
from tests.sim.world.processor import Processor
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

TOPICS: Final = 250
QUEUES_EACH: Final = 4
"""Queues of a topic."""
UP_S: Final = 60.0


class CrowdScenario:
    """Three name servers, three brokers, and as many topics as are asked for."""

    def __init__(self, seed: int, topics: int) -> None:
        self.world = world = World(seed, raft=RaftConfig())
        self.topics = topics
        self._slowness: tuple[float, float] | None = None
        """Of brokers, and of name servers."""
        rng = random.Random(f"crowd of {seed}")
        endpoints = [machine.listeners["main"] for machine in world.nodes()]
        self.client = WireClient("operator", endpoints, rng)
        world.add("operator", "client", {}, lambda: self.client)
        self._made = 0

    def come_up(self) -> None:
        """Start all, and create the topics."""
        for machine in list(self.world.machines.values()):
            self.world.boot(machine.name)
        self.run(3.0)
        self._call(self._create)
        self.until("many topics are created", UP_S, lambda: self._made == self.topics)
        self.until("many topics are in sync", UP_S, self.whole)

    def _create(self) -> None:
        if self._made < self.topics:
            command = CreateTopic(f"t{self._made}", QUEUES_EACH, 3, TopicConfig(), 1)
            self.client.propose(command, self._created)

    def _created(self, result: CommandResult) -> None:
        assert not result.code, result
        self._made += 1
        self._create()

    def appear(self, topics: int, queues: int) -> None:
        """Ask for so many more topics, all at once."""

        def ask() -> None:
            for number in range(topics):
                command = CreateTopic(f"crowd-{number}", queues, 3, TopicConfig(), 1)
                self.client.propose(command, lambda _result: None)

        self._call(ask)

    def led(self) -> int:
        """Return how many queues brokers lead, as far as they know."""
        cores = [self.world.broker(machine.name) for machine in self.world.nodes("broker")]
        return sum(len(core.queues.led) for core in cores if core is not None)

    def _call(self, action: Callable[[], None]) -> None:
        process = self.world.machines["operator"].process
        assert process is not None
        process.deliver(Call(action))

    def slow_down(self, slowness: float, name_servers: float | None = None) -> None:
        """All nodes run at so small a part of their speed, from now on; name servers as told."""
        self._slowness = slowness, slowness if name_servers is None else name_servers
        for machine in self.world.nodes():
            self._slow(machine.name)

    def _slow(self, name: str) -> None:
        machine = self.world.machines[name]
        process = machine.process
        if process is not None and self._slowness is not None:
            process.processor = process.processor or Processor()
            process.processor.slowness = self._slowness[machine.kind != "broker"]

    def kill(self, name: str, seconds: float) -> None:
        """Kill a node, and start it again after some seconds."""
        self.world.kill(name)
        self.run(seconds)
        self.world.boot(name)
        self._slow(name)

    def pause_brokers(self, seconds: float) -> None:
        """All brokers stand still for some seconds."""
        processes = [machine.process for machine in self.world.nodes("broker")]
        for process in processes:
            assert process is not None
            process.pause()
        self.run(seconds)
        for process in processes:
            assert process is not None
            process.resume()

    def fencings(self) -> int:
        """Return how often a broker that runs was fenced."""
        cores = [self.world.broker(machine.name) for machine in self.world.nodes("broker")]
        return sum(core.stats.counters.get("fencings", 0) for core in cores if core is not None)

    def keep_sessions(self) -> None:
        """Raises `BrokenProperty` if a broker that runs was fenced."""
        if self.fencings():
            raise BrokenProperty(
                "brokers at work keep their sessions", f"{self.fencings()} fencings"
            )

    def unsynced(self) -> int:
        """Return the number of queues that lack a leader or a member of their ISR."""
        topics = self.client.routes.topics.values()
        return QUEUES_EACH * (self.topics - len(topics)) + sum(
            queue.leader is None or len(queue.isr) < len(queue.replicas)
            for topic in topics
            for queue in topic.queues
        )

    def whole(self) -> bool:
        """Whether every queue has a leader, and all its replicas in sync."""
        return self.unsynced() == 0

    def run(self, seconds: float) -> None:
        """Go on for so many seconds."""
        self.world.scheduler.run(self.world.scheduler.now + seconds)

    def until(self, promise: str, seconds: float, done: Callable[[], bool]) -> float:
        """Run until `done`; return how long it took."""
        scheduler = self.world.scheduler
        began = scheduler.now
        while not done():
            if scheduler.now >= began + seconds:
                raise BrokenProperty(promise, f"not within {seconds} s: {self.unsynced()} queues")
            self.run(0.25)
        return scheduler.now - began


def starved(topics: int, slowness: float, name_servers: float | None = None) -> CrowdScenario:
    """A cluster that is whole, and slow from now on."""
    crowd = CrowdScenario(1, topics)
    crowd.come_up()
    crowd.slow_down(slowness, name_servers)
    crowd.run(5.0)
    return crowd


def a_crowd_changes_hands() -> None:
    """A broker is killed and comes back, while all are so slow that its queues take seconds."""
    crowd = starved(TOPICS, 200.0, 20.0)
    crowd.kill("broker-1", 8.0)
    crowd.run(12.0)
    crowd.keep_sessions()


def a_crowd_stands_still() -> None:
    """All brokers of a starved cluster stand still for longer than a session."""
    crowd = starved(TOPICS, 100.0)
    crowd.pause_brokers(4.0)
    crowd.run(5.0)
    crowd.keep_sessions()


def a_crowd_appears() -> None:
    """Thousands of queues are created at once, while all are so slow that to open them takes seconds."""
    crowd = starved(1, 80.0, 10.0)
    crowd.appear(20, 256)
    crowd.until("queues that appear at once are led", UP_S, lambda: crowd.led() >= 20 * 256)
    crowd.run(5.0)
    crowd.keep_sessions()
