"""Messages that wait are released once, whatever fails, and not after they were recalled."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.delay_scenario import DelayScenario
from tests.sim.judges.verdict import Outcome
from tests.sim.run import summary
from tests.thorough import few_of

SEEDS = range(8)
FOUND = (54,)
"""Has found a mistake: a recall was answered by a release that was lost afterwards."""
ROT = range(500, 502)
FEW = (4, 6)
"""Of these, what `make test` runs."""
COUNTED = ("parked", "released", "released on time", "recalled", "recalled too late", "carried")
"""What must have happened at least once over these: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return DelayScenario(seed).run()


@pytest.mark.parametrize("seed", few_of([*SEEDS, *FOUND], [*FEW, *FOUND]))
def test_what_waits_is_released_once_and_what_was_recalled_never(seed: int) -> None:
    assert outcome(seed).totals["parked"] >= 20


@pytest.mark.parametrize("seed", few_of(ROT, ROT[:1]))
def test_what_waits_outlives_a_disk_that_flips_bits(seed: int) -> None:
    assert DelayScenario(seed, rot=True).run().totals["parked"] >= 20


def test_the_seeds_together_met_everything(capsys: pytest.CaptureFixture[str]) -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    with capsys.disabled():
        print(f"\n{len(FEW)} seeds of delays: {summary(totals)}")  # noqa: T201 - the figures are what the run is for
    assert [what for what in COUNTED if not totals[what]] == []


def test_one_seed_is_one_run() -> None:
    assert DelayScenario(6).run().digest == outcome(6).digest
