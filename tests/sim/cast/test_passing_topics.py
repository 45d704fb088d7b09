"""A topic is deleted and made anew while brokers hear of it late: what is acknowledged stays."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from logboom.nodes.replica.replica import Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import Call
from logboom.wire.commands import AnyCommand, CommandResult, CreateTopic, DeleteTopic
from logboom.wire.messages import Acks, Produce
from logboom.wire.view import TopicConfig
from tests.sim.cast import passing_topics
from tests.sim.cast.passing_topics import LOADED, PassingLoad, left_behind
from tests.sim.cast.wire_client import WireClient
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

LATE_S = 1.0
"""Seconds that brokers hear late of what the name servers decide: less than their leases."""


class Stage:
    """A small cluster, an operator and a producer."""

    def __init__(self, seed: int, *, compaction: bool = False) -> None:
        self.compaction = compaction
        self.world = world = World(seed)
        self.servers = [machine.name for machine in world.nodes("name-server")]
        endpoints = [f"{name}:7701" for name in self.servers]
        self.admin = WireClient("admin-1", endpoints, random.Random(seed))
        self.load = PassingLoad("load-1", endpoints, random.Random(seed))
        world.observer = self.load.routes
        world.add("admin-1", "client", {}, lambda: self.admin)
        world.add("load-1", "client", {}, lambda: self.load)
        for name in list(world.machines):
            world.start(name)
        self.run(3.0)
        self.call("load-1", self.load.start)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.scheduler.run(self.world.scheduler.now + seconds)

    def call(self, name: str, action: Callable[[], None]) -> None:
        """Have a client do something."""
        process = self.world.machines[name].process
        assert process is not None
        process.deliver(Call(action))

    def decide(self, command: AnyCommand) -> CommandResult:
        """Have the name servers decide a command."""
        results: list[CommandResult] = []
        self.call("admin-1", lambda: self.admin.propose(command, results.append))
        for _ in range(500):
            if results:
                return results[0]
            self.run(0.01)
        raise AssertionError(f"no answer to {command}")

    def create(self) -> None:
        """One topic, of one queue."""
        for _ in range(20):
            config = TopicConfig(retention_ms=-1, compaction=self.compaction)
            if not self.decide(CreateTopic(LOADED[0], 1, 3, config, 1)).code:
                return
            self.run(0.3)
        raise AssertionError("no topic")

    def play(self) -> None:
        """Messages, a topic made anew, messages; all is answered at the end."""
        self.create()
        self.run(3.0)
        brokers = [machine.name for machine in self.world.nodes("broker")]
        for server in self.servers:
            self.world.network.lags.update({(server, broker): LATE_S for broker in brokers})
        assert self.decide(DeleteTopic(LOADED[0], 1)).code == ""
        self.create()
        self.run(LATE_S)
        self.world.network.heal()
        self.run(3.0)
        self.call("load-1", self.load.stop)
        self.run(3.0)
        assert self.load.settled(), self.load.waiting()


@pytest.mark.thorough
def test_what_a_topic_made_anew_was_sent_stays_and_what_the_old_one_held_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passing_topics, "REST_S", 0.05)
    stage = Stage(1)
    stage.play()
    stage.load.compare(stage.world)
    assert stage.world.trace.totals["acked in passing topics"] > 30
    assert left_behind(stage.world) == []


def test_what_compaction_kept_of_a_deleted_topic_goes_too() -> None:
    stage = Stage(1, compaction=True)
    stage.play()
    assert left_behind(stage.world) == []


@pytest.mark.thorough
def test_a_broker_that_takes_it_for_the_old_topic_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_name(
        number: int, timeout_ms: int, topic: str, queue: int, acks: Acks, _topic_id: int
    ) -> Produce:
        return Produce(number, timeout_ms, topic, queue, acks)

    monkeypatch.setattr(passing_topics, "REST_S", 0.05)
    monkeypatch.setattr(passing_topics, "Produce", by_name)
    stage = Stage(1)
    stage.play()
    with pytest.raises(BrokenProperty, match="nothing acknowledged is lost"):
        stage.load.compare(stage.world)


def test_a_producer_that_is_told_a_topic_is_gone_which_is_there_is_noticed() -> None:
    stage = Stage(1)
    stage.play()
    (there,) = (
        topic.id for topic in stage.world.observer.topics.values() if topic.name == LOADED[0]
    )
    stage.load.told_gone.add(there)
    with pytest.raises(BrokenProperty, match="topics that are there are known"):
        stage.load.compare(stage.world)


def test_a_broker_that_keeps_what_was_deleted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: ReplicaTable, replica: Replica, _turn: BrokerTurn) -> None:
        self.replicas.pop(replica.key, None)
        self.by_name.pop((replica.topic, replica.queue), None)

    monkeypatch.setattr(ReplicaTable, "drop", forget)
    stage = Stage(1)
    stage.play()
    assert left_behind(stage.world) != []
