"""A run with groups and a client that invents owner epochs: `python -m tests.sim.forgery_scenario --seed 17`."""

from __future__ import annotations

import sys
from functools import partial

from tests.sim.cast.claimer import Claimer
from tests.sim.group_scenario import GroupScenario
from tests.sim.hunting import hunt


class ForgeryScenario(GroupScenario):
    """A scenario with groups, and somebody who invents owner epochs of their queues."""

    module = "tests.sim.forgery_scenario"

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        super().__init__(seed, calm=calm)
        self._client("claimer", partial(Claimer, world=self.world))


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(ForgeryScenario, __doc__, ("calm", "members leave in good order only"), arguments)


if __name__ == "__main__":
    sys.exit(main())
