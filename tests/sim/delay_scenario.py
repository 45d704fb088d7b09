"""A run with delayed messages: `python -m tests.sim.delay_scenario --seed 17`."""

from __future__ import annotations

import random
import sys

from tests.sim.cast.delays import Delays
from tests.sim.hunting import ROT, hunt
from tests.sim.scenario import QUEUES, Scenario


class DelayScenario(Scenario):
    """A scenario in which messages wait, and are recalled."""

    module = "tests.sim.delay_scenario"

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"delays of {seed}")
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        self.delays = Delays(self.world, self.history, endpoints, QUEUES, rng)
        self.guests.append(self.delays)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(DelayScenario, __doc__, ROT, arguments)


if __name__ == "__main__":
    sys.exit(main())
