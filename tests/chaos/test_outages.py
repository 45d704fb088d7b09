"""How long queues were without service is read off rightly."""

from __future__ import annotations

import pytest

from tests.chaos.outages import Event, longest_gap, with_outages

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
    event = Event("kill-all", "everybody", 2.5, 4.5, 7.0, served, {})
    found = with_outages(event, {0: ACKS, 1: [2.6 + n / 10 for n in range(44)]})
    assert found.outages[0] == longest
    assert found.longest == longest
    assert found.outages[1] < 0.2
