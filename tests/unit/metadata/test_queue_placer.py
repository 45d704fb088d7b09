"""Many new queues: no turn of any name server takes long, and their places are what they always were."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

import pytest
from msgspec.structs import replace

from logboom.deploy.node import collect_seldom
from logboom.metadata.duties.queue_placer import QueuePlacer
from logboom.metadata.raft.log_commands import (
    AnyLogCommand,
    PlaceQueues,
    QueuesCommand,
    entry_of,
    level_of,
)
from logboom.metadata.raft.raft_config import RaftConfig
from logboom.metadata.state import queue_placement
from logboom.metadata.state.topic_commands import begin_placement
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.name_rules import MAX_REPLICAS
from logboom.metadata.watch.held_watches import HeldWatch
from logboom.wire.actor import Instant, PeerAddress, Received
from logboom.wire.base import WireMessage
from logboom.wire.commands import AlterTopic, AnyCommand, CreateTopic, DeleteTopic, RestoreTopic
from logboom.wire.errors import NotLeader
from logboom.wire.features import PLACED_BEFORE
from logboom.wire.frames import encode
from logboom.wire.messages import Hello, Propose
from logboom.wire.names import MAX_QUEUES
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group
from tests.unit.metadata.state.states import Tables
from tests.unit.metadata.user_desk import CLOCK_AHEAD
from tests.unit.wire.work import longest_ms, without_garbage_of_others

TURN_MS: Final = 10.0
"""Processor time that one request may take of a node's turn."""
BROKERS: Final = 100
TRIES: Final = 20
"""Tries of what takes most of that: others use the caches of the machine, too."""


@pytest.fixture(autouse=True)
def _collect_as_nodes_do() -> Iterator[None]:
    before = gc.get_threshold()
    collect_seldom()
    yield
    gc.set_threshold(*before)


def creating(name: str, queues: int = MAX_QUEUES, replicas: int = 3) -> CreateTopic:
    return CreateTopic(name, queues, replicas, TopicConfig(), 0)


def many_brokers(zones: int = 3, hosts: int = 0, brokers: int = BROKERS) -> Tables:
    """A state with many brokers."""
    tables = Tables()
    tables.begin()
    for number in range(brokers):
        host = f"host-{number % hosts}" if hosts else ""
        tables.register(f"broker-{number:03}", zone=f"zone-{number % zones}", host=host)
    return tables


def begun(tables: Tables, command: QueuesCommand) -> tuple[QueuePlacer, list[AnyLogCommand | None]]:
    """A leader that has begun to place the queues of a command, and what it submits then."""

    class Leader:
        cluster: ClusterState = tables.state.cluster
        serving = True

    found: list[AnyLogCommand | None] = []
    placer = QueuePlacer(Leader())
    assert placer.take(command, found.append)
    return placer, found


def places(tables: Tables, topic: str) -> list[tuple[str, ...]]:
    """The replicas of a topic's queues."""
    return [queue.standing.replicas for queue in tables.state.cluster.topics[topic].queues]


# -- the places ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_places_are_those_that_are_chosen_as_the_command_is_applied(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    hosts = rng.choice((0, 7))
    tables = many_brokers(rng.randint(1, 5), hosts, rng.randint(7, 12))
    for number in range(rng.randrange(4)):
        tables.create(f"before-{number}", rng.randint(1, 9), rng.randint(1, 5))
    tables.report_room("broker-003", full=rng.random() < 0.5)
    twin = Tables()
    twin.state.restore(tables.state.snapshot())
    commands: list[QueuesCommand] = [
        creating("t", rng.randint(60, 90), rng.choice((0, 1, 3, 5))),
        AlterTopic("t", rng.randint(100, 130), None, 0),
        RestoreTopic("r", 0, TopicConfig(), 3, 0, "", [0] * 40, "a backup"),
    ]
    for command in commands:
        monkeypatch.setattr(queue_placement, "COMPARED_AT_ONCE", 50)
        tables.done(tables.placed(command))
        monkeypatch.undo()
        twin.done(command)
    assert places(tables, "t") == places(twin, "t")
    assert tables.state.snapshot() == twin.state.snapshot()


