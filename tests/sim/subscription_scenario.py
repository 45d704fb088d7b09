"""A run with subscriptions: `python -m tests.sim.subscription_scenario --seed 17`."""

from __future__ import annotations

import random
import sys

import pytest

from logboom.nodes.subscriptions import dispatcher, key_shared_backlog, subscription_service
from tests.sim.cast.subscription_guest import Subscriptions
from tests.sim.hunting import ROT, hunt
from tests.sim.judges.verdict import Outcome
from tests.sim.scenario import Scenario


class SubscriptionScenario(Scenario):
    """A scenario in which brokers decide who consumes what."""

    module = "tests.sim.subscription_scenario"

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"subscriptions of {seed}")
        endpoints = [machine.listeners["main"] for machine in self.world.nodes()]
        self.subscriptions = Subscriptions(self.world, self.history, endpoints, rng)
        self.guests.append(self.subscriptions)
        self.in_slices = seed % 7 == 5
        """Whether what a consumer gives back takes several turns."""

    def run(self) -> Outcome:
        """All acts, while every dispatcher is followed; raises `Failed`."""
        with pytest.MonkeyPatch.context() as patch:
            self.subscriptions.look_on(patch)
            if self.in_slices:
                patch.setattr(dispatcher, "RETURNED_AT_ONCE", 2)
                patch.setattr(key_shared_backlog, "MOVED_AT_ONCE", 2)
                patch.setattr(subscription_service, "RETURN_UNITS", 100)
            return super().run()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(SubscriptionScenario, __doc__, ROT, arguments)


if __name__ == "__main__":
    sys.exit(main())
