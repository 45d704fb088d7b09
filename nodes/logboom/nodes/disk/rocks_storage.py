"""The broker's store in RocksDB; no other module of this portion knows rocksdict.

It is one database with a column family per family of `storage.py`, in raw mode, with cached
handles. `write` puts a turn's WriteSet into the memtables, without RocksDB's write-ahead log, and
hands it to the journal (`write_journal.py`). `sync` writes and syncs what the journal was handed.
That releases the GIL, and may run in another thread while the next turn writes.

RocksDB flushes all families at one point of their common history (`set_atomic_flush`), whenever one
memtable is full. So its files always hold all writes up to some number and nothing of later ones,
and what the journal holds from there on makes the store complete again. Each write stores its
number under a key of its own; each sync notes it in the folder too, since damage at the end of the
journal looks like a torn write. A store that comes back with less than was synced is *suspect* (see
docs/SAFETY.md, Q13).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rocksdict import (
    AccessType,
    CompactOptions,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from logboom.nodes.disk.data_folder import DataFolder
from logboom.nodes.disk.journal_files import JournalFiles
from logboom.nodes.disk.journal_records import MAX_MARKER, SUFFIX, JournalEntry, JournalReplay
from logboom.nodes.disk.write_journal import WriteJournal, find_segments, sync_segments
from logboom.nodes.log.body_references import referenced_key, resolve_body
from logboom.nodes.log.storage import (
    DELETE,
    DELETE_RANGE,
    FAMILIES,
    PUT,
    DiskSpace,
    Family,
    Operation,
    WriteSet,
)
from logboom.wire.errors import DataDamaged, StartError
from logboom.wire.event_log import log_event
from logboom.wire.manifest_file import cut_torn_manifest, manifest_name
from logboom.wire.name_servers import KnownServer

LOG_BUFFER: Final = 64 * 1024 * 1024
SMALL_BUFFER: Final = 32 * 1024 * 1024
"""Memtable of the other families. One that is full flushes the others too."""
BUFFERS: Final = 6
"""Memtables of a family, all but one of which wait to be flushed."""
SAMPLE_BYTES: Final = 256 * 1024
"""Bytes of writes between two questions to RocksDB whether it has begun new memtables."""
OPENING_BYTES: Final = 16 * 1024 * 1024
"""Bytes that an opening may write in addition to the contents of the journal."""
NO_SPACE: Final = os.strerror(errno.ENOSPC)
BLOB_FROM: Final = 1024
UNCHECKED_FROM: Final = 8 * 1024
"""Bytes of a value from which on its checksum costs more than the seek that replaces it."""
BLOB_FAMILIES: Final = ("log", "compact")
"""Families whose large values are in blob files."""
_STORE_ID: Final = b"store id"
_NUMBER: Final = b"write number"
_SEGMENT: Final = b"journal segment"
"""Ordinal of the first segment of the journal that counts; older ones are superfluous."""
_FILE: Final = re.compile(r"(\d+\.sst)|(\d+\.blob)|(MANIFEST-\d+)|(CURRENT)")
"""RocksDB names the damaged file first; with damage in any file it adds that the MANIFEST may be
damaged."""
_STALL: Final = re.compile(r"^Cumulative stall: (\d+):(\d+):([\d.]+) H:M:S", re.MULTILINE)
_WAL: Final = "the write-ahead log"
"""RocksDB's own, of folders of formats 1 to 3 that were not opened since."""
_JOURNAL: Final = "the journal"
_SUSPECT: Final = (
    "Every queue of this broker may lack its newest entries here. It leaves the in-sync replicas where "
    "there are others, and fetches from them what it lacks; a queue whose only replica is here goes on "
    "with what is left"
)
_UNFLUSHED: Final = (
    "rocksdb.num-immutable-mem-table",
    "rocksdb.num-entries-active-mem-table",
)
"""Properties of the default family, of which each is 0 after a flush."""
_ENDED: Final = "Shutdown in progress"
"""What RocksDB says to a flush after its last one."""


