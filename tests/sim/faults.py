"""What befalls a simulated cluster: drawn from the seed, biased to the moment after an ack.

From `begin` on something happens every second or so; `end` heals all. Faults may overlap as they
like, whole clusters may be down: nothing acknowledged may be lost whatever happens, and all must go
on once it is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.nodes.keys import position_of, queue_of

if TYPE_CHECKING:
    from tests.sim.world import Machine, World

DOWN: Final = (0.05, 4.0)
"""Seconds that a machine stays down."""
APART: Final = (0.3, 9.0)
"""Seconds that a partition lasts: short ones let messages arrive late, long ones break."""
STOPPED: Final = (0.2, 7.0)
"""Seconds that a process is stopped and then continued."""
MEAN_GAP: Final = (0.3, 0.6, 1.0, 2.5)
"""Seconds between faults, on average; each seed has one of these."""


class Faults:
    """The schedule of one run."""

    def __init__(self, world: World, rng: random.Random, *, rot: bool = False) -> None:
        """`rot`: the disk of one broker flips bits too, of queues that others hold as well."""
        self._world = world
        self._rng = rng
        self._gap = rng.choice(MEAN_GAP)
        self._over = False
        self._on_ack: Callable[[str], None] | None = None
        self._weights: dict[Callable[[], None], float] = {
            self._crash: 4,
            self._crash_after_ack: 6,
            self._stop_gracefully: 1,
            self._isolate: 2.5,
            self._split: 2,
            self._one_way: 1.5,
            self._break_connections: 2,
            self._pause: 2,
            self._blackout: 0.5,
            self._jump_wall_clock: 0.5,
            self._lose_power_in_sync: 1.5,
        }
        # Every seed has its own weather: some faults often, others never.
        for fault in self._weights:
            self._weights[fault] *= rng.choice((0, 0.5, 1, 1, 3))
        self._weights[self._crash_after_ack] += 1
        self._rotten = ""
        if rot:
            self._weights[self._flip_bits] = 5
            self._rotten = rng.choice([m.name for m in world.nodes("broker")])

    def begin(self) -> None:
        """Let the first fault come."""
        self._later(self._strike, self._rng.expovariate(1 / self._gap))

    def acked(self, broker: str) -> None:
        """A client got an ack from a broker this moment."""
        if self._on_ack is not None and self._rng.random() < 0.2:
            act, self._on_ack = self._on_ack, None
            self._world.trace.count("crashes after an ack")
            act(broker)

    def end(self) -> None:
        """No more faults: heal, continue and start everything."""
        self._over = True
        self._on_ack = None
        world = self._world
        world.trace.note("world", "heal everything")
        world.network.heal()
        for machine in world.machines.values():
            if machine.journal is not None:
                machine.journal.fail_in = None
            if machine.process is not None and machine.process.paused:
                machine.process.resume()
            if machine.process is None:
                self._later(partial(self._world.boot, machine.name), self._rng.uniform(0, 1))

    # -- when -------------------------------------------------------------------------------

    def _later(self, action: Callable[[], None], seconds: float) -> None:
        self._world.scheduler.after(seconds, action)

    def _strike(self) -> None:
        if self._over:
            return
        (fault,) = self._rng.choices(list(self._weights), list(self._weights.values()))
        fault()
        self._later(self._strike, self._rng.expovariate(1 / self._gap))

    # -- who --------------------------------------------------------------------------------

    def _victim(self) -> Machine:
        """A node that runs, leaders first."""
        world = self._world
        leaders = [m for m in world.nodes() if m.process is not None and world.leads(m)]
        running = [m for m in world.nodes() if m.process is not None]
        if leaders and self._rng.random() < 0.6:
            return self._rng.choice(leaders)
        return self._rng.choice(running or world.nodes())

    def _down(self, name: str, seconds: float | None = None) -> None:
        machine = self._world.machines[name]
        if machine.process is None:
            return
        self._world.kill(name)
        wait = self._rng.uniform(*DOWN) if seconds is None else seconds
        self._later(lambda: self._world.boot(name), wait)

    # -- what -------------------------------------------------------------------------------

    def _crash(self) -> None:
        self._down(self._victim().name)

    def _crash_after_ack(self) -> None:
        world, rng = self._world, self._rng
        brokers = [m.name for m in world.nodes("broker")]
        every = [m.name for m in world.nodes()]

        def leader(broker: str) -> None:
            self._down(broker)

        def followers(broker: str) -> None:
            for name in brokers:
                if name != broker:
                    self._down(name)

        def brokers_all(_broker: str) -> None:
            for name in brokers:
                self._down(name)

        def power_cut(_broker: str) -> None:
            self._blackout()

        def some(broker: str) -> None:
            for name in rng.sample(every, rng.randint(1, len(every))):
                self._down(name)
            self._down(broker)

        self._on_ack = rng.choice([leader, leader, followers, brokers_all, power_cut, some])

    def _stop_gracefully(self) -> None:
        running = [m for m in self._world.nodes("broker") if m.process is not None]
        if running:
            self._world.stop(self._rng.choice(running).name)

    def _blackout(self) -> None:
        """Every node loses its power at once."""
        seconds = self._rng.uniform(0.1, 1.0)
        for machine in self._world.nodes():
            self._down(machine.name, seconds + self._rng.uniform(0, 1.0))

    def _pause(self) -> None:
        machine = self._victim()
        process = machine.process
        if process is None or process.paused:
            return
        self._world.trace.note(machine.name, "paused")
        self._world.trace.count("pauses")
        process.pause()
        self._later(process.resume, self._rng.uniform(*STOPPED))

    def _jump_wall_clock(self) -> None:
        machine = self._victim()
        machine.clock.wall_ahead_ms += self._rng.randint(-3_600_000, 3_600_000)
        self._world.trace.note(machine.name, "wall clock jumps")

    def _lose_power_in_sync(self) -> None:
        """A name server's power fails in the middle of one of its next disk operations."""
        running = [m for m in self._world.nodes("name-server") if m.process is not None]
        for machine in running[: self._rng.randint(1, 3)]:
            assert machine.journal is not None
            machine.journal.fail_in = self._rng.randint(0, 12)

    def _flip_bits(self) -> None:
        """Bits of what was synced change. One broker alone: each entry has a good copy elsewhere."""
        world, rng = self._world, self._rng
        topics = world.observer.topics.values()
        shared = {t.id for t in topics for q in t.queues if len(q.replicas) > 1}
        storage = world.machines[self._rotten].storage
        assert storage is not None
        for _ in range(rng.randint(1, 3)):
            key = storage.flip(rng, lambda key: queue_of(key)[0] in shared)
            if key is not None:
                place = f"{queue_of(key)} at {tuple(position_of(key))}"
                world.trace.note(self._rotten, f"a bit flips in {place}")
                world.trace.count("flipped bits")

    def _break_connections(self) -> None:
        one, other = self._rng.sample(list(self._world.machines), 2)
        broken = self._world.network.break_between(one, other)
        self._world.trace.note("network", f"{broken} connections of {one} and {other} break")

    def _isolate(self) -> None:
        alone = self._victim().name
        self._part([alone], [n for n in self._world.machines if n != alone], both=True)

    def _split(self) -> None:
        names = list(self._world.machines)
        self._rng.shuffle(names)
        cut = self._rng.randint(1, len(names) - 1)
        self._part(names[:cut], names[cut:], both=True)

    def _one_way(self) -> None:
        alone = self._victim().name
        rest = [n for n in self._world.machines if n != alone]
        towards = self._rng.sample(rest, self._rng.randint(1, len(rest)))
        sides = ([alone], towards) if self._rng.random() < 0.5 else (towards, [alone])
        self._part(*sides, both=False)

    def _part(self, these: list[str], those: list[str], *, both: bool) -> None:
        network = self._world.network
        arrow = "<x>" if both else "x>"
        self._world.trace.note("network", f"{','.join(these)} {arrow} {','.join(those)}")
        self._world.trace.count("partitions")
        for one in these:
            for other in those:
                network.block(one, other)
                if both:
                    network.block(other, one)
        self._later(network.heal, self._rng.uniform(*APART))
