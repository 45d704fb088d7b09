"""The judge of the group can object: each promise is broken in a history that it is shown."""

from __future__ import annotations

import msgspec
import pytest

from tests.chaos import fates, group_ledger
from tests.chaos.group_ledger import COMMITTED_AGAIN, GroupFigures, judge_group
from tests.chaos.ledger import Verdict
from tests.chaos.record import RETRIES, Acked, Committed, Consumed, Dead, Fate, Record
from tests.sim.judges.group_ledger import AGAIN, BACK, TWO_OWNERS, UNCONSUMED, UNFINISHED
from tests.sim.judges.logs import UNSTABLE, Stored, Stream

ONE = Stream("p", 0)
STORED = {0: [Stored(0, ONE, 0, 30)]}


def given(member: str, epoch: int, offset: int, count: int, at: float) -> Consumed:
    """A member gets messages, in the order in which they are stored."""
    return Consumed(member, 0, epoch, offset, "p", 0, offset, count, False, at)


def history() -> list[Record]:
    """What was written down when all went well: `a` leaves in good order, `b` goes on."""
    return [
        Fate("a", fates.JOINED, 0.0),
        given("a", 1, 0, 10, 1.0),
        Committed(0, 5, 1.5),
        given("a", 1, 10, 5, 2.0),
        Fate("a", fates.LEFT, 2.5),
        Committed(0, 15, 3.0),
        given("b", 2, 15, 15, 6.0),
        Committed(0, 30, 7.0),
    ]


def judged(records: list[Record]) -> tuple[dict[str, int], GroupFigures]:
    """What the judge finds broken, and its figures."""
    verdict = Verdict()
    figures = judge_group(records, STORED, (0.0, 8.0), verdict)
    return dict(verdict.broken), figures


def broken(records: list[Record]) -> dict[str, int]:
    """The properties that the judge finds broken."""
    return judged(records)[0]


def test_it_has_no_objection_to_what_is_right() -> None:
    found, figures = judged(history())
    assert found == {}
    assert (figures.delivered, figures.again, figures.owners) == (30, 0, 2)
    assert figures.pauses == {0: 4.0}
    assert (figures.fates[fates.JOINED], figures.fates[fates.LEFT]) == (1, 1)


def test_a_message_that_nobody_got_and_a_group_that_stays_behind() -> None:
    records = [r for r in history() if not isinstance(r, Consumed) or r.offset != 10]
    assert broken(records) == {UNCONSUMED: 5, UNFINISHED: 10 + 15}
    assert broken(history()[:-1]) == {UNCONSUMED: 15}


def test_what_a_member_finished_that_left_in_good_order_comes_again() -> None:
    records = [*history()[:-2], given("b", 2, 10, 20, 2.9), Committed(0, 30, 7.0)]
    assert broken(records) == {AGAIN: 5}


@pytest.mark.parametrize("what", [fates.KILLED, fates.PAUSED, fates.OUT, fates.UNHEARD])
def test_after_the_loss_of_a_member_only_what_was_not_committed_comes_again(what: str) -> None:
    lost: list[Record] = [*history()[1:4], Fate("a", what, 2.5)]

    def continued(offset: int) -> list[Record]:
        rest = given("b", 2, offset, 30 - offset, 6.0)
        return [*lost, rest, Committed(0, 30, 7.0)]

    found, figures = judged(continued(5))
    assert (found, figures.again) == ({}, 10)
    assert broken(continued(4)) == {group_ledger.COMMITTED_AGAIN: 1}


def test_two_members_in_one_owner_epoch() -> None:
    records = [*history()[:-2], given("b", 1, 15, 15, 6.0), Committed(0, 30, 7.0)]
    assert broken(records) == {TWO_OWNERS: 15}
    records = [*history()[:-2], given("b", -1, 15, 15, 6.0), Committed(0, 30, 7.0)]
    assert broken(records) == {}


def test_a_member_that_woke_up_may_have_in_its_hands_what_is_others_by_now() -> None:
    records = [*history(), Fate("a", fates.WOKEN, 8.0), given("a", 1, 10, 5, 8.1)]
    assert broken(records) == {}
    late = [*history(), Fate("a", fates.WOKEN, 8.0), given("a", 1, 10, 5, 20.0)]
    assert broken(late) == {AGAIN: 5, group_ledger.COMMITTED_AGAIN: 5}
    # Nobody could tell it before, as nobody was served.
    served = [Acked("p", 0, 0, 0, 1, at, at) for at in (8.5, 19.0)]
    assert broken([*late, *served]) == {}


def test_what_a_member_finished_that_woke_up_out_of_the_group_comes_again() -> None:
    # Nobody told it that it was out before it left: its last commit was refused with its farewell.
    away: list[Record] = [
        Fate("a", fates.JOINED, 0.0),
        given("a", 1, 0, 10, 1.0),
        Committed(0, 10, 1.5),
        Fate("a", fates.PAUSED, 2.0),
        Fate("a", fates.WOKEN, 8.0),
        given("a", 1, 10, 5, 8.1),
        Fate("a", fates.LEFT, 10.0),
        given("b", 2, 10, 20, 11.0),
        Committed(0, 30, 12.0),
    ]
    assert broken(away) == {}
    late: list[Record] = [*away[:5], given("a", 1, 10, 5, 20.0), Fate("a", fates.LEFT, 20.5)]
    late += [given("b", 2, 10, 20, 21.0), Committed(0, 30, 22.0)]
    assert broken(late) == {AGAIN: 5}
    # What it finishes after it has joined again is its own.
    again: list[Record] = [*away[:5], Fate("a", fates.OUT, 8.5), given("a", 3, 10, 5, 10.5)]
    assert broken([*again, *away[6:]]) == {AGAIN: 5}
    # And what was committed does not come again.
    back = [*away[:-2], given("b", 2, 9, 21, 11.0), away[-1]]
    assert broken(back) == {group_ledger.COMMITTED_AGAIN: 1}


