"""What is done from time to time: retention and idle producers; and how little an idle broker does."""

from __future__ import annotations

import pytest

from logboom.nodes import maintenance
from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import ProducerWindows
from logboom.nodes.maintenance import SURELY_IDLE
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.wire.actor import Effects, Event
from logboom.wire.commands import AlterIsr
from logboom.wire.errors import ProducerError
from logboom.wire.messages import QueueAnswer
from logboom.wire.view import TopicConfig
from tests.unit.nodes.rig import ME, Peer, Rig, batch, entry, fetch, produce
from tests.unit.nodes.test_broker_rules import flowing, replicated

BOTH = (ME, "broker-2")


def test_retention_by_age_moves_the_start_and_never_past_the_hw() -> None:
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH, config=TopicConfig(retention_ms=1_000))
    client, two = rig.client(), rig.follower()
    client.ask(produce(), [batch(3)])
    two.ask(fetch(0, (Position(3), 1)))
    client.ask(produce(), [batch(2)])
    rig.wall_ms += 60_000
    for number in range(1, 14):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    assert rig.replica().start == 3
    assert rig.replica().end == Position(5)
    assert len(rig.storage.content("log")) == 1


def test_a_clock_that_was_ahead_for_a_moment_does_not_stop_retention_by_age() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=60_000))
    client = rig.client()
    ahead_ms = 400 * 86_400_000
    rig.wall_ms += ahead_ms
    client.ask(produce(), [batch(3)])
    rig.settle()
    rig.wall_ms -= ahead_ms
    client.ask(produce(), [batch(2)])
    rig.settle()
    for _ in range(110):
        rig.settle(0.5)
    assert rig.replica().start == 0
    for _ in range(150):
        rig.settle(0.5)
    assert rig.replica().start == 5


def test_retention_by_bytes_does_not_count_what_may_yet_be_cut() -> None:
    rig = Rig()
    size = len(batch(3))
    rig.lead(isr=BOTH, replicas=BOTH, config=TopicConfig(retention_bytes=2 * size))
    client, two = rig.client(), rig.follower()
    for _ in range(3):
        client.ask(produce(), [batch(3)])
    two.ask(fetch(0, (Position(6), 1)))
    for number in range(1, 14):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    # Nine messages are here, six of them for good: these are the bytes that are to be kept.
    assert (rig.replica().start, rig.replica().hw) == (0, Position(6))
    two.ask(fetch(14, (Position(9), 1)))
    for number in range(15, 28):
        two.ask(fetch(number, wait_ms=400))
        rig.settle(0.5)
    assert rig.replica().start == 3


def test_a_follower_deletes_what_its_leader_deleted() -> None:
    rig = Rig()
    rig.lead(epoch=2, leader="broker-2", isr=BOTH, replicas=BOTH)
    frames = [entry(0, 2, 3), entry(3, 2, 3), entry(6, 2, 3)]
    replicated(rig, flowing(2, 9, 3), frames=frames)
    replicated(rig, QueueAnswer(1, 0, 2, "OK", 9, 0, 6))
    rig.settle(6.0)
    assert rig.replica().start == 6
    assert len(rig.storage.content("log")) == 1


def one_producer() -> tuple[Rig, Peer]:
    """A leader that forgets who is idle for a second, and the client that sent producer 9's first
    batch."""
    rig = Rig(producer_expiry_ms=1_000)
    rig.lead()
    client = rig.client()
    client.ask(produce(), [batch(1, 9, 0, 0)])
    return rig, client


def test_an_idle_producer_is_forgotten_by_an_entry_of_the_log() -> None:
    rig, client = one_producer()
    rig.wall_ms += 60_000
    rig.settle(601.0 + SURELY_IDLE)
    assert rig.replica().end == Position(1, 1)
    assert len(rig.replica().windows) == 0
    client.ask(produce(), [batch(1, 9, 0, 1)])
    with pytest.raises(ProducerError):
        client.answer()
    # The control entry takes no offset, and a restart reads it again.
    client.ask(produce(), [batch(2)])
    assert client.answer().base_offset == 1
    again = Rig(rig.storage, incarnation="two")
    assert again.replica().damage is None
    assert len(again.replica().windows) == 0


