"""The Raft journal in RocksDB and the snapshot file beside it: the durable `JournalStore`.

Keys of the one column family:
| key | value |
|---|---|
| `e` + index u64 BE | crc32c u32 LE of index and the rest, term u64 LE, command |
| `state` | crc32c u32 LE of the rest, msgpack [turn, term, vote, commit, first, last] |

One `WriteBatch` holds a whole turn with its `state`, so a torn write loses the whole turn or
nothing. RocksDB mistakes a damaged length at the end of its log for a torn write, and then drops
synced turns without an error. The number of the last synced turn is therefore also written to the
file `synced` after each sync (in place and without a sync of its own: an older number only detects
less).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import msgspec
from rocksdict import DBCompressionType, DBRecoveryMode, Options, Rdict, ReadOptions, WriteBatch

from logboom.metadata.raft.journal_store import MEND, Entry, JournalError, StoredJournal
from logboom.wire.base import UNDECODABLE
from logboom.wire.manifest_file import cut_torn_manifest
from logboom.wire.private_files import make_folder, open_private, tighten
from logboom.wire.stats import Histogram
from logboom.wire.validation import crc32c, extend

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = 1
"""Version of the folder's layout; a newer one is refused."""

_KEY = struct.Struct(">cQ")
_INDEX = struct.Struct(">Q")
_TERM = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_SYNCED = struct.Struct("<QI")
_STATE_KEY: Final = b"state"


