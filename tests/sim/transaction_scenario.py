"""A run with transactions: `python -m tests.sim.transaction_scenario --seed 17`."""

from __future__ import annotations

import random
import sys
from typing import Final

import pytest

from logboom.nodes.log import body_references
from logboom.nodes.parking import release_scheduler as parked_release
from logboom.nodes.replica import parked_queue
from logboom.nodes.transactions import decision_executor
from tests.sim.cast.transactions import Transactions
from tests.sim.hunting import ROT, hunt
from tests.sim.judges.verdict import Outcome
from tests.sim.scenario import QUEUES, Scenario

TIMEOUT_MS: Final = 4_000
"""After which an abort of what waits is proposed."""
RELEASED_AT_ONCE: Final = (1, 1, 2, 256)
"""Batches that a turn releases; each seed has one of these."""
FLYING: Final = (1, 1, 3, 2048)
"""Batches that may lie above the HW while more is released: with few, leaders die in between."""
SHORTEST: Final = (1, 1, 1, 1024)
"""Bytes from which on a released body is borrowed: all bodies of a run are short."""
DROPPED: Final = (1, 2, 1024)
"""Batches that a turn drops."""


class TransactionScenario(Scenario):
    """A scenario in which some messages are published together, or not at all."""

    module = "tests.sim.transaction_scenario"

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"transactions of {seed}")
        self._at_once = rng.choice(RELEASED_AT_ONCE)
        self._flying = rng.choice(FLYING)
        self._shortest = rng.choice(SHORTEST)
        self._dropped = rng.choice(DROPPED)
        self.world.transaction_timeout_ms = TIMEOUT_MS
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        hand = self.faults.hand
        self.transactions = Transactions(self.world, self.history, endpoints, QUEUES, hand, rng)
        self.guests.append(self.transactions)

    def run(self) -> Outcome:
        """All acts, while a turn releases little; raises `Failed`."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parked_release, "BATCHES_AT_ONCE", self._at_once)
            patch.setattr(decision_executor, "MAX_IN_FLIGHT", self._flying)
            patch.setattr(body_references, "SHORTEST", self._shortest)
            patch.setattr(parked_queue, "DROPPED_AT_ONCE", self._dropped)
            return super().run()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(TransactionScenario, __doc__, ROT, arguments)


if __name__ == "__main__":
    sys.exit(main())
