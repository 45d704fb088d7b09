"""A question about many parked batches is answered in parts: no turn of the broker lasts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.wire.transactions import (
    MAX_CHECKED,
    MAX_HANDLES,
    CheckParked,
    EntryPosition,
    ParkedChecked,
)
from tests.unit.nodes.rig import Peer, Rig, answering, asking
from tests.unit.nodes.transactions.transactions_rig import alone, of, park
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
Parked = tuple[Rig, Peer, list[EntryPosition]]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


@pytest.fixture(scope="module")
def parked() -> Parked:
    """A queue with as many parked batches as one decision may name."""
    rig, client = alone()
    places = [park(client, b"x" * 900) for _ in range(MAX_HANDLES)]
    rig.settle()
    gc.collect()
    gc.freeze()
    return rig, client, places


ASKED: Final[dict[str, tuple[Callable[[list[EntryPosition]], list[EntryPosition]], int]]] = {
    "all": (lambda mine: mine, 0),
    "all to read": (lambda mine: mine, 1 << 40),
    "one to read often": (lambda mine: mine[:1] * MAX_CHECKED, 1 << 40),
    "none": (lambda mine: [(mine[0][0], mine[-1][1] + n) for n in range(MAX_CHECKED)], 0),
    "beyond": (lambda _: [(1 << 40, n) for n in range(MAX_CHECKED)], 1 << 40),
}


@pytest.mark.parametrize("case", ASKED)
def test_no_turn_lasts(case: str, parked: Parked) -> None:
    _, client, mine = parked
    places, read_bytes = ASKED[case]
    message = CheckParked(0, 30_000, "flights", 0, of(), places(mine), 0, read_bytes)

    assert longest_ms(lambda: answering(client, message), MOST_MS) <= MOST_MS
    (reply,) = client.taken()
    assert isinstance(reply.message, ParkedChecked)
    known = set(mine)
    assert reply.message.unknown == [
        place
        for number, place in enumerate(message.places)
        if number >= MAX_HANDLES or place not in known
    ]


def test_a_small_question_does_not_wait_for_the_large_ones_of_others(parked: Parked) -> None:
    rig, greedy, mine = parked
    modest = rig.client("modest")
    large = CheckParked(0, 30_000, "flights", 0, of(), mine, 0, 1 << 40)
    events = [event for _ in range(3) for event in asking(greedy, large)]
    small = CheckParked(0, 30_000, "flights", 0, of(), mine[:3], 0, 1)
    rig.turn(*events, *asking(modest, small))
    rig.turn()
    assert isinstance(modest.answer(), ParkedChecked)
    assert not greedy.replies
    rig.settle()
    assert len(greedy.taken()) == 3


def test_a_question_ends_where_the_broker_leads_no_more() -> None:
    rig, client = alone()
    places = [park(client, b"x") for _ in range(500)]
    client.taken()
    large = CheckParked(0, 30_000, "flights", 0, of(), places, 0, 1 << 40)
    rig.turn(*asking(client, large))
    assert not client.replies
    rig.lead(leader="broker-2", epoch=2)
    rig.settle()
    (reply,) = client.taken()
    assert reply.error is not None
    assert reply.error.code == "NOT_LEADER"
