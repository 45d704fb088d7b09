"""The RocksDB body of a broker's store: atomic writes, ordered reads, and what a bad start finds."""

# ruff: noqa: SLF001 - what counts as flushed shows in no public name
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logboom.nodes.disk import rocks_storage
from logboom.nodes.disk.data_folder import DataFolder
from logboom.nodes.disk.journal_files import JournalFiles
from logboom.nodes.disk.journal_records import (
    SegmentContent,
    SegmentHeader,
    read_header,
    scan_segment,
)
from logboom.nodes.disk.rocks_storage import (
    BLOB_FAMILIES,
    OPENING_BYTES,
    RocksStorage,
    has_room,
)
from logboom.nodes.log.keys import log_key, queue_end, queue_key
from logboom.nodes.log.storage import FAMILIES, Family, WriteSet
from logboom.wire.errors import DataDamaged, StartError

WRITER = """
import sys
from pathlib import Path
import pytest
from logboom.nodes.log.keys import log_key
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.disk.rocks_storage import RocksStorage
from tests.unit.nodes.disk.older_store import write_older_stores

if sys.argv[3:]:
    write_older_stores(pytest.MonkeyPatch())
store = RocksStorage(Path(sys.argv[1]), "broker-1")
for number in range(int(sys.argv[2])):
    writes = WriteSet()
    writes.put("log", log_key(1, 0, number), number.to_bytes(8, "big") * 400)
    writes.put("state", b"end", number.to_bytes(8, "big"))
    store.write(writes)
    store.sync()
    print(number, flush=True)
sys.stdin.read()
"""
"""Acknowledges each write once it is synced, then waits to be killed."""


LAST_FLUSH = """
import os, resource, sys
from pathlib import Path
from logboom.nodes.log.keys import log_key
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.wire.errors import StartError

def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))

path, how = Path(sys.argv[1]), sys.argv[2]
if how == "open":
    limit()
    try:
        RocksStorage(path, "broker-1")
    except StartError as error:
        print(error, flush=True)
    os._exit(0)
store = RocksStorage(path, "broker-1")
for number in range(8):
    writes = WriteSet()
    writes.put("log", log_key(1, 0, number), number.to_bytes(8, "big") * 400)
    writes.put("state", b"end", number.to_bytes(8, "big"))
    writes.put("compact", log_key(1, 0, number), bytes(500_000))
    store.write(writes)
    store.sync()
if how == "close":
    limit()
    store.close()
os._exit(0)
"""
"""Fills a store, and closes or opens it on a disk that takes no large file."""
RECORD_HEAD = 36


def one(number: int) -> WriteSet:
    writes = WriteSet()
    writes.put("log", log_key(1, 0, number), number.to_bytes(8, "big") * 400)
    return writes


def offsets(store: RocksStorage) -> list[int]:
    scan = store.scan("log", queue_key(1, 0), queue_end(1, 0))
    return [int.from_bytes(entry[:8], "big") for _, entry in scan]


