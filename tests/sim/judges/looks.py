"""Looks into nodes while they run: what no client sees but must hold all the same.

A broker's HW, log start and metadata never go back within one life; one process alone leads a queue
in an epoch (Q2); a damaged replica is in no ISR that has another member (Q14).

And when a client gets its ack, the message is that moment on the disks of as many replicas as the
topic asks for, and of every member of the ISR that was committed last (Q1, Q6, Q7): no crash is
needed to see that it is not. Disks that lost what they had synced had it: that is forgiven, for what
they lost and nothing else. (Whose bits flip is not judged from then on: it refetches much more.) Of
topics with retention a log that begins behind the message had it too: it may go before its ack
arrives. Not looked at is what was sent with fewer acks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.nodes.log.keys import queue_of
from logboom.nodes.replica.leadership import required_in_sync
from logboom.wire.batch import open_batch, peek
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.nodes.broker import Broker
    from logboom.nodes.replica.replica import Replica
    from tests.sim.judges.history import Queue
    from tests.sim.world.world import World

EACH_S: Final = 0.2
"""Seconds between two looks."""


class _Seen(NamedTuple):
    start: int
    hw: tuple[int, int]


class Looks:
    """Looks at all nodes of a world, from time to time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._versions: dict[tuple[str, int], int] = {}
        self._queues: dict[tuple[str, int, int, int], tuple[Replica, _Seen]] = {}
        self._leaders: dict[tuple[int, int, int], tuple[str, int]] = {}
        self.starts: dict[Queue, int] = {}
        """Queues whose starts are followed, turn by turn, and the greatest that a replica had."""
        world.on_broker_turn = self._at_turn

    def _at_turn(self, core: Broker) -> None:
        for queue, greatest in self.starts.items():
            replica = core.queues.by_name.get(queue)
            if replica is not None and replica.start > greatest:
                self.starts[queue] = replica.start

    def begin(self) -> None:
        """Look now and again, to the end of the run."""
        self.look()
        self._world.scheduler.after(EACH_S, self.begin)

    def look(self) -> None:
        """At all that run."""
        for machine in self._world.nodes("broker"):
            core = self._world.broker(machine.name)
            if core is not None:
                self._at_broker(machine.name, machine.starts, core)
        self._at_state()

    def _at_broker(self, name: str, life: int, core: Broker) -> None:
        version = core.routes.version
        if version < self._versions.get((name, life), -1):
            raise BrokenProperty("metadata never goes back", f"{name} follows {version} now")
        self._versions[name, life] = version
        storage = self._world.machines[name].storage
        # A log with flipped bits is cut and refetched, from its very beginning if need be.
        trusted = storage is not None and not storage.flipped
        if trusted and (cuts := core.stats.counters.get("cuts_below_hw", 0)):
            # Also where it was made good before this look.
            raise BrokenProperty(
                "HW and log start never go back",
                f"{name} was told {cuts} times to cut below its HW",
            )
        for replica in core.queues:
            key = (name, life, *replica.key)
            now = _Seen(replica.start, replica.hw)
            known, before = self._queues.get(key, (replica, now))
            if known is not replica:
                # It was moved away, deleted (who may do that, others judge) and added back.
                before = now
            if trusted and (now.start < before.start or now.hw < before.hw):
                raise BrokenProperty(
                    "HW and log start never go back",
                    f"{name} {replica.topic}/{replica.queue} had {before}, has {now}",
                )
            self._queues[key] = replica, now
            if replica.leading is not None:
                self._one_leader(name, life, (*replica.key, replica.leading.epoch))

    def _one_leader(self, name: str, life: int, epoch: tuple[int, int, int]) -> None:
        other = self._leaders.setdefault(epoch, (name, life))
        if other != (name, life):
            topic_id, queue, number = epoch
            topic = self._world.observer.names.get(topic_id, str(topic_id))
            raise BrokenProperty(
                "one process leads in an epoch",
                f"{topic}/{queue} epoch {number}: {name} in its life {life}, and {other}",
            )

    def _at_state(self) -> None:
        state = self._world.newest_state()
        for topic in state.topics.values() if state is not None else ():
            for queue in topic.queues:
                s = queue.standing
                wrong = [b for b in s.damaged if b in s.isr] if len(s.isr) > 1 else []
                if s.leader in s.lost:
                    wrong.append(s.leader or "")
                if wrong:
                    raise BrokenProperty(
                        "who lost or damaged its copy is trusted with nothing",
                        f"{topic.name}/{queue.index}: {wrong} in ISR {s.isr} led by {s.leader}",
                    )

    # -- at an ack --------------------------------------------------------------------------

    def acked(self, queue: Queue, offset: int, value: bytes) -> None:
        """A client was told just now that this is as safe as acks=all makes it."""
        topic = self._world.observer.topics.get(queue.topic)
        if topic is None or queue.number >= len(topic.queues):
            return
        view = topic.queues[queue.number]
        key = (topic.id, queue.number)
        isr = self._world.isrs.get(key, ())
        # The observer may be behind: a move may have ended meanwhile.
        newest = self._world.standings.get(key)
        counted = [len(view.replicas) - len(view.adding)]
        counted += [len(newest.original)] if newest is not None else []
        needed = min(required_in_sync(topic.config, copies) for copies in counted)
        named = {*view.replicas, *isr} & self._world.machines.keys()
        held = {b for b in named if self._held(b, queue, key, offset, value)}
        lacking = [broker for broker in isr if broker not in held]
        if len(held) < needed or lacking:
            raise BrokenProperty(
                "what is acknowledged is on disk",
                f"{queue} {offset} {value!r} is on the disks of {sorted(held)}, {needed} are "
                f"promised, and each of the ISR {sorted(isr)}",
            )

    def _held(
        self, broker: str, queue: Queue, key: tuple[int, int], offset: int, value: bytes
    ) -> bool:
        """Whether a broker has a message on disk, or had it until retention removed it or the disk
        itself lost it."""
        storage = self._world.machines[broker].storage
        assert storage is not None
        if storage.flipped or (queue in self.starts and storage.begins_behind(*key, offset)):
            return True
        entry = storage.on_disk(*key, offset)
        return (entry is not None and holds(entry, offset, value)) or any(
            queue_of(at) == key and holds(lost, offset, value) for at, lost in storage.taken
        )


def holds(entry: bytes, offset: int, value: bytes) -> bool:
    """Whether an entry has a value at an offset."""
    base, values = _opened(entry)
    place = offset - base
    return 0 <= place < len(values) and values[place] == value


@lru_cache(maxsize=256)
def _opened(entry: bytes) -> tuple[int, Sequence[bytes | None]]:
    """Base offset and values; a control entry has none. Each message of a batch asks for them."""
    head = peek(entry)
    return head.base_offset, () if head.is_control else open_batch(entry, head).values()
