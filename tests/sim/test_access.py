"""Nobody is served, and nothing is shown, but by the rules that a node has; and it has the newest."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.access_scenario import AccessScenario
from tests.sim.judges.verdict import Outcome
from tests.thorough import few_of

SEEDS = range(8)
FOUND: dict[int, str] = {
    15: "a connection by a key of the configuration was refused once the state knew the key, too",
    45: "a node was started with a new key before all name servers knew it",
}
"""Seed → what it once broke; `make verify` runs all of them too."""
FEW = (1, 5)
"""Of these, what `make test` runs."""
COUNTED = (
    "acked to visitors",
    "read by visitors",
    "requests allowed",
    "requests forbidden",
    "requests of nobody",
    "connections refused",
    "names shown",
    "subscriptions listed",
    "routing ids taken",
    "thieves asked to greet",
    "forgeries refused",
    "name servers apart",
    "older disks",
    "access: AddRule",
    "access: RemoveRule",
    "access: AlterUser",
    "access: AddUserKey",
    "access: RemoveUserKey",
    "access: EndUserKeys",
    "access: DeleteUser",
    "access: RaiseFeatures",
)
"""What must have happened at least once over these: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return AccessScenario(seed).run()


@pytest.mark.parametrize("seed", few_of([*SEEDS, *FOUND], FEW))
def test_every_decision_is_by_the_rules_that_the_node_has(seed: int) -> None:
    totals = outcome(seed).totals
    assert totals["requests allowed"] > 0
    assert totals["requests forbidden"] > 0


def test_the_seeds_together_met_everything() -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    assert not [name for name in COUNTED if not totals[name]]