def database_options(mode: DBRecoveryMode) -> Options:
    """Build the options of the database as a whole, and of its default family."""
    # Every write puts an entry into the default family: its limits stall the others too.
    options = _family_options(SMALL_BUFFER)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(mode)
    # A flush of one family alone would tear write sets, because no log of RocksDB's has the rest.
    options.set_atomic_flush(True)
    # Flushes and compactions run in parallel: a flush never waits for a compaction.
    options.set_max_background_jobs(4)
    # Written out 1 MiB at a time, so that no fsync finds 64 MiB of dirty pages of a blob file.
    options.set_bytes_per_sync(1024 * 1024)
    # Files are removed in the background and not by the event loop.
    options.set_avoid_unnecessary_blocking_io(True)
    # More open files cost memory, and the page cache does not need them.
    options.set_max_open_files(512)
    # Nobody reads these, and an idle broker should be idle.
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(4 * 1024 * 1024)
    return options


def _family_options(buffer: int) -> Options:
    """Build the options of every family."""
    options = Options(raw_mode=True)
    # Allocated as they fill, so that an idle broker has none of it.
    options.set_write_buffer_size(buffer)
    options.set_max_write_buffer_number(BUFFERS)
    # Batches are compressed already, or are not meant to be.
    options.set_compression_type(DBCompressionType.none())
    # A stalled write would hold the GIL and with it the whole node. The loop stops reading long
    # before these limits (`RocksStorage.congested`).
    options.set_level_zero_slowdown_writes_trigger(1_000)
    options.set_level_zero_stop_writes_trigger(2_000)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    return options


def log_options() -> Options:
    """Build the options of `log`: large values, written once, read in order, removed in front."""
    options = _family_options(LOG_BUFFER)
    # Batches go to blob files at the flush and stay there. Compaction moves keys of 20 bytes, and a
    # blob file is removed together with the last key that refers to it. Each byte is therefore
    # written twice: once to the journal, once to its blob file.
    options.set_enable_blob_files(True)
    options.set_min_blob_size(BLOB_FROM)
    options.set_blob_file_size(256 * 1024 * 1024)
    # It would copy live batches of long retention again and again.
    options.set_enable_blob_gc(False)
    return options


def _compact_options() -> Options:
    """Build the options of `compact`: millions of small rows, and copies of batches that go singly."""
    options = _family_options(SMALL_BUFFER)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(BLOB_FROM)
    # Copies expire in no particular order; without it the space of dead ones is never reclaimed.
    options.set_enable_blob_gc(True)
    return options