def test_a_log_of_before_is_applied_as_it_was() -> None:
    tables = many_brokers(brokers=30)
    tables.state.cluster.features = PLACED_BEFORE - 1
    assert begin_placement(tables.state.cluster, creating("t")) is None
    tables.done(creating("t"))
    assert len(places(tables, "t")) == MAX_QUEUES
    made = PlaceQueues(creating("t"), 0, [])
    assert (entry_of("", 0, 0, made).format, level_of(made)) == (9, PLACED_BEFORE)


def test_of_what_is_not_placed_no_more_is_applied_than_a_turn_bears() -> None:
    tables = many_brokers(brokers=30)
    assert tables.apply(creating("t")).code == "CONFLICT"
    assert "t" not in tables.state.cluster.topics
    tables.create("t", queues=10)
    assert tables.apply(AlterTopic("t", MAX_QUEUES, None, 0)).code == "CONFLICT"
    restoring = RestoreTopic("r", 0, TopicConfig(), 3, 0, "", [0] * MAX_QUEUES, "a backup")
    assert tables.apply(restoring).code == "CONFLICT"
    assert len(places(tables, "t")) == 10


def test_what_was_placed_for_other_brokers_or_another_topic_is_refused() -> None:
    tables = many_brokers(brokers=30)
    made = tables.placed(creating("t"))
    tables.fence("broker-007")
    assert tables.apply(made).code == "CONFLICT"
    made = tables.placed(creating("t"))
    tables.done(made)
    assert "broker-007" not in {broker for place in places(tables, "t") for broker in place}
    tables.create("u", queues=10)
    more = tables.placed(AlterTopic("u", MAX_QUEUES, None, 0))
    tables.done(AlterTopic("u", 11, None, 0))
    assert tables.apply(more).code == "CONFLICT"
    assert tables.apply(replace(more, places=[[0]] * (MAX_QUEUES - 11))).code == "CONFLICT"


def test_a_broker_that_fails_meanwhile_gets_none() -> None:
    tables = many_brokers(brokers=30)
    placer, found = begun(tables, creating("t"))
    placer.perform()
    tables.fence("broker-007")
    while not found:
        placer.perform()
    (made,) = found
    assert made is not None
    tables.done(made)
    assert "broker-007" not in {broker for place in places(tables, "t") for broker in place}


def test_what_will_be_refused_is_submitted_as_it_is() -> None:
    tables = many_brokers(brokers=30)
    cluster = tables.state.cluster
    tables.create("t")
    assert begin_placement(cluster, creating("t")) is None, "there is one of this name"
    assert begin_placement(cluster, creating("u", MAX_QUEUES + 1)) is None
    assert begin_placement(cluster, creating("u", replicas=31)) is None
    assert begin_placement(cluster, AlterTopic("u", MAX_QUEUES, None, 0)) is None
    assert begin_placement(cluster, AlterTopic("t", None, TopicConfig(), 0)) is None


# -- its cost --------------------------------------------------------------------------------


@pytest.mark.parametrize(("zones", "hosts"), [(1, 0), (3, 0), (20, 50), (100, 0)])
def test_a_step_of_placement_is_short(zones: int, hosts: int) -> None:
    tables = many_brokers(zones, hosts)

    def begin() -> Callable[[], bool]:
        placer, found = begun(tables, creating("t", replicas=MAX_REPLICAS))

        def step() -> bool:
            placer.perform()
            return not found

        return step

    assert longest_ms(begin, TURN_MS) <= TURN_MS


@pytest.mark.parametrize("replicas", [1, 3, MAX_REPLICAS])
def test_to_apply_the_largest_topic_is_short(replicas: int) -> None:
    tables = many_brokers()
    made = tables.placed(creating("t", replicas=replicas))

    def begin() -> Callable[[], bool]:
        if "t" in tables.state.cluster.topics:
            tables.done(DeleteTopic("t", 0))
        return lambda: bool(tables.done(made).code)

    with without_garbage_of_others():
        assert longest_ms(begin, TURN_MS, TRIES) <= TURN_MS


