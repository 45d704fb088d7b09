"""The journal under RocksDB: where a write is on disk until RocksDB has flushed it.

Segments are used one after the other, and again once RocksDB holds all of their writes, because a
sync of an overwritten place costs half of one that makes a file longer. A new segment grows a step
ahead of its records for the same reason. A segment is left only when everything in it was synced.

The files are behind `JournalDisk`: `journal_files.py` has the real ones, the tests a disk whose
power fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from logboom.nodes.disk.journal_records import (
    PAGE,
    RECORDS_START,
    SUFFIX,
    JournalEntry,
    SegmentHeader,
    encode_record,
    is_unused,
    make_header,
    read_header,
)

SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""Past it the next segment begins; the last sync of a segment may go far beyond."""
STEP_BYTES: Final = 1024 * 1024
"""Bytes by which a new segment grows: whole pages."""
KEPT_FILES: Final = 4
"""Files that wait to be used again; more are removed."""
_ZEROS: Final = bytes(STEP_BYTES)


class JournalDisk(Protocol):
    """The folder of a journal."""

    def names(self) -> list[str]:
        """Return the names of its files."""
        ...

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return a file's content, or its first bytes; where the disk refuses, bytes that are not
        zero."""
        ...

    def open(self, name: str, *, create: bool) -> tuple[int, int]:
        """Open a file for writing; return its handle and size.

        Raises:
            OSError: the disk refused.
        """
        ...

    def write(self, handle: int, at: int, buffers: Sequence[bytes]) -> None:
        """Write all buffers, one behind the other, from position `at` on.

        Raises:
            OSError: the disk refused; some of it may be written.
        """
        ...

    def sync(self, handle: int) -> None:
        """Bring everything written to a file, and its size, to disk.

        Raises:
            OSError: the disk refused.
        """
        ...

    def sync_names(self) -> None:
        """Bring the names of all files to disk.

        Raises:
            OSError: the disk refused.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file.

        Raises:
            OSError: the disk refused.
        """
        ...

    def close(self, handle: int) -> None:
        """Close a file."""
        ...


class FoundSegment(NamedTuple):
    """A file of the journal with an intact header, at an opening."""

    header: SegmentHeader
    name: str


class FoundSegments(NamedTuple):
    """The files of a journal, at an opening."""

    segments: list[FoundSegment]
    """The segments that count, in their order."""
    unknown: list[str]
    """Files that are in use, and whose header is damaged: they may be segments that count."""


def find_segments(disk: JournalDisk, start: int) -> FoundSegments:
    """Find the segments from ordinal `start` on; older ones are over."""
    found, unknown = [], []
    for name in disk.names():
        content = disk.read(name, RECORDS_START)
        header = read_header(content)
        if header is not None:
            if header.ordinal >= start:
                found.append(FoundSegment(header, name))
        elif not is_unused(content):
            unknown.append(name)
    return FoundSegments(sorted(found), unknown)


def sync_segments(disk: JournalDisk, segments: Sequence[FoundSegment]) -> None:
    """Bring to disk what a killed process has left in the page cache.

    Raises:
        OSError: the disk refused.
    """
    for segment in segments:
        handle, _ = disk.open(segment.name, create=False)
        try:
            disk.sync(handle)
        finally:
            disk.close(handle)
    disk.sync_names()


class _SealedSegment(NamedTuple):
    name: str
    last: int
    """Number of its last write."""


class WriteJournal:
    """The journal of an open store. One thread at a time may write."""

    def __init__(
        self, disk: JournalDisk, ordinal: int, synced: int, marker: Callable[[], int]
    ) -> None:
        """Begin behind an opening, which has made all files of the folder superfluous.

        Args:
            disk: the folder.
            ordinal: of the first segment, greater than that of any before.
            synced: number of the last write, which the database holds.
            marker: returns a random number of 32 bits.

        Raises:
            OSError: the disk refused.
        """
        self._disk = disk
        self._ordinal = ordinal
        self._synced = synced
        self._marker = marker
        self._sealed: deque[_SealedSegment] = deque()
        self._free: list[str] = sorted(disk.names())
        self._named = max((_number_of(name) for name in self._free), default=0)
        self._handle = -1
        self._name = ""
        self._header: SegmentHeader | None = None
        self._at = self._size = 0
        self._trim()
        for name in self._free:
            # Nothing may take them for segments of today: not even a recovery of single files.
            handle, _ = disk.open(name, create=False)
            try:
                disk.write(handle, 0, [bytes(RECORDS_START)])
                disk.sync(handle)
            finally:
                disk.close(handle)

    def write(self, entries: Sequence[JournalEntry], flushed: Callable[[], int]) -> None:
        """Record writes, whose numbers follow the last one; on disk on return.

        `flushed` returns the number of the last write that RocksDB has on disk.

        Raises:
            OSError: the disk refused. The journal must not be written again.
        """
        buffers: list[bytes] = []
        created = False
        if self._header is None or self._at >= SEGMENT_BYTES:
            created = self._begin_segment(entries[0].number, flushed())
            self._header, head = make_header(self._ordinal, entries[0].number, self._marker())
            self._ordinal += 1
            buffers.append(head)
        for entry in entries:
            buffers += encode_record(self._header, entry, self._synced)
        end = self._at + sum(map(len, buffers))
        # Whole pages are written, because the kernel would have to read one that is written in part.
        step = STEP_BYTES if end > self._size else PAGE
        buffers.append(_ZEROS[: -end % step])
        self._size = max(self._size, end + -end % step)
        self._disk.write(self._handle, self._at, buffers)
        self._disk.sync(self._handle)
        if created:
            self._disk.sync_names()
        self._at = end
        self._synced = entries[-1].number

    def _begin_segment(self, first: int, flushed: int) -> bool:
        """Open the file of the next segment. Return True if it is new."""
        if self._header is not None:
            self._disk.close(self._handle)
            self._sealed.append(_SealedSegment(self._name, first - 1))
            self._handle = -1
        while self._sealed and self._sealed[0].last <= flushed:
            self._free.append(self._sealed.popleft().name)
        create = not self._free
        if create:
            self._named += 1
        self._name = f"{self._named:06d}{SUFFIX}" if create else self._free.pop()
        self._trim()
        self._handle, self._size = self._disk.open(self._name, create=create)
        self._at = 0
        return create

    def _trim(self) -> None:
        while len(self._free) > KEPT_FILES:
            self._disk.remove(self._free.pop(0))

    def close(self) -> None:
        """Release the files. Idempotent."""
        if self._handle >= 0:
            self._disk.close(self._handle)
            self._handle = -1


def _number_of(name: str) -> int:
    digits = name.removesuffix(SUFFIX)
    return int(digits) if digits.isdecimal() else 0