def write_and_kill(path: Path, count: int, *, older: bool = False, left: int = 4) -> int:
    """Let a child write and be killed (-9); the last number that it acknowledged.

    `older`: the store is one of format 3, with RocksDB's own write-ahead log. `left`: how many writes
    are still to come; without one, all have been synced.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count), *(["older"] if older else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    acked = -1
    while acked < count - 1 - left:
        acked = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    child.stdin.close()
    return int(rest[-1]) if rest else acked


def newest_wal(path: Path) -> Path:
    return max((path / "db").glob("*.log"), key=lambda file: int(file.stem))


def newest_journal(path: Path) -> tuple[Path, SegmentHeader, SegmentContent]:
    """The segment that was written last, and what is in it."""
    found = []
    for file in (path / "db").glob("*.journal"):
        content = file.read_bytes()
        header = read_header(content)
        if header is not None:
            found.append((header.ordinal, file, header, scan_segment(header, content)))
    _, file, header, segment = max(found)
    return file, header, segment


def remove_newest_log(path: Path, *, older: bool) -> None:
    """Take the write-ahead log, or the journal."""
    (newest_wal(path) if older else newest_journal(path)[0]).unlink()


def damage(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def test_a_write_set_is_visible_at_once_and_after_reopening(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    writes = WriteSet()
    for family in FAMILIES:
        writes.put(family, b"key", family.encode())
    store.write(writes)
    assert [store.get(family, b"key") for family in FAMILIES] == [f.encode() for f in FAMILIES]
    store_id = store.store_id
    store.close()
    again = RocksStorage(tmp_path, "broker-1")
    assert [again.get(family, b"key") for family in FAMILIES] == [f.encode() for f in FAMILIES]
    assert again.store_id == store_id
    assert not again.suspect
    again.close()


def test_operations_of_a_write_set_apply_in_their_order(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    writes = WriteSet()
    writes.put("state", b"a", b"1")
    writes.put("state", b"b", b"1")
    writes.put("state", b"c", b"1")
    writes.delete_range("state", b"a", b"c")
    writes.put("state", b"b", b"2")
    writes.delete("state", b"c")
    writes.delete_range("state", b"z", b"a")
    store.write(writes)
    assert list(store.scan("state", b"", b"\xff")) == [(b"b", b"2")]
    store.close()


def test_scans_keep_to_their_bounds_in_both_directions(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    for queue in (0, 1, 2):
        writes = WriteSet()
        for offset in range(5):
            writes.put("log", log_key(7, queue, offset), b"%d.%d" % (queue, offset))
        store.write(writes)
    first, end = log_key(7, 1, 1), log_key(7, 1, 4)
    assert [entry for _, entry in store.scan("log", first, end)] == [b"1.1", b"1.2", b"1.3"]
    backwards = store.scan("log", first, end, reverse=True)
    assert [entry for _, entry in backwards] == [b"1.3", b"1.2", b"1.1"]
    assert next(store.scan("log", b"", queue_end(7, 2), reverse=True))[1] == b"2.4"
    assert list(store.scan("log", end, first)) == []
    store.close()


def test_a_scan_sees_the_store_as_of_its_first_step(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    store.write(one(0))
    scan = store.scan("log", queue_key(1, 0), queue_end(1, 0))
    next(scan)
    store.write(one(1))
    assert list(scan) == []
    store.close()


def test_all_synced_writes_survive_kill_9(tmp_path: Path) -> None:
    acked = write_and_kill(tmp_path, 40)
    store = RocksStorage(tmp_path, "broker-1")
    found = offsets(store)
    assert found == list(range(len(found)))
    assert len(found) > acked >= 35
    assert store.get("state", b"end") == (len(found) - 1).to_bytes(8, "big")
    assert not store.suspect
    store.close()


def test_a_torn_tail_that_was_never_synced_is_no_suspicion(tmp_path: Path) -> None:
    write_and_kill(tmp_path, 10)
    file, _, segment = newest_journal(tmp_path)
    content = file.read_bytes()
    first = segment.records[0]
    # What a power failure leaves of a write that was under way: the head of a record.
    head = content[first.at - RECORD_HEAD : first.at + 100]
    file.write_bytes(content[: segment.end] + head + content[segment.end + len(head) :])
    store = RocksStorage(tmp_path, "broker-1")
    assert offsets(store)[:6] == list(range(6))
    assert not store.suspect
    store.close()


def test_a_torn_tail_of_an_older_store_is_no_suspicion(tmp_path: Path) -> None:
    write_and_kill(tmp_path, 10, older=True)
    wal = newest_wal(tmp_path)
    with wal.open("ab") as file:
        file.write(wal.read_bytes()[:100])
    store = RocksStorage(tmp_path, "broker-1")
    assert offsets(store)[:6] == list(range(6))
    assert not store.suspect
    store.close()


def test_q13_a_flipped_bit_in_the_journal_makes_the_store_suspect(tmp_path: Path) -> None:
    acked = write_and_kill(tmp_path, 40)
    file, _, segment = newest_journal(tmp_path)
    damage(file, segment.end // 2)
    # Its number is that of long ago, as after a power failure: the journal itself is the proof.
    folder = DataFolder(tmp_path, "broker-1")
    folder.put_synced(1)
    folder.close()
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert 0 < len(offsets(store)) < acked
    store.close()


def test_q13_a_flipped_bit_in_an_older_store_s_log_makes_it_suspect(tmp_path: Path) -> None:
    acked = write_and_kill(tmp_path, 40, older=True)
    wal = newest_wal(tmp_path)
    damage(wal, wal.stat().st_size // 2)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert 0 < len(offsets(store)) < acked
    store.close()


@pytest.mark.parametrize("at", [0, 4, 8, 12, 20, 28, 40])
def test_q13_damage_to_the_last_record_is_no_torn_write(tmp_path: Path, at: int) -> None:
    acked = write_and_kill(tmp_path, 10)
    file, _, segment = newest_journal(tmp_path)
    last = segment.records[acked]
    content = file.read_bytes()[: last.at + last.size]
    file.write_bytes(content.ljust(file.stat().st_size, b"\0"))
    damage(file, last.at - RECORD_HEAD + at)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert offsets(store) == list(range(acked))
    store.close()


def test_q13_a_damaged_length_in_an_older_store_is_no_torn_write(tmp_path: Path) -> None:
    write_and_kill(tmp_path, 10, older=True, left=0)
    wal = newest_wal(tmp_path)
    content = wal.read_bytes()
    # The last record's length (bytes 4 and 5 of its head) grows past the end of the file: RocksDB
    # alone takes that for a write that was under way, and opens without a word.
    heads = [at for at in range(len(content) - 4000, len(content)) if _is_head(content, at)]
    damage(wal, heads[-1] + 5)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    store.close()


def _is_head(content: bytes, at: int) -> bool:
    """Whether a write-ahead record that ends with the file begins at `at`."""
    return at + 7 + int.from_bytes(content[at + 4 : at + 6], "little") == len(content)


@pytest.mark.parametrize("older", [False, True])
def test_q13_a_lost_log_makes_the_store_suspect(tmp_path: Path, older: bool) -> None:
    write_and_kill(tmp_path, 10, older=older)
    remove_newest_log(tmp_path, older=older)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    store.close()


def test_a_store_stays_suspect_until_the_name_servers_know(tmp_path: Path) -> None:
    write_and_kill(tmp_path, 10)
    remove_newest_log(tmp_path, older=False)
    RocksStorage(tmp_path, "broker-1").close()
    again = RocksStorage(tmp_path, "broker-1")
    assert again.suspect
    again.absolve()
    again.close()
    store = RocksStorage(tmp_path, "broker-1")
    assert not store.suspect
    store.close()


def test_an_older_store_goes_on_with_a_journal(tmp_path: Path) -> None:
    acked = write_and_kill(tmp_path, 20, older=True)
    assert not list((tmp_path / "db").glob("*.journal"))
    store = RocksStorage(tmp_path, "broker-1")
    found = offsets(store)
    assert len(found) > acked
    assert not store.suspect
    for number in range(len(found), len(found) + 5):
        store.write(one(number))
    store.sync()
    copy = tmp_path.with_name(f"{tmp_path.name}-killed")
    shutil.copytree(tmp_path, copy)
    store.close()
    assert all(file.stat().st_size == 0 for file in (copy / "db").glob("*.log"))
    again = RocksStorage(copy, "broker-1")
    assert offsets(again) == list(range(len(found) + 5))
    assert not again.suspect
    again.close()


BUSY = """
import os, sys, time
from pathlib import Path
from logboom.nodes.disk import rocks_storage, write_journal
from logboom.nodes.log.keys import log_key
from logboom.nodes.log.storage import WriteSet

