"""Transactions are published whole or not at all, on every queue, whatever fails."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.judges.verdict import Outcome
from tests.sim.run import summary
from tests.sim.transaction_scenario import TransactionScenario
from tests.thorough import few_of

SEEDS = range(17)
FOUND: dict[int, str] = {
    8000134: "retention stood still before many parked batches in the middle of an index block",
}
"""Seed → what it once broke; all of them run too."""
ROT = (500, 502)
"""The second has found a replica that took itself for damaged."""
FEW = (0, 1, 2, 3, 5, 11)
"""Of these, what `make test` runs."""
COUNTED = (
    "transactions committed",
    "commits refused",
    "commits come second",
    "aborts: abort",
    "aborts: commit",
    "parks refused",
    "producers fenced",
    "decisions awaited",
    "bodies of an older format",
    "released by another leader",
    "ambush: decision asked",
    "ambush: decision told",
    "ambush: decision reported",
    "ambush: release copied",
    "half committed",
    "half aborted",
    "half messages found",
    "plan: abandon",
    "plan: leave",
)
"""What must have happened at least once over these: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return TransactionScenario(seed).run()


@pytest.mark.parametrize("seed", few_of([*SEEDS, *FOUND], FEW))
def test_transactions_are_published_whole_or_not_at_all(seed: int) -> None:
    assert outcome(seed).totals["decisions in logs"] >= 1


@pytest.mark.parametrize("seed", few_of(ROT, ROT[:1]))
def test_transactions_outlive_a_disk_that_flips_bits(seed: int) -> None:
    assert TransactionScenario(seed, rot=True).run().totals["decisions in logs"] >= 1


def test_the_seeds_together_met_everything(capsys: pytest.CaptureFixture[str]) -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed).totals)
    with capsys.disabled():
        print(f"\n{len(FEW)} seeds of transactions: {summary(totals)}")  # noqa: T201 - the figures are what the run is for
    assert [what for what in COUNTED if not totals[what]] == []


def test_one_seed_is_one_run() -> None:
    assert TransactionScenario(3).run().digest == outcome(3).digest
