"""Release of parked batches that are due, by the leader of their queue.

To release a batch, the leader appends it to the same queue's log, naming the parked entry. The
parking ends when that entry is applied below the HW, so it ends exactly once, whatever crashes. A
leader releases only after its HW has reached its log end at election, since an earlier leader may
have released a batch that is still parked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.replica import parked_rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.parked_queue import ApplyResult
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.turn import LOOKED_PER_STEP, BrokerTurn, Figures, Service
from logboom.wire.actor import Instant
from logboom.wire.batch import control_view, peek, release, validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged
from logboom.wire.head import ControlKind
from logboom.wire.parking import parked_body

BATCHES_AT_ONCE: Final = 256
BYTES_AT_ONCE: Final = 2 * 1024 * 1024
"""Bytes that one turn releases."""
MAX_IN_FLIGHT: Final = 2048
"""Released batches of a queue that may be above its HW."""
PAUSE_MS: Final = 100
"""Milliseconds before a queue that cannot release is tried again, unless something moves before."""
SCANNED_PER_STEP: Final = 32
"""Queues whose parked batches are looked at in one step of `figure_steps`."""
LOOKED_AT_ONCE: Final = 64
"""Queues that one turn looks at."""


class ReleaseBudget:
    """Batches and bytes that the turn may still release."""

    __slots__ = ("batches", "size")

    def __init__(self) -> None:
        self.batches = BATCHES_AT_ONCE
        self.size = BYTES_AT_ONCE

    @property
    def spent(self) -> bool:
        """True if the rest must wait for the next turn."""
        return self.batches <= 0 or self.size <= 0


class ReleaseScheduler(Service):
    """Releases the batches of all queues that this broker leads, in order of their due times."""

    def __init__(
        self,
        context: BrokerContext,
        appended: Callable[[Replica], None],
        on_damage: Callable[[Replica, DamagedEntry], None],
    ) -> None:
        """Create a scheduler.

        Args:
            appended: is called when a queue's log grew.
            on_damage: is called when a parked batch cannot be read.
        """
        self._queues = context.queues
        self._space = context.space
        self._stats = context.stats
        self._appended = appended
        self._on_damage = on_damage
        self._heap: list[tuple[int, QueueKey]] = []
        self._armed: dict[QueueKey, int] = {}
        """When each queue is looked at next, in ms since 1970. Other items of the heap are void."""
        self._now = Instant(float("-inf"), 0)

    def arm(self, replica: Replica) -> None:
        """Schedule a queue in which something may be due.

        A parking was applied, the HW moved, or a leadership began.
        """
        if replica.leading is not None and replica.parked.next_due_ms is not None:
            self._look_at(replica.key, replica.parked.next_due_ms)

    def _look_at(self, key: QueueKey, at_ms: int) -> None:
        if key not in self._armed or at_ms < self._armed[key]:
            self._armed[key] = at_ms
            heappush(self._heap, (at_ms, key))

    def figure_steps(self, now: float) -> Iterator[Figures]:
        """Yield, after some steps, the figures of the batches parked in the queues that are led here."""
        batches = size = undecided = scanned = 0
        oldest_ms: int | None = None
        for number, replica in enumerate([*self._queues.led.values()], 1):
            parked = replica.parked
            if parked.count:
                batches, size = batches + parked.count, size + parked.size
                undecided += parked.undecided
                first_ms = self._oldest(replica)
                if first_ms is not None and (oldest_ms is None or first_ms < oldest_ms):
                    oldest_ms = first_ms
                scanned += 1
            if number % LOOKED_PER_STEP == 0 or scanned == SCANNED_PER_STEP:
                scanned = 0
                yield {}
        late_s = 0.0
        if oldest_ms is not None and self._now.mono > float("-inf"):  # else there was no turn yet
            wall_ms = self._now.wall_ms + (now - self._now.mono) * 1000
            late_s = max(0.0, wall_ms - oldest_ms) / 1000
        yield {
            "parked": batches,
            "parked_bytes": size,
            "parked_oldest_due_ms": oldest_ms or 0,
            "parked_late_seconds": late_s,
            "undecided": undecided,
        }

    def _oldest(self, replica: Replica) -> int | None:
        ids = replica.parked.ids
        if not replica.parked.count:
            return None
        scan = self._queues.storage.scan(
            "parked", parked_rows.first_due(ids), parked_rows.last_due(ids)
        )
        try:
            row = next(scan, None)
        except DataDamaged:
            return None  # the next use of the row handles the damage
        return None if row is None else parked_rows.read_due(row[0])[0]

    def applied(self, replica: Replica, applied: ApplyResult) -> None:
        """Follow the HW, which passed the ends of parkings."""
        leading = replica.leading
        if leading is not None and applied.ended:
            leading.releasing.difference_update(applied.ended)
            leading.recalling.difference_update(applied.ended)
            leading.relocating.difference_update(applied.ended)
        self.arm(replica)

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        if not self._heap:
            return float("inf")
        # Whole milliseconds are cut off, so that the clock has reached the due time by then.
        return self._now.mono + max(0, self._heap[0][0] - self._now.wall_ms) / 1000

    def step(self, turn: BrokerTurn) -> None:
        """Release what is due, within the turn's limits and before the turn applies anything."""
        self._now = turn.now
        room = ReleaseBudget()
        looked = 0
        later: list[tuple[QueueKey, int]] = []
        while self._heap and self._heap[0][0] <= turn.now.wall_ms:
            if looked == LOOKED_AT_ONCE or room.spent:
                break
            at_ms, key = heappop(self._heap)
            if self._armed.get(key) != at_ms:
                continue
            del self._armed[key]
            looked += 1
            replica = self._queues.replicas.get(key)
            if replica is None or replica.leading is None:
                continue
            again_ms = self._release(replica, replica.leading, room, turn)
            if again_ms is not None:
                later.append((key, again_ms))
        for key, at_ms in later:
            self._look_at(key, at_ms)

    def _release(
        self, replica: Replica, leading: Leadership, room: ReleaseBudget, turn: BrokerTurn
    ) -> int | None:
        """Release the due batches of one queue. Return when to look at it again."""
        parked = replica.parked
        if parked.next_due_ms is None:
            return None
        if not is_certain(replica, leading) or self._space.check(turn.mono):
            return turn.now.wall_ms + PAUSE_MS
        end = parked_rows.last_due(parked.ids)
        try:
            for key, _ in self._queues.storage.scan("parked", parked.cursor, end):
                due_ms, at = parked_rows.read_due(key)
                parked.next_due_ms = due_ms
                if due_ms > turn.now.wall_ms:
                    return due_ms
                if len(leading.releasing) >= MAX_IN_FLIGHT:
                    return turn.now.wall_ms + PAUSE_MS
                if room.spent:
                    return due_ms
                under_way = (leading.releasing, leading.recalling, leading.relocating)
                if not any(at in places for places in under_way):
                    self._release_one(replica, leading, at, due_ms, room, turn)
                parked.cursor = key + b"\0"
        except DamagedEntry as error:
            self._on_damage(replica, error)
            return turn.now.wall_ms + PAUSE_MS
        except DataDamaged as error:
            self._on_damage(replica, DamagedEntry(error.text, Position(replica.start)))
            return turn.now.wall_ms + PAUSE_MS
        parked.next_due_ms = None
        return None

    def _release_one(
        self,
        replica: Replica,
        leading: Leadership,
        at: Position,
        due_ms: int,
        room: ReleaseBudget,
        turn: BrokerTurn,
    ) -> None:
        size = self.release(replica, leading, at, turn)
        self._stats.histograms["release_late"].add(max(0, turn.now.wall_ms - due_ms) / 1000)
        room.batches -= 1
        room.size -= size

    def release(self, replica: Replica, leading: Leadership, at: Position, turn: BrokerTurn) -> int:
        """Append a parked batch as a readable one, and return its size.

        Raises:
            Damaged: its entry cannot be read.
        """
        entry = parked_entry(replica, self._queues, at)
        batch = release(parked_body(control_view(entry)).batch, *at)
        head = peek(batch)
        replica.append_batch(batch, head, turn.now.wall_ms, turn.writes, self._queues.cache)
        leading.releasing.add(at)
        self._queues.touch(replica)
        self._space.wrote(len(batch))
        self._stats.count("released_batches")
        self._stats.count("released_messages", head.count)
        self._appended(replica)
        return len(batch)