rocks_storage.LOG_BUFFER, rocks_storage.SAMPLE_BYTES = 1 << 20, 1 << 14
write_journal.SEGMENT_BYTES = 1 << 20
store = rocks_storage.RocksStorage(Path(sys.argv[1]), "broker-1")
for number in range(int(sys.argv[2])):
    writes = WriteSet()
    writes.put("log", log_key(1, 0, number), number.to_bytes(8, "big") * 400)
    writes.put("state", b"end", number.to_bytes(8, "big"))
    store.write(writes)
    if number % 7 == 0 or number == int(sys.argv[2]) - 1:
        store.sync()
        while store.congested():
            # RocksDB flushes in threads of its own.
            time.sleep(0.001)
os.kill(os.getpid(), 9)
"""
"""RocksDB flushes all the time; the process dies while it does."""


def test_what_rocksdb_flushes_by_itself_needs_no_journal_any_more(tmp_path: Path) -> None:
    """Segments are used again, and what a kill leaves is complete in all families alike."""
    count = 6_000
    words = [sys.executable, "-c", BUSY, str(tmp_path), str(count)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    size = sum(file.stat().st_size for file in (tmp_path / "db").glob("*.journal"))
    assert size < count * 3_200 * 3 / 4
    store = RocksStorage(tmp_path, "broker-1")
    assert offsets(store) == list(range(count))
    assert store.get("state", b"end") == (count - 1).to_bytes(8, "big")
    assert not store.suspect
    store.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_q14_a_journal_that_fails_ends_the_store_and_tears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, error: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    store = RocksStorage(tmp_path, "broker-1")
    for number in range(3):
        writes = one(number)
        writes.put("state", b"end", number.to_bytes(8, "big"))
        store.write(writes)
        if number == 1:
            store.sync()
            monkeypatch.setattr(JournalFiles, operation, refuse)
    with pytest.raises(DataDamaged, match=os.strerror(error)):
        store.sync()
    monkeypatch.undo()
    with pytest.raises(DataDamaged, match="failed before"):
        store.sync()
    assert store.out_of_room == (error == errno.ENOSPC)
    store.close()
    again = RocksStorage(tmp_path, "broker-1")
    found = offsets(again)
    assert found in ([0, 1], [0, 1, 2])
    assert again.get("state", b"end") == found[-1].to_bytes(8, "big")
    assert not again.suspect
    again.close()


def test_q14_a_last_flush_that_fails_leaves_all_families_at_one_point(tmp_path: Path) -> None:
    """The last family does not go to disk, and those before it would."""
    words = [sys.executable, "-c", LAST_FLUSH, str(tmp_path), "close"]
    subprocess.run(words, check=True)
    # Without its journal the store is what RocksDB has flushed.
    for file in (tmp_path / "db").glob("*.journal"):
        file.unlink()
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert offsets(store) == []
    assert store.get("state", b"end") is None
    store.close()


def test_q14_an_opening_that_fails_leaves_all_families_at_one_point(tmp_path: Path) -> None:
    """The last family does not go to disk, and those before it would."""
    words = [sys.executable, "-c", LAST_FLUSH, str(tmp_path)]
    subprocess.run([*words, "killed"], check=True)
    child = subprocess.run([*words, "open"], check=True, stdout=subprocess.PIPE)
    assert b"check the disk, then start again" in child.stdout
    for file in (tmp_path / "db").glob("*.journal"):
        file.unlink()
    store = RocksStorage(tmp_path, "broker-1")
    assert offsets(store) == []
    assert store.get("state", b"end") is None
    assert list(store.scan("compact", b"", b"\xff")) == []
    store.close()


def test_a_store_that_is_closed_is_flushed_in_full(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    for number in range(3):
        store.write(one(number))
    store.close()
    for file in (tmp_path / "db").glob("*.journal"):
        file.unlink()
    again = RocksStorage(tmp_path, "broker-1")
    assert offsets(again) == [0, 1, 2]
    assert not again.suspect
    again.close()


def test_a_sync_that_is_broken_off_ends_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop syncs by itself now and then, and Ctrl-C meets it there."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    store = RocksStorage(tmp_path, "broker-1")
    store.write(one(0))
    monkeypatch.setattr(JournalFiles, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.sync()
    monkeypatch.undo()
    store.write(one(1))
    with pytest.raises(DataDamaged, match="failed before"):
        store.sync()
    store.close()
    again = RocksStorage(tmp_path, "broker-1")
    assert offsets(again) == [0, 1]
    again.close()


def test_small_writes_alone_pause_the_loop_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Families are flushed together, and only the default one has an entry of each write."""
    store = RocksStorage(tmp_path, "broker-1")
    assert not store.congested()
    waiting = SimpleNamespace(property_int_value={"rocksdb.num-immutable-mem-table": 3}.get)
    monkeypatch.setattr(store, "_database", waiting)
    assert store.congested()
    monkeypatch.undo()
    store.close()


