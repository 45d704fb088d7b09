"""Released batches that stand in the log without their body, and are whole to whoever reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log import body_references
from logboom.nodes.log.body_references import STORED, referenced_key, resolve_body
from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.keys import Position, log_key, queue_end, queue_key
from logboom.nodes.log.log_state import LogState
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.log.tail_cache import TailCache
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import encode_batch, open_batch, peek, release, validate_batch
from logboom.wire.errors import DamagedBatch
from logboom.wire.head import HEAD_LENGTH, RELEASED_FROM
from logboom.wire.transactions import TransactionId
from tests.sim.world.storage import SimulatedStorage

VALUE = b"v" * 3_000


class Log:
    """A queue's log in which batches are parked and released."""

    def __init__(self, storage: Storage | None = None, cache_bytes: int = 1 << 20) -> None:
        self.storage: Storage = storage or SimulatedStorage("store")
        self.cache = TailCache(cache_bytes)
        self.replica = Replica(1, 0, LogState(), EpochTable(), QueueIndex(self.storage, 1, 0, 0))
        self.replica.leader_epoch = 1
        self.sizes: list[int] = []
        """What each change wrote."""

    def commit(self, writes: WriteSet) -> None:
        """As a turn's end and the sync after it do."""
        replica = self.replica
        self.sizes.append(writes.size)
        replica.stage_record(writes)
        self.storage.write(writes)
        replica.written = replica.synced = replica.end
        self.cache.trim()

    def park(self, value: bytes = VALUE) -> Position:
        """Park one message; where."""
        at, writes = self.replica.end, WriteSet()
        batch = encode_batch([value], now_ms=5)
        whose = TransactionId("app", 0, 0)
        self.replica.append_parked(batch, -1, 7, writes, self.cache, whose)
        self.commit(writes)
        return at

    def release(self, parked: Position, value: bytes = VALUE) -> Position:
        """Release it; where it begins."""
        at, writes = self.replica.end, WriteSet()
        batch = release(encode_batch([value], now_ms=5), *parked)
        self.replica.append_batch(batch, peek(batch), 7, writes, self.cache)
        self.commit(writes)
        return at

    def follow(self, leader: Log) -> None:
        """Append all that a leader has and this log has not."""
        for entry, _ in list(leader.replica.tail.values())[len(self.replica.tail) :]:
            writes = WriteSet()
            self.replica.append_entry(entry, writes, self.cache)
            self.commit(writes)

    def trim(self, start: int) -> None:
        """Retention up to an offset."""
        writes = WriteSet()
        writes.delete_range("log", queue_key(1, 0), log_key(1, 0, start))
        self.replica.borrowing.trim(Position(start), writes, self.storage)
        self.replica.trimmed(start, 0)
        self.commit(writes)

    def read(self, at: Position) -> bytes | None:
        """The entry at a place, as the store gives it."""
        return self.storage.get("log", log_key(1, 0, *at))

    def lenders(self) -> int:
        """Rows of who borrows."""
        return len(list(self.storage.scan("state", queue_key(1, 0, b"b"), queue_key(1, 0, b"c"))))


def values(entry: bytes | None) -> list[bytes | None]:
    assert entry is not None
    return list(open_batch(entry, validate_batch(entry)).values())


