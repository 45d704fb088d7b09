"""Checks of very many half messages, and for very many clients: no turn of the broker lasts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.requests.held_shares import OF_CONNECTION
from logboom.wire.messages import Failure
from logboom.wire.transactions import HALF, CheckHalves, HalvesToCheck, TransactionId
from tests.unit.nodes.replica.test_parked_queue import pass_time
from tests.unit.nodes.requests.test_many_holds import wishes
from tests.unit.nodes.rig import QuietRig
from tests.unit.nodes.transactions.transactions_rig import park
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
STEP_MS: Final = 100


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


@pytest.mark.parametrize(
    ("halves", "groups", "clients", "answers"),
    [(100, 1, 25_000, 1), (2_000, 2_000, 2_000, 2_000), (4_000, 1, 1, 1)],
    ids=["many clients", "many groups", "many half messages"],
)
def test_no_turn_lasts(halves: int, groups: int, clients: int, answers: int) -> None:
    def begin() -> Callable[[], bool]:
        rig = QuietRig()
        rig.lead()
        sender = rig.client()
        for number in range(halves):
            park(sender, b"x" * 900, TransactionId(f"g{number % groups}", HALF, 0))
        for first in range(0, clients, OF_CONNECTION.requests):
            numbers = range(first, min(clients, first + OF_CONNECTION.requests))
            waiting = [CheckHalves(0, 60_000, f"g{n % groups}", 60_000) for n in numbers]
            rig.turn(*wishes(rig.client(f"asker-{first}"), waiting))
        pass_time(rig, 5_000)
        gc.collect()
        gc.freeze()
        rig.kept = []

        def turn() -> bool:
            assert rig.kept is not None
            wanted = rig.broker.deadline()
            if wanted is None or wanted > rig.mono:
                rig.mono += STEP_MS / 1000
                rig.wall_ms += STEP_MS
            rig.turn()
            return len(rig.kept) < answers

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_each_is_asked_about_once_and_by_one_client() -> None:
    rig = QuietRig()
    rig.lead()
    sender, asker = rig.client(), rig.client("asker")
    for number in range(1_000):
        park(sender, b"x", TransactionId(f"g{number // 32}", HALF, 0))
    waiting = [CheckHalves(0, 60_000, f"g{n % 32}", 60_000) for n in range(64)]
    rig.turn(*wishes(asker, waiting))
    rig.kept = []
    for _ in range(80):
        pass_time(rig, 100)
    found = rig.messages()
    assert not any(isinstance(each, Failure) for each in found)
    told = [
        (half.offset, half.side)
        for each in found
        if isinstance(each, HalvesToCheck)
        for half in each.halves
    ]
    assert len(told) == len(set(told)) == 1_000
