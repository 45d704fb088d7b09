"""Lists of parked batches at a broker that leads very many queues: no turn lasts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Final

import pytest

from logboom.wire.base import WireMessage
from logboom.wire.parking import DelayedListed, ListDelayed
from logboom.wire.transactions import ListUndecided, UndecidedListed
from tests.unit.nodes.rig import Peer, Rig, answering, batch, produce
from tests.unit.nodes.test_users_at_brokers import alice, allow
from tests.unit.nodes.transactions.transactions_rig import of, park_request
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
QUEUES: Final = 10_000
WITH_BATCHES: Final = 100
"""Queues of these in which batches are parked, …"""
EACH: Final = 15
"""… and so many of each kind."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


@pytest.fixture(scope="module")
def crowded() -> tuple[Rig, Peer]:
    """Very many queues; alice may see all, and in some there are batches."""
    rig = Rig()
    rig.lead(queues=QUEUES)
    rig.settle(0.5)
    allow(rig, ("describe", "topic", "*"), ("describe", "transaction", "*"))
    writer = rig.client("open-1")
    for number in range(WITH_BATCHES * EACH):
        delayed = produce()
        delayed.due_ms = rig.wall_ms + 1_000_000 + number
        for message in (park_request(of()), delayed):
            message.queue = number % WITH_BATCHES
            writer.ask(message, [batch()])
            assert writer.taken()[0].error is None
    gc.collect()
    gc.freeze()
    return rig, alice(rig)


@pytest.mark.parametrize("message", [ListUndecided(0, 30_000), ListDelayed(0, 30_000)])
def test_no_turn_lasts(message: WireMessage, crowded: tuple[Rig, Peer]) -> None:
    _, client = crowded
    assert longest_ms(lambda: answering(client, message), MOST_MS) <= MOST_MS
    answer = client.answer()
    assert isinstance(answer, UndecidedListed | DelayedListed)
    assert answer.more
    parked = answer.parked if isinstance(answer, UndecidedListed) else answer.delayed
    listed = {(each.queue, each.offset, each.side) for each in parked}
    assert len(listed) == len(parked) == 1_000