@pytest.mark.parametrize("rocks", [False, True])
def test_a_body_is_written_once_and_read_twice(rocks: bool, tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1") if rocks else SimulatedStorage("store")
    log = Log(store)
    parked = log.park()
    at = log.release(parked)
    assert log.sizes[0] > 3_000
    assert log.sizes[1] < 200
    assert values(log.read(at)) == [VALUE]
    assert log.read(at) == log.replica.tail[at][0]
    scanned = dict(store.scan("log", queue_key(1, 0), queue_end(1, 0)))
    backwards = dict(store.scan("log", queue_key(1, 0), queue_end(1, 0), reverse=True))
    assert scanned == backwards
    assert [len(entry) for entry in scanned.values()] == [
        len(log.replica.tail[place][0]) for place in (parked, at)
    ]
    if isinstance(store, RocksStorage):
        store.close()


def test_a_follower_decides_for_itself_and_has_the_same_log() -> None:
    leader, follower, small = Log(), Log(), Log(cache_bytes=0)
    parked = leader.park()
    for log in (follower, small):
        log.follow(leader)
    leader.release(parked)
    follower.follow(leader)
    # One that has not got the parked entry in memory any more writes all of it.
    entry = next(reversed(leader.replica.tail.values()))[0]
    writes = WriteSet()
    small.replica.append_entry(entry, writes, small.cache)
    small.commit(writes)
    assert follower.sizes[-1] < 200
    assert small.sizes[-1] > 3_000
    logs = [dict(log.storage.scan("log", b"", b"\xff")) for log in (leader, follower, small)]
    assert logs[0] == logs[1] == logs[2]
    assert leader.replica.size == follower.replica.size == small.replica.size


def test_what_is_short_or_far_away_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log.release(log.park(b"short"), b"short")
    assert log.lenders() == 0
    monkeypatch.setattr(body_references, "REACH", 5_000)
    far = log.park()
    log.park(VALUE[2:])
    assert values(log.read(log.release(far))) == [VALUE]
    assert log.sizes[-1] > 3_000
    assert log.lenders() == 0
    assert values(log.read(log.release(log.park(VALUE[1:]), VALUE[1:]))) == [VALUE[1:]]
    assert log.sizes[-1] < 200


def test_a_copy_that_differs_is_written_whole() -> None:
    log = Log()
    at = log.release(log.park(VALUE), VALUE.upper())
    assert values(log.read(at)) == [VALUE.upper()]
    assert log.lenders() == 0


def test_retention_writes_out_who_borrows_from_what_goes() -> None:
    log = Log()
    parked = log.park()
    ahead = log.release(log.park(VALUE[1:]), VALUE[1:])
    at = log.release(parked)
    last = log.release(log.park(VALUE[2:]), VALUE[2:])
    assert log.lenders() == 3
    log.trim(at.offset)
    assert log.read(parked) is None
    assert log.read(ahead) is None
    assert values(log.read(at)) == [VALUE]
    assert log.sizes[-1] > 3_000
    assert log.lenders() == 1
    assert values(log.read(last)) == [VALUE[2:]]
    log.trim(last.offset + 1)
    assert log.lenders() == 0
    assert log.sizes[-1] < 200


def test_after_a_cut_a_row_that_is_left_over_does_no_harm() -> None:
    log = Log()
    parked = log.park()
    at = log.release(parked)
    writes = WriteSet()
    log.replica.cut(at, writes, log.storage)
    log.commit(writes)
    plain = log.park(VALUE[3:])
    assert plain == at
    entry = log.read(plain)
    log.trim(0)
    assert log.read(plain) == entry
    # What comes again is written whole: its lender may be why the log was cut.
    assert values(log.read(log.release(parked))) == [VALUE]
    assert log.sizes[-1] > 3_000


def test_a_damaged_lender_damages_who_borrows() -> None:
    log = Log()
    parked = log.park()
    at = log.release(parked)
    key, entry = log_key(1, 0, *parked), bytearray(log.read(parked) or b"")
    entry[-9] ^= 4
    for damaged in (bytes(entry), bytes(entry[:200]), b""):
        writes = WriteSet()
        writes.put("log", key, damaged)
        log.storage.write(writes)
        with pytest.raises(DamagedBatch):
            values(log.read(at))
    writes = WriteSet()
    writes.delete("log", key)
    log.storage.write(writes)
    with pytest.raises(DamagedBatch):
        values(log.read(at))


def test_a_log_that_begins_anew_lends_nothing() -> None:
    log = Log()
    parked = log.park()
    log.release(parked)
    writes = WriteSet()
    log.replica.wipe(writes)
    log.commit(writes)
    assert log.lenders() == 0
    assert values(log.read(log.release(log.park()))) == [VALUE]
    assert log.lenders() == 1


@given(st.binary(min_size=STORED, max_size=STORED), st.binary(max_size=400))
def test_bytes_that_mean_nothing_raise_nothing(stored: bytes, lender: bytes) -> None:
    key = log_key(1, 0, 5)
    found = referenced_key(key, stored)
    assert found is None or found[:8] == key[:8]
    assert len(resolve_body(stored, lender)) >= STORED
    assert resolve_body(stored, None) == stored


def test_only_released_batches_without_a_body_have_a_lender() -> None:
    key = log_key(1, 0, 5)
    place = Position(0)
    body = RELEASED_FROM.pack(*place)
    # As long as what borrows, and its last bytes would name a place.
    plain = encode_batch([b"x"], now_ms=5)[:HEAD_LENGTH] + body
    assert len(plain) == STORED
    assert referenced_key(key, plain) is None
    # Released and whole: a body may begin with whatever looks like a place.
    released = release(encode_batch([b"x"], now_ms=5), *place)
    whole_one = released[:HEAD_LENGTH] + body + released[HEAD_LENGTH:]
    assert referenced_key(key, whole_one) is None
    assert referenced_key(key, released[:HEAD_LENGTH] + body) == log_key(1, 0, *place)


def test_a_lender_too_short_for_the_body_leaves_what_every_check_refuses() -> None:
    log = Log()
    parked = log.park()
    at = log.release(parked)
    entry = log.replica.tail[at][0]
    stored = entry[:HEAD_LENGTH] + entry[-RELEASED_FROM.size :]
    lender = log.replica.tail[parked][0]
    assert resolve_body(stored, lender) == entry
    assert resolve_body(stored, lender[: HEAD_LENGTH + 100]) == stored


def test_after_a_cut_nothing_borrows_from_before_it() -> None:
    log = Log()
    parked = log.park()
    behind = log.park()
    writes = WriteSet()
    log.replica.cut(behind, writes, log.storage)
    log.commit(writes)
    # Nobody has borrowed from it yet, and it stands in memory still.
    assert parked in log.replica.tail
    assert log.release(parked) == behind
    assert log.sizes[-1] > 3_000
