"""The files of a journal, in the folder of its database.

`writev` and `fdatasync` release the GIL, so the loop goes on while the committer's thread writes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logboom.nodes.disk.journal_records import PAGE, SUFFIX

MAX_BUFFERS: Final = 1024
"""Buffers of one `writev`: Linux takes no more."""
JOINED_BYTES: Final = 64 * 1024
"""Up to so much, one buffer is cheaper than several."""
READ_BYTES: Final = 1024 * 1024
"""Bytes per read."""
UNREADABLE: Final = b"\xff"
"""Stands for each byte that the disk refuses. Not zero, which stands where nothing was written."""


class JournalFiles:
    """A `write_journal.JournalDisk` on a real file system."""

    def __init__(self, folder: Path) -> None:
        """Keep the journal in `folder`, which exists."""
        self._folder = folder

    def names(self) -> list[str]:
        """See `write_journal.JournalDisk.names`."""
        return sorted(file.name for file in self._folder.glob(f"*{SUFFIX}"))

    def read(self, name: str, limit: int | None = None) -> bytes:
        """See `write_journal.JournalDisk.read`.

        Raises:
            OSError: the file cannot be opened.
        """
        handle = os.open(self._folder / name, os.O_RDONLY)
        try:
            size = os.fstat(handle).st_size
            size = size if limit is None else min(size, limit)
            return b"".join(
                read_piece(handle, at, min(READ_BYTES, size - at))
                for at in range(0, size, READ_BYTES)
            )
        finally:
            os.close(handle)

    def open(self, name: str, *, create: bool) -> tuple[int, int]:
        """See `write_journal.JournalDisk.open`."""
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        handle = os.open(self._folder / name, flags, 0o600)
        return handle, os.fstat(handle).st_size

    def write(self, handle: int, at: int, buffers: Sequence[bytes]) -> None:
        """See `write_journal.JournalDisk.write`."""
        size = sum(map(len, buffers))
        if size <= JOINED_BYTES:
            _write_on(handle, b"".join(buffers), at)
            return
        os.lseek(handle, at, os.SEEK_SET)
        for begin in range(0, len(buffers), MAX_BUFFERS):
            piece = buffers[begin : begin + MAX_BUFFERS]
            size = sum(map(len, piece))
            done = os.writev(handle, piece)
            if done < size:
                _write_on(handle, b"".join(piece)[done:], at + done)
                os.lseek(handle, at + size, os.SEEK_SET)
            at += size

    def sync(self, handle: int) -> None:
        """See `write_journal.JournalDisk.sync`."""
        os.fdatasync(handle)

    def sync_names(self) -> None:
        """See `write_journal.JournalDisk.sync_names`."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        """See `write_journal.JournalDisk.remove`."""
        (self._folder / name).unlink()

    def close(self, handle: int) -> None:
        """See `write_journal.JournalDisk.close`."""
        os.close(handle)


def _write_on(handle: int, content: bytes, at: int) -> None:
    """Write all of it: a disk that fills up takes a part, and the next call says why."""
    done = os.pwrite(handle, content, at)
    while done < len(content):
        done += os.pwrite(handle, content[done:], at + done)


def read_piece(handle: int, at: int, size: int) -> bytes:
    """Read a part of a file; where the disk refuses, no more than a page is `UNREADABLE`."""
    try:
        found = os.pread(handle, size, at)
    except OSError:
        if size > PAGE:
            pages = range(at, at + size, PAGE)
            return b"".join(read_piece(handle, page, min(PAGE, at + size - page)) for page in pages)
        return UNREADABLE * size
    return found + bytes(size - len(found))
