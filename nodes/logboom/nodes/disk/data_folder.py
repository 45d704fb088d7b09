"""A broker's data folder: its owner, its format, and the marks of failed starts.

| name            | is                                                                           |
|-----------------|------------------------------------------------------------------------------|
| `identity.json` | format, node, cluster, and its name servers as far as the broker knows:      |
|                 | readable by an operator                                                      |
| `db/`           | RocksDB (`rocks_storage.py`), with the store id, which belongs to the data, and |
|                 | the journal (`write_journal.py`), which belongs to the database               |
| `synced`        | number of the last write that was synced, written after each sync; there from |
|                 | the beginning: a store without it cannot prove that all synced data is there  |
| `suspect`       | present from a start that could not prove that all synced data is there, until |
|                 | the name servers know (Q13)                                                  |
| `condemned`     | present if RocksDB found damage in itself: the next start creates a new store (Q14) |
| `damaged-1/` …  | stores that could not be opened, kept for the operator and not used            |
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import StartError
from logboom.wire.name_servers import KnownServer
from logboom.wire.private_files import make_folder, open_private, tighten
from logboom.wire.validation import crc32c

FORMAT: Final = 4
"""Version of the layout of the folder, of keys and of values. A newer one is refused; an older one
becomes this one when it is opened. Format 2: released batches may be stored without their body
(`body_references.py`). Format 3: a recovery may have left entries for lost messages (`salvage/`).
Format 4: what RocksDB has not flushed is in a journal of our own, not in its write-ahead log."""
_SYNCED: Final = struct.Struct("<QI")
_NOTHING_SYNCED: Final = bytes(_SYNCED.size)


class _FolderIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    format: int
    node: str
    cluster: str = ""
    name_servers: list[KnownServer] = []


class DataFolder:
    """One broker's data folder, locked by this process."""

    def __init__(self, path: Path, node_id: str) -> None:
        """Lock `path` for a node, creating it if it is missing.

        Raises:
            StartError: WRONG_DATA_FOLDER, NEWER_FORMAT, or BAD_CONFIG if it cannot be written.
        """
        self.path = path
        self._node_id = node_id
        try:
            make_folder(path)
            self._identity = self._claim()
            tighten(path)
            self._synced_file = os.open(path / "synced", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            text = f"cannot use data folder {path} ({reason}): check its permissions and the disk"
            raise StartError(text) from None
        try:
            fcntl.flock(self._synced_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise self.in_use() from None

    def in_use(self) -> StartError:
        """Build the error for a folder that another process, or another node here, has locked."""
        text = f"data folder {self.path} is in use: stop the other process, or set `data` apart"
        return StartError(text, "WRONG_DATA_FOLDER")

    @contextlib.contextmanager
    def database_alone(self) -> Iterator[None]:
        """Hold RocksDB's own lock, which an older release has without that of the folder.

        Raises:
            StartError: WRONG_DATA_FOLDER: the database is in use.
        """
        # To close the file ends any lock of this process on it, but it has none: see `__init__`.
        with (self.path / "db" / "LOCK").open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self.in_use() from None
            yield

    def _claim(self) -> _FolderIdentity:
        try:
            stored = (self.path / "identity.json").read_bytes()
        except FileNotFoundError:
            return self._found()
        try:
            # A newer format may have another identity file, so its number is read first.
            version = msgspec.json.decode(stored, type=dict[str, object]).get("format")
            if isinstance(version, int) and version > FORMAT:
                text = (
                    f"data folder {self.path} has format {version}, this version reads up to "
                    f"{FORMAT}: start it with a newer logboom"
                )
                raise StartError(text, "NEWER_FORMAT")
            identity = msgspec.json.decode(stored, type=_FolderIdentity)
        except UNDECODABLE:
            text = f"{self.path}/identity.json cannot be read: choose another data folder"
            raise StartError(text, "WRONG_DATA_FOLDER") from None
        if identity.node != self._node_id:
            text = (
                f"data folder {self.path} belongs to {identity.node}, not to {self._node_id}: "
                "set `data` to this node's own folder"
            )
            raise StartError(text, "WRONG_DATA_FOLDER")
        if identity.format < FORMAT:
            # Before anything is written that an older program would take for damage.
            identity = msgspec.structs.replace(identity, format=FORMAT)
            self._write_durably("identity.json", msgspec.json.encode(identity))
        return identity

    def _found(self) -> _FolderIdentity:
        # A first start that was killed leaves an incomplete identity.
        names = [entry.name for entry in self.path.iterdir()]
        strangers = [name for name in names if name != "identity.json.new"]
        if strangers:
            text = (
                f"data folder {self.path} holds {strangers[0]!r} but no identity.json: "
                "set `data` to an empty or a new folder"
            )
            raise StartError(text, "WRONG_DATA_FOLDER")
        identity = _FolderIdentity(FORMAT, self._node_id)
        self._write_durably("identity.json", msgspec.json.encode(identity))
        self._write_durably("synced", _NOTHING_SYNCED)
        return identity

    @property
    def cluster_id(self) -> str:
        """The cluster that the data belongs to; "" until the broker has met it."""
        return self._identity.cluster

    def bind(self, cluster_id: str) -> None:
        """Bind the data to this cluster, because topic ids of two clusters mean different topics.

        Raises:
            StartError: WRONG_DATA_FOLDER: it belongs to another one.
        """
        if self._identity.cluster == cluster_id:
            return
        if self._identity.cluster:
            text = (
                f"data folder {self.path} belongs to cluster {self._identity.cluster}, the name "
                f"servers are of {cluster_id}: correct `name_servers`, or set `data` to a new folder"
            )
            raise StartError(text, "WRONG_DATA_FOLDER")
        self._identity = msgspec.structs.replace(self._identity, cluster=cluster_id)
        self._write_durably("identity.json", msgspec.json.encode(self._identity))

    @property
    def known_servers(self) -> list[KnownServer]:
        """The name servers of the cluster when the broker last heard of them."""
        return self._identity.name_servers

    def remember(self, servers: list[KnownServer]) -> None:
        """Note the name servers of the cluster: the configuration may be older than they are.

        A disk that does not take them is no reason to end; they are noted at the next change.
        """
        if not servers or servers == self._identity.name_servers:
            return
        identity = msgspec.structs.replace(self._identity, name_servers=servers)
        with contextlib.suppress(OSError):
            self._write_durably("identity.json", msgspec.json.encode(identity))
            self._identity = identity

    def synced(self) -> int | None:
        """Return the number of a write that was on disk, so that every later opening must find it.

        None means that the file was deleted or damaged.
        """
        stored = os.pread(self._synced_file, _SYNCED.size, 0)
        if stored == _NOTHING_SYNCED:
            return 0
        if len(stored) < _SYNCED.size:
            return None
        number, crc = _SYNCED.unpack(stored)
        return int(number) if crc32c(stored[:8]) == crc else None

    def put_synced(self, number: int, *, durably: bool = False) -> None:
        """Note that write `number` is on disk.

        After a power failure an older number may be there, which detects less; with `durably` it is
        on disk on return.
        """
        head = struct.pack("<Q", number)
        os.pwrite(self._synced_file, head + struct.pack("<I", crc32c(head)), 0)
        if durably:
            os.fsync(self._synced_file)
            self._sync_folder()

    def marked(self, marker: str) -> str | None:
        """Return the reason in a marker file (`suspect`, `condemned`); None if it does not exist."""
        try:
            return (self.path / marker).read_text(errors="replace").strip()
        except FileNotFoundError:
            return None

    def mark(self, marker: str, reason: str) -> None:
        """Create a marker file, durable on return."""
        self._write_durably(marker, reason.encode() + b"\n")

    def unmark(self, marker: str) -> None:
        """Remove a marker file, durable on return."""
        (self.path / marker).unlink(missing_ok=True)
        self._sync_folder()

    def set_aside(self) -> Path:
        """Move `db/` aside, and return its new path."""
        number = 1
        while (aside := self.path / f"damaged-{number}").exists():
            number += 1
        with contextlib.suppress(FileNotFoundError):
            (self.path / "db").rename(aside)
        os.pwrite(self._synced_file, _NOTHING_SYNCED, 0)
        self._sync_folder()
        return aside

    def asides(self) -> list[Path]:
        """Return the stores that were moved aside and still exist."""
        return sorted(self.path.glob("damaged-*"))

    def close(self) -> None:
        """Release the files. Idempotent."""
        if self._synced_file >= 0:
            os.close(self._synced_file)
            self._synced_file = -1

    def _write_durably(self, name: str, content: bytes) -> None:
        """Replace a file: after a power failure it is completely the old or the new one."""
        new = self.path / f"{name}.new"
        with open_private(new) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.path / name)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