def test_a_committed_offset_that_goes_back_and_one_ahead_of_its_members() -> None:
    back = [*history()[:-1], Committed(0, 12, 6.5), history()[-1]]
    assert broken(back) == {BACK: 3}
    ahead = [*history()[:-3], Committed(0, 17, 3.0), *history()[-2:]]
    assert broken(ahead) == {UNFINISHED: 2, group_ledger.COMMITTED_AGAIN: 2}


def test_a_message_that_is_not_what_is_stored() -> None:
    other = Consumed("b", 0, 2, 15, "q", 0, 15, 15, False, 6.0)
    assert broken([*history()[:-2], other, history()[-1]]) == {UNSTABLE: 15}


def failing(*copies: Consumed) -> list[Record]:
    """Five messages fail at `a`; their copies are given to `b` as the first of the retries."""
    records = [
        msgspec.structs.replace(r, failed=True) if isinstance(r, Consumed) and r.offset == 10 else r
        for r in history()
    ]
    end = sum(copy.count for copy in copies)
    return [*records, *copies, Committed(RETRIES, end, 7.5)]


def test_what_failed_comes_again_as_a_copy() -> None:
    copies = Consumed("b", RETRIES, 1, 0, "p", 0, 10, 5, False, 7.0)
    found, figures = judged(failing(copies))
    assert (found, figures.failed, figures.copies) == ({}, 5, 5)
    twice = [*failing(copies), msgspec.structs.replace(copies, at=8.0)]
    assert broken(twice) == {AGAIN: 5, group_ledger.COMMITTED_AGAIN: 5}


def test_a_copy_that_never_comes_and_one_that_fails_too() -> None:
    assert broken(failing()) == {UNCONSUMED: 5}
    some = Consumed("b", RETRIES, 1, 0, "p", 0, 10, 4, False, 7.0)
    assert broken(failing(some)) == {UNCONSUMED: 1}
    failed = Consumed("b", RETRIES, 1, 0, "p", 0, 10, 5, True, 7.0)
    assert broken(failing(failed)) == {UNCONSUMED: 5}


def test_a_dead_letter_is_done_with_once_it_was_tried_often_enough() -> None:
    one = msgspec.structs.replace(given("b", 1, 0, 1, 7.0), queue=RETRIES, first=10, failed=True)
    dead = [Dead("p", 0, number, 8.0) for number in range(10, 15)]
    rest = msgspec.structs.replace(one, offset=1, first=11, count=4)
    verdict = Verdict()
    figures = judge_group([*failing(one, rest), *dead], STORED, (0.0, 8.0), verdict, attempts=2)
    assert (dict(verdict.broken), figures.dead) == ({}, 5)
    verdict = Verdict()
    judge_group([*failing(one, rest), *dead], STORED, (0.0, 8.0), verdict, attempts=3)
    assert dict(verdict.broken) == {group_ledger.UNTRIED: 5}
    verdict = Verdict()
    killed = Fate("c", fates.KILLED, 6.5)
    judge_group([*failing(one, rest), killed, *dead], STORED, (0.0, 8.0), verdict, attempts=3)
    # The first that an owner is given is what the one before it may have ended with: an attempt, too.
    assert dict(verdict.broken) == {group_ledger.UNTRIED: 4}
    assert broken(failing(one, rest)) == {UNCONSUMED: 5}


def test_a_message_whose_copy_could_not_be_sent_comes_again_itself() -> None:
    again = given("a", 1, 10, 5, 2.2)
    assert broken([*failing(), again]) == {}


def test_what_a_lagging_name_server_has_forgotten_may_come_again_and_no_more() -> None:
    # It lags from 1.7 s on, when 5 were committed, and goes on alone at 4 s.
    records = [
        *history()[:6],
        Committed(0, 5, 4.5),
        given("b", 2, 5, 25, 6.0),
        Committed(0, 30, 7.0),
    ]
    assert broken(records) == {BACK: 10, AGAIN: 10, COMMITTED_AGAIN: 10}
    losses = [(1.7, 4.0)]

    def held(records: list[Record]) -> dict[str, int]:
        verdict = Verdict()
        judge_group(records, STORED, (0.0, 8.0), verdict, losses=losses)
        return dict(verdict.broken)

    assert held(records) == {}
    # What was committed before it began to lag is not forgotten.
    further = [*records[:6], Committed(0, 4, 4.5), given("b", 2, 4, 26, 6.0), Committed(0, 30, 7.0)]
    assert held(further) == {BACK: 1, COMMITTED_AGAIN: 1}
    # Nor is what was committed to the one that goes on.
    assert held([*records, given("c", 3, 29, 1, 8.0)]) == {AGAIN: 1, COMMITTED_AGAIN: 1}
