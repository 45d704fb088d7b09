"""Values that RocksDB does not check: whatever bit is flipped in its files, nothing wrong is served.

Scans of `log` that verify the checksums of entries themselves leave RocksDB's own checksum of large
values out. These tests flip bits in tables and blob files of a real store and read it all.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from logboom.nodes.disk import rocks_storage
from logboom.nodes.disk.rocks_storage import UNCHECKED_FROM, RocksStorage
from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.keys import Position, log_key, queue_end, queue_key
from logboom.nodes.log.log_state import LogState
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.entry_reader import DamagedEntry, read_stored_entries
from logboom.nodes.replica.replica import Replica
from logboom.wire.batch import encode_batch, stamp
from logboom.wire.errors import DataDamaged
from tests.thorough import examples

COUNT = 6
BLOB_HEADER = 30
"""Bytes at the beginning of a blob file, before its first record."""


def entry(offset: int, size: int, seed: int = 0) -> bytes:
    """An entry of one message, as a leader stores it."""
    value = random.Random(offset + 1_000 * seed).randbytes(size)
    return stamp(encode_batch([value], now_ms=5), offset, 1, 7)


def written(path: Path, sizes: list[int], queue: int = 0) -> list[bytes]:
    """A queue's entries, in tables and blob files; their values have these sizes."""
    store = RocksStorage(path, "broker-1")
    stored = [entry(offset, size, queue) for offset, size in enumerate(sizes)]
    writes = WriteSet()
    for offset, each in enumerate(stored):
        writes.put("log", log_key(1, queue, offset), each)
    store.write(writes)
    store.close()
    # The next start flushes what the write-ahead log holds.
    RocksStorage(path, "broker-1").close()
    return stored


def served(
    store: RocksStorage, count: int, queue: int = 0, *, all_checks: bool = False
) -> tuple[list[bytes], bool]:
    """What readers of a queue get before they meet damage, and whether they do."""
    replica = Replica(1, queue, LogState(), EpochTable(), QueueIndex(store, 1, queue, 0))
    found: list[bytes] = []
    limit = Position(count)
    try:
        scan = read_stored_entries(replica, store, Position(0), limit, all_checks=all_checks)
        found += [each for each, _ in scan]
    except DamagedEntry:
        return found, True
    return found, False


def only(path: Path, pattern: str) -> Path:
    """The largest file of a kind."""
    return max((path / "db").glob(pattern), key=lambda file: file.stat().st_size)


def flip(file: Path, at: int, bit: int) -> None:
    with file.open("r+b") as content:
        content.seek(at)
        byte = content.read(1)
        content.seek(at)
        content.write(bytes([byte[0] ^ 1 << bit]))


@pytest.mark.parametrize("size", [20, 2_000, 40_000])
def test_a_flipped_bit_of_a_blob_file_is_never_served(tmp_path: Path, size: int) -> None:
    stored = written(tmp_path, [size if number else 40_000 for number in range(COUNT)])
    file, store = only(tmp_path, "*.blob"), RocksStorage(tmp_path, "broker-1")
    content = file.read_bytes()
    inside = {content.find(each): len(each) for each in stored if each in content}
    assert inside
    rng = random.Random(size)
    # The head of the first record, its key, and anything else.
    spots = [BLOB_HEADER + number for number in range(52)]
    spots += [rng.randrange(len(content)) for _ in range(examples(400))]
    for at in spots:
        bit = rng.randrange(8)
        flip(file, at, bit)
        found, damaged = served(store, COUNT)
        assert found == stored[: len(found)]
        if any(start <= at < start + length for start, length in inside.items()):
            assert damaged
        assert damaged == (len(found) < COUNT)
        # The scrub finds what is around the entries too; only the file's own ends are left.
        if BLOB_HEADER <= at < len(content) - 32:
            assert served(store, COUNT, all_checks=True)[1]
        flip(file, at, bit)
    assert served(store, COUNT) == (stored, False)
    store.close()


