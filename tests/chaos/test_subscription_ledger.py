"""The judge of subscriptions can object: each promise is broken in a history that it is shown."""

from __future__ import annotations

import msgspec
import pytest

from tests.chaos import fates
from tests.chaos.ledger import Verdict
from tests.chaos.payload import KEYS
from tests.chaos.record import Acked, Befell, Confirmed, Handed, Record, TooLate
from tests.chaos.subscription_ledger import SubscriptionFigures, judge_subscriptions
from tests.sim.judges import subscription_ledger
from tests.sim.judges.logs import UNSTABLE, Stored, Stream

STORED = {0: [Stored(0, Stream("p", 0), 0, 40)]}


def handed(member: str, offset: int, count: int, at: float, *, failed: bool = False) -> Handed:
    """A consumer gets messages, in the order in which they are stored."""
    return Handed(member, "key_shared", 0, offset, "p", 0, offset, count, failed, at)


def history() -> list[Record]:
    """What was written down when all went well."""
    return [
        handed("a", 0, 10, 1.0),
        Confirmed("a", 1.5, 1.6),
        handed("a", 10, 5, 2.0, failed=True),
        handed("b", 10, 30, 3.0),
        Confirmed("b", 3.5, 3.6),
    ]


def judged(records: list[Record]) -> tuple[dict[str, int], SubscriptionFigures]:
    """What the judge finds broken, and its figures."""
    verdict = Verdict()
    figures = judge_subscriptions(records, STORED, ["key_shared"], verdict)
    return dict(verdict.broken), figures


def test_it_has_no_objection_to_what_is_right() -> None:
    found, figures = judged(history())
    assert found == {}
    assert (figures.handed, figures.again, figures.given_back) == (45, 5, 5)
    assert figures.confirmed == 40


def test_a_message_that_nobody_was_done_with() -> None:
    assert judged(history()[:3])[0] == {subscription_ledger.UNCONSUMED: 30}


@pytest.mark.parametrize(("at", "broken"), [(4.0, 0), (20.0, 3)])
def test_what_was_confirmed_comes_again(at: float, broken: int) -> None:
    found = judged([*history(), handed("b", 7, 3, at)])[0]
    assert found == ({subscription_ledger.CONFIRMED: broken} if broken else {})


def test_what_was_acknowledged_too_late_may_come_again() -> None:
    refused = TooLate("a", 0, [(5, 8)], 1.55)
    first, *rest = history()
    found, figures = judged([first, refused, rest[0], handed("b", 5, 3, 15.0)])
    assert found == {subscription_ledger.UNCONSUMED: 30}
    assert figures.confirmed == 7


def acknowledged(*spans: tuple[float, float]) -> list[Record]:
    """A producer was served in these times."""
    times = [begin + n / 10 for begin, end in spans for n in range(round((end - begin) * 10))]
    return [Acked("p", 0, 0, 0, 1, at, at) for at in times]


ALWAYS = acknowledged((0.0, 40.0))
ALL_KILLED = acknowledged((0.0, 20.5), (25.2, 40.0))
"""Half a second after it woke all nodes were killed (`make chaos` 7001)."""


@pytest.mark.parametrize(
    ("served", "after_s", "broken"),
    [
        (ALWAYS, 0.5, 0),
        (ALWAYS, 4.9, 0),
        (ALWAYS, 6.1, 3),
        (ALL_KILLED, 6.1, 0),
        (ALL_KILLED, 9.6, 0),
        (ALL_KILLED, 10.5, 3),
    ],
)
def test_one_that_woke_up_may_have_in_its_hands_what_others_are_done_with(
    served: list[Record], after_s: float, broken: int
) -> None:
    woken: list[Record] = [Befell("b", fates.PAUSED, 4.0), Befell("b", fates.WOKEN, 20.0)]
    late = handed("b", 7, 3, 20.0 + after_s)
    found, figures = judged([*history(), *served, *woken, late])
    assert found == ({subscription_ledger.CONFIRMED: broken} if broken else {})
    assert figures.stopped == 1


def test_a_later_message_of_a_key_is_handed_out_first() -> None:
    first, *rest = history()
    assert isinstance(first, Handed)
    early = handed("b", KEYS, 1, 0.5)
    assert judged([early, first, *rest])[0] == {subscription_ledger.DISORDER: 1}
    other = msgspec.structs.replace(early, subscription="shared")
    assert judged([other, first, *rest])[0] == {}


def test_a_message_that_is_not_what_is_stored() -> None:
    other = Handed("b", "key_shared", 0, 7, "q", 0, 7, 1, False, 4.0)
    assert judged([*history(), other])[0] == {UNSTABLE: 1}
