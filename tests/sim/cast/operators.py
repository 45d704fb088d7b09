"""Operators at work while faults strike, as guests of a scenario.

What they and the brokers ask of the name servers, and are told, is written down; at the end that
history must be linearizable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from logboom.wire.actor import Call
from tests.sim.cast.operator_client import Operator
from tests.sim.cast.passing_topics import PassingLoad, left_behind
from tests.sim.judges.linearizability import judge
from tests.sim.judges.operations import Operations
from tests.sim.judges.overheard import Overheard
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import CLUSTER_KEY, World


class Operators:
    """All of them, as a scenario's guest."""

    def __init__(self, world: World, endpoints: Sequence[str], rng: random.Random) -> None:
        self._world = world
        self.history = Operations()
        self._overheard = Overheard(world, self.history)
        self._cores: list[Operator | PassingLoad] = []
        for number in range(1, rng.choice((2, 2, 3)) + 1):
            name, own = f"admin-{number}", random.Random(rng.random())
            key = CLUSTER_KEY if number > 1 else b""
            self._add(Operator(name, endpoints, own, self.history, self._true_time, key))
        self._load = PassingLoad("load-1", endpoints, random.Random(rng.random()))
        self._add(self._load)

    def _add(self, core: Operator | PassingLoad) -> None:
        self._cores.append(core)
        self._world.add(core.name, "client", {}, lambda: core)

    def _true_time(self) -> float:
        return self._world.scheduler.now

    def begin(self) -> None:
        """All begin."""
        for core in self._cores:
            self._call(core.name, core.start)

    def rest(self) -> None:
        """Begin nothing new."""
        for core in self._cores:
            self._call(core.name, core.stop)

    def _call(self, name: str, action: Callable[[], None]) -> None:
        process = self._world.machines[name].process
        assert process is not None, f"{name} runs"
        process.deliver(Call(action))

    def settled(self) -> bool:
        """Everything is answered, and nothing of deleted topics is left on any disk."""
        return not self.unanswered() and self._load.settled() and not left_behind(self._world)

    def unanswered(self) -> list[str]:
        """Processes of operators, not of brokers, that wait for an answer."""
        return [name for name in self.history.unanswered() if name.startswith("admin-")]

    def why_not(self) -> str:
        """What `settled` waits for."""
        return (
            f"unanswered {self.unanswered()}, produced {self._load.waiting()}, "
            f"left behind {left_behind(self._world)}"
        )

    def compare(self) -> None:
        """Judge the history; hold what was produced against what is stored."""
        trace = self._world.trace
        verdict = judge(self.history.events)
        if verdict.broken:
            raise BrokenProperty("name servers are linearizable", str(verdict))
        trace.count("operations", verdict.operations)
        # Told also when there are none: a part without a verdict may hide anything.
        trace.count("operations undecided", len(verdict.undecided))
        for event in self.history.events:
            if event.type == "info":
                trace.count("operations of unknown outcome")
        self._load.compare(self._world)