def linked(source: str, target: str) -> str:
    """Copy a file of a folder, unless nothing ever changes it."""
    if source.endswith(".blob"):
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


@pytest.mark.parametrize(("size", "count"), [(200, 40), (20_000, 400)])
def test_a_flipped_bit_of_a_table_is_never_served(tmp_path: Path, size: int, count: int) -> None:
    """Neither are the blocks that were read unchecked left in the cache, for others to trust."""
    sound = tmp_path / "sound"
    stored = written(sound, [size] * count)
    length = only(sound, "*.sst").stat().st_size
    rng = random.Random(size)
    damages = 0
    for number in range(examples(160)):
        path = tmp_path / str(number)
        shutil.copytree(sound, path, copy_function=linked)
        # Three quarters of them in the rows and the restart points behind them.
        end = length if number % 4 == 0 else length - 800
        flip(only(path, "*.sst"), rng.randrange(end), rng.randrange(8))
        store = RocksStorage(path, "broker-1")
        if (path / "damaged-1").exists():
            # It was noticed at the opening, and nothing is left to serve.
            assert served(store, count) == ([], True)
        else:
            found, damaged = served(store, count)
            assert found == stored[: len(found)]
            assert damaged == (len(found) < count)
            damages += damaged
            try:
                again = [each for _, each in store.scan("log", queue_key(1, 0), queue_end(1, 0))]
                assert (again, damaged) == (stored, False)
            except DataDamaged:
                assert damaged
        store.close()
        shutil.rmtree(path)
    assert damages > examples(160) // 4


def test_a_pointer_to_the_blob_of_another_queue_is_not_followed(tmp_path: Path) -> None:
    """The entry there is sound, and of the same offset: no checksum of its own would tell."""
    mine, theirs = (written(tmp_path, [40_000], queue)[0] for queue in (0, 1))
    assert len(mine) == len(theirs)
    assert mine != theirs
    blobs = {
        file.read_bytes().find(mine) > 0: int(file.stem)
        for file in (tmp_path / "db").glob("*.blob")
    }
    pointers = 0
    for table in (tmp_path / "db").glob("*.sst"):
        content = bytearray(table.read_bytes())
        # A blob's address: its kind, its file, and its place there.
        at = content.find(bytes([1, blobs[True]]), 0, 60)
        if at > 0 and log_key(1, 0, 0) in content:
            content[at + 1] = blobs[False]
            table.write_bytes(content)
            pointers += 1
    assert pointers == 1
    store = RocksStorage(tmp_path, "broker-1")
    assert served(store, 1) == ([], True)
    assert served(store, 1, queue=1) == ([theirs], False)
    store.close()


@pytest.mark.parametrize("limit", [0, 2_000, UNCHECKED_FROM])
def test_unchecked_scans_read_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(rocks_storage, "UNCHECKED_FROM", limit)
    rng = random.Random(limit)
    sizes = [rng.choice((10, 1_500, 30_000)) for _ in range(40)]
    stored = written(tmp_path, sizes)
    written(tmp_path, [30_000] * 3, queue=1)
    store = RocksStorage(tmp_path, "broker-1")
    # The last of them only in memory.
    writes = WriteSet()
    for offset in range(40, 44):
        stored.append(entry(offset, 30_000))
        writes.put("log", log_key(1, 0, offset), stored[-1])
    store.write(writes)
    for first in range(44):
        for last in (first, first + 1, 30, 44):
            keys = (log_key(1, 0, first), log_key(1, 0, last))
            rows = [each for _, each in store.scan("log", *keys, values_checked_by_caller=True)]
            assert rows == stored[first:last]
    scan = store.scan("log", queue_key(1, 0), queue_end(1, 0), values_checked_by_caller=True)
    assert next(scan)[1] == stored[0]
    writes = WriteSet()
    writes.delete_range("log", log_key(1, 0, 1), log_key(1, 0, 50))
    store.write(writes)
    assert [each for _, each in scan] == stored[1:], "it sees the store as of its first step"
    store.close()
