"""Real stores to damage: written as a broker writes them, then closed."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.keys import Position, queue_end, queue_key
from logboom.nodes.log.log_state import LogState
from logboom.nodes.log.recovery import open_queues
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.log.tail_cache import TailCache
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import encode_batch, encode_control, peek, release, stamp, validate_batch
from logboom.wire.head import ControlKind
from logboom.wire.parking import encode_parked
from logboom.wire.view import QueueView, TopicConfig, TopicView

BROKER = "broker-1"
TOPIC = 7
NAME = "single"


class Writer:
    """Some queues in a real store, led by one broker."""

    def __init__(self, path: Path, queues: int = 2, seed: int = 1) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.store = RocksStorage(path, BROKER)
        self.cache = TailCache(1 << 20)
        self.replicas = [
            Replica(TOPIC, q, LogState(), EpochTable(), QueueIndex(self.store, TOPIC, q, 0))
            for q in range(queues)
        ]
        for replica in self.replicas:
            replica.leader_epoch = 1
        self.entries: dict[tuple[int, Position], bytes] = {}
        """Every entry by queue and place."""

    def write(self, count: int) -> None:
        """Batches of all sizes and control entries, some of them parked and released."""
        for _ in range(count):
            replica = self.rng.choice(self.replicas)
            if self.rng.random() < 0.05:
                replica.leader_epoch += 1
            writes = WriteSet()
            match self.rng.random():
                case odds if odds < 0.1:
                    self._control(replica, writes)
                case odds if odds < 0.2:
                    self._parked_and_released(replica, writes)
                case _:
                    self._batch(replica, writes)
            self._end_turn(replica, writes)

    def _values(self) -> bytes:
        size = self.rng.choice((20, 200, 3_000))
        values = [self.rng.randbytes(size) for _ in range(self.rng.randint(1, 4))]
        return encode_batch(values, now_ms=5)

    def _batch(self, replica: Replica, writes: WriteSet) -> None:
        batch, at = self._values(), replica.end
        replica.append_batch(batch, validate_batch(batch, stamped=False), 7, writes, self.cache)
        self._note(replica, at)

    def _control(self, replica: Replica, writes: WriteSet) -> None:
        body, at = msgspec.msgpack.encode([self.rng.randrange(1 << 40)]), replica.end
        replica.append_control(ControlKind.PRODUCER_EXPIRY, body, 7, writes, self.cache)
        self._note(replica, at)

    def _parked_and_released(self, replica: Replica, writes: WriteSet) -> None:
        batch, at = self._values(), replica.end
        parked = encode_control(ControlKind.PARKED, encode_parked(batch, 9))
        replica.append_entry(stamp(parked, at.offset, replica.leader_epoch, 7), writes, self.cache)
        self._note(replica, at)
        self._end_turn(replica, writes)
        # The released one borrows the body of the parked one where it is large enough.
        writes, behind = WriteSet(), replica.end
        entry = stamp(release(batch, *at), behind.offset, replica.leader_epoch, 7)
        replica.append_entry(entry, writes, self.cache)
        self._note(replica, behind)
        self._end_turn(replica, writes)

    def _note(self, replica: Replica, at: Position) -> None:
        self.entries[replica.queue, at] = replica.tail[at][0]

    def _end_turn(self, replica: Replica, writes: WriteSet) -> None:
        replica.raise_hw(replica.end)
        replica.stage_record(writes)
        self.store.write(writes)
        replica.written = replica.synced = replica.end

    def reopen(self) -> None:
        """A restart: what was in the journal goes into tables and blob files."""
        self.store.close()
        self.store = RocksStorage(self.path, BROKER)

    def close(self) -> None:
        """The broker stops."""
        self.store.close()

    def ends(self) -> dict[int, Position]:
        """Where each queue ends."""
        return {replica.queue: replica.end for replica in self.replicas}


def view(
    *, leader: str | None = None, isr: tuple[str, ...] = (BROKER,), eligible: tuple[str, ...] = ()
) -> dict[int, TopicView]:
    """The cluster's topics, whose queues all stand alike."""
    replicas = [BROKER, "broker-2"]
    queue = QueueView(replicas, leader, 3, 9, list(isr), list(eligible))
    return {TOPIC: TopicView(NAME, TOPIC, TopicConfig(), [queue] * 2, 9)}


def held(path: Path) -> dict[tuple[int, Position], bytes]:
    """Every entry of today's store, after its broker's own checks."""
    store = RocksStorage(path, BROKER)
    try:
        found = {}
        for opened in open_queues(store):
            assert opened.damage is None
            queue = opened.queue
            record = opened.record
            at = Position(record.start)
            replica = Replica(
                TOPIC,
                queue,
                record,
                EpochTable(opened.epochs),
                QueueIndex(store, TOPIC, queue, record.start),
            )
            replica.load_derived(store)
            assert replica.damage is None
            size = 0
            scan = store.scan("log", queue_key(TOPIC, queue), queue_end(TOPIC, queue))
            for key, entry in scan:
                head = validate_batch(entry)
                place = Position(int.from_bytes(key[8:16], "big"), int.from_bytes(key[16:], "big"))
                assert place == at
                assert opened.epochs
                at = (
                    Position(at.offset + head.count)
                    if head.count
                    else Position(*at[:1], at.side + 1)
                )
                size += len(entry)
                found[queue, place] = entry
            assert at == record.end == record.hw
            assert size == record.size
        return found
    finally:
        store.close()


def is_filler(entry: bytes) -> bool:
    """Whether an entry stands for something that was lost."""
    head = peek(entry)
    return head.kind == ControlKind.LOST or (
        head.kind == ControlKind.PRODUCER_EXPIRY and entry.endswith(b"\x90")
    )
