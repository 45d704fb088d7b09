"""What the faults of `--disasters` hold against a cluster, each shown what is wrong."""

from __future__ import annotations

import itertools
import random

import pytest

from logboom.wire.endpoints import endpoint_fault
from tests.chaos.backups import RESTORED, judge_restored
from tests.chaos.disaster_faults import ODD, YEAR_S, jumps, last_line, not_refused, unlike
from tests.chaos.ledger import Verdict
from tests.chaos.record import Acked
from tests.sim.judges.logs import Stored, Stream

SENT = [b"1", b"2", b"3"]
ONE = Stream("p", 0)
HELD = {0: [Stored(0, ONE, 0, 10)]}
ACKED = [Acked("p", 0, 0, 0, 5, 0.0, 1.0), Acked("p", 0, 5, 5, 5, 2.0, 3.0)]


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (SENT, ""),
        ([b"1", b"3"], "1 lost, 0 doubled"),
        ([b"1", b"2", b"2", b"3"], "0 lost, 1 doubled"),
        ([b"1", b"4", b"2", b"3"], "1 never sent"),
        ([b"2", b"1", b"3"], "in another order"),
    ],
)
def test_what_a_topic_lost_or_doubled_is_told(read: list[bytes], says: str) -> None:
    assert says in unlike(SENT, read)
    assert bool(unlike(SENT, read)) == bool(says)


@pytest.mark.parametrize("odd", ODD)
def test_odd_endpoints_are_refused_with_the_remedy(odd: str) -> None:
    assert not_refused(1, f"logboom: {endpoint_fault(odd)}\n") == ""


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (1, "logboom: 'x' is not an endpoint: write host:port\n", ""),
        (None, "", "hangs"),
        (0, "", "taken"),
        (-6, "Assertion failed", "signal 6"),
        (1, "", "said ''"),
        (1, "Traceback\n  File\nValueError: endpoint", "said"),
        (1, "logboom: something else", "said"),
    ],
)
def test_a_refusal_is_one_line(code: int | None, said: str, wrong: str) -> None:
    assert wrong in not_refused(code, said)
    assert bool(not_refused(code, said)) == bool(wrong)


def test_a_programs_error_is_the_last_line_of_its_traceback() -> None:
    said = "Traceback (most recent call last):\n  File\nlogboom.InvalidRequest: no endpoint\n"
    assert last_line(said) == "logboom.InvalidRequest: no endpoint"
    assert last_line("libzmq said\nmuch") == "libzmq said\nmuch"


def test_a_clock_goes_ahead_and_back_by_turns() -> None:
    for seed in range(20):
        gone = jumps(random.Random(seed))
        assert all(one * next_ < 0 for one, next_ in itertools.pairwise(gone))
        assert all(1 <= abs(each) <= YEAR_S for each in gone)


@pytest.mark.parametrize(
    ("restored", "broken"),
    [
        ([Stored(0, ONE, 0, 5)], 0),
        ([Stored(0, ONE, 0, 7)], 0),
        ([Stored(0, ONE, 0, 4)], 1),
        ([], 5),
        # A message in the place of another one.
        ([Stored(0, ONE, 0, 4), Stored(4, ONE, 5, 1)], 1),
        ([Stored(0, ONE, 0, 12)], 2),
    ],
)
def test_a_restored_queue_is_a_beginning_with_all_that_was_acknowledged(
    restored: list[Stored], broken: int
) -> None:
    verdict = Verdict()
    judge_restored(ACKED, HELD, {0: restored}, 2.5, verdict)
    assert verdict.broken[RESTORED] == broken