def test_q13_a_segment_whose_header_is_damaged_makes_the_store_suspect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing in the journal proves that there was a last segment, but a header that is no header."""
    write_and_kill(tmp_path, 10)
    file, _, _ = newest_journal(tmp_path)
    for page in (0, 4096):
        damage(file, page + 9)
    folder = DataFolder(tmp_path, "broker-1")
    folder.put_synced(0)
    folder.close()
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert f"the header of {file.name} is damaged" in caplog.text
    store.absolve()
    store.close()
    # The file is used again, and damage that was reported is over.
    again = RocksStorage(tmp_path, "broker-1")
    assert not again.suspect
    again.close()


def test_q13_a_header_that_the_disk_refuses_is_no_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_and_kill(tmp_path, 10)
    folder = DataFolder(tmp_path, "broker-1")
    folder.put_synced(0)
    folder.close()
    read = os.pread

    def refuse(handle: int, size: int, at: int) -> bytes:
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        if name.endswith(".journal") and at < 8192:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(handle, size, at)

    monkeypatch.setattr(os, "pread", refuse)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    monkeypatch.undo()
    store.close()


def test_a_page_that_the_disk_refuses_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a" * 4096 + b"b" * 4096 + b"c" * 100)
    read = os.pread

    def refuse(handle: int, size: int, at: int) -> bytes:
        if at < 8192 and at + size > 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(handle, size, at)

    monkeypatch.setattr(os, "pread", refuse)
    found = JournalFiles(tmp_path).read("file")
    assert found == b"a" * 4096 + b"\xff" * 4096 + b"c" * 100


def unflushing(path: Path, monkeypatch: pytest.MonkeyPatch) -> RocksStorage:
    """A store with small memtables, which RocksDB does not flush any more."""
    monkeypatch.setattr(rocks_storage, "LOG_BUFFER", 1 << 16)
    monkeypatch.setattr(rocks_storage, "SAMPLE_BYTES", 1)
    store = RocksStorage(path, "broker-1")
    store._database.cancel_all_background(True)
    return store


def begin_memtable(store: RocksStorage) -> None:
    """Write until one more memtable waits to be flushed, and the store has seen it."""
    before = waiting(store._database)
    while waiting(store._database) == before:
        store.write(one(0))
    store.write(one(0))


def waiting(database: Any) -> int:
    """How many memtables wait to be flushed."""
    return database.property_int_value("rocksdb.num-immutable-mem-table") or 0


def test_q13_memtables_that_wait_are_not_taken_for_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal may use a segment again as soon as its writes count as flushed."""
    store = unflushing(tmp_path, monkeypatch)
    opened = store._find_flushed()
    for count in range(1, 4):
        begin_memtable(store)
        assert (waiting(store._database), len(store._switches)) == (count, count + 1)
        assert store._find_flushed() == opened
        # The loop pauses before RocksDB stalls a write.
        assert store.congested() == (count == 3)
    store.close()


