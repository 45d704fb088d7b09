"""A consumer that goes gives back what it holds, however much that is, and no turn of the broker lasts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from msgspec import structs

from logboom.nodes.subscriptions.active_subscription import ActiveSubscription
from logboom.wire.subscription_messages import (
    KINDS,
    Detach,
    Subscribe,
    SubscriptionConfig,
    SubscriptionType,
)
from tests.unit.nodes.rig import Rig, asking, batch, produce
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, alone
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
HELD: Final = 50_000
"""Messages that a consumer may hold by default, here every second one of the log."""
NEARLY_S: Final = 0.5
"""Seconds before the end of a session; longer ones would count as a stall of the broker."""
ACKED_AT_ONCE: Final = 4_000


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def config(kind: SubscriptionType, ack_timeout_s: float = 0.0) -> SubscriptionConfig:
    """Settings under which a consumer may hold so much that half of it is as much as it may by default."""
    return SubscriptionConfig(
        kind=kind, most_unacked=2 * HELD, look_ahead=2 * HELD + 1, ack_timeout_s=ack_timeout_s
    )


def holding(rig: Rig, settings: SubscriptionConfig, messages: int = HELD) -> Reader:
    """A consumer that holds every second message."""
    producer = rig.client("producer")
    for _ in range(2 * messages // 5_000):
        producer.ask(produce(), [batch(5_000)])
    reader = Reader(rig, "one", settings)
    reader.subscribe()
    got = 0
    while got < 2 * messages:
        got += len(reader.receive(2 * messages - got))
    for first in range(0, 2 * messages, ACKED_AT_ONCE):
        reader.settle(*[(n, n + 1) for n in range(first, first + ACKED_AT_ONCE, 2)])
    return reader


def attach(reader: Reader, settings: SubscriptionConfig) -> None:
    """It attaches, in a new session."""
    reader.session += 1
    reader.number = 0
    where = ("flights", 0, reader.subscription, reader.name, reader.session)
    reader.peer.ask(Subscribe(0, 30_000, *where, settings))


def detached(reader: Reader) -> None:
    """It says that it goes."""
    where = ("flights", 0, reader.subscription, reader.name, reader.session)
    reader.peer.ask(Detach(0, 30_000, *where))


def comes_again(reader: Reader) -> None:
    """It attaches again."""
    attach(reader, reader.config)


def comes_otherwise(reader: Reader) -> None:
    """It attaches again, with other settings."""
    attach(reader, structs.replace(reader.config, session_ms=20_000))


def expired(reader: Reader) -> None:
    """Nothing was heard of it for too long."""
    reader.rig.mono += NEARLY_S
    reader.rig.turn()


def timed_out(reader: Reader) -> None:
    """It has not acknowledged in time."""
    reader.rig.mono += reader.config.ack_timeout_s
    reader.rig.turn()


def overtaken(reader: Reader) -> None:
    """Another one takes its place, or a part of it, some time later."""
    attach(Reader(reader.rig, "another", reader.config), reader.config)
    reader.rig.mono += reader.config.failover_delay_s


WAYS: dict[str, tuple[Callable[[Reader], None], tuple[SubscriptionType, ...]]] = {
    "detached": (detached, KINDS),
    "comes again": (comes_again, KINDS),
    "comes otherwise": (comes_otherwise, KINDS),
    "expired": (expired, KINDS),
    "timed out": (timed_out, KINDS),
    "overtaken": (overtaken, ("failover", "key_shared")),
}


def served(rig: Rig) -> ActiveSubscription:
    """The only subscription."""
    return next(iter(rig.broker.parts.subscriptions.served.values()))


def wait(reader: Reader) -> None:
    """Let nearly all of a session pass."""
    for _ in range(int(reader.config.session_ms / 1000 / NEARLY_S) - 1):
        reader.rig.settle(NEARLY_S)


def turns(rig: Rig, act: Callable[[], object]) -> Callable[[], bool]:
    """What comes of an act, turn by turn, the syncs between them included."""
    left = [act]
    rig.auto_sync, synced = False, rig.token
    gc.collect()
    gc.freeze()

    def turn() -> bool:
        nonlocal synced
        wanted = rig.broker.deadline()
        if left:
            left.pop()()
        elif rig.token > synced:
            synced = rig.token
            rig.sync()
        elif wanted is not None and wanted <= rig.mono:
            rig.turn()
        else:
            return False
        return True

    return turn


@pytest.mark.parametrize(
    ("way", "kind"), [(way, kind) for way, (_, kinds) in WAYS.items() for kind in kinds]
)
def test_no_turn_lasts(way: str, kind: SubscriptionType) -> None:
    def begin() -> Callable[[], bool]:
        rig = alone()
        reader = holding(rig, config(kind, 5.0 if way == "timed out" else 0.0))
        other = Reader(rig, "other", reader.config)
        if kind in ("shared", "key_shared"):
            # Somebody waits for what is given back.
            other.subscribe()
            other.receive(HELD)
        if way == "expired":
            wait(reader)
        return turns(rig, lambda: WAYS[way][0](reader))

    assert longest_ms(begin, MOST_MS) <= MOST_MS


@pytest.mark.parametrize(
    ("way", "kind"), [(way, kind) for way, (_, kinds) in WAYS.items() for kind in kinds]
)
def test_all_of_it_is_counted_once_and_comes_again(way: str, kind: SubscriptionType) -> None:
    rig = alone()
    settings = config(kind, 5.0 if way == "timed out" else 0.0)
    reader = holding(rig, settings, 5_000)
    if way == "expired":
        wait(reader)
    WAYS[way][0](reader)
    rig.settle(1.0)
    dispatcher = served(rig).dispatcher
    held = range(1, 10_000, 2)
    if (way, kind) == ("overtaken", "key_shared"):
        # It keeps what it has.
        assert dispatcher.unacked == len(held)
        assert dispatcher.counts == {}
        return
    assert dispatcher.counts == dict.fromkeys(held, 1)
    assert rig.replica().cursors.cursors["s"].counts == dispatcher.counts
    assert dispatcher.unacked == 0
    for name, session in [(each, at.session) for each, at in served(rig).sessions.items()]:
        reader.peer.ask(Detach(0, 30_000, "flights", 0, "s", name, session))
    rig.settle(reader.config.failover_delay_s)
    last = Reader(rig, "last", served(rig).settings)
    last.subscribe()
    got = 0
    while got < len(held) and (values := last.receive(len(held) - got)):
        got += len(values)
    assert got == len(held)


def test_consumers_that_go_in_every_turn_leave_room_for_one_whose_session_is_over() -> None:
    rig = alone()
    reader = holding(rig, config("shared"), 5_000)
    ring = SubscriptionConfig(kind="key_shared", hashing="consistent")
    peers = [rig.client(f"comes {number}") for number in range(6)]

    def come(session: int) -> None:
        events = []
        for peer in peers:
            where = ("flights", 0, peer.session.identity.client_id, "two", session)
            events += asking(peer, Subscribe(0, 30_000, *where, ring, start="last"))
        rig.turn(*events)

    come(1)
    wait(reader)
    come(2)
    rig.auto_sync = False  # each turn on its own
    rig.mono += 2 * NEARLY_S
    gone = served(rig)
    for session in range(3, 6):
        come(session)
    assert gone.sessions == {}
    before = len(gone.dispatcher.counts)
    come(6)
    assert before < len(gone.dispatcher.counts) < 5_000
