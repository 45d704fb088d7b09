"""A run in which replicas move, and brokers come and go: `python -m tests.sim.move_scenario`."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.sim.cast.delays import Delays
from tests.sim.cast.group_guest import Groups
from tests.sim.cast.movers import Moves
from tests.sim.cast.operators import Operators
from tests.sim.cast.subscription_guest import Subscriptions
from tests.sim.cast.transactions import Transactions
from tests.sim.hunting import ROT, hunt
from tests.sim.judges.verdict import Outcome
from tests.sim.scenario import QUEUES, Scenario

OTHERS: Final = ("", "", "groups", "delays", "transactions", "subscriptions")
"""Who works beside producers and readers; each seed has one of these."""
GRACES_S: Final = (0.3, 2.0, 10.0)
"""After which brokers delete what was moved away; each seed has one of these."""


class MoveScenario(Scenario):
    """A scenario with an operator who moves replicas."""

    module = "tests.sim.move_scenario"
    brokers = (3, 4, 4, 5, 5)

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        rng = random.Random(f"moves of {seed}")
        # Operators' results are held against a model that knows no moves: other runs have them.
        self.guests = [guest for guest in self.guests if not isinstance(guest, Operators)]
        for name in [name for name in self.world.machines if name.startswith(("admin-", "load-"))]:
            del self.world.machines[name]
        endpoints = self._endpoints
        self.moves = Moves(
            self.world,
            endpoints,
            random.Random(rng.random()),
            self.faults.hand,
            self.faults.disks,
        )
        self.guests.append(self.moves)
        self._subscriptions: Subscriptions | None = None
        own = random.Random(rng.random())
        world, history = self.world, self.history
        match rng.choice(OTHERS):
            case "groups":
                self.guests.append(Groups(world, history, endpoints, own, calm=False))
            case "delays":
                self.guests.append(Delays(world, history, endpoints, QUEUES, own))
            case "transactions":
                hand = self.faults.hand
                world.transaction_timeout_ms = 4_000
                self.guests.append(Transactions(world, history, endpoints, QUEUES, hand, own))
            case "subscriptions":
                self._subscriptions = Subscriptions(world, history, endpoints, own)
                self.guests.append(self._subscriptions)
            case _:
                pass

    def broker_settings(self) -> Mapping[str, Any]:
        """What was moved away is deleted early."""
        dice = random.Random(f"grace of {self.seed}")
        return {"replica_delete_grace_s": dice.choice(GRACES_S)}

    def run(self) -> Outcome:
        """All acts, while every change of replicas is looked at; raises `Failed`."""
        with pytest.MonkeyPatch.context() as patch:
            if self._subscriptions is not None:
                self._subscriptions.look_on(patch)
            self.moves.watch.look_on(patch)
            return super().run()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(MoveScenario, __doc__, ROT, arguments)


if __name__ == "__main__":
    sys.exit(main())
