"""A run with transactions: `python -m tests.sim.transaction_scenario --seed 17`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from typing import Final

import pytest

from logboom.nodes import deciding, parked_release
from tests.sim.run import summary
from tests.sim.scenario import QUEUES, Scenario
from tests.sim.transactions import Transactions
from tests.sim.verdict import Failed, Outcome

TIMEOUT_MS: Final = 4_000
"""After which an abort of what waits is proposed."""
RELEASED_AT_ONCE: Final = (1, 1, 2, 256)
"""Batches that a turn releases; each seed has one of these."""
FLYING: Final = (1, 1, 3, 2048)
"""Batches that may lie above the HW while more is released: with few, leaders die in between."""


class TransactionScenario(Scenario):
    """A scenario in which some messages are published together, or not at all."""

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"transactions of {seed}")
        self._at_once = rng.choice(RELEASED_AT_ONCE)
        self._flying = rng.choice(FLYING)
        self.world.transaction_timeout_ms = TIMEOUT_MS
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        hand = self.faults.hand
        self.transactions = Transactions(self.world, self.history, endpoints, QUEUES, hand, rng)
        self.guests.append(self.transactions)

    def run(self) -> Outcome:
        """All acts, while a turn releases little; raises `Failed`."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parked_release, "BATCHES_AT_ONCE", self._at_once)
            patch.setattr(deciding, "FLYING", self._flying)
            return super().run()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print every event")
    parser.add_argument("--first", type=int, default=0, help="first seed of a hunt")
    parser.add_argument("--count", type=int, default=20, help="seeds of a hunt")
    parser.add_argument("--rot", action="store_true", help="one broker's disk flips bits too")
    chosen = parser.parse_args(arguments)
    one = chosen.seed is not None
    seeds = [chosen.seed] if one else range(chosen.first, chosen.first + chosen.count)
    totals: Counter[str] = Counter()
    broken: list[int] = []
    begun = time.process_time()
    for seed in seeds:
        scenario = TransactionScenario(seed, rot=chosen.rot)
        if one:
            scenario.world.trace.echo = lambda line: print(line)  # noqa: T201 - to be read
        try:
            scenario.run()
        except Failed as error:
            broken.append(seed)
            sys.stderr.write(f"{error}\n")
        totals.update(scenario.world.trace.totals)
    spent = time.process_time() - begun
    sys.stdout.write(f"{len(seeds)} seeds in {spent:.1f} s; broken: {broken}\n{summary(totals)}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
