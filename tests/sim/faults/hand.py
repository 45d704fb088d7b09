"""What every fault has at hand: the world, the seed's dice, who is a good victim, and time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from tests.sim.world.moments import Moment

if TYPE_CHECKING:
    from tests.sim.world.machine import Kind, Machine
    from tests.sim.world.world import World

Fault: TypeAlias = Callable[[], bool]
"""Strikes; False if there was nothing to strike at this moment, or not yet."""
DOWN: Final = (0.05, 4.0)
"""Seconds that a machine stays down."""


class Hand:
    """Shared by all faults of a run."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.over = False
        """Whether all has been healed: nothing may break any more."""
        self.struck: set[str] = set()
        """Kinds of faults so far."""
        self._armed: dict[Moment, Callable[[str], object]] = {}

    # -- when -------------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something in so many true seconds, unless all is over by then."""

        def act() -> None:
            if not self.over:
                action()

        self.world.scheduler.after(seconds, act)

    def await_moment(self, moment: Moment, act: Callable[[str], object]) -> None:
        """Call `act` with the node concerned at one of the next such moments."""
        self._armed[moment] = act
        self.world.watched.add(moment)

    def happened(self, moment: Moment, who: str) -> None:
        """A moment has come: maybe this one is taken."""
        act = self._armed.get(moment)
        if act is None or self.over or self.rng.random() < 0.6:
            return
        self.disarm(moment)
        # Not within the turn or the delivery that brought it about.
        self.later(0.0, lambda: act(who))

    def disarm(self, moment: Moment) -> None:
        """Wait for it no longer."""
        self._armed.pop(moment, None)
        self.world.watched.discard(moment)

    def end(self) -> None:
        """No more faults."""
        self.over = True
        self._armed.clear()
        self.world.watched.clear()

    # -- who --------------------------------------------------------------------------------

    def running(self, kind: Kind | None = None) -> list[Machine]:
        """Nodes that run."""
        return [m for m in self.world.nodes(kind) if m.process is not None]

    def victim(self, kind: Kind | None = None) -> Machine:
        """A node that runs, leaders first."""
        running = self.running(kind)
        leaders = [m for m in running if self.world.leads(m)]
        if leaders and self.rng.random() < 0.6:
            return self.rng.choice(leaders)
        return self.rng.choice(running or self.world.nodes(kind))

    def names(self, kind: Kind | None = None) -> list[str]:
        """Names of nodes."""
        return [m.name for m in self.world.nodes(kind)]

    def others(self, names: Iterable[str]) -> list[str]:
        """Every machine but these, clients too."""
        these = set(names)
        machines = self.world.machines.values()
        return [m.name for m in machines if m.name not in these and not m.retired]

    # -- what most of them do ---------------------------------------------------------------

    def down(self, name: str, seconds: float | None = None) -> bool:
        """Crash a node; it comes back."""
        if self.world.machines[name].process is None:
            return False
        self.world.kill(name)
        wait = self.rng.uniform(*DOWN) if seconds is None else seconds
        self.world.boot_later(name, wait)
        return True

    def strike(self, what: str) -> None:
        """A fault of this kind has struck."""
        self.struck.add(what)
        self.count("faults")
        self.count(f"fault: {what}")

    def note(self, who: str, what: str) -> None:
        """Into the trace."""
        self.world.trace.note(who, what)

    def count(self, what: str) -> None:
        """Into the totals."""
        self.world.trace.count(what)
