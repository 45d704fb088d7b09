"""Queues lose their only copies, as an operator accepts: all that is new is read, and all that is left."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.judges.verdict import Outcome
from tests.sim.loss_scenario import LossScenario
from tests.thorough import few_of

SEEDS = range(10)
FEW = (2, 5)
"""Of these, what `make test` runs: in one the topic accepts losses, in one the operator does."""
COUNTED = (
    "acked",
    "losses",
    "losses of a part",
    "losses accepted",
    "messages lost",
    "readers that went back",
    "consumed by groups",
    "replaced disks",
    "damaged logs",
    "healed",
)
"""What must have happened at least once over the few: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return LossScenario(seed).run()


@pytest.mark.parametrize("seed", few_of(SEEDS, FEW))
def test_what_is_new_after_a_loss_is_read(seed: int) -> None:
    totals = outcome(seed).totals
    assert totals["acked"] > 0
    assert totals["consumed by groups"] > 0


def test_the_seeds_together_met_everything() -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    assert not [name for name in COUNTED if not totals[name]]
