"""The replicas of this broker, and the changes of a turn: records to write, syncs to await.

A turn's writes have one token; `synced` returns the replicas whose synced end it moved (Q1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.keys import Position
from logboom.nodes.log.log_state import LogState
from logboom.nodes.log.recovery import open_queues
from logboom.nodes.log.storage import Storage
from logboom.nodes.log.tail_cache import TailCache
from logboom.nodes.replica.replica import SNAPSHOT_BYTES, QueueKey, Replica
from logboom.nodes.turn import BrokerTurn
from logboom.wire.errors import DataDamaged

REREAD_BYTES: Final = 512 * 1024 * 1024
"""Approximate bytes that opening all queues may read to rebuild producer windows."""
MIN_SNAPSHOT_BYTES: Final = 64 * 1024
"""Minimum bytes appended to a queue between two writes of its producer windows."""
DERIVED_BYTES: Final = 256 * 1024
"""Bytes of derived rows that may wait for the sync of another turn."""


class ReplicaTable:
    """The replicas by id and by topic name."""

    def __init__(self, storage: Storage, cache_bytes: int) -> None:
        """Open every queue that the store holds."""
        self.storage = storage
        self.cache = TailCache(cache_bytes)
        self.replicas: dict[QueueKey, Replica] = {}
        self.by_name: dict[tuple[str, int], Replica] = {}
        self._held: dict[str, dict[QueueKey, Replica]] = {}
        """Topic name → its replicas; for a moment also those of an older topic of this name."""
        self.token = 0
        """Number of the last turn that wrote."""
        self.led: dict[QueueKey, Replica] = {}
        """Those that this broker leads."""
        self._led_changes: dict[QueueKey, None] = {}
        self._dirty: dict[QueueKey, Replica] = {}
        self._derived: dict[QueueKey, Replica] = {}
        self._derived_bytes = 0
        """Bytes of derived rows since the last turn with a token."""
        self._to_recount: dict[QueueKey, Replica] = {}
        self._hw_moved: dict[QueueKey, Replica] = {}
        self._staged: list[Replica] = []
        self._marks: deque[tuple[int, list[tuple[Replica, int, Position]]]] = deque()
        for opened in open_queues(storage):
            self._open(opened.topic_id, opened.queue, opened.record, opened.epochs, opened.damage)

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self.replicas.values()))

    def _open(
        self,
        topic_id: int,
        queue: int,
        record: LogState,
        epochs: list[tuple[int, Position]],
        damage: str | None,
    ) -> Replica:
        index = QueueIndex(self.storage, topic_id, queue, record.start)
        replica = Replica(topic_id, queue, record, EpochTable(epochs), index)
        if damage is None:
            try:
                replica.load_derived(self.storage)
            except DataDamaged as error:
                damage = error.text
        if damage is not None:
            # Nothing shows from where on it is bad, so all of it is fetched again.
            replica.damage, replica.damaged_at = damage, Position(record.start)
        self.replicas[replica.key] = replica
        return replica

    def create(self, topic_id: int, queue: int, topic: str) -> Replica:
        """Create an empty replica of a queue. The store is not read.

        One that was dropped in this turn is still in the store, because its deletion is only staged.
        What is derived from its log would else be taken for that of the new one.
        """
        index = QueueIndex(self.storage, topic_id, queue, 0, resumes=False)
        replica = Replica(topic_id, queue, LogState(), EpochTable([]), index)
        self.replicas[replica.key] = replica
        self.name(replica, topic)
        return replica

    def name(self, replica: Replica, topic: str) -> None:
        """Note the topic's name from metadata."""
        replica.topic = topic
        self.by_name[topic, replica.queue] = replica
        self._held.setdefault(topic, {})[replica.key] = replica

    def unname(self, replica: Replica) -> None:
        """Let a replica be of no topic, because none of its id is known."""
        self._forget_name(replica)
        replica.topic = ""

    def _forget_name(self, replica: Replica) -> None:
        if self.by_name.get((replica.topic, replica.queue)) is replica:
            del self.by_name[replica.topic, replica.queue]
        held = self._held.get(replica.topic, {})
        held.pop(replica.key, None)
        if not held:
            self._held.pop(replica.topic, None)

    def held(self, topic: str) -> list[Replica]:
        """Return all replicas that are known under this topic's name."""
        return list(self._held.get(topic, {}).values())

    def drop(self, replica: Replica, turn: BrokerTurn) -> None:
        """Remove a replica: the topic was deleted, or this broker no longer has a replica."""
        replica.drop(turn.writes)
        self.replicas.pop(replica.key, None)
        self._dirty.pop(replica.key, None)
        self._derived.pop(replica.key, None)
        self._forget_name(replica)

    def led_changed(self, replica: Replica) -> None:
        """Note that this broker leads a queue in another epoch than before, or no longer."""
        self._led_changes[replica.key] = None

    @property
    def has_led_changes(self) -> bool:
        """True if there is something for `take_led_changes`."""
        return bool(self._led_changes)

    def take_led_changes(self) -> list[QueueKey]:
        """Return what `led_changed` noted, and forget it."""
        noted, self._led_changes = self._led_changes, {}
        return list(noted)

    def touch(self, replica: Replica) -> None:
        """Note that the replica's log changed in this turn."""
        self._dirty[replica.key] = replica

    def touch_derived(self, replica: Replica) -> None:
        """Note that only what is derived from the replica's log changed (`BrokerTurn.derived`)."""
        self._derived[replica.key] = replica

    def recount(self, replica: Replica) -> None:
        """Note that the HW of a queue that is led here may rise; the turn counts once, at its end."""
        self._to_recount[replica.key] = replica

    def take_recounts(self) -> list[Replica]:
        """Return what `recount` noted, and forget it."""
        noted, self._to_recount = self._to_recount, {}
        return list(noted.values())

    def hw_moved(self, replica: Replica) -> None:
        """Note that more of a queue is readable, or is to be derived from its log again."""
        self._hw_moved[replica.key] = replica

    def take_hw_moved(self) -> list[Replica]:
        """Return what `hw_moved` noted, and forget it."""
        noted, self._hw_moved = self._hw_moved, {}
        return list(noted.values())

    @property
    def windows_every(self) -> int:
        """Bytes between two writes of a queue's producer windows.

        After a crash, all queues together must not have too much to read again.
        """
        share = REREAD_BYTES // max(1, len(self.replicas))
        return min(SNAPSHOT_BYTES, max(MIN_SNAPSHOT_BYTES, share))

    def token_of(self, replica: Replica) -> int:
        """Return the token whose sync brings all of a replica to disk."""
        return self.token + (replica.key in self._dirty)

    def begin(self) -> None:
        """Begin a turn: what the last one staged can be read."""
        if self._staged:
            for replica in self._staged:
                replica.written = replica.end
            self._staged = []
        if self.cache.size > self.cache.max_bytes:
            self.cache.trim()

    def commit(self, turn: BrokerTurn) -> None:
        """End a turn: stage the records of changed replicas, and number its sync.

        A turn that writes nothing but derived rows gets no number: nobody waits for these, and the
        next sync includes them.
        """
        marks = []
        for replica in self._dirty.values():
            replica.stage_record(turn.writes, self.windows_every)
            marks.append((replica, replica.cuts, replica.end))
            self._staged.append(replica)
        staged = len(turn.writes)
        for key, replica in self._derived.items():
            if key not in self._dirty:
                replica.stage_record(turn.writes, self.windows_every)
        self._dirty.clear()
        self._derived.clear()
        if not len(turn.writes):
            return
        turn.out.writes = turn.writes
        if staged == turn.derived:
            self._derived_bytes += turn.writes.size
            if self._derived_bytes < DERIVED_BYTES:
                return
        self._derived_bytes = 0
        self.token += 1
        turn.out.token = self.token
        if marks:
            self._marks.append((self.token, marks))

    def synced(self, token: int) -> list[Replica]:
        """Note a completed sync up to `token`, and return the replicas whose synced end it moved."""
        moved: dict[QueueKey, Replica] = {}
        while self._marks and self._marks[0][0] <= token:
            for replica, cuts, end in self._marks.popleft()[1]:
                # Writes before a truncation say nothing about the entries that are there now.
                if replica.cuts == cuts:
                    replica.synced = end
                    moved[replica.key] = replica
        return list(moved.values())
