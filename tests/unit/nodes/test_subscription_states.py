"""What a leader tells an operator of a subscription."""

from __future__ import annotations

from logboom.wire.messages import Ok
from logboom.wire.subscription_messages import Detach, SubscriptionConfig
from tests.unit.nodes.rig import Rig
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, alone, send, state


def five(config: SubscriptionConfig, **options: object) -> tuple[Rig, Reader]:
    """Five messages that a consumer holds."""
    rig = alone()
    reader = Reader(rig, config=config)
    reader.subscribe(**options)
    reader.receive(50)
    send(rig, b"a", b"b", b"c", b"d", b"e")
    assert len(reader.taken()) == 5
    return rig, reader


def test_holes_and_what_is_held_are_counted() -> None:
    rig, reader = five(SubscriptionConfig(kind="shared"))
    assert reader.settle((1, 2), (3, 4)) == []
    told = state(rig)
    assert (told.floor, told.spans, told.acked) == (0, 2, [(1, 2), (3, 4)])
    assert (told.unacked, told.end, told.held, told.waiting) == (3, 5, 3, 0)
    assert (told.uncovered, told.draining, told.again) == ([], [], [])
    (consumer,) = told.consumers
    assert (consumer.name, consumer.active) == ("one", True)
    assert (consumer.permits, consumer.unacked) == (45, 3)


def test_how_long_a_consumer_was_silent_is_told() -> None:
    rig, reader = five(SubscriptionConfig(kind="shared"))
    rig.settle(2.5)
    (consumer,) = state(rig).consumers
    assert consumer.silent_ms == 2_500
    reader.settle((0, 1))
    (consumer,) = state(rig).consumers
    assert consumer.silent_ms == 0


def test_slots_of_nobody_are_told_while_there_are_consumers() -> None:
    config = SubscriptionConfig(kind="key_shared", hashing="sticky")
    rig = alone()
    reader = Reader(rig, config=config)
    reader.subscribe(ranges=((0, 99), (200, 65_535)))
    told = state(rig)
    assert told.uncovered == [(100, 199)]
    assert told.consumers[0].ranges == [(0, 99), (200, 65_535)]
    reader.peer.ask(Detach(0, 5_000, "flights", 0, "s", "one", reader.session))
    assert isinstance(reader.peer.answer(), Ok)
    told = state(rig)
    assert (told.kind, told.consumers, told.uncovered) == ("", [], [])


def test_only_one_of_failover_is_active() -> None:
    config = SubscriptionConfig(kind="failover")
    rig = alone()
    for name, priority in (("b", 1), ("c", 2), ("a", 0)):
        Reader(rig, name, config).subscribe(priority=priority)
    told = {consumer.name: consumer.active for consumer in state(rig).consumers}
    assert told == {"a": True, "b": False, "c": False}
