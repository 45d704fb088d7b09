"""Queues of compacted topics come back with what compaction kept beyond retention."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import queue_end, queue_key
from logboom.nodes.log.storage import FAMILIES, WriteSet
from logboom.nodes.salvage.found_queues import FoundQueue
from logboom.nodes.salvage.store_recovery import RecoveryPlan, read_store_folder
from logboom.wire.batch import encode_batch, stamp
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.thorough import seeds
from tests.unit.nodes.compaction.model import CompactedLog, Row, table_of
from tests.unit.nodes.salvage.stores import BROKER

QUEUE = (queue_key(1, 0), queue_end(1, 0))
KEYS = [b"key %d" % number for number in range(30)]


def a_log(seed: int, folder: Path) -> CompactedLog:
    """Written, compacted and expired many times; a part of it is left to the next pass. A real store
    in `folder` holds it, and in some of its files what it was some time ago."""
    rng, log = random.Random(seed), CompactedLog()
    for number in range(60):
        if number in (25, 45):
            put_into(folder, log)
        count = rng.choice((1, 3, 9))
        keys: list[bytes | None] = [rng.choice([*KEYS, None]) for _ in range(count)]
        values = [
            None if rng.random() < 0.15 else rng.randbytes(rng.choice((9, 900))) for _ in keys
        ]
        log.send(keys, values, "none")
        log.apply()
        if rng.random() < 0.4:
            log.finish()
        if rng.random() < 0.3:
            log.expire(log.replica.end.offset - rng.randrange(60))
    assert log.replica.start > 0
    put_into(folder, log)
    if seed % 2:
        # From the write-ahead log into tables and blob files.
        RocksStorage(folder, BROKER).close()
    return log


def put_into(folder: Path, log: CompactedLog) -> None:
    """Let a real store hold what a log's simulated one does."""
    store = RocksStorage(folder, BROKER)
    writes = WriteSet()
    for family in FAMILIES:
        writes.delete_range(family, *QUEUE)
        for key, value in log.storage.scan(family, *QUEUE):
            writes.put(family, key, value)
    store.write(writes)
    store.close()


def taken_from(store: RocksStorage) -> CompactedLog:
    """A log that a broker opens in a store."""
    log = CompactedLog()
    writes = WriteSet()
    for family in FAMILIES:
        writes.delete_range(family, *QUEUE)
        for key, value in store.scan(family, *QUEUE):
            writes.put(family, key, value)
    log.storage.write(writes)
    log.restart()
    log.apply()
    log.finish()
    return log


def nothing(_done: int) -> None:
    """Progress that nobody looks at."""


def set_aside_and_recovered(folder: Path, *, compaction: bool = True) -> CompactedLog:
    """What a broker finds after a recovery."""
    (folder / "condemned").write_text("found damaged while it ran\n")
    RocksStorage(folder, BROKER).close()
    queue = QueueView([BROKER], None, 3, 9, [BROKER], [])
    topic = TopicView("prices", 1, TopicConfig(compaction=compaction), [queue], 9)
    plan = RecoveryPlan(read_store_folder(folder), {1: topic}, nothing)
    plan.carry_out(nothing)
    plan.close()
    store = RocksStorage(folder, BROKER)
    try:
        return taken_from(store)
    finally:
        store.close()


@pytest.mark.parametrize("seed", seeds(5))
def test_the_latest_of_each_key_comes_back_beyond_retention(tmp_path: Path, seed: int) -> None:
    log = a_log(seed, tmp_path)
    again = set_aside_and_recovered(tmp_path)
    log.finish()
    assert again.log() == log.log()
    assert again.replica.record() == msgspec.structs.replace(
        log.replica.record(), applied=again.replica.applied
    )
    rows: list[Row] = log.read_all(0)
    assert again.read_all(0) == rows
    assert len(table_of(rows)) > len(table_of(log.read_all(log.replica.start)))


def test_a_topic_that_is_not_compacted_any_more_gets_its_log_alone(tmp_path: Path) -> None:
    log = a_log(1, tmp_path)
    assert set_aside_and_recovered(tmp_path, compaction=False).log() == log.log()
    store = RocksStorage(tmp_path, BROKER)
    assert list(store.scan("compact", *QUEUE)) == []
    store.close()


def test_copies_that_are_gone_are_counted() -> None:
    find = FoundQueue()
    find.survivors = {0: 0b1011_0110, 1: 1}
    batch = encode_batch([b"1", b"2", b"3"], [b"a", b"b", b"c"], now_ms=1)
    find.take_copy(1, b"", stamp(batch, 1, 1, 1))
    assert find.beyond(8) == (2, 3)
    assert find.beyond(5) == (2, 1)
    assert find.beyond(0) == (0, 0)
    assert find.beyond(9_000) == (2, 4)
