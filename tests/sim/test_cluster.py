"""Seeds of produce, crash, restart, partition, compaction and healing keep every promise."""

from __future__ import annotations

import time
from collections import Counter
from functools import cache

import pytest

from tests.sim.judges.figures import short
from tests.sim.judges.verdict import Outcome
from tests.sim.run import summary
from tests.sim.scenario import Scenario
from tests.sim.seeds import COUNTED, FEW, FOUND, SEEDS
from tests.thorough import few_of

ALL = sorted({*SEEDS, *FOUND})


MOST_TRIMMED = 400
"""Messages that retention may have removed before a reader came."""
SPENT: list[float] = []
"""Seconds that each seed took."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    begun = time.monotonic()
    found = Scenario(seed).run()
    SPENT.append(time.monotonic() - begun)
    return found


@pytest.mark.parametrize("seed", few_of(ALL, FEW))
def test_a_seed_keeps_every_promise(seed: int) -> None:
    found = outcome(seed)
    totals = found.totals
    assert short(totals, found.seconds) == ""
    assert totals["read"] >= 2 * totals["acked"] - MOST_TRIMMED


def test_the_seeds_together_met_everything(capsys: pytest.CaptureFixture[str]) -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    with capsys.disabled():
        print(f"\n{len(FEW)} seeds ({sum(SPENT):.0f} s): {summary(totals)}")  # noqa: T201 - the figures are what the run is for
    assert [what for what in COUNTED if not totals[what]] == []
    assert totals["operations undecided"] == 0
