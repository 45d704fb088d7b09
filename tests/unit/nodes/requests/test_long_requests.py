"""Requests in parts: what a turn spends on many of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from logboom.nodes.requests.long_requests import PEER_UNITS, TURN_UNITS, LongRequests, Parts
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.actor import Instant, PeerAddress
from logboom.wire.messages import Stats
from tests.unit.nodes.rig import KEY, ME
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS = 10.0
FEW = 16
"""Units of a small request."""


def parts(units: int) -> Parts:
    """A request of one part."""
    yield 0
    yield units


def connection(number: int) -> PeerSession:
    """A connection on a listener without keys."""
    address = PeerAddress("main", b"%d" % number)
    return PeerSession(address, f"client-{number}", "client", 0, 1, 0.0)


def test_a_turn_does_not_last_though_thousands_of_connections_wait() -> None:
    def begin() -> Callable[[], bool]:
        requests = LongRequests(Acceptor(ME, KEY, random.Random(1)))
        turn = BrokerTurn(Instant(1.0, 1_000))
        for number in range(10_000):
            requests.serve(connection(number), Stats(1, 1_000), parts(PEER_UNITS), 0, turn)
        turn = BrokerTurn(Instant(2.0, 2_000))
        for number in range(10_000, 10_000 + TURN_UNITS // FEW):
            requests.serve(connection(number), Stats(2, 1_000), parts(FEW), 0, turn)

        def step() -> bool:
            requests.step(turn)
            return False

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS


@pytest.mark.parametrize("connections", [1, 10_000])
def test_what_waits_when_sessions_end_is_refused_in_slices(connections: int) -> None:
    """The acceptor knows none of these sessions any more."""

    def begin() -> Callable[[], bool]:
        requests = LongRequests(Acceptor(ME, KEY, random.Random(1)))
        turn = BrokerTurn(Instant(1.0, 1_000))
        for number in range(10_002):
            peer = connection(number % connections)
            requests.serve(peer, Stats(1, 1_000), parts(PEER_UNITS), 0, turn)

        def step() -> bool:
            requests.step(BrokerTurn(Instant(2.0, 2_000)))
            return requests.deadline() < 0.0

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS
