"""The faults of one seed: each seed has its own mix, or rare combinations would never meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.raft_world import RaftWorld

FAULTS = ("crash", "turn", "part", "mend", "pause", "reset", "slow", "all", "hand")


class Weather:
    """How often what breaks, and how slow links are, drawn once from the world's generator."""

    def __init__(self, world: RaftWorld) -> None:
        rng = world.rng
        self._world = world
        self.interval_s = rng.choice((0.04, 0.12, 0.4))
        """Mean time between two faults."""
        self.delay_s = rng.choice((0.002, 0.02, 0.08))
        """Longest delay of a frame on a link that is not slow."""
        self.load_s = rng.choice((0.004, 0.02, 0.06))
        """Mean time between two submits."""
        self._weights = [rng.choice((0, 1, 1, 4)) for _ in FAULTS]
        self._weights[FAULTS.index("mend")] += 1

    def strike(self) -> None:
        """Break one thing."""
        world, rng = self._world, self._world.rng
        name = rng.choice(world.names)
        leader = world.leader_name()
        if leader is not None and rng.random() < 0.4:
            name = leader
        match rng.choices(FAULTS, self._weights)[0]:
            case "crash":
                self._crash(name, rng.uniform(0.01, 2))
            case "turn":
                world.machines[name].disk.fail_in = rng.randrange(4)
            case "part":
                others = rng.sample(world.names, rng.randint(0, len(world.names) - 2))
                world.part({name, *others})
            case "mend":
                world.mend()
            case "pause":
                world.pause(name, rng.uniform(0.1, 2))
            case "reset":
                world.reset(*rng.sample(world.names, 2))
            case "slow":
                one, other = rng.sample(world.names, 2)
                world.slow(one, other, rng.uniform(0.1, 2))
            case "hand":
                if leader is not None:
                    world.hand_over(leader)
            case "all":
                down = rng.sample(world.names, rng.randint(2, len(world.names)))
                for each in down:
                    self._crash(each, rng.uniform(0.01, 0.6))

    def _crash(self, name: str, down_s: float) -> None:
        self._world.crash(name)
        self._world.at(self._world.time + down_s, lambda: self._world.restart(name))
