"""Commands to the Raft leader: one number each, a window, retries, and an end to each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from logboom.wire.actor import Effects
from logboom.wire.backoff import backoff
from logboom.wire.command_queue import (
    ANSWER_TIMEOUT_S,
    NOT_IN_THE_LOG,
    RETRY_DELAY_S,
    CommandQueue,
)
from logboom.wire.commands import Barrier, CommandResult
from logboom.wire.errors import InvalidRequest, LogboomError, NotLeader, Refused, TimedOut
from logboom.wire.hello import Identity
from logboom.wire.messages import Propose, Proposed
from logboom.wire.name_servers import NameServers
from logboom.wire.session import Reply, Session
from logboom.wire.session_table import RequestHandle


@dataclass
class Clock:
    """A turn that lasts until its time is changed."""

    mono: float = 0.0


Answered = Callable[[Reply, Clock], None]


class Host:
    """Connections that keep what is asked; the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, Answered]] = []
        self.message: Propose | None = None
        self.session = Session("unused:1", Identity("me"), random.Random(1), 0.0)
        self.deadline = 0.0

    def request(
        self, endpoint: str, message: Propose, _turn: Clock, answered: Answered, deadline: float
    ) -> RequestHandle:
        self.asked.append((endpoint, message.number, answered))
        self.message, self.deadline = message, deadline
        number = self.session.request(message, (), None, deadline, Effects(), 0.0)
        return RequestHandle(self.session, number)


class Proposer:
    """A queue of commands with all that it needs."""

    def __init__(self, window: int = 1) -> None:
        self.host, self.turn = Host(), Clock()
        self.queue = CommandQueue[Clock]("me", self.host, NameServers(["a:1", "b:1"]), window)
        self.results: list[CommandResult] = []

    def propose(self) -> int:
        return self.queue.propose(Barrier(), lambda r, _: self.results.append(r), self.turn)

    def answer(self, outcome: LogboomError | None = None) -> None:
        """End the oldest request."""
        _, number, answered = self.host.asked.pop(0)
        message = None if outcome else Proposed(0, CommandResult(number))
        answered(Reply(None, message, (), outcome), self.turn)

    def under_way(self) -> list[tuple[str, int]]:
        return [(endpoint, number) for endpoint, number, _ in self.host.asked]


def test_one_after_the_other() -> None:
    proposer = Proposer()
    proposer.propose()
    proposer.propose()
    assert proposer.under_way() == [("a:1", 1)]
    proposer.answer()
    assert [result.version for result in proposer.results] == [1]
    assert proposer.under_way() == [("a:1", 2)]
    proposer.answer()
    assert len(proposer.queue) == 0
    assert proposer.queue.deadline() == float("inf")


def test_numbers_under_way_lie_within_the_window() -> None:
    proposer = Proposer(window=3)
    for _ in range(6):
        proposer.propose()
    proposer.host.asked.append(proposer.host.asked.pop(0))
    proposer.answer()
    proposer.answer()
    assert proposer.under_way() == [("a:1", 1)]
    proposer.answer()
    assert [number for _, number in proposer.under_way()] == [4, 5, 6]


def test_after_a_pause_nothing_beyond_the_window_is_sent() -> None:
    proposer = Proposer(window=3)
    for _ in range(6):
        proposer.propose()
    proposer.answer(TimedOut("no answer"))
    proposer.answer()
    proposer.answer()
    proposer.turn.mono = RETRY_DELAY_S
    proposer.queue.step(proposer.turn)
    assert [number for _, number in proposer.under_way()] == [1]
    assert proposer.queue.deadline() == float("inf"), "4 has to wait for 1"


def test_a_refused_command_is_sent_again_under_its_number_after_a_pause() -> None:
    proposer = Proposer()
    proposer.propose()
    proposer.answer(TimedOut("no answer"))
    assert not proposer.host.asked
    assert proposer.queue.deadline() == pytest.approx(RETRY_DELAY_S)
    assert isinstance(proposer.queue.last_error, TimedOut)
    proposer.turn.mono = RETRY_DELAY_S
    proposer.queue.step(proposer.turn)
    assert proposer.under_way() == [("b:1", 1)]
    proposer.answer()
    assert proposer.queue.last_error is None


def test_a_hint_is_followed_at_once() -> None:
    proposer = Proposer()
    proposer.propose()
    proposer.answer(NotLeader("there", endpoint="c:1"))
    assert proposer.under_way() == [("c:1", 1)]


def test_what_the_log_cannot_take_does_not_block_the_queue() -> None:
    proposer = Proposer()
    proposer.propose()
    proposer.propose()
    proposer.answer(InvalidRequest("too large", "TOO_LARGE"))
    assert [result.code for result in proposer.results] == ["TOO_LARGE"]
    assert proposer.results[0].version == NOT_IN_THE_LOG
    assert proposer.under_way() == [("a:1", 2)]


def test_what_is_final_is_up_to_the_proposer() -> None:
    host, turn, results = Host(), Clock(), list[str]()
    queue = CommandQueue[Clock](
        "me", host, NameServers(["a:1"]), is_final=lambda error: error.code == "FENCED"
    )
    queue.propose(Barrier(), lambda result, _turn: results.append(result.code), turn)
    host.asked.pop()[2](Reply(None, None, (), Refused("out", "FENCED")), turn)
    assert results == ["FENCED"]


def test_a_withdrawn_command_has_no_result() -> None:
    proposer = Proposer()
    number = proposer.propose()
    assert proposer.queue.withdraw(number)
    assert not proposer.queue.withdraw(number)
    proposer.answer()
    assert proposer.results == []
    assert proposer.host.session.pending() == 0
    proposer.propose()
    proposer.queue.drop_all()
    assert len(proposer.queue) == 0


def test_without_a_name_server_commands_wait() -> None:
    host, turn = Host(), Clock()
    queue = CommandQueue[Clock]("me", host, NameServers(()))
    queue.propose(Barrier(), lambda _result, _turn: None, turn)
    assert not host.asked
    assert queue.deadline() == pytest.approx(RETRY_DELAY_S)


def test_an_answer_is_awaited_for_a_while_only() -> None:
    proposer = Proposer()
    proposer.propose()
    assert proposer.host.deadline == ANSWER_TIMEOUT_S
    assert proposer.host.message is not None
    assert proposer.host.message.timeout_ms == ANSWER_TIMEOUT_S * 1000
    assert proposer.host.message.proposer == "me"
    assert proposer.queue.deadline() == float("inf")


def test_the_name_server_that_accepts_a_command_is_asked_next() -> None:
    proposer = Proposer(window=3)
    proposer.propose()
    proposer.propose()
    proposer.answer(TimedOut("no answer"))
    proposer.answer()
    proposer.turn.mono = RETRY_DELAY_S
    proposer.queue.step(proposer.turn)
    assert proposer.under_way() == [("a:1", 1)]


def test_pauses_double_up_to_a_limit_with_jitter() -> None:
    rng = random.Random(1)
    for failures, mean in ((0, 0.02), (1, 0.04), (4, 0.32), (5, 0.5), (10_000, 0.5)):
        pauses = [backoff(failures, rng) for _ in range(200)]
        assert mean * 0.5 <= min(pauses) < mean * 0.6
        assert mean * 1.4 < max(pauses) < mean * 1.5
    assert 0.05 <= backoff(0, rng, first_s=0.1, last_s=2.0) < 0.15
    assert 1.0 <= backoff(10, rng, first_s=0.1, last_s=2.0) < 3.0
