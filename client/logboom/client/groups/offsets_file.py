"""The local file of a broadcasting member's offsets, which is replaced atomically."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from logboom.client.groups.assigned_queue import UNPLACED
from logboom.client.groups.member import MemberOptions, Saved
from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.private_files import make_folder, open_private

FORMAT: Final = 1


class _Row(msgspec.Struct):
    topic_id: int
    queue: int
    offset: int
    ranges: bytes = b""
    valid_from: int = 0
    """Epoch of the queue's last loss that the offset knows (see docs/SAFETY.md, Q15)."""


class _File(msgspec.Struct):
    format: int
    group: str
    offsets: list[_Row]
    instance: str | None = None
    """Instance name of the member; None: an older client wrote the file."""
    unplaced: list[tuple[int, int]] = []
    """(topic id, queue) of queues that are known, and whose offset is not."""


def default_path(group: str, instance: str) -> Path:
    """Return ~/.logboom/offsets/<group>.json, with the member's instance name if it has one.

    Characters that a file name may not have are written as %2F and so on, so that no two members share
    a file.
    """
    name = f"{_escape(group)}@{_escape(instance)}" if instance else _escape(group)
    return Path.home() / ".logboom" / "offsets" / f"{name}.json"


def former_path(group: str, instance: str) -> Path:
    """Return the default path of older clients, which replaced such characters by _."""
    name = f"{group}@{instance}" if instance else group
    safe = "".join(c if c.isalnum() or c in "._-@" else "_" for c in name)
    return Path.home() / ".logboom" / "offsets" / f"{safe}.json"


def _escape(name: str) -> str:
    kept = (c if c.isalnum() or c in "._-" else quote(c, safe="") for c in name)
    return "".join(kept)


def store_of(options: MemberOptions, path: str | os.PathLike[str] | None) -> OffsetsFile | None:
    """Open the file of a broadcasting member; None for other members.

    Raises:
        InvalidRequest: a path was given for a member whose group keeps its offsets.
    """
    if options.config.mode != "broadcasting":
        if path is not None:
            text = (
                'offsets_file requires mode="broadcasting": otherwise the group keeps the offsets'
            )
            raise InvalidRequest(text)
        return None
    group, instance = options.group, options.instance
    if path is not None:
        return OffsetsFile(Path(path), group, instance)
    former = former_path(group, instance)
    return OffsetsFile(default_path(group, instance), group, instance, former)


class OffsetsFile:
    """An offsets file, used by one member at a time."""

    def __init__(
        self, path: Path, group: str, instance: str = "", former: Path | None = None
    ) -> None:
        """Create a file that is read from `former` as long as only an older client has written one."""
        self._path = path
        self._group = group
        self._instance = instance
        self._former = former
        self._lock = -1

    def load(self) -> Saved:
        """Lock the file for this member, and return the offsets that were saved last.

        Raises:
            InvalidRequest: another member uses the file, or it is not an offsets file.
            Unavailable: it cannot be read or created.
        """
        try:
            make_folder(self._path.parent)
            self._take()
            content = self._path.read_bytes() if self._path.exists() else b""
            former = b"" if content or self._former is None else self._read_former(self._former)
        except BlockingIOError:
            text = f"{self._path} is used by another consumer: give offsets_file= or instance="
            raise InvalidRequest(text) from None
        except OSError as error:
            raise Unavailable(f"offsets cannot be read from {self._path}: {error}") from error
        try:
            return self._read(content or former) if content or former else {}
        except InvalidRequest:
            self.close()
            raise

    def _read_former(self, path: Path) -> bytes:
        """Return what an older client has saved for a member of this name; b"" if it did not."""
        content = path.read_bytes() if path.exists() else b""
        try:
            found = msgspec.json.decode(content, type=_File) if content else None
        except UNDECODABLE:
            return b""
        # A file that names its member is that member's alone.
        mine = found is not None and found.instance is None and found.group == self._group
        return content if mine else b""

    def _read(self, content: bytes) -> Saved:
        try:
            found = msgspec.json.decode(content, type=_File)
        except UNDECODABLE as error:
            text = f"{self._path} holds no offsets ({error}): remove it to start again"
            raise InvalidRequest(text) from error
        if found.format != FORMAT or found.group != self._group:
            text = f"{self._path} belongs to group {found.group!r}: give another offsets_file="
            raise InvalidRequest(text)
        unplaced: Saved = dict.fromkeys(found.unplaced, (UNPLACED, b"", 0))
        return unplaced | {
            (row.topic_id, row.queue): (row.offset, row.ranges, row.valid_from)
            for row in found.offsets
        }

    def _take(self) -> None:
        if self._lock < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock = os.open(f"{self._path}.lock", flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def save(self, offsets: Saved) -> None:
        """Write a new file beside the old one, sync, rename, and sync the folder.

        A crash leaves the old file or the new one.

        Raises:
            Unavailable: it cannot be written.
        """
        known = sorted(offsets.items())
        rows = [
            _Row(*key, offset, ranges, valid_from)
            for key, (offset, ranges, valid_from) in known
            if offset != UNPLACED
        ]
        unplaced = [key for key, place in known if place[0] == UNPLACED]
        file_of = _File(FORMAT, self._group, rows, self._instance, unplaced)
        content = msgspec.json.format(msgspec.json.encode(file_of))
        beside = self._path.with_name(f"{self._path.name}.tmp")
        try:
            with open_private(beside) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise Unavailable(f"offsets cannot be written to {self._path}: {error}") from error

    def close(self) -> None:
        """Unlock the file for other members."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