def test_a_clock_that_was_ahead_for_a_moment_keeps_no_idle_producer() -> None:
    rig = Rig(producer_expiry_ms=7_200_000)
    rig.lead()
    client = rig.client()
    rig.wall_ms += 400 * 86_400_000
    client.ask(produce(), [batch(1, 9, 0, 0)])
    rig.wall_ms -= 400 * 86_400_000
    client.ask(produce(), [batch(1, 8, 0, 0)])
    for sequence in range(1, 8):
        rig.settle(1_000.0)
        client.ask(produce(), [batch(1, 8, 0, sequence)])
    assert len(rig.replica().windows) == 2, "it may be idle for two hours"
    rig.settle(1_300.0)
    assert list(rig.replica().windows.ahead(0)) == [8]


def test_no_producer_is_forgotten_because_a_clock_was_set() -> None:
    rig, client = one_producer()
    assert client.answer().base_offset == 0
    rig.settle(605.0)
    rig.wall_ms += 60_000
    rig.settle(SURELY_IDLE)
    client.ask(produce(), [batch(1, 9, 0, 0)])
    assert client.answer().base_offset == 0, "sent again: it is known"
    assert rig.replica().end == Position(1)


def test_who_wrote_meanwhile_is_not_found_idle_for_long() -> None:
    rig, client = one_producer()
    rig.wall_ms += 60_000
    rig.settle(1_300.0)
    client.ask(produce(), [batch(1, 9, 0, 1)])
    rig.wall_ms += 60_000
    rig.settle(SURELY_IDLE - 600.0)
    assert len(rig.replica().windows) == 1
    rig.settle(1_300.0)
    assert len(rig.replica().windows) == 0


def test_one_look_forgets_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "EXPIRED_AT_ONCE", 1)
    rig, client = one_producer()
    client.ask(produce(), [batch(1, 8, 0, 0)])
    rig.wall_ms += 60_000
    rig.settle(601.0 + SURELY_IDLE)
    assert len(rig.replica().windows) == 1
    rig.settle(601.0)
    assert len(rig.replica().windows) == 0


class CountingBroker:
    """Counts the turns that a rig's broker takes."""

    def __init__(self, rig: Rig) -> None:
        self.turns = 0
        self._turn = rig.turn
        rig.turn = self.turn  # type: ignore[method-assign]  # to count its calls

    def turn(self, *events: Event) -> Effects:
        """One turn more."""
        self.turns += 1
        return self._turn(*events)


def test_an_idle_broker_takes_few_turns() -> None:
    rig = Rig()
    rig.lead(queues=50)
    counting = CountingBroker(rig)
    rig.settle(10.0)
    assert counting.turns < 150


def test_a_round_over_many_queues_looks_at_some_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "LOOKED_AT_ONCE", 10)
    rig = Rig()
    rig.lead(queues=35)
    looked: list[int] = []
    expire = ProduceHandler.expire

    def counted(self: ProduceHandler, leading: Leadership, now: float) -> None:
        looked[-1] += 1
        expire(self, leading, now)

    monkeypatch.setattr(ProduceHandler, "expire", counted)
    for _ in range(50):
        looked.append(0)
        rig.mono += 0.02
        rig.turn()
    assert max(looked) == 10
    assert sum(looked) in range(35, 4 * 35), "two rounds a second"


def test_a_round_looks_for_idle_producers_in_few_queues_that_have_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance, "WINDOWS_AT_ONCE", 6)
    monkeypatch.setattr(maintenance, "PRODUCERS_EVERY", 10.0)
    rig = Rig()
    rig.lead(queues=20)
    client = rig.client()
    for queue in range(20):
        for producer in range(3):
            client.ask(produce(queue=queue), [batch(1, producer, 0, 0)])
    looked: list[int] = []
    idle = ProducerWindows.idle

    def counted(self: ProducerWindows, before_ms: int) -> dict[int, Position]:
        looked[-1] += 1
        return idle(self, before_ms)

    monkeypatch.setattr(ProducerWindows, "idle", counted)
    for _ in range(600):
        looked.append(0)
        rig.mono += 0.02
        rig.turn()
    assert max(looked) == 2
    assert sum(looked) == 20, "one look in ten seconds"


def test_an_isr_shrinks_though_a_round_takes_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LOOKED_AT_ONCE", 3)
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH, queues=10)
    rig.follower().ask(fetch(0, *[(Position(0), -1)] * 10))
    rig.client().ask(produce(), [batch(1)])
    shrunk: set[int] = set()
    for _ in range(20):
        rig.settle(1.0)
        while rig.commands:
            command = rig.decide()
            if isinstance(command, AlterIsr):
                shrunk |= {change.queue for change in command.changes}
    assert shrunk == {*range(10)}
