"""Disks that lose power in a write, refuse an fsync, fill up, come back damaged or empty.

What was not synced is lost at a crash (`storage.py`, `journal_disk.py`). What *was* synced is taken
from one broker alone in a run, and only where another member of each ISR has it: no promise is
excused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.nodes.log.keys import position_of, queue_of
from tests.sim.faults.hand import DOWN, Fault, Hand

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine

FULL: Final = (0.5, 6.0)
"""Seconds that a file system stays full."""
FULL_AT_LEADER: Final = (8.0, 14.0)
"""Those that a leader's stays full: longer than its queues may stand still for it."""


class DiskFaults:
    """What befalls disks."""

    def __init__(self, hand: Hand, *, rot: bool) -> None:
        """`rot`: bits of one broker's disk flip, and it is no worse otherwise."""
        self._hand = hand
        self._bad = hand.world.bad_disk = hand.rng.choice(hand.names("broker"))
        self._rot = rot
        self.only_of_the_dead = False
        """Whether a disk loses what it had synced only once the name servers know that its broker is
        dead: before, they may yet take away the other replicas of a queue."""
        self._expendable = 0
        """Id of a topic whose loss is accepted; 0: of none."""
        if rot:
            # A bit is drawn from what is stored: with other bodies it would be another one.
            for machine in hand.world.nodes("broker"):
                machine.old_until = 0

    def aim(self, broker: str, topic_id: int) -> None:
        """Before any fault: let this broker be the bad one, though it alone has what it holds of a
        topic, whose loss is accepted."""
        self._bad = self._hand.world.bad_disk = broker
        self._expendable = topic_id

    def weights(self) -> dict[Fault, float]:
        """How often each should come, relative to the others."""
        weights: dict[Fault, float] = {
            self.lose_power_in_sync: 1.5,
            self.fail_sync: 1.5,
            self.fill: 1,
        }
        if not self._rot:
            weights[self.replace_disk] = 0.7
            weights[self.damage_log] = 0.7
        return weights

    def always(self) -> dict[Fault, float]:
        """What no weather leaves out."""
        return {self.flip_bits: 5} if self._rot else {}

    def begin(self) -> None:
        """A disk that flips bits does so at least once, whatever else the weather brings."""
        if self._rot:
            self._hand.later(self._hand.rng.uniform(5, 15), self._flip_surely)

    def end(self) -> None:
        """All disks are well again."""
        for machine in self._hand.world.nodes():
            if machine.journal is not None:
                machine.journal.fail_in = None
                machine.journal.full = machine.journal.refuses = False
            if machine.storage is not None:
                machine.storage.full = machine.storage.refuses = False

    def lose_power_in_sync(self) -> bool:
        """Name servers' power fails in the middle of one of their next disk operations."""
        hand = self._hand
        running = hand.running("name-server")
        hand.rng.shuffle(running)
        for machine in running[: hand.rng.randint(1, 3)]:
            assert machine.journal is not None
            machine.journal.fail_in = hand.rng.randint(0, 12)
        return bool(running)

    def fail_sync(self) -> bool:
        """A node's next fsync fails: it must end, and is started again (Q14, R9)."""
        machine = self._hand.victim()
        if machine.process is None:
            return False
        if machine.storage is not None:
            machine.storage.refuses = True
        if machine.journal is not None:
            machine.journal.refuses = True
        self._hand.note(machine.name, "the next fsync will fail")
        self._hand.count("failed syncs")
        return True

    def fill(self) -> bool:
        """Others fill a node's file system, and remove their files later."""
        machine = self._hand.victim()
        self._fill(machine, self._hand.rng.uniform(*FULL))
        return True

    def fill_leader(self) -> bool:
        """Others fill the file system of a broker that leads, and leave it so for long."""
        hand = self._hand
        leaders = [machine for machine in hand.running("broker") if hand.world.leads(machine)]
        if not leaders:
            return False
        self._fill(hand.rng.choice(leaders), hand.rng.uniform(*FULL_AT_LEADER))
        return True

    def _fill(self, machine: Machine, seconds: float) -> None:
        hand = self._hand
        if machine.storage is not None:
            machine.storage.full = True
        if machine.journal is not None:
            machine.journal.full = True
        hand.note(machine.name, f"disk is full for {seconds:.1f} s")
        hand.count("full disks")
        hand.later(seconds, lambda: self._free(machine))

    def _free(self, machine: Machine) -> None:
        if machine.storage is not None:
            machine.storage.full = False
        if machine.journal is not None:
            machine.journal.full = False

    # -- synced data goes -------------------------------------------------------------------

    def spared(self, name: str) -> bool:
        """Whether each queue has another in-sync replica than this broker.

        Name servers that have just been started may not know of the newest queues; what any of them
        ever knew counts.
        """
        world = self._hand.world
        state = world.newest_state()
        if state is None or name not in state.brokers:
            return False
        if self.only_of_the_dead and state.brokers[name].alive:
            return False
        counted = [isr for (topic, _), isr in world.isrs.items() if topic != self._expendable]
        return all(any(member != name for member in isr) for isr in counted)

    def _taken_down(self) -> Machine | None:
        """The bad broker, crashed and waiting for its start; None: not now."""
        if not self.spared(self._bad):
            return None
        self._hand.down(self._bad, self._hand.rng.uniform(*DOWN))
        return self._hand.world.machines[self._bad]

    def replace_disk(self) -> bool:
        """A broker comes back with an empty disk: another store id (Q3)."""
        machine = self._taken_down()
        if machine is None:
            return False
        self._hand.world.replace_storage(machine)
        self._hand.note(machine.name, "its disk was replaced by an empty one")
        self._hand.count("replaced disks")
        return True

    def damage_log(self) -> bool:
        """A broker comes back without the newest of what it had synced, and knows it (Q13)."""
        machine = self._taken_down()
        if machine is None:
            return False
        assert machine.storage is not None
        lost = machine.storage.damage(self._hand.rng)
        self._hand.note(machine.name, f"its log is damaged: {lost} synced writes lost")
        self._hand.count("damaged logs")
        return True

    def _flip_surely(self) -> None:
        self.flip_bits()
        if not self._hand.world.trace.totals["flipped bits"]:
            self._hand.later(1.0, self._flip_surely)

    def flip_bits(self) -> bool:
        """Bits of what was synced change. One broker alone: each entry has a good copy elsewhere."""
        world, rng = self._hand.world, self._hand.rng
        topics = world.observer.topics.values()
        shared = {t.id for t in topics for q in t.queues if len(q.replicas) > 1}
        storage = world.machines[self._bad].storage
        assert storage is not None
        for _ in range(rng.randint(1, 3)):
            key = storage.flip(rng, lambda key: queue_of(key)[0] in shared)
            if key is not None:
                place = f"{queue_of(key)} at {tuple(position_of(key))}"
                world.trace.note(self._bad, f"a bit flips in {place}")
                world.trace.count("flipped bits")
        return True