class _JournalIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The owner of a folder, in JSON, so that an operator can read it."""

    format: int
    node: str
    cluster: str
    journal: str = ""
    """Drawn when the folder was made; empty: by a release that did not, until it is opened."""
    joining: bool = False


class _JournalState(msgspec.Struct, array_like=True):
    turn: int = 0
    term: int = 0
    voted_for: str | None = None
    commit: int = 1
    first: int = 1
    last: int = 0


class RocksJournal:
    """The journal of one Raft node in one folder. See `JournalStore` for the contract."""

    def __init__(
        self,
        path: Path,
        node_id: str,
        cluster_id: str,
        *,
        create: bool,
        joins: bool = False,
        former: Collection[str] = (),
    ) -> None:
        """Open the folder `path`.

        `create` and `joins` allow an empty folder. Only the founding of a cluster may set `create`: a
        member that lost its disk and votes again can undo commits. `joins` is for a Raft id that is
        new; such a journal does not count before the log names it (see docs/SAFETY.md, R9). The folder may
        be marked with one of `former` in place of `cluster_id`, which it is marked with then.

        Raises:
            JournalError: the folder is missing, damaged, in use, of another node or of a newer
                format.
        """
        self._path = path
        self._closed = False
        self._batch = WriteBatch(raw_mode=True)
        self._unsynced = self._staged = False
        self.sync_times = Histogram()
        """Durations of the syncs."""
        identity = _JournalIdentity(FORMAT, node_id, cluster_id)
        found = _claim(path, identity, former, create=create or joins)
        fresh = found is None
        tighten(path)
        drawn = secrets.token_hex(16)
        if found is None:
            found = msgspec.structs.replace(identity, journal=drawn, joining=joins and not create)
        self._identity = msgspec.structs.replace(
            found, cluster=cluster_id, journal=found.journal or drawn
        )
        (path / "snapshot.new").unlink(missing_ok=True)
        self._db = _open_rocks(path / "journal")
        self._synced_file = os.open(path / "synced", os.O_RDWR | os.O_CREAT, 0o600)
        self._state = _JournalState()
        try:
            self._stored = self._read()
            self._check_synced(fresh=fresh)
            if fresh:
                self._unsynced = True
                self.sync()
                os.fsync(self._synced_file)
            if self._identity != found or fresh:
                _write_durably(path / "identity.json", _json(self._identity))
        except JournalError:
            # The first error says more than an error of closing about the same damage.
            with contextlib.suppress(JournalError):
                self._release()
            raise

    @property
    def journal_id(self) -> str:
        """Drawn when the folder was made."""
        return self._identity.journal

    @property
    def joining(self) -> bool:
        """True from the creation by a name server that joins until `end_joining`."""
        return self._identity.joining

    def end_joining(self) -> None:
        """Note durably that the log names this journal as a member's."""
        self._become(msgspec.structs.replace(self._identity, joining=False))

    def name_cluster(self, cluster_id: str) -> None:
        """Note durably by which mark the cluster is known from now on."""
        self._become(msgspec.structs.replace(self._identity, cluster=cluster_id))

    def _become(self, identity: _JournalIdentity) -> None:
        try:
            _write_durably(self._path / "identity.json", _json(identity))
        except OSError as error:
            raise JournalError(f"the folder {self._path} cannot be written: {error}") from error
        self._identity = identity

    # -- reading ----------------------------------------------------------------------------

    def load(self) -> StoredJournal:
        """Return what the folder held when it was opened; only once."""
        stored, self._stored = self._stored, StoredJournal()
        return stored

    def load_snapshot(self) -> bytes | None:
        """Return the contents of the snapshot file."""
        try:
            return (self._path / "snapshot").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"the snapshot in {self._path} cannot be read: {error}") from error

    def _read(self) -> StoredJournal:
        try:
            raw = self._db.get(_STATE_KEY)
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            raise self._damaged(str(error)) from error
        if raw is not None:
            if len(raw) < _CRC.size or crc32c(raw[_CRC.size :]) != _CRC.unpack_from(raw)[0]:
                raise self._damaged("its state fails its checksum")
            self._state = msgspec.msgpack.decode(raw[_CRC.size :], type=_JournalState)
        state = self._state
        entries = self._read_entries()
        held = [entry[1] for entry in entries]
        if held != list(range(state.first, state.last + 1)):
            raise self._damaged(f"entries {state.first} to {state.last} are not all there")
        return StoredJournal(entries, state.term, state.voted_for, state.commit)

    def _read_entries(self) -> list[Entry]:
        options = ReadOptions()
        options.set_verify_checksums(True)
        options.set_iterate_upper_bound(_KEY.pack(b"f", 0))
        found: list[Entry] = []
        iterator = self._db.iter(options)
        iterator.seek(_KEY.pack(b"e", 0))
        while iterator.valid():
            found.append(self._parse(iterator.key(), iterator.value()))
            iterator.next()
        try:
            # An iterator stops at a damaged block as if the block were the end.
            iterator.status()
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            raise self._damaged(str(error)) from error
        return found

    def _parse(self, key: bytes, value: bytes) -> Entry:
        if len(key) != _KEY.size or len(value) < _CRC.size + _TERM.size:
            raise self._damaged("an entry has lost its head")
        if extend(crc32c(key[1:]), value[_CRC.size :]) != _CRC.unpack_from(value)[0]:
            raise self._damaged("an entry fails its checksum")
        index: int = _INDEX.unpack_from(key, 1)[0]
        term: int = _TERM.unpack_from(value, _CRC.size)[0]
        return bytes(value[_CRC.size + _TERM.size :]), index, term

    def _check_synced(self, *, fresh: bool) -> None:
        """Check that nothing is missing that was synced (R9)."""
        if fresh and self._state.last >= self._state.first:
            raise self._damaged("its identity.json is missing")
        raw = os.pread(self._synced_file, _SYNCED.size, 0)
        if fresh and not raw:
            return
        if len(raw) != _SYNCED.size or crc32c(raw[: _INDEX.size]) != _SYNCED.unpack(raw)[1]:
            raise self._damaged("the file `synced` is not readable")
        turn: int = _SYNCED.unpack(raw)[0]
        if turn > self._state.turn:
            raise self._damaged(f"turn {turn} was synced, but only {self._state.turn} is there")

    def _damaged(self, what: str) -> JournalError:
        return JournalError(f"the journal in {self._path} is damaged ({what}): {MEND}")

    # -- staging ----------------------------------------------------------------------------

    def put_entry(self, entry: Entry) -> None:
        """Stage one entry."""
        command, index, term = entry
        rest = _TERM.pack(term) + command
        checksum = extend(crc32c(_INDEX.pack(index)), rest)
        self._batch.put(_KEY.pack(b"e", index), _CRC.pack(checksum) + rest)
        state = self._state
        if state.last < state.first:
            state.first = index
        state.last = index
        self._unsynced = True

    def cut_from(self, index: int) -> None:
        """Stage the removal of the tail."""
        state = self._state
        start = max(index, state.first)
        if start <= state.last:
            self._batch.delete_range(_KEY.pack(b"e", start), _KEY.pack(b"e", state.last + 1))
            state.last = start - 1
            self._unsynced = True

    def cut_below(self, index: int) -> None:
        """Stage the removal of the head."""
        state = self._state
        if state.first < index:
            self._batch.delete_range(_KEY.pack(b"e", state.first), _KEY.pack(b"e", index))
            state.first = index
            self._unsynced = True

    def put_vote(self, term: int, voted_for: str | None) -> None:
        """Stage term and vote."""
        self._state.term, self._state.voted_for = term, voted_for
        self._unsynced = True

    def put_commit(self, index: int) -> None:
        """Stage the commit index for the next sync."""
        self._state.commit = index
        self._staged = True

    # -- durability -------------------------------------------------------------------------

    @property
    def unsynced(self) -> bool:
        """True if more than a commit index is staged."""
        return self._unsynced

    def sync(self) -> None:
        """Write the turn and flush it to disk; a failure is final."""
        if not (self._unsynced or self._staged):
            return
        self._state.turn += 1
        body = msgspec.msgpack.encode(self._state)
        self._batch.put(_STATE_KEY, _CRC.pack(crc32c(body)) + body)
        began = time.monotonic()
        try:
            self._db.write(self._batch)
            self._db.flush_wal(True)
            turn = _INDEX.pack(self._state.turn)[::-1]
            os.pwrite(self._synced_file, turn + _CRC.pack(crc32c(turn)), 0)
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            # Never retried: a second fsync may report success after the first one lost data (Q14).
            raise JournalError(f"the journal in {self._path} cannot be written: {error}") from error
        self.sync_times.add(time.monotonic() - began)
        self._batch = WriteBatch(raw_mode=True)
        self._unsynced = self._staged = False

    def save_snapshot(self, data: bytes) -> None:
        """Replace the snapshot file; it is durable on return."""
        try:
            _write_durably(self._path / "snapshot", data)
        except OSError as error:
            raise JournalError(
                f"the snapshot in {self._path} cannot be written: {error}"
            ) from error

    def close(self) -> None:
        """Sync and release the folder. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self.sync()
        finally:
            self._release()

    def _release(self) -> None:
        os.close(self._synced_file)
        try:
            self._db.close()
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            raise self._damaged(str(error)) from error


def _claim(
    path: Path, wanted: _JournalIdentity, former: Collection[str], *, create: bool
) -> _JournalIdentity | None:
    """Return the identity of a folder of this node; None if it is empty and may be claimed."""
    file = path / "identity.json"
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_JournalIdentity)
    except FileNotFoundError:
        if not create and (path / "journal").exists():
            raise JournalError(f"{file} is missing: {MEND}") from None
        if not create:
            raise JournalError(
                f"the data folder {path} is empty: a member that lost its disk joins again under a"
                " new raft id (SAFETY R9); only a new cluster starts with empty folders"
            ) from None
        make_folder(path)
        _sync_folder(path.parent)
        return None
    except (OSError, *UNDECODABLE, ValueError) as error:
        raise JournalError(f"{file} cannot be read ({error}): {MEND}") from error
    if found.format > wanted.format:
        raise JournalError(
            f"the data folder {path} has format {found.format}, this program knows"
            f" {wanted.format}: upgrade it"
        )
    if found.cluster != wanted.cluster and found.cluster not in former:
        raise JournalError(
            f"the data folder {path} is of cluster {found.cluster}, not {wanted.cluster}: give"
            " the right folder or the right configuration"
        )
    if found.node != wanted.node:
        raise JournalError(
            f"the data folder {path} is of node {found.node}, not {wanted.node}: give each node"
            " its own folder"
        )
    return found


def _open_rocks(path: Path) -> Rdict:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # A power loss leaves a torn write at the end; anything else is damage (Q13, R9).
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(4 * 1024 * 1024)
    options.set_max_total_wal_size(16 * 1024 * 1024)
    options.set_compression_type(DBCompressionType.none())
    options.set_max_open_files(64)
    options.set_keep_log_file_num(2)
    make_folder(path)
    # The binding rewrites this file at each start without a sync. A power loss leaves it empty, and
    # it holds nothing of ours.
    (path / "rocksdict-config.json").unlink(missing_ok=True)
    try:
        try:
            return Rdict(str(path), options)
        # rocksdict raises bare Exception for everything that RocksDB refuses.
        except Exception as error:
            # RocksDB had its lock then, so nobody else is writing. Whether more is missing than what a
            # power failure has torn, `_check_synced` finds out.
            if "Corruption" not in str(error) or not cut_torn_manifest(path):
                raise
            return Rdict(str(path), options)
    # As above.
    except Exception as error:
        # Not any "lock": damage is reported as "block checksum mismatch".
        if "lock hold" in str(error) or "While lock file" in str(error):
            raise JournalError(
                f"the data folder {path} is in use by another process: stop that one first"
            ) from error
        raise JournalError(f"the journal in {path} is damaged ({error}): {MEND}") from error


def _json(identity: _JournalIdentity) -> bytes:
    return msgspec.json.format(msgspec.json.encode(identity), indent=2) + b"\n"


def _write_durably(path: Path, data: bytes) -> None:
    """Replace a file; its contents and its name are on disk on return."""
    fresh = path.with_name(path.name + ".new")
    with open_private(fresh) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
