"""What befalls a simulated cluster: drawn from the seed, biased to the moments that hurt.

From `begin` on something happens every second or so; `end` heals all. Faults may overlap as they
like, whole clusters may be down: nothing acknowledged may be lost whatever happens, and all must go
on once it is over. Messages of different links overtake each other at all times; on one link they
cannot, as on TCP, but come late.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.ambushes import Ambushes
from tests.sim.faults.clocks import ClockFaults
from tests.sim.faults.disks import DiskFaults
from tests.sim.faults.hand import Fault, Hand
from tests.sim.faults.networks import NetworkFaults
from tests.sim.faults.nodes import NodeFaults

if TYPE_CHECKING:
    from tests.sim.world.world import World

MEAN_GAP: Final = (0.3, 0.6, 1.0, 2.5)
"""Seconds between faults, on average; each seed has one of these."""
KINDS: Final = 2
"""Kinds of faults that every seed has at least."""


def name_of(fault: Fault) -> str:
    """What a fault is called in the totals."""
    return fault.__name__.replace("_", " ")


class Faults:
    """The schedule of one run."""

    def __init__(self, world: World, rng: random.Random, *, rot: bool = False) -> None:
        """`rot`: the disk of one broker flips bits too, of queues that others hold as well."""
        self._world = world
        self._rng = rng
        self._gap = rng.choice(MEAN_GAP)
        self._hand = hand = Hand(world, rng)
        network = NetworkFaults(hand)
        self._disks = DiskFaults(hand, rot=rot)
        self._nodes = nodes = NodeFaults(hand)
        ambushes = Ambushes(hand, nodes, network)
        self._weights: dict[Fault, float] = {
            **nodes.weights(),
            **network.weights(),
            **self._disks.weights(),
            **ClockFaults(hand).weights(),
            **ambushes.weights(),
        }
        self._alone: tuple[Fault, ...] = (
            network.cut_from_nodes,
            network.unheard_by_nodes,
            self._disks.fill_leader,
        )
        """Struck only by themselves: weather has them among its partitions, and fills disks."""
        # Every seed has its own weather: some faults often, others never.
        for fault in self._weights:
            self._weights[fault] *= rng.choice((0, 0.5, 1, 1, 3))
        self._weights[ambushes.after_ack] += 1
        self._weights[network.isolate] += 0.5
        self._weights.update(self._disks.always())

    @property
    def hand(self) -> Hand:
        """What these faults share, for plots of guests."""
        return self._hand

    @property
    def disks(self) -> DiskFaults:
        """The faults of disks."""
        return self._disks

    def begin(self) -> None:
        """Let the first fault come."""
        self._world.on_moment = self._hand.happened
        self._disks.begin()
        self._hand.later(self._rng.expovariate(1 / self._gap), self._strike)

    def once(self, what: str, seconds: float) -> None:
        """Let this fault come in so many seconds, and no other."""
        (fault,) = [fault for fault in (*self._weights, *self._alone) if name_of(fault) == what]
        self._world.on_moment = self._hand.happened

        def strike() -> None:
            if fault():
                self._hand.strike(what)

        self._hand.later(seconds, strike)

    def end(self) -> None:
        """No more faults: heal, continue and start everything."""
        self._hand.end()
        world = self._world
        world.trace.note("world", "heal everything")
        world.network.heal()
        self._disks.end()
        for machine in world.nodes():
            if machine.process is not None and machine.process.paused:
                machine.process.resume()
            if machine.process is None:
                world.boot_later(machine.name, self._rng.uniform(0, 1))

    def settled(self) -> bool:
        """Whether what an operator began (a name server's replacement) has come to its end."""
        return not self._nodes.replacing

    def _strike(self) -> None:
        hand, weights = self._hand, self._weights
        if 0 < len(hand.struck) < KINDS:
            weights = {f: w for f, w in weights.items() if name_of(f) not in hand.struck}
        (fault,) = self._rng.choices(list(weights), list(weights.values()))
        if fault():
            hand.strike(name_of(fault))
        hand.later(self._rng.expovariate(1 / self._gap), self._strike)
