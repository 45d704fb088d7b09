"""A recovery while transactions are decided: `python -m tests.sim.recovery_decisions_scenario --seed 3`.

As `recovery_scenario.py`. A producer commits transactions until the name servers are lost, so that brokers have
carried out decisions of which the survivor has never heard. What others commit afterwards has to be
published all the same (R15).
"""

from __future__ import annotations

import random
import sys
from functools import partial
from typing import Final

import msgspec

from logboom.wire.actor import Call
from logboom.wire.transactions import Decide
from tests.sim.cast.transaction_client import Attempt, TransactionClient
from tests.sim.cast.transactions import Transactions
from tests.sim.hunting import hunt
from tests.sim.judges.history import Queue
from tests.sim.recovery_scenario import CALM, RecoveryScenario
from tests.sim.scenario import QUEUES
from tests.sim.transaction_scenario import TIMEOUT_MS

EARLY: Final = "early-txn-1"
REST_S: Final = 0.1
"""Between two transactions that may be lost."""


class _EarlyClient(TransactionClient):
    """Commits until the name servers are lost; its offsets are nobody's."""

    def _command(self, attempt: Attempt, *, commit: bool) -> Decide:
        return msgspec.structs.replace(super()._command(attempt, commit=commit), consumed=[])

    def _committed(self, attempt: Attempt, command: Decide, number: int) -> None:
        whole = super()._command(attempt, commit=True)
        super()._committed(attempt, whole, number)


class _LaterTransactions(Transactions):
    """All that is committed once the survivor leads: nobody lies in wait for it."""

    def _plot(self) -> None:
        """Do nothing: the loss is enough."""


class Decisions:
    """Transactions before the loss, which may be lost with it, and after it; a `Guest`."""

    def __init__(self, scenario: RecoveryDecisionsScenario) -> None:
        rng = random.Random(f"decisions of {scenario.seed}")
        self._world = world = scenario.world
        self._resting = self._lost = False
        endpoints = [machine.listeners["main"] for machine in world.nodes()]
        self._later = _LaterTransactions(
            world, scenario.history, endpoints, QUEUES, scenario.faults.hand, rng
        )
        self._early = _EarlyClient(
            EARLY,
            endpoints,
            random.Random(rng.random()),
            scenario.history,
            world.trace.count,
            _published,
            place=0,
            fenced=False,
        )
        world.add(EARLY, "client", {}, lambda: self._early)
        scenario.recovery.on_loss = self._lose
        scenario.recovery.on_survival = self._survive

    def begin(self) -> None:
        """Commit until the loss."""
        if self._lost:
            return
        process = self._world.machines[EARLY].process
        assert process is not None
        process.deliver(Call(partial(self._early.work, QUEUES)))
        self._world.scheduler.after(REST_S, self.begin)

    def _lose(self) -> None:
        self._lost = True
        self._world.trace.count("transactions before the loss", len(self._early.committed))
        self._world.retire(EARLY)

    def _survive(self) -> None:
        if not self._resting:
            self._later.begin()

    def rest(self) -> None:
        """Begin nothing new."""
        self._resting = True
        self._later.rest()

    def settled(self) -> bool:
        """Whether all that was decided since the loss is carried out."""
        return self._later.settled()

    def why_not(self) -> str:
        """What `settled` waits for."""
        return self._later.why_not()

    def compare(self) -> None:
        """All or nothing, of what was committed since the loss."""
        self._later.compare()


def _published(_who: str, _queue: Queue, _values: list[bytes]) -> None:
    """Nothing holds what the loss may have taken."""


class RecoveryDecisionsScenario(RecoveryScenario):
    """A recovery while transactions are decided."""

    module = "tests.sim.recovery_decisions_scenario"

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        super().__init__(seed, calm=calm)
        self.world.transaction_timeout_ms = TIMEOUT_MS
        self.guests.append(Decisions(self))


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(RecoveryDecisionsScenario, __doc__, CALM, arguments)


if __name__ == "__main__":
    sys.exit(main())
