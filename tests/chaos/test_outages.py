"""How long queues were without service is read off rightly."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.chaos.ledger import Verdict
from tests.chaos.outages import BACK, UNHURT_S, Event, judge_outages, longest_gap, with_outages

ACKS = [1.0, 2.0, 2.5, 6.0, 6.5, 7.0, 9.0]


@pytest.mark.parametrize(
    ("begin", "end", "gap"),
    [
        (0.0, 9.0, 3.5),
        (2.5, 7.0, 3.5),
        (4.0, 7.0, 2.0),
        (0.0, 2.2, 1.0),
        (6.0, 8.5, 1.5),
        (20.0, 30.0, 10.0),
        (3.0, 5.0, 2.0),
    ],
)
def test_the_longest_silence_between_two_moments(begin: float, end: float, gap: float) -> None:
    assert longest_gap(ACKS, begin, end) == gap


@pytest.mark.parametrize(("served", "longest"), [(True, 3.5), (False, 1.5)])
def test_an_outage_counts_from_when_service_is_due(served: bool, longest: float) -> None:
    event = Event("kill-all", "everybody", 2.5, 4.5, 7.0, served)
    steady = [2.6 + n / 10 for n in range(44)]
    found = with_outages(event, {0: ACKS, 1: steady}, {0: steady, 1: ACKS})
    assert found.outages[0] == longest
    assert found.longest == longest
    assert found.outages[1] < 0.2
    assert found.longest_silence == found.silences[1] == longest
    assert found.silences[0] < 0.2


def missed(event: Event, busy: float = 1.0) -> list[str]:
    """What a run with this event is not kept for."""
    verdict = Verdict()
    judge_outages([event], busy, verdict)
    assert verdict.clean == (not verdict.details)
    return verdict.details.get(BACK, [])


@pytest.mark.parametrize(
    ("outage", "busy", "kept"), [(5.9, 1, True), (6.5, 1, False), (6.5, 2, True)]
)
def test_an_outage_beyond_the_bar_breaks_the_promise(
    outage: float, busy: float, kept: bool
) -> None:
    event = Event("kill-leader", "broker-1", 1.0, 2.0, 9.0, True, outages={0: 0.1, 1: outage})
    assert (not missed(event, busy)) == kept


def test_faults_that_strike_together_have_no_bar() -> None:
    assert not missed(Event("a + b", "", 1.0, 2.0, 9.0, False, None, outages={0: 7.0}))


def test_a_fault_that_is_to_stop_nobody_stops_neither_producers_nor_readers() -> None:
    event = Event("raft-outage", "", 1.0, 9.0, 11.0, True, UNHURT_S, True)
    assert not missed(replace(event, outages={0: 0.2}, silences={0: 0.4}))
    # Far below what other faults may take.
    assert missed(replace(event, outages={0: 3.0}, silences={0: 0.4}))
    assert missed(replace(event, outages={0: 0.2}, silences={0: 3.0}))
    assert not missed(Event("kill-all", "", 1.0, 9.0, 11.0, True, silences={0: 7.0}))