def is_certain(replica: Replica, leading: Leadership) -> bool:
    """True if the batches parked here are certainly still parked, and entries may be appended.

    An earlier leader may have ended any parking up to our log end at election. A log that is being
    restored takes nothing but the backup's entries.
    """
    return (
        replica.damage is None
        and not replica.restoring
        and leading.enough_in_sync
        and replica.applied >= leading.election_end
    )


def parked_entry(replica: Replica, queues: ReplicaTable, at: Position) -> bytes:
    """Return the PARKED entry at a position.

    It is checked if it is read from disk. An entry in memory was checked when it arrived.

    Raises:
        Damaged: there is no such entry, or it cannot be read.
    """
    held = replica.tail.get(at)
    try:
        entry = queues.storage.get("log", log_key(*replica.key, *at)) if held is None else held[0]
        if entry is None:
            raise DamagedEntry(f"the batch parked at {at.offset}.{at.side} is missing", at)
        if (validate_batch(entry) if held is None else peek(entry)).kind != ControlKind.PARKED:
            raise DamagedEntry(f"the entry at {at.offset}.{at.side} is not a parked batch", at)
    except DamagedBatch as error:
        raise DamagedEntry(error.text, at) from None
    except DamagedEntry:
        raise
    except DataDamaged as error:
        raise DamagedEntry(error.text, at) from None
    return entry