class BusyDatabase:
    """A database into which the loop writes just after the committer has asked it something."""

    def __init__(self, database: Any, then: Callable[[], None]) -> None:
        self._database = database
        self._then = then

    def property_int_value(self, name: str) -> Any:
        """What the database says, which is out of date on return."""
        found = self._database.property_int_value(name)
        self._then()
        return found


def test_q13_a_memtable_that_begins_meanwhile_is_not_taken_for_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unflushing(tmp_path, monkeypatch)
    opened = store._find_flushed()
    begin_memtable(store)
    database = store._database

    def then() -> None:
        store._database = database
        begin_memtable(store)

    monkeypatch.setattr(store, "_database", BusyDatabase(database, then))
    assert store._find_flushed() == opened
    assert waiting(database) == 2
    store.close()


@pytest.mark.parametrize("damaged", ["a middle record", "the last record"])
def test_q13_no_later_write_gets_the_number_of_a_lost_one(tmp_path: Path, damaged: str) -> None:
    """Else a record of before, which lies in the file still, would be taken for the new one."""
    store = RocksStorage(tmp_path / "store", "broker-1")
    for number in range(5):
        store.write(one(number))
        store.sync()
    path = tmp_path / "killed"
    shutil.copytree(tmp_path / "store", path)
    store.close()
    file, _, segment = newest_journal(path)
    last = segment.records[-1].number
    folder = DataFolder(path, "broker-1")
    if damaged == "a middle record":
        damage(file, segment.records[2].at)
        # The records behind it prove all writes but the last, which is still there to see.
        folder.put_synced(1)
    else:
        damage(file, segment.records[-1].at)
    folder.close()
    again = RocksStorage(path, "broker-1")
    assert again.suspect
    again.write(one(9))
    again.sync()
    _, header, segment = newest_journal(path)
    assert header.first == segment.records[0].number == last + 1
    again.close()


