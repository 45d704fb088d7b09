"""A compacted queue of one leader and one follower, and what readers of it must see, in plain words.

Everything that the brokers do goes through the product's own parts; only the turns are made here.
"""

from __future__ import annotations

import random

import msgspec

from logboom.nodes.compaction import survivor_copies as compact_copies
from logboom.nodes.compaction.compacted_reader import read_survivors
from logboom.nodes.compaction.compaction_pass import advance_pass
from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.recovery import open_queue
from logboom.nodes.log.retention import stage_removal
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.entry_reader import read_batches as collect_log
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import encode_batch, open_batch, validate_batch
from logboom.wire.head import ControlKind
from tests.unit.nodes.log.replica_logs import Log

Row = tuple[int, bytes | None, bytes | None]
"""offset, key, value."""


class CompactedLog(Log):
    """A replica of a compacted queue."""

    def __init__(self) -> None:
        super().__init__()
        self.replica.leader_epoch = 1
        self.now_ms = 1_000_000_000_000
        """Its clock."""
        writes = WriteSet()
        self.replica.compaction.begin(writes, 0, leads=True)
        self.commit(writes)

    def send(self, keys: list[bytes | None], values: list[bytes | None], codec: str) -> None:
        """Append a batch of these."""
        self.append(encode_batch(values, keys, now_ms=7, codec=codec))

    def append(self, batch: bytes) -> None:
        """Append a batch."""
        writes = WriteSet()
        self.replica.append_batch(
            batch, validate_batch(batch, stamped=False), 7, writes, self.cache
        )
        self.commit(writes)

    def control(self) -> None:
        """Append a control entry."""
        writes = WriteSet()
        self.replica.append_control(ControlKind.PRODUCER_EXPIRY, b"\x90", 7, writes, self.cache)
        self.commit(writes)

    def apply(self) -> None:
        """All that is here is below the HW."""
        self.replica.raise_hw(self.replica.end)
        self.replica.applied = self.replica.hw

    def compact(self, units: int) -> int:
        """One step of the pass."""
        writes = WriteSet()
        spent = advance_pass(self.replica, self.storage, writes, units)
        self.commit(writes)
        return spent

    def finish(self) -> None:
        """The pass, to its end."""
        while self.compact(100):
            pass

    def expire(self, until: int) -> None:
        """Retention of all that ends before an offset, as far as the pass has come."""
        replica, storage = self.replica, self.storage
        until = min(until, replica.compaction.reach, replica.hw.offset)
        if replica.compaction.lacks is not None or until <= replica.start:
            return
        self.copy(until)
        found = [*collect_log(replica, storage, replica.start, 1 << 30, 0).batches]
        ends = [
            head.next_offset
            for head in map(validate_batch, found)
            if head.next_offset <= min(until, replica.compaction.kept)
        ]
        if not ends:
            return
        writes = WriteSet()
        size = sum(len(batch) for batch in found[len(ends) :])
        record = msgspec.structs.replace(replica.record(), start=ends[-1], size=size)
        stage_removal(writes, *replica.key, record, replica.index)
        replica.trimmed(record.start, record.size)
        self.commit(writes)

    def copy(self, until: int) -> None:
        """All that retention is to remove before an offset is copied."""
        while self.replica.compaction.kept < until:
            if not self.copy_some(until):
                return  # The pass is in the middle of a batch.

    def copy_some(self, until: int) -> int:
        """One step of this."""
        writes = WriteSet()
        args = (self.replica, self.storage, writes, until, self.now_ms, 3)
        spent = compact_copies.copy_survivors(*args)
        self.commit(writes)
        return spent

    def forget_tombstones(self) -> None:
        """Those whose time is over are removed."""
        while True:
            writes = WriteSet()
            more = compact_copies.forget_tombstones(self.replica, self.storage, writes, self.now_ms)
            self.commit(writes)
            if not more:
                return

    def restart(self) -> None:
        """Another process opens the store."""
        opened = open_queue(self.storage, 1, 0)
        assert opened.damage is None
        index = QueueIndex(self.storage, 1, 0, opened.record.start)
        epoch = self.replica.leader_epoch
        self.replica = Replica(1, 0, opened.record, EpochTable(opened.epochs), index)
        self.replica.leader_epoch = epoch
        self.replica.load_derived(self.storage)

    def fetch_copies(self, leader: CompactedLog, pages: int) -> None:
        """What compaction keeps from before this log, some pages of it."""
        replica = self.replica
        for _ in range(pages):
            lacks = replica.compaction.lacks
            if lacks is None:
                return
            page = compact_copies.read_copy_page(
                leader.replica, leader.storage, (lacks, replica.start), 1 << 20
            )
            if page is None:
                return
            writes = WriteSet()
            args = (page.frames, page.bits, page.next_offset, self.now_ms)
            compact_copies.stage_copy_page(replica, self.storage, writes, *args)
            self.commit(writes)

    def read(self, offset: int, most: int = 0) -> tuple[list[Row], int]:
        """One pull of a reader of compacted messages: rows, and where to go on."""
        replica = self.replica
        limit = replica.readable
        stop = min(replica.compaction.horizon(replica.start), limit.offset)
        rows: list[Row] = []
        if offset < stop:
            found = read_survivors(replica, self.storage, offset, stop, limit, 1 << 20, most)
            for batch, bits in zip(found.batches, found.bits, strict=True):
                shown = int.from_bytes(bits, "little") if bits else -1
                rows += [row for at, row in enumerate(_rows(batch)) if shown >> at & 1]
            return [row for row in rows if row[0] >= offset], found.next_offset
        if offset >= limit.offset:
            return [], offset
        live = collect_log(replica, self.storage, offset, 1 << 20, most)
        for entry in live.batches:
            rows += _rows(entry)
        return [row for row in rows if row[0] >= offset], live.next_offset

    def read_all(self, offset: int, rng: random.Random | None = None) -> list[Row]:
        """All pulls up to the end."""
        rows: list[Row] = []
        while offset < self.replica.readable.offset:
            found, following = self.read(offset, 0 if rng is None else rng.randint(1, 4))
            assert following > offset
            rows += found
            offset = following
        return rows


def _rows(batch: bytes | memoryview) -> list[Row]:
    return [(offset, key, value) for offset, key, value, *_ in open_batch(batch).iter_rows()]


def table_of(rows: list[Row], begun: dict[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """What a reader who keeps a table by key ends up with."""
    table = dict(begun or {})
    for _, key, value in rows:
        if key is None:
            continue
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table
