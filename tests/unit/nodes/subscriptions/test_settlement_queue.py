"""Large settlements are carried out in parts: no turn of the broker lasts, and nobody waits for others."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.requests.held_shares import OF_CONNECTION
from logboom.nodes.subscriptions.settlement_queue import LONGEST_SPAN, SPAN_BYTES
from logboom.wire.errors import GroupError, InvalidRequest, Unavailable
from logboom.wire.subscription_messages import (
    KINDS,
    MAX_ACKED,
    MAX_AGAIN,
    Detach,
    Settled,
    SettleMessages,
    Span,
    SubscriptionConfig,
    SubscriptionType,
)
from tests.unit.nodes.rig import Peer, Rig, answering, asking, batch, produce
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, alone, send, state
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
HELD: Final = 50_000
"""Messages that a consumer may hold by default."""
FAR: Final = 9_000
"""Offsets from one span to the next, so that no two share a block."""
BEYOND: Final = 1 << 20
"""An offset that no log here has."""
Again = tuple[int, int, int]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def holding(rig: Rig, messages: int, kind: SubscriptionType, name: str = "one") -> Reader:
    """A consumer that holds so many new messages."""
    producer = rig.client("producer")
    for _ in range(messages // 5_000):
        producer.ask(produce(), [batch(5_000)])
    reader = Reader(rig, name, SubscriptionConfig(kind=kind))
    reader.subscribe()
    got = 0
    while got < messages:
        got += len(reader.receive(messages - got))
    return reader


def request(
    reader: Reader, acked: list[Span], again: list[Again] | None = None, up_to: int = -1
) -> SettleMessages:
    """A settlement of a consumer."""
    where = ("flights", 0, reader.subscription, reader.name, reader.session)
    return SettleMessages(0, 30_000, *where, acked, up_to, again or [])


LARGEST: dict[str, tuple[list[Span], list[Again]]] = {
    "far": ([(BEYOND + n * FAR, BEYOND + n * FAR + 1) for n in range(MAX_ACKED)], []),
    "near": ([(BEYOND + n * 255, BEYOND + n * 255 + 1) for n in range(MAX_ACKED)], []),
    "backwards": ([(n * FAR, n * FAR + 1) for n in reversed(range(MAX_ACKED))], []),
    "across blocks": ([(n * 8_192 - 1, n * 8_192 + 1) for n in range(20, 20 + MAX_ACKED)], []),
    "long": ([(n * LONGEST_SPAN, (n + 1) * LONGEST_SPAN) for n in range(16)], []),
    "the same": ([(0, 600)] * MAX_ACKED, []),
    "every second": ([(n, n + 1) for n in range(0, HELD, 2)], []),
    "many delays": ([], [(n, n + 1, 5_000 + n) for n in range(MAX_AGAIN)]),
    "far delays": ([], [(n * FAR, n * FAR + 1, 5_000 + n) for n in range(MAX_AGAIN)]),
    "every second again": ([], [(n, n + 1, 0) for n in range(0, 2 * MAX_AGAIN, 2)]),
    "all again": ([], [(0, HELD, 0)]),
}


@pytest.mark.parametrize("case", LARGEST)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "failover"])
def test_no_turn_lasts(kind: SubscriptionType, case: str) -> None:
    acked, again = LARGEST[case]

    def begin() -> Callable[[], bool]:
        rig = alone()
        reader = holding(rig, HELD, kind)
        gc.collect()
        gc.freeze()
        return answering(reader.peer, request(reader, acked, again))

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_all_that_is_held_is_acknowledged_at_once_however_many_gaps_it_has() -> None:
    def begin() -> Callable[[], bool]:
        rig = alone()
        reader = holding(rig, HELD, "exclusive")
        for first in range(0, HELD, 1_000):
            reader.settle(*[(n, n + 1) for n in range(first, first + 1_000, 2)])
        gc.collect()
        gc.freeze()

        def turn() -> bool:
            reader.peer.ask(request(reader, [], up_to=HELD - 1))
            assert state_of(reader) == HELD
            return False

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def state_of(reader: Reader) -> int:
    """The floor of the subscription, once the settlement is answered."""
    assert isinstance(reader.peer.answer(), Settled)
    return next(iter(reader.rig.broker.parts.subscriptions.served.values())).dispatcher.acks.floor


# ── who waits for whom ──────────────────────────────────────────────────────────────────────────


def test_a_small_settlement_does_not_wait_for_the_large_ones_of_others() -> None:
    rig = alone()
    greedy = holding(rig, 5_000, "shared", "greedy")
    modest = holding(rig, 5_000, "shared", "modest")
    for _ in range(2):
        tell(greedy.peer, request(greedy, LARGEST["far"][0]))
    for first in range(5_000, 10_000, 500):
        modest.peer.ask(request(modest, [(first, first + 500)]))
        rig.turn()
        assert isinstance(modest.peer.answer(), Settled)
    assert not greedy.peer.replies
    rig.settle()
    assert len(greedy.peer.replies) == 2


def test_a_small_settlement_has_room_beside_a_large_one_of_the_same_turn() -> None:
    rig = alone()
    greedy = holding(rig, 5_000, "shared", "greedy")
    modest = holding(rig, 5_000, "shared", "modest")
    rig.turn(
        *asking(greedy.peer, request(greedy, LARGEST["far"][0][:2_000])),
        *asking(modest.peer, request(modest, [(5_000, 5_500)])),
    )
    assert isinstance(modest.peer.answer(), Settled)
    assert not greedy.peer.replies


def test_a_small_settlement_has_room_beside_large_ones_in_every_turn() -> None:
    rig = alone()
    greedy = [holding(rig, 5_000, "shared", f"greedy-{n}") for n in range(2)]
    modest = holding(rig, 5_000, "shared", "modest")
    large = [(reader.peer, request(reader, LARGEST["far"][0][:8_000])) for reader in greedy]
    events = asking(modest.peer, request(modest, [(10_000, 10_001)]))
    for _ in range(20):
        rig.turn(*[event for each in large for event in asking(*each)], *events)
        events = []
        if modest.peer.replies:
            break
        assert rig.broker.deadline() is not None, "the loop asks after each turn"
    assert isinstance(modest.peer.answer(), Settled)


def test_large_ones_of_many_connections_do_not_make_a_turn_last() -> None:
    def begin() -> Callable[[], bool]:
        rig = alone()
        readers = [holding(rig, 5_000, "shared", f"user-{n}") for n in range(10)]
        asked = [(reader.peer, request(reader, LARGEST["far"][0][:2_000])) for reader in readers]
        events = [event for each in asked for event in asking(*each)]
        gc.collect()
        gc.freeze()

        def turn() -> bool:
            rig.turn(*events)
            events.clear()
            return not all(reader.peer.replies for reader in readers)

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def tell(peer: Peer, message: SettleMessages) -> None:
    """Send one request more, and keep the replies to earlier ones."""
    peer.rig.turn(*asking(peer, message))


def test_users_take_turns() -> None:
    rig = alone()
    readers = [holding(rig, 5_000, "shared", f"user-{n}") for n in range(6)]
    for reader in readers:
        tell(reader.peer, request(reader, LARGEST["far"][0]))
    taken: list[float] = []
    for turn in range(5_000):
        rig.turn()
        taken += [turn for reader in readers if reader.peer.taken()]
        if len(taken) == len(readers):
            break
    assert len(taken) == len(readers)
    assert taken[-1] - taken[0] < taken[0] / 10, "they end together"


def test_what_waits_of_one_connection_is_bounded() -> None:
    rig = alone()
    reader = holding(rig, 5_000, "shared")
    far = LARGEST["far"][0]
    fit = OF_CONNECTION.size // (SPAN_BYTES * len(far))
    for _ in range(fit):
        tell(reader.peer, request(reader, far))
    assert not reader.peer.replies
    tell(reader.peer, request(reader, far))
    error = reader.peer.replies[-1].error
    assert isinstance(error, Unavailable)
    assert error.code == "BUSY"
    rig.settle()
    assert len(reader.peer.taken()) == fit + 1
    assert reader.settle((0, 5_000)) == []


# ── what they settle ────────────────────────────────────────────────────────────────────────────


def test_parts_settle_what_the_whole_would() -> None:
    rig = alone()
    reader = holding(rig, 5_000, "shared")
    assert reader.settle((0, 100_000)) == [(5_000, 100_000)]
    assert next(iter(rig.broker.parts.subscriptions.served.values())).dispatcher.acks.floor == 5_000


def test_given_back_with_many_delays_all_comes_again_in_its_order() -> None:
    rig = alone()
    reader = holding(rig, 5_000, "exclusive")
    assert reader.settle(again=[(n, n + 1, 1 + n // 50) for n in range(5_000)]) == []
    assert state(rig).held == 0
    rig.settle(1.0)
    reader.receive(5_000)
    counts = next(iter(rig.broker.parts.subscriptions.served.values())).dispatcher.counts
    assert counts == dict.fromkeys(range(5_000), 1)
    assert reader.settle((0, 5_000)) == []


def test_a_consumer_that_goes_settles_no_more() -> None:
    rig = alone()
    reader = holding(rig, 5_000, "shared")
    tell(reader.peer, request(reader, LARGEST["far"][0]))
    other = rig.client("other")
    other.ask(Detach(0, 5_000, "flights", 0, "s", "one", reader.session))
    rig.settle()
    assert [type(reply.error) for reply in reader.peer.taken()] == [GroupError]


@pytest.mark.parametrize("span", [(5, 5), (-1, 3), (0, LONGEST_SPAN + 1), (1, 1 << 62)])
def test_a_span_that_is_none_changes_nothing(span: Span) -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    send(rig, b"a", b"b")
    reader.receive()
    with pytest.raises(InvalidRequest, match="is not a span"):
        reader.settle((0, 1), span)
    with pytest.raises(InvalidRequest, match="is not a span"):
        reader.settle(again=[(0, 1, 0), (*span, 0)])
    with pytest.raises(InvalidRequest, match="delay"):
        reader.settle((0, 1), again=[(1, 2, -1)])
    assert state(rig).held == 2


@pytest.mark.parametrize("given_back", [False, True])
def test_spans_of_a_request_are_bounded_together(*, given_back: bool) -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    send(rig, b"a", b"b")
    reader.receive()

    def settle(count: int) -> list[Span]:
        spans = [(n * LONGEST_SPAN, (n + 1) * LONGEST_SPAN) for n in range(count)]
        if given_back:
            refused: list[Span] = reader.settle(again=[(*span, n) for n, span in enumerate(spans)])
        else:
            refused = reader.settle(*spans)
        return refused

    with pytest.raises(InvalidRequest) as caught:
        settle(17)
    assert caught.value.code == "TOO_LARGE"
    assert state(rig).held == 2
    assert settle(16)[0][0] == 2
    assert state(rig).held == 0
