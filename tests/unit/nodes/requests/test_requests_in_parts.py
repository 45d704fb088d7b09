"""Requests that are carried out in parts: each is answered once, whoever goes or asks much."""

from __future__ import annotations

from typing import Final

import pytest

from logboom.nodes.requests import held_shares
from logboom.nodes.requests.held_shares import Bound
from logboom.nodes.requests.long_requests import PEER_UNITS, TURN_UNITS, LongRequests, Parts
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import Instant
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import decode
from logboom.wire.messages import Failure, Ok
from tests.unit.nodes.rig import Rig
from tests.unit.wire.work import cost_ms

MOST_MS: Final = 10.0
AT_5_000: Final = 50
"""How many times as many connections may wait."""


class Bench:
    """Requests in parts of clients at an open listener."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.acceptor = self.rig.broker.parts.acceptor
        self.requests = LongRequests(self.acceptor)
        self.done: list[int] = []
        """The parts that were carried out, by the numbers of their requests."""
        self.answers: list[int] = []
        """The answers, by the numbers of their requests; those of errors are negative."""

    def peer(self, name: str) -> PeerSession:
        """A client that has said HELLO."""
        peer = self.acceptor.peer(self.rig.client(name).address)
        assert peer is not None
        return peer

    def ask(self, peer: PeerSession, number: int, parts: int, *, fails: bool = False) -> None:
        """Ask in a turn of its own for parts each of which takes all that a user may spend."""
        turn = BrokerTurn(Instant(0.0, 0))
        made = self._parts(peer, number, parts, fails=fails)
        self.requests.serve(peer, Ok(number), made, 1_000, turn)
        self._take(turn)

    def _parts(self, peer: PeerSession, number: int, parts: int, *, fails: bool) -> Parts:
        turn = yield 0
        for _ in range(parts):
            self.done.append(number)
            turn = yield PEER_UNITS
        if fails:
            raise InvalidRequest("it fails")
        turn.answer(peer.address, Ok(number))

    def step(self, spent: int = 0) -> None:
        """The next turn, in which reading requests has cost units already."""
        turn = BrokerTurn(Instant(0.0, 0))
        turn.parted_in_all = spent
        self.requests.step(turn)
        self._take(turn)

    def _take(self, turn: BrokerTurn) -> None:
        for send in turn.out.sends:
            message = decode(send.frames)
            self.answers.append(-message.id if isinstance(message, Failure) else message.id)

    def finish(self) -> None:
        """All turns that are wanted."""
        while self.requests.deadline() < 0:
            self.step()


def test_users_take_turns_and_each_request_is_answered_once_in_the_order_of_its_user() -> None:
    bench = Bench()
    one, two = bench.peer("one"), bench.peer("two")
    for number in (1, 2, 3):
        bench.ask(one, number, 3)
    bench.ask(two, 4, 2)
    assert bench.done == [1, 4]
    bench.finish()
    assert bench.answers == [4, 1, 2, 3]
    assert bench.done.index(2) > bench.done.index(4)


def test_a_turn_that_is_spent_carries_out_one_part() -> None:
    bench = Bench()
    for number in (1, 2):
        bench.ask(bench.peer(str(number)), number, 3)
    for turns in range(1, 5):
        bench.step(TURN_UNITS)
        assert len(bench.done) == 2 + turns
    assert bench.done == [1, 2, 1, 2, 1, 2]


def test_who_is_gone_gets_one_refusal_of_each_request_and_no_part_of_it_is_carried_out() -> None:
    bench = Bench()
    one, two = bench.peer("one"), bench.peer("two")
    bench.ask(one, 1, 3)
    bench.ask(one, 2, 3)
    bench.ask(two, 3, 3)
    bench.acceptor.end(one.address)
    bench.done.clear()
    bench.finish()
    assert set(bench.done) == {3}
    assert sorted(bench.answers) == [-2, -1, 3]


def test_an_error_in_a_later_part_is_the_only_answer_and_the_next_request_goes_on() -> None:
    bench = Bench()
    one = bench.peer("one")
    bench.ask(one, 1, 2, fails=True)
    bench.ask(one, 2, 2)
    bench.finish()
    assert bench.answers == [-1, 2]
    assert bench.requests.deadline() == float("inf")


def test_of_a_connection_so_many_wait_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_shares, "OF_CONNECTION", Bound(2, 1 << 20))
    bench = Bench()
    one = bench.peer("one")
    for first in (1, 11):
        for number in range(first, first + 4):
            bench.ask(one, number, 2)
        bench.finish()
    assert bench.answers == [-3, -4, 1, 2, -13, -14, 11, 12]


def test_a_turn_that_is_spent_passes_over_very_many_that_wait() -> None:
    """At an open listener each connection waits for itself."""
    bench = Bench()
    for number in range(1, 101):
        bench.ask(bench.peer(str(number)), number, 1 << 20)
    spent: dict[object, int] = dict.fromkeys(range(1200), 12)

    def step() -> None:
        turn = BrokerTurn(Instant(0.0, 0))
        turn.parted.update(spent)
        turn.parted_in_all = TURN_UNITS
        bench.requests.step(turn)

    assert cost_ms(step, MOST_MS / AT_5_000) <= MOST_MS / AT_5_000
