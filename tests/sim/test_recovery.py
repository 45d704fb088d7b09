"""All name servers but one are lost, and it lags: nothing is deleted, given twice or taken for another."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.judges.verdict import Outcome
from tests.sim.recovery_decisions_scenario import RecoveryDecisionsScenario
from tests.sim.recovery_groups_scenario import RecoveryGroupsScenario
from tests.sim.recovery_scenario import RecoveryScenario
from tests.thorough import few_of

SEEDS = range(12)
FEW = (0, 1)
"""Of these, what `make test` runs."""
CALM = range(6)
"""Seeds in which brokers keep running."""
FEW_CALM = (0,)
DECIDING = range(9)
"""Seeds in which transactions are decided before and after."""
FEW_DECIDING = (4,)
CONSUMING = range(9)
"""Seeds in which groups consume before and after."""
FEW_CONSUMING = (2, 3)
CONSUMING_CALM = range(4)
"""The same, where brokers keep running and members leave in good order only."""
FEW_CONSUMING_CALM = (0,)
COUNTED = ("acked", "recoveries", "topics lost", "kept of a lost topic", "crashes", "healed")
"""What must have happened at least once over the few: else they prove nothing."""
COUNTED_OF_GROUPS = (
    "committed before the loss",
    "commits lost",
    "groups lost",
    "given twice",
    "members killed",
    "queues moved",
)
"""The same with groups."""


@cache
def outcome(seed: int, *, calm: bool = False) -> Outcome:
    """The outcome of a seed, run once."""
    return RecoveryScenario(seed, calm=calm).run()


@pytest.mark.parametrize("seed", few_of(SEEDS, FEW))
def test_a_survivor_that_lags_destroys_nothing(seed: int) -> None:
    totals = outcome(seed).totals
    assert totals["recoveries"] == 1
    assert totals["acked"] > 0


@pytest.mark.parametrize("seed", few_of(CALM, FEW_CALM))
def test_brokers_that_keep_running_follow_the_survivor(seed: int) -> None:
    totals = outcome(seed, calm=True).totals
    assert totals["recoveries"] == 1
    assert totals["acked"] > 0


@pytest.mark.parametrize("seed", few_of(DECIDING, FEW_DECIDING))
def test_what_is_committed_under_a_survivor_is_published(seed: int) -> None:
    totals = RecoveryDecisionsScenario(seed).run().totals
    assert totals["recoveries"] == 1
    assert totals["transactions before the loss"] > 0
    assert totals["transactions"] > 0


@cache
def consumed(seed: int) -> Outcome:
    """The outcome of a seed with groups, run once."""
    return RecoveryGroupsScenario(seed).run()


@pytest.mark.parametrize("seed", few_of(CONSUMING, FEW_CONSUMING))
def test_groups_go_back_once_and_pass_nothing_over(seed: int) -> None:
    totals = consumed(seed).totals
    assert totals["recoveries"] == 1
    assert totals["consumed by groups"] >= 50


@pytest.mark.parametrize("seed", few_of(CONSUMING_CALM, FEW_CONSUMING_CALM))
def test_a_former_replica_does_not_stand_for_one_that_groups_have_read(seed: int) -> None:
    totals = RecoveryGroupsScenario(seed, calm=True).run().totals
    assert totals["recoveries"] == 1
    assert totals["members killed"] == 0


def test_the_seeds_together_met_everything() -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    assert not [name for name in COUNTED if not totals[name]]


def test_the_seeds_with_groups_met_everything() -> None:
    totals: Counter[str] = Counter()
    for seed in FEW_CONSUMING:
        totals.update(consumed(seed).totals)
    assert not [name for name in COUNTED_OF_GROUPS if not totals[name]]