class RocksStorage:
    """A `storage.Storage` in a folder. `get`, `scan` and `write` belong to one thread."""

    def __init__(self, path: Path, node_id: str) -> None:
        """Open the folder `path` of broker `node_id`, creating it if it is missing.

        Raises:
            StartError: WRONG_DATA_FOLDER, NEWER_FORMAT, or BAD_CONFIG; one line.
        """
        self.folder = DataFolder(path, node_id)
        try:
            self._open()
        # Ctrl-C included: release the folder, and let the error pass.
        except BaseException:
            self.folder.close()
            raise

    def _take_handles(self) -> tuple[bytes | None, bytes | None]:
        """Open the database; return its id and the number of its last write."""
        self._database = _open_database(self.folder)
        self._families = {name: self._database.get_column_family(name) for name in FAMILIES}
        self._handles = {name: self._database.get_column_family_handle(name) for name in FAMILIES}
        return self._database.get(_STORE_ID), self._database.get(_NUMBER)

    def _drop_handles(self) -> None:
        # Closing a handle would flush its family alone, which tears writes that the journal does not
        # have, or has but cannot give back. This flushes all families at one point, or none, and is
        # the last flush.
        self._database.cancel_all_background(True)
        # Each handle keeps the database and its lock alive.
        self._handles.clear()
        for handle in (*self._families.values(), self._database):
            self._let_go(handle)
        self._families.clear()

    def _open(self) -> None:
        self._families, self._handles = {}, {}
        self._closed = self._failed = False
        try:
            stored, number = self._take_handles()
        except StartError:
            raise
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            # A store that does not know its own id cannot be trusted in anything.
            reason = _damage_in(self.folder, error)
            self._drop_handles()
            self.folder.mark("condemned", reason)
            stored, number = self._take_handles()
        self._removed: dict[tuple[Family, bytes], bytes] = {}
        self._removed_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self.out_of_room = False
        """True if it failed because the file system is full; it is sound when opened again."""
        self._unrecorded: deque[JournalEntry] = deque()
        self._database.set_write_options(_unlogged())
        self.store_id: str = (stored or uuid.uuid4().hex.encode()).decode()
        self._number = int.from_bytes(number or b"", "big")
        try:
            files = JournalFiles(self.folder.path / "db")
            if stored is None:
                self.folder.unmark("suspect")
                self._database.put(_STORE_ID, self.store_id.encode())
                ordinal = 1
            else:
                ordinal = self._replay(files)
            batch = self._batch(self._number, ())
            batch.put(_SEGMENT, ordinal.to_bytes(8, "big"))
            self._database.write(batch)
            self._flush()
            self._journal = WriteJournal(
                files, ordinal, self._number, lambda: secrets.randbelow(MAX_MARKER) + 1
            )
            self.folder.put_synced(self._number, durably=True)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            text = f"{self._refused(error).text}: check the disk, then start again"
            self._drop_handles()
            raise StartError(text) from None
        self._flushed = self._number
        self._unsampled = 0
        self._switches = [self._number]
        """Last numbers before the newest memtables, as far as they were seen."""
        self.suspect = self.folder.marked("suspect") is not None
        self.known_servers: list[KnownServer] = self.folder.known_servers

    def _flush(self) -> None:
        """Flush all families at one point; `flush` would flush a single one.

        Raises:
            Exception: RocksDB refused.
        """
        options = CompactOptions()
        # Others may compact meanwhile.
        options.set_exclusive_manual_compaction(False)
        # To compact a range in memory RocksDB first flushes everything, and this range is one row.
        self._database.compact_range(_NUMBER, _NUMBER + b"\0", options)
        # It does not tell if that fails, but a write is refused then, with the reason.
        if any(self._database.property_int_value(name) for name in _UNFLUSHED):
            self._database.write(self._batch(self._number, ()))
            raise OSError(errno.EIO, "RocksDB has not flushed its memtables")

    def _replay(self, files: JournalFiles) -> int:
        """Take over what the journal holds; return the ordinal of the next segment."""
        start = int.from_bytes(self._database.get(_SEGMENT) or b"", "big")
        segments, unknown = find_segments(files, start)
        # What a killed process left in the page cache counts as on disk from here on.
        sync_segments(files, segments)
        replay = JournalReplay(self._number)
        for segment in segments:
            for number, operations in replay.take(segment.header, files.read(segment.name)):
                self._database.write(self._batch(number, operations))
        self._number = replay.number
        self._look_for_losses(replay, unknown)
        return max((segment.header.ordinal + 1 for segment in segments), default=max(1, start))

    def _look_for_losses(self, replay: JournalReplay, unknown: Sequence[str]) -> None:
        """Compare the end of the store with what was synced.

        Args:
            replay: of the journal.
            unknown: files of the journal that may be segments, and cannot be read.
        """
        synced = self.folder.synced()
        proven = max(synced or 0, replay.proven)
        if self._number < proven:
            lost = f"write {proven} was synced, but {_JOURNAL} ends at write {self._number}"
        elif synced is None:
            lost = "its file `synced` was deleted or damaged: nothing proves that all is there"
        elif unknown:
            lost = f"the header of {unknown[0]} is damaged: nothing proves that all is there"
        else:
            return
        self.folder.mark("suspect", lost)
        log_event(
            "store_suspect",
            folder=str(self.folder.path),
            error=lost,
            text=f"this data folder has lost synced data. {_SUSPECT}",
        )
        # No later write gets the number of one that is lost.
        self._number = max(proven, replay.seen)

    # -- what the core reads --------------------------------------------------------------------

    def get(self, family: Family, key: bytes) -> bytes | None:
        """See `storage.Storage.get`."""
        try:
            value: bytes | None = self._families[family].get(key)
            return value if value is None or family != "log" else self._entry(key, value)
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            raise _damaged(error) from error

    def _entry(self, key: bytes, value: bytes) -> bytes:
        """Return a complete entry, whose body may be in another one."""
        lender = referenced_key(key, value)
        return value if lender is None else resolve_body(value, self._families["log"].get(lender))

    def scan(
        self,
        family: Family,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        values_checked_by_caller: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """See `storage.Storage.scan`."""
        if start >= end:
            return
        # rocksdict 0.3.29's set_iterate_lower_bound sets the upper bound: we check the lower one.
        rows = self._families[family].iter(_bounded(end))
        found = self._entry if family == "log" else _as_stored
        try:
            if values_checked_by_caller:
                assert not reverse, "values are left unchecked only forwards"
                # All iterators are made before the first step, so that they see the same.
                unchecked = self._families[family].iter(_unchecked(end))
                tables = self._families[family].iter(_bounded(start))
                start = yield from _large_rows(unchecked, tables, start, end, found)
                if start == end:
                    return
            if reverse:
                rows.seek_to_last()
                while rows.valid() and (key := rows.key()) >= start:
                    yield key, found(key, rows.value())
                    rows.prev()
            else:
                rows.seek(start)
                while rows.valid():
                    key = rows.key()
                    yield key, found(key, rows.value())
                    rows.next()
            # An iterator that meets damage just ends; only its status tells.
            rows.status()
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            raise _damaged(error) from error

    def space(self) -> DiskSpace:
        """See `storage.Storage.space`."""
        found = os.statvfs(self.folder.path)
        # A flush writes it once more.
        unflushed = sum(
            family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
            for family in self._families.values()
        )
        free = found.f_bavail * found.f_frsize
        return DiskSpace(max(0, free - unflushed), found.f_blocks * found.f_frsize)

    # -- what the skin does ---------------------------------------------------------------------

    def write(self, writes: WriteSet) -> None:
        """See `storage.Storage.write`.

        Raises:
            DataDamaged: the database refuses; the process must end (Q14).
        """
        number = self._number + 1
        for kind, family, key, value in writes.operations:
            if kind == DELETE_RANGE and family in BLOB_FAMILIES:
                self._note_removed(family, key, value)
        try:
            self._database.write(self._batch(number, writes.operations))
            sequence = self._database.latest_sequence_number()
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            raise self._refused(error) from error
        self._unrecorded.append(JournalEntry(number, sequence, writes.operations))
        self._number = number
        self._unsampled += writes.size
        if self._unsampled >= SAMPLE_BYTES:
            self._unsampled = 0
            self._note_switch()

    def _batch(self, number: int, operations: Sequence[Operation]) -> WriteBatch:
        """Build what RocksDB writes at once: the operations, and the number of the write."""
        batch = WriteBatch(raw_mode=True)
        handles = self._handles
        for kind, family, key, value in operations:
            if kind == PUT:
                batch.put(key, value, handles[family])
            elif kind == DELETE:
                batch.delete(key, handles[family])
            else:
                batch.delete_range(key, value, handles[family])
        batch.put(_NUMBER, number.to_bytes(8, "big"))
        return batch

    def _note_switch(self) -> None:
        """Note it if RocksDB has begun new memtables."""
        # Every write puts one entry into the memtable of the default family.
        entries = self._database.property_int_value("rocksdb.num-entries-active-mem-table")
        before = self._number - (entries or 0)
        if before > self._switches[-1]:
            # Replaced as a whole, because the committer's thread reads it.
            self._switches = [*self._switches[-2 * BUFFERS :], before]

    def _find_flushed(self) -> int:
        """Return the number of the last write that RocksDB is known to have on disk."""
        # In this order: what happens in between makes the result smaller, never greater.
        switches = self._switches
        waiting = self._database.property_int_value("rocksdb.num-immutable-mem-table") or 0
        if waiting < len(switches):
            self._flushed = max(self._flushed, switches[-1 - waiting])
        return self._flushed

    def sync(self) -> None:
        """See `storage.Storage.sync`.

        Raises:
            DataDamaged: the disk refused; never called again, the process must end (Q14).
        """
        with self._sync_lock:
            if self._failed:
                raise DataDamaged(f"the store in {self.folder.path} has failed before: start anew")
            entries = [self._unrecorded.popleft() for _ in range(len(self._unrecorded))]
            if not entries:
                return
            try:
                self._journal.write(entries, self._find_flushed)
            # A property of RocksDB may be refused too, with a bare Exception.
            except Exception as error:
                raise self._refused(error) from error
            # Ctrl-C in a sync by the loop: the journal lacks these writes.
            except BaseException:
                self._failed = True
                raise
            try:
                self.folder.put_synced(entries[-1].number)
            except OSError as error:
                # The older number stays there, and detects less.
                if error.errno != errno.ENOSPC:
                    raise

    def _refused(self, error: Exception) -> DataDamaged:
        """Build the error for a final failure; damage in RocksDB's files would recur at each start."""
        text = _line(error)
        # Later failures follow from the first and do not give the reason.
        self.out_of_room = self.out_of_room or NO_SPACE in text
        self._failed = True
        if "Corruption" in text:
            text = _named(text)
            self.folder.mark("condemned", text)
        return DataDamaged(f"the store in {self.folder.path} failed ({text})")

    def condemn(self, reason: str) -> None:
        """Let the next opening create a new store, and keep this one aside (Q14)."""
        self.folder.mark("condemned", reason)
        log_event("store_given_up", folder=str(self.folder.path), error=reason)

    def congested(self) -> bool:
        """Return True if the disk is behind with full write buffers, so that reading should pause."""
        # All families are flushed together, and each write puts an entry into the default one.
        waiting = self._database.property_int_value("rocksdb.num-immutable-mem-table")
        return (waiting or 0) >= BUFFERS - 3

    def figures(self) -> dict[str, int | float]:
        """Return how far RocksDB's compactions are behind, and for how long it held up writes."""
        pending = (
            family.property_int_value("rocksdb.estimate-pending-compaction-bytes") or 0
            for family in self._families.values()
        )
        return {
            "rocksdb_pending_compaction_bytes": sum(pending),
            "rocksdb_stall_seconds": stall_seconds(
                self._database.property_value("rocksdb.dbstats") or ""
            ),
        }

    def absolve(self) -> None:
        """Clear the mark of a suspect store, which the name servers know of by now."""
        self.folder.unmark("suspect")

    # -- reclaiming space -----------------------------------------------------------------------

    def _note_removed(self, family: Family, start: bytes, end: bytes) -> None:
        with self._removed_lock:
            self._removed[family, start] = max(end, self._removed.get((family, start), b""))

    def reclaim(self) -> None:
        """Reclaim the space of removed ranges; called from a thread of its own.

        Compaction of a removed range drops its keys, and a blob file with the last key that refers
        to it. Otherwise this waits until the family happens to be compacted.
        """
        with self._removed_lock:
            removed, self._removed = self._removed, {}
        options = CompactOptions()
        # Others may compact meanwhile and, above all, flush.
        options.set_exclusive_manual_compaction(False)
        for (family, start), end in removed.items():
            try:
                self._families[family].compact_range(start, end, options)
            except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
                # If RocksDB is broken for good, it refuses the loop's next write.
                log_event("reclaim_failed", error=_line(error))
                return

    def close(self) -> None:
        """Sync and release the folder. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self._failed:
                self.sync()
        finally:
            self._drop_handles()
            self._journal.close()
            self.folder.close()

    def _let_go(self, handle: Rdict) -> None:
        """Close a handle. Its own flush comes too late; synced writes are in the journal anyhow."""
        failed = self._failed
        try:
            handle.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            if _ENDED in str(error):
                return
            refused = self._refused(error)
            # A store that has failed refuses its last flush too.
            if not failed and not self.out_of_room:
                log_event("store_failed", error=refused.text)


def stall_seconds(stats: str) -> float:
    """Return for how long RocksDB held up writes, by its own `stats` of a database."""
    found = _STALL.search(stats)
    if found is None:
        return 0.0
    hours, minutes, seconds = found.groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def has_room(path: Path) -> bool:
    """Return True if a store that ran out of space can be opened.

    Opening flushes the contents of its journal.
    """
    kinds = (".log", SUFFIX)
    files = (path / "db").glob("*")
    logs = sum(file.stat().st_size for file in files if file.suffix in kinds)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize >= logs + OPENING_BYTES


def _as_stored(_key: bytes, value: bytes) -> bytes:
    return value


def _bounded(end: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return options


def _unchecked(end: bytes) -> ReadOptions:
    """Build the options of an iterator that compares no checksum, neither of tables nor of blobs."""
    options = _bounded(end)
    options.set_verify_checksums(False)
    # Otherwise every later reader would find its unchecked blocks in the cache, and trust them.
    options.fill_cache(False)  # type: ignore[call-arg] # the stub lacks the parameter
    return options


def _large_rows(
    rows: RdictIter,
    tables: RdictIter,
    start: bytes,
    end: bytes,
    found: Callable[[bytes, bytes], bytes],
) -> Generator[tuple[bytes, bytes], None, bytes]:
    """Yield (key, value) from `start` on without a check of values, while these are large.

    RocksDB has one switch for tables and blobs, and only blobs may go unchecked: a table's flipped
    bit may point a key at another key's blob, whose own checksum holds, or lead a seek out of the
    block. So `tables`, which checks, seeks each key first. Its upper bound is `start`: it reads and
    checks the block with the key, finds it out of bounds, and leaves the blob alone. The seek costs
    some microseconds, a checksum 0.6 per KiB, so small values are not worth it.

    Returns:
        The key from which an ordinary scan has to go on, or `end`.
    """
    # Checked before the other iterator searches the same block for `start`. From there on that one
    # only moves forwards, which stays within a block whatever its bytes say.
    tables.seek(start)
    tables.status()
    rows.seek(start)
    while rows.valid():
        key: bytes = rows.key()
        tables.seek(key)
        tables.status()
        value = rows.value()
        yield key, found(key, value)
        if len(value) < UNCHECKED_FROM:
            return key + b"\0"
        rows.next()
    rows.status()
    return end


def _open_database(folder: DataFolder) -> Rdict:
    """Open the folder's database, by the rules Q13 and Q14."""
    condemned = folder.marked("condemned")
    if condemned is not None:
        _begin_anew(folder, condemned)
        folder.unmark("condemned")
    elif _has_data(folder):
        lost = _find_loss(folder)
        if lost:
            _begin_anew(folder, lost)
    try:
        return _database(folder, DBRecoveryMode.tolerate_corrupted_tail_records())
    except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
        reason = _damage_in(folder, error)
    if _in_wal(reason):
        # Marked first: if we were killed after the next line, the log would look complete ever
        # after.
        folder.mark("suspect", reason)
        log_event("store_suspect", folder=str(folder.path), error=reason, text=_SUSPECT)
        try:
            return _database(folder, DBRecoveryMode.point_in_time())
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            reason = _damage_in(folder, error)
    _begin_anew(folder, reason)
    return _database(folder, DBRecoveryMode.tolerate_corrupted_tail_records())


def _find_loss(folder: DataFolder) -> str:
    """Return why RocksDB must not open the store, since it would remove what the store still has.

    RocksDB takes a MANIFEST that ends too early for a younger database, down to an empty one, and
    removes all files that are not of that. The numbers of the writes tell whether any is missing
    then. It refuses a MANIFEST whose end is damaged; but such an end is left by a power failure and
    was never synced, so it is cut, and the numbers decide again. "" if nothing is missing.

    Raises:
        StartError: the folder is in use, or the disk refuses to read it.
    """
    path = folder.path / "db"
    if not (path / "CURRENT").exists():
        # RocksDB would create a new database, and remove the files of the old one.
        return "its file CURRENT is missing"
    with folder.database_alone():
        name = manifest_name(path)
        cut = False
        try:
            cut = cut_torn_manifest(path)
            seen = _look(path)
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            damage = _damage_in(folder, error)
            # Otherwise the same happens when it is opened for writing, and that resolves it.
            return f"{name} is damaged ({damage})" if cut else ""
        lost = _missing(folder, seen, cut=cut)
        return f"{name} is damaged ({lost})" if lost else ""


class _SeenStore(NamedTuple):
    """What a database says of itself, as long as it was not opened for writing."""

    store_id: bytes | None
    number: int
    start: int
    """Ordinal of the first segment of the journal that counts."""
    strays: bool
    """True if there are tables that are none of its."""


def _look(path: Path) -> _SeenStore:
    """Look into a database; nothing in its folder is changed.

    Raises:
        Exception: RocksDB refused.
    """
    options = database_options(DBRecoveryMode.tolerate_corrupted_tail_records())
    families = {
        name: _family_options(SMALL_BUFFER)
        for name in Rdict.list_cf(str(path), options)
        if name != "default"
    }
    database = Rdict(str(path), options, families, AccessType.read_only(False))
    try:
        known = {str(file["name"]).lstrip("/") for file in database.live_files()}
        number, start = database.get(_NUMBER), database.get(_SEGMENT)
        return _SeenStore(
            database.get(_STORE_ID),
            int.from_bytes(number or b"", "big"),
            int.from_bytes(start or b"", "big"),
            any(file.name not in known for file in path.glob("*.sst")),
        )
    finally:
        database.close()


def _missing(folder: DataFolder, seen: _SeenStore, *, cut: bool) -> str:
    """Return what proves that a database lacks what it once had; "" if nothing does.

    Args:
        seen: the database.
        cut: whether its MANIFEST had an end that was damaged.
    """
    if seen.store_id is not None and not cut and not seen.strays:
        return ""
    files = JournalFiles(folder.path / "db")
    segments, unknown = find_segments(files, seen.start)
    synced = folder.synced() or 0
    if seen.store_id is None:
        # A first start stores the id before it begins a journal.
        begun = synced or segments or unknown
        return "the store has been written to, and has no id now" if begun else ""
    replay = JournalReplay(seen.number)
    for segment in segments:
        for _ in replay.take(segment.header, files.read(segment.name)):
            pass
    proven = max(synced, replay.proven)
    if replay.number >= proven or not (cut or replay.gap):
        # Nothing is missing, or it is missing in the journal: that makes the store suspect.
        return ""
    return f"write {proven} was synced, and what is left ends at write {replay.number}"


def _has_data(folder: DataFolder) -> bool:
    """Return True if there are files that only a database which was in use can have created."""
    kinds = (".sst", ".blob", ".log", SUFFIX)
    files = (folder.path / "db").glob("*")
    return any(file.suffix in kinds and file.stat().st_size for file in files)


def _begin_anew(folder: DataFolder, reason: str) -> None:
    """Create a new, empty store under a new id; the other replicas have its data (Q3, Q14)."""
    aside = folder.set_aside()
    folder.unmark("suspect")
    log_event(
        "store_set_aside",
        folder=str(aside),
        error=reason,
        text="every queue of this broker is affected: a new store begins and is filled from the other "
        f"replicas; the damaged one is kept as {aside.name}. A queue whose only replica is here stays "
        f"without a leader: `logboom store recover {aside}` brings back what the old store still holds "
        "of it",
    )


def _database(folder: DataFolder, mode: DBRecoveryMode) -> Rdict:
    families: dict[str, Options] = {name: _family_options(SMALL_BUFFER) for name in FAMILIES}
    families["log"] = log_options()
    families["compact"] = _compact_options()
    return Rdict(str(folder.path / "db"), database_options(mode), families)


def _unlogged() -> WriteOptions:
    """Return options of a write that does without RocksDB's write-ahead log."""
    options = WriteOptions()
    # The stubs of rocksdict 0.3.29 take this property for a method.
    options.disable_wal = True  # type: ignore[method-assign, assignment] # see above
    return options


def _damage_in(folder: DataFolder, error: Exception) -> str:
    """Return what RocksDB says of damaged data, if that is why it refused to open.

    Raises:
        StartError: it refused for another reason, which an operator has to resolve.
    """
    text = _line(error)
    if "lock hold" in text or "While lock file" in text:
        raise folder.in_use() from None
    if "Corruption" in text or ("MANIFEST-" in text and "No such file" in text):
        return _named(text, _WAL)
    text = f"cannot open data folder {folder.path} ({text}): check the disk, then start again"
    raise StartError(text) from None


def _named(text: str, otherwise: str = "a file of the store") -> str:
    """Describe damage as RocksDB does, with the damaged file; `otherwise` if it names none."""
    found = _FILE.search(text)
    if found is not None:
        kind = ("SST file ", "blob file ", "", "")[(found.lastindex or 1) - 1]
        return f"{kind}{found[0]} is damaged ({text})"
    if "blob" in text.lower():
        return f"a blob file (bodies of batches) is damaged ({text})"
    return f"{otherwise} is damaged ({text})"


def _in_wal(reason: str) -> bool:
    return reason.startswith(_WAL)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _damaged(error: Exception) -> DataDamaged:
    return DataDamaged(f"the store cannot be read: {_named(_line(error))}")
