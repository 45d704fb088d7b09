"""Sessions by endpoint: opened once, answers to their requests, closed when unused."""

import random

import pytest

from logboom.wire.actor import Effects
from logboom.wire.errors import TimedOut
from logboom.wire.frames import encode
from logboom.wire.hello import Identity
from logboom.wire.messages import Stats, StatsResult, Welcome
from logboom.wire.session import HELLO_ID
from logboom.wire.session_table import RequestHandle, SessionTable

A, B = "127.0.0.1:1", "127.0.0.1:2"


class Dialler:
    """A table at a time of its own, and what it wants done."""

    def __init__(self) -> None:
        self.table = SessionTable(Identity("me"), random.Random(1))
        self.out = Effects()
        self.now = 10.0

    def ask(self, endpoint: str, context: str = "asker", timeout: float = 1.0) -> RequestHandle:
        session = self.table.session(endpoint, self.out, self.now)
        deadline = self.now + timeout
        number = session.request(Stats(0, 1), (), context, deadline, self.out, self.now)
        return RequestHandle(session, number)

    def welcome(self, endpoint: str) -> None:
        self.table.receive(endpoint, encode(Welcome(HELLO_ID, 1, "node")), self.out, self.now)


@pytest.fixture
def dialler() -> Dialler:
    return Dialler()


def test_an_endpoint_is_dialled_once_and_open_when_it_welcomes(dialler: Dialler) -> None:
    dialler.ask(A)
    dialler.ask(A)
    assert [send.peer for send in dialler.out.sends] == [A]
    assert not dialler.table.is_open(A)
    dialler.welcome(A)
    assert dialler.table.is_open(A)
    assert not dialler.table.is_open(B)


def test_an_answer_ends_its_request(dialler: Dialler) -> None:
    handle = dialler.ask(A, "first")
    dialler.ask(A, "second")
    dialler.welcome(A)
    answer = encode(StatsResult(handle.number, "node", "broker", {}))
    replies = dialler.table.receive(A, answer, dialler.out, dialler.now)
    assert [reply.context for reply in replies] == ["first"]
    assert not dialler.table.receive(B, answer, dialler.out, dialler.now)


def test_deadlines_are_those_of_all_sessions(dialler: Dialler) -> None:
    assert dialler.table.deadline() is None
    dialler.ask(A, "a", timeout=0.5)
    dialler.ask(B, "b", timeout=0.2)
    assert dialler.table.deadline() == pytest.approx(10.2)
    dialler.now = 10.3
    (reply,) = dialler.table.tick(dialler.out, dialler.now)
    assert reply.context == "b"
    assert isinstance(reply.error, TimedOut)
    assert dialler.table.deadline() == pytest.approx(10.5)


def test_a_request_made_while_another_ends_counts(dialler: Dialler) -> None:
    dialler.ask(A, "a", timeout=0.5)
    dialler.now = 10.5
    for _ in dialler.table.tick(dialler.out, dialler.now):
        dialler.ask(B, "b")
    assert dialler.table.find(B) is not None


def test_nobody_hears_of_a_cancelled_request(dialler: Dialler) -> None:
    handle = dialler.ask(A)
    dialler.welcome(A)
    handle.cancel()
    dialler.now = 11.0
    assert not list(dialler.table.tick(dialler.out, dialler.now))


def test_unused_connections_that_owe_nothing_are_closed(dialler: Dialler) -> None:
    dialler.ask(A).cancel()
    dialler.ask(B)
    dialler.table.hang_up(lambda _endpoint: True, dialler.out)
    assert dialler.out.hangups == [A]
    assert dialler.table.find(A) is None
    assert dialler.table.find(B) is not None


def test_a_connection_in_use_stays_open_though_it_owes_nothing(dialler: Dialler) -> None:
    dialler.ask(A).cancel()
    dialler.ask(B).cancel()
    dialler.table.hang_up(lambda endpoint: endpoint == B, dialler.out)
    assert dialler.out.hangups == [B]
    assert dialler.table.find(A) is not None


def test_a_connection_closed_and_wanted_in_one_turn_is_dialled_again(dialler: Dialler) -> None:
    dialler.ask(A).cancel()
    dialler.table.hang_up(lambda endpoint: endpoint == A, dialler.out)
    dialler.ask(A)
    assert dialler.out.hangups == []
    assert dialler.out.redials == [A]


def test_all_are_closed_at_the_end(dialler: Dialler) -> None:
    dialler.ask(A)
    dialler.table.clear(dialler.out)
    assert dialler.out.hangups == [A]
    assert dialler.table.deadline() is None