class Turns:
    """A name server that leads alone, with many brokers that follow it, turn by turn."""

    def __init__(self) -> None:
        # Hashes of the whole state are as seldom as they are.
        self._group = Group(size=1, raft=RaftConfig())
        for number in range(BROKERS):
            self._group.register(f"broker-{number}")
        self.core = self._group.core(self._group.leader())
        self._user = PeerAddress("main", b"a user")
        self.answered = 0
        self._handle(Hello(-1, 1, 1, "a user", "client", 0))

    def begin(self, command: AnyCommand, *, again: bool = False) -> Callable[[], bool]:
        """Let all brokers wait for news; the function does a turn of what a user proposes."""
        for topic in [*self.core.cluster.topics] if not again else ():
            self._handle(Propose(2, 30_000, "", 0, DeleteTopic(topic, 0)))
        if not again:
            self.answered = 0
        for number in range(BROKERS):
            name = f"broker-{number}"
            address = PeerAddress("main", name.encode())
            hold = HeldWatch(
                address,
                1,
                self.core.cluster.version,
                None,
                1e9,
                None,
                name,
                True,
                True,
                from_node=True,
            )
            assert self.core._watch_handler.watches.add(hold)  # noqa: SLF001 - it has asked; to ask for real takes 100 brokers' sessions
        messages = [Propose(1, 30_000, "", 0, command)]

        def step() -> bool:
            if messages:
                return self._handle(messages.pop())
            return self._handle()

        return step

    def _handle(self, *messages: WireMessage) -> bool:
        """Do a turn; True if the next is due at once."""
        now = Instant(CLOCK_AHEAD + self._group.scheduler.now, 0)
        events = [Received(self._user, encode(each)) for each in messages]
        out = self.core.handle(events, now)
        self.answered += sum(isinstance(each.peer, PeerAddress) for each in out.sends)
        deadline = self.core.deadline()
        return deadline is not None and deadline <= now.mono


def test_no_turn_of_the_leader_is_long_for_the_largest_topic_and_a_hundred_brokers() -> None:
    turns, numbers = Turns(), count()

    def begin() -> Callable[[], bool]:
        return turns.begin(creating(f"t{next(numbers)}", replicas=MAX_REPLICAS))

    with without_garbage_of_others():
        assert longest_ms(begin, TURN_MS, TRIES) <= TURN_MS
    (made,) = turns.core.cluster.topics.values()
    assert len(made.queues) == MAX_QUEUES
    assert turns.answered == BROKERS + 1


def test_large_changes_in_every_turn_hold_up_no_news() -> None:
    turns = Turns()
    step = turns.begin(creating("t", replicas=1))
    while step():
        pass
    told = turns.answered
    for number in range(1, 5):
        turns.begin(AlterTopic("t", None, TopicConfig(retention_ms=number), 0), again=True)()
    assert turns.answered > told + 4


# -- a leader that is none any more ------------------------------------------------------------


def test_who_waits_is_told_when_the_leader_leads_no_longer() -> None:
    group = Group()
    for number in range(30):
        group.register(f"broker-{number}")
    leader = group.leader()
    asked = group.begin(leader, Propose(0, 5_000, "", 0, creating("t")))
    group.scheduler.run(
        group.scheduler.now + 1.0,
        lambda: group.core(leader)._queue_placer.deadline() is not None,  # noqa: SLF001 - no figure tells it
    )
    group.core(leader)._duties._begun = 0  # noqa: SLF001 - as after a term that it has not heard of yet
    answer = group.wait(asked)
    assert isinstance(answer, NotLeader), answer
    assert group.core(leader)._queue_placer.deadline() is None  # noqa: SLF001 - nothing is left, and no figure tells it
