"""A run with a compacted topic: `python -m tests.sim.table_scenario --seed 17`."""

from __future__ import annotations

import random
import sys

from tests.sim.cast.tables import Tables
from tests.sim.hunting import ROT, hunt
from tests.sim.scenario import Scenario


class TableScenario(Scenario):
    """A scenario in which a topic is a table."""

    module = "tests.sim.table_scenario"

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"tables of {seed}")
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        self.guests.append(Tables(self.world, endpoints, rng))


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(TableScenario, __doc__, ROT, arguments)


if __name__ == "__main__":
    sys.exit(main())
