"""Replicas move and brokers come and go while faults strike: nothing is lost, and every move ends."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.judges.verdict import Outcome
from tests.sim.move_scenario import MoveScenario
from tests.thorough import few_of

SEEDS = range(20)
FOUND: dict[int, str] = {}
"""Seed → what it once broke; all of them run too."""
FEW = (0, 1, 2)
"""Of these, what `make test` runs."""
COUNTED = (
    "acked",
    "moves began",
    "moves joined",
    "moves ended",
    "moves cancelled",
    "reassign: done",
    "reassign: CONFLICT",
    "replicas deleted",
    "numbers of replicas changed",
    "brokers added",
    "brokers in draining",
    "brokers in maintenance",
)
"""What must have happened at least once over these: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return MoveScenario(seed).run()


@pytest.mark.parametrize("seed", few_of([*SEEDS, *FOUND], [*FEW, *FOUND]))
def test_moves_lose_nothing_and_end(seed: int) -> None:
    totals = outcome(seed).totals
    assert totals["moves ended"] > 0
    assert totals["acked"] > 0


def test_the_seeds_together_met_everything() -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    assert not [name for name in COUNTED if not totals[name]]
