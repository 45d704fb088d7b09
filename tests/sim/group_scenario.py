"""A run with consumer groups: `python -m tests.sim.group_scenario --seed 17`."""

from __future__ import annotations

import random
import sys

from tests.sim.cast.group_guest import Groups
from tests.sim.hunting import hunt
from tests.sim.scenario import Scenario


class GroupScenario(Scenario):
    """A scenario with groups; with `calm` their members only come and leave in good order."""

    module = "tests.sim.group_scenario"

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        super().__init__(seed)
        rng = random.Random(f"groups of {seed}")
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        self.options = " --calm" if calm else ""
        self.groups = Groups(self.world, self.history, endpoints, rng, calm=calm)
        self.guests.append(self.groups)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(GroupScenario, __doc__, ("calm", "members leave in good order only"), arguments)


if __name__ == "__main__":
    sys.exit(main())