@pytest.mark.parametrize("size", [10_000, 200_000])
def test_a_write_that_the_disk_takes_in_parts_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    files = JournalFiles(tmp_path)
    handle, _ = files.open("file", create=True)
    write, write_vector = os.pwrite, os.writev
    monkeypatch.setattr(
        os, "pwrite", lambda handle, content, at: write(handle, content[:3_000], at)
    )
    monkeypatch.setattr(os, "writev", lambda handle, buffers: write_vector(handle, buffers[:1]))
    buffers = [os.urandom(size // 2), os.urandom(size // 2)]
    files.write(handle, 4096, buffers)
    files.close(handle)
    assert files.read("file") == bytes(4096) + b"".join(buffers)


def test_opening_needs_room_for_what_the_journal_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    writes = WriteSet()
    writes.put("log", log_key(1, 0, 0), os.urandom(8 << 20))
    store.write(writes)
    store.sync()
    block = os.statvfs(tmp_path).f_frsize
    for room, enough in ((OPENING_BYTES + (7 << 20), False), (OPENING_BYTES + (10 << 20), True)):
        found = SimpleNamespace(f_bavail=room // block, f_frsize=block)
        monkeypatch.setattr(os, "statvfs", lambda _path, found=found: found)
        assert has_room(tmp_path) == enough
    monkeypatch.undo()
    store.close()


def test_q14_a_store_that_cannot_be_opened_begins_anew_under_a_new_id(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    store.write(one(0))
    store_id = store.store_id
    store.close()
    manifest = next((tmp_path / "db").glob("MANIFEST-*"))
    damage(manifest, manifest.stat().st_size // 2)
    again = RocksStorage(tmp_path, "broker-1")
    assert again.store_id != store_id
    assert offsets(again) == []
    assert not again.suspect
    assert (tmp_path / "damaged-1" / "CURRENT").exists()
    again.close()


def test_q14_a_store_that_cannot_say_which_it_is_begins_anew(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    store.write(one(0))
    store.close()
    found = set()
    for table in sorted((tmp_path / "db").glob("*.sst")):
        work = tmp_path.with_name(f"{tmp_path.name}-{table.stem}")
        shutil.copytree(tmp_path, work)
        damage(work / "db" / table.name, 20)
        damaged = RocksStorage(work, "broker-1")
        found.add(damaged.store_id)
        damaged.write(one(1))
        damaged.close()
        again = RocksStorage(work, "broker-1")
        assert again.store_id == damaged.store_id
        again.close()
    # One of them held the id.
    assert found - {store.store_id}


def test_q14_a_damaged_blob_is_told_and_never_served(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    for number in range(3):
        store.write(one(number))
    store.close()
    # Opening flushed them: they are in a blob file now.
    RocksStorage(tmp_path, "broker-1").close()
    blob = next((tmp_path / "db").glob("*.blob"))
    damage(blob, blob.stat().st_size // 2)
    store = RocksStorage(tmp_path, "broker-1")
    with pytest.raises(DataDamaged):
        offsets(store)
    with pytest.raises(DataDamaged):
        store.get("log", log_key(1, 0, 1))
    assert store.get("log", log_key(1, 0, 0)) == bytes(3200)
    store.close()


def test_q14_a_condemned_store_begins_anew(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    store_id = store.store_id
    store.folder.mark("condemned", "Corruption: found while it ran")
    store.close()
    again = RocksStorage(tmp_path, "broker-1")
    assert again.store_id != store_id
    assert not again.folder.marked("condemned")
    again.close()


def test_q14_damage_that_compaction_meets_condemns_the_store(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    writes = WriteSet()
    for offset in range(100):
        writes.put("log", log_key(1, 0, offset), os.urandom(500))
    store.write(writes)
    store.close()
    RocksStorage(tmp_path, "broker-1").close()
    table = max((tmp_path / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    damage(table, table.stat().st_size // 2)
    store = RocksStorage(tmp_path, "broker-1")
    writes = WriteSet()
    writes.delete_range("log", queue_key(1, 0), log_key(1, 0, 80))
    store.write(writes)
    store.reclaim()
    with pytest.raises(DataDamaged, match="failed"):
        store.write(one(100))
    with pytest.raises(DataDamaged, match="failed before"):
        store.sync()
    store.close()
    assert (tmp_path / "condemned").exists()


@pytest.mark.parametrize("family", BLOB_FAMILIES)
def test_what_was_removed_gives_its_room_back(tmp_path: Path, family: Family) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    for _ in range(4):
        writes = WriteSet()
        for offset in range(16):
            writes.put(family, log_key(1, 0, offset), os.urandom(1 << 20))
        store.write(writes)
    # Room is only in blob files once the write buffer is flushed; a restart does that.
    store.close()
    store = RocksStorage(tmp_path, "broker-1")
    before = sum(file.stat().st_size for file in (tmp_path / "db").glob("*.blob"))
    writes = WriteSet()
    writes.delete_range(family, queue_key(1, 0), log_key(1, 0, 16))
    store.write(writes)
    store.reclaim()
    store.close()
    RocksStorage(tmp_path, "broker-1").close()
    after = sum(file.stat().st_size for file in (tmp_path / "db").glob("*.blob"))
    assert before > 16 << 20
    assert after == 0


def test_a_folder_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    with pytest.raises(StartError, match="is in use") as refused:
        RocksStorage(tmp_path, "broker-1")
    assert refused.value.code == "WRONG_DATA_FOLDER"
    assert "\n" not in str(refused.value)
    store.close()


def test_space_tells_of_the_file_system(tmp_path: Path) -> None:
    store = RocksStorage(tmp_path, "broker-1")
    space = store.space()
    assert 0 < space.free <= space.total
    store.close()


def test_what_is_not_flushed_yet_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written a second time, into a blob file, whether the disk is full by then or not."""
    store = RocksStorage(tmp_path, "broker-1")
    found = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    before = store.space().free
    writes = WriteSet()
    writes.put("log", log_key(1, 0, 0), bytes(8 << 20))
    store.write(writes)
    assert 8 << 20 <= before - store.space().free < 10 << 20
    store.close()


def filled(path: Path) -> str:
    """A store with tables, a blob file and a write-ahead log; its id."""
    store = RocksStorage(path, "broker-1")
    for number in range(3):
        store.write(one(number))
    store_id = store.store_id
    store.close()
    write_and_kill(path, 10)
    return store_id


def newest(path: Path, pattern: str) -> Path:
    return max((path / "db").glob(pattern), key=lambda file: file.stat().st_mtime_ns)


def break_table(path: Path) -> None:
    table = max((path / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    damage(table, table.stat().st_size - 20)


def break_manifest(path: Path) -> None:
    manifest = newest(path, "MANIFEST-*")
    damage(manifest, manifest.stat().st_size // 2)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (break_table, r"SST file \d+\.sst is damaged"),
        (lambda path: newest(path, "*.sst").unlink(), r"SST file \d+\.sst is damaged"),
        (break_manifest, r"MANIFEST-\d+ is damaged"),
        (lambda path: newest(path, "MANIFEST-*").unlink(), r"MANIFEST-\d+ is damaged"),
        (lambda path: damage(path / "db" / "CURRENT", 12), "CURRENT is damaged"),
        (lambda path: (path / "db" / "CURRENT").unlink(), "CURRENT is missing"),
    ],
)
def test_a_store_that_cannot_be_opened_says_which_file_is_damaged_and_what_to_do(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    says: str,
) -> None:
    store_id = filled(tmp_path)
    spoil(tmp_path)
    data = {file.name for file in (tmp_path / "db").iterdir() if file.suffix in (".sst", ".blob")}
    store = RocksStorage(tmp_path, "broker-1")
    assert store.store_id != store_id
    assert not store.suspect
    store.close()
    (said,) = caplog.messages
    assert re.search(says, said)
    assert "write-ahead log" not in said
    assert "every queue of this broker is affected" in said
    assert f"logboom store recover {tmp_path / 'damaged-1'}" in said
    # What is left of the old one is all there.
    assert data <= {file.name for file in (tmp_path / "damaged-1").iterdir()}


def test_a_damaged_journal_is_named_and_what_follows_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_id = filled(tmp_path)
    file, _, segment = newest_journal(tmp_path)
    damage(file, segment.end // 2)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert store.store_id == store_id
    store.close()
    assert re.search(r"write \d+ was synced, but the journal ends at write \d+", caplog.messages[0])
    assert "Every queue of this broker may lack its newest entries" in caplog.messages[0]


def test_a_damaged_write_ahead_log_of_an_older_store_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_and_kill(tmp_path, 10, older=True)
    wal = newest_wal(tmp_path)
    damage(wal, wal.stat().st_size // 2)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    store.close()
    assert "the write-ahead log is damaged" in caplog.messages[0]
    assert "Every queue of this broker may lack its newest entries" in caplog.messages[0]


@pytest.mark.parametrize("spoiled", [None, b"", b"not twelve", bytes(range(12))])
def test_q13_a_store_whose_synced_file_is_gone_or_damaged_is_suspect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoiled: bytes | None
) -> None:
    """With it goes the only proof that RocksDB gave all back that was synced."""
    store_id = filled(tmp_path)
    file = tmp_path / "synced"
    file.unlink() if spoiled is None else file.write_bytes(spoiled)
    store = RocksStorage(tmp_path, "broker-1")
    assert store.suspect
    assert store.store_id == store_id
    assert "`synced` was deleted or damaged" in caplog.text
    store.absolve()
    store.close()
    again = RocksStorage(tmp_path, "broker-1")
    assert not again.suspect
    again.close()


def test_a_new_store_in_a_folder_whose_old_one_was_deleted_is_not_suspect(tmp_path: Path) -> None:
    filled(tmp_path)
    shutil.rmtree(tmp_path / "db")
    for _ in range(2):
        store = RocksStorage(tmp_path, "broker-1")
        assert not store.suspect
        store.close()


def test_damage_that_is_read_names_the_kind_of_file(tmp_path: Path) -> None:
    filled(tmp_path)
    RocksStorage(tmp_path, "broker-1").close()
    for blob in (tmp_path / "db").glob("*.blob"):
        damage(blob, blob.stat().st_size // 2)
    store = RocksStorage(tmp_path, "broker-1")
    with pytest.raises(DataDamaged, match=r"a blob file .* is damaged"):
        offsets(store)
    store.close()
