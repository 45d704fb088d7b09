"""A compacted topic is the same table for everybody, whatever fails."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.judges.verdict import Outcome
from tests.sim.table_scenario import TableScenario
from tests.thorough import few_of

SEEDS = range(4)
ROT = range(500, 502)
FEW = (0, 1)
"""Of these, what `make test` runs."""
COUNTED = ("compacted", "copied below the log", "rows read by tables", "spared")
"""What must have happened at least once over these: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return TableScenario(seed).run()


@pytest.mark.parametrize("seed", few_of(SEEDS, FEW))
def test_a_table_is_right_for_its_reader_and_on_every_replica(seed: int) -> None:
    assert outcome(seed).totals["compacted"] > 0


@pytest.mark.parametrize("seed", few_of(ROT, ROT[:1]))
def test_a_table_outlives_a_disk_that_flips_bits(seed: int) -> None:
    assert TableScenario(seed, rot=True).run().totals["compacted"] > 0


def test_the_seeds_together_met_everything() -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    assert not [name for name in COUNTED if not totals[name]]
