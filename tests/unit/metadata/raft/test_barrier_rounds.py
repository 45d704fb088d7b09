"""One barrier serves all requests that wait, and none that was there before them."""

from __future__ import annotations

from functools import partial

from logboom.metadata.raft.barrier_rounds import BarrierRounds
from logboom.metadata.raft.raft_config import Refusal, SubmitOutcome, SubmitStatus
from logboom.metadata.raft.submissions import OnResult

APPLIED = SubmitOutcome(SubmitStatus.APPLIED, b"1")
REFUSED = SubmitOutcome(SubmitStatus.REFUSED, refusal=Refusal.NOT_LEADER)


class Desk:
    """Requests that wait for barriers, and the barriers that were submitted."""

    def __init__(self) -> None:
        self.submitted: list[OnResult] = []
        self.ended: list[tuple[str, SubmitOutcome]] = []
        self.rounds = BarrierRounds(self.submitted.append)

    def ask(self, *names: str) -> None:
        """Let requests wait."""
        for name in names:
            self.rounds.wait(partial(self._end, name))

    def _end(self, name: str, outcome: SubmitOutcome) -> None:
        self.ended.append((name, outcome))


def test_those_that_come_while_a_barrier_is_under_way_share_the_next_one() -> None:
    desk = Desk()
    desk.ask("first", *"abc")
    assert len(desk.submitted) == 1
    desk.submitted[0](APPLIED)
    assert desk.ended == [("first", APPLIED)]
    assert len(desk.submitted) == 2
    desk.submitted[1](APPLIED)
    assert [name for name, _ in desk.ended] == ["first", *"abc"]
    desk.ask("later")
    assert len(desk.submitted) == 3, "none is kept for who is not there yet"


def test_who_is_refused_hears_of_it_and_the_next_ask_again() -> None:
    desk = Desk()
    desk.ask("first", "second")
    desk.submitted[0](REFUSED)
    desk.submitted[1](REFUSED)
    assert desk.ended == [("first", REFUSED), ("second", REFUSED)]


def test_who_asks_from_within_an_answer_waits_for_a_later_barrier() -> None:
    desk = Desk()
    desk.rounds.wait(lambda _outcome: desk.ask("again"))
    desk.submitted[0](APPLIED)
    assert len(desk.submitted) == 2
    assert desk.ended == []
    desk.submitted[1](APPLIED)
    assert desk.ended == [("again", APPLIED)]
