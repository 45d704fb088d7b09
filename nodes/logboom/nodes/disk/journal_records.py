"""The format of the journal: segments of records, each with the operations of one write set.

A segment is one file. It begins with two copies of its header, in pages of their own, so that
damage to one page does not hide a segment; the records follow from byte 8,192 on, without gaps.
Everything is little endian.

| header        | size | is                                                                    |
|---------------|-----:|-----------------------------------------------------------------------|
| magic         |    8 | `LBJOURN1`                                                            |
| ordinal       |    8 | number of the segment, counted over the life of the store             |
| first         |    8 | number of the write that its first record holds                       |
| marker        |    4 | random; begins every record of this segment                           |
| crc           |    4 | crc32c of the above                                                   |

| record        | size | is                                                                    |
|---------------|-----:|-----------------------------------------------------------------------|
| marker        |    4 | that of the segment                                                   |
| crc           |    4 | crc32c of the rest, continued from the crc of the segment's header    |
| length        |    4 | bytes of the operations                                               |
| number        |    8 | of the write: one more than that of the record before                 |
| synced        |    8 | number of the last write that was synced before this was written      |
| sequence      |    8 | RocksDB's sequence number of the last operation                       |
| operations    |      | kind u8, family u8, length of key u32, length of value u32, key, value |

Files are used again for later segments, so old records lie behind the end. They are told apart by
marker, checksum and number. `synced` tells damage from a torn write: if an intact record says that
a missing one was synced, then it was lost; otherwise it never reached the disk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from logboom.nodes.log.storage import FAMILIES, Family, Operation
from logboom.wire.validation import crc32c, extend

SUFFIX: Final = ".journal"
PAGE: Final = 4096
RECORDS_START: Final = 2 * PAGE
MAX_MARKER: Final = 0xFFFFFFFF
_MAGIC: Final = b"LBJOURN1"
_HEADER: Final = struct.Struct("<8sQQI")
_CRC: Final = struct.Struct("<I")
HEADER_LENGTH: Final = _HEADER.size + _CRC.size
_RECORD: Final = struct.Struct("<IIIQQQ")
_COVERED: Final = struct.Struct("<IQQQ")
_COVERED_FROM: Final = 8
_OPERATION: Final = struct.Struct("<BBII")
_FAMILY_NUMBERS: Final[dict[Family, int]] = {name: number for number, name in enumerate(FAMILIES)}
JOINED_BELOW: Final = 4096
"""Values of fewer bytes are copied, because a buffer of its own costs more."""


class SegmentHeader(NamedTuple):
    """What a segment says of itself."""

    ordinal: int
    first: int
    marker: int
    crc: int


class JournalEntry(NamedTuple):
    """One write that is to be recorded."""

    number: int
    sequence: int
    operations: Sequence[Operation]


class JournalRecord(NamedTuple):
    """One intact record, and the position of its operations in the segment."""

    number: int
    synced: int
    sequence: int
    at: int
    size: int


class SegmentContent(NamedTuple):
    """What a segment holds."""

    records: list[JournalRecord]
    """The records from the first on, until one is missing."""
    end: int
    """The position behind them."""
    torn: bool
    """True if something of the next record is there, but not all."""
    hidden: list[JournalRecord]
    """Intact records behind a missing one."""


def make_header(ordinal: int, first: int, marker: int) -> tuple[SegmentHeader, bytes]:
    """Return a header, and everything that precedes the first record."""
    head = _HEADER.pack(_MAGIC, ordinal, first, marker)
    crc = crc32c(head)
    page = (head + _CRC.pack(crc)).ljust(PAGE, b"\0")
    return SegmentHeader(ordinal, first, marker, crc), page * 2


def read_header(content: bytes) -> SegmentHeader | None:
    """Return the header of a segment; None if no intact one is there.

    Where the copies differ, a file was being used again: the newer segment counts.
    """
    found = [copy for at in (0, PAGE) if (copy := _header_at(content, at)) is not None]
    return max(found, default=None)


def _header_at(content: bytes, at: int) -> SegmentHeader | None:
    head = content[at : at + _HEADER.size]
    crc = content[at + _HEADER.size : at + HEADER_LENGTH]
    if len(crc) < _CRC.size or crc32c(head) != _CRC.unpack(crc)[0]:
        return None
    magic, ordinal, first, marker = _HEADER.unpack(head)
    return SegmentHeader(ordinal, first, marker, crc32c(head)) if magic == _MAGIC else None


def is_unused(content: bytes) -> bool:
    """Return True if no header was ever written in full, or both were wiped.

    A header lies within one sector, so a power failure leaves all of it or nothing, or ends the file.
    """
    copies = [content[at : at + HEADER_LENGTH] for at in (0, PAGE)]
    return len(content) < RECORDS_START or not any(copy.strip(b"\0") for copy in copies)


def encode_record(header: SegmentHeader, entry: JournalEntry, synced: int) -> list[bytes]:
    """Return the buffers of a record; large values are not copied."""
    buffers: list[bytes] = []
    joined: list[bytes] = []
    length = 0
    for kind, family, key, value in entry.operations:
        size = len(value)
        joined += (_OPERATION.pack(kind, _FAMILY_NUMBERS[family], len(key), size), key)
        length += _OPERATION.size + len(key) + size
        if size < JOINED_BELOW:
            joined.append(value)
        else:
            buffers += (b"".join(joined), value)
            joined.clear()
    if joined:
        buffers.append(b"".join(joined))
    crc = extend(header.crc, _COVERED.pack(length, entry.number, synced, entry.sequence))
    for buffer in buffers:
        crc = extend(crc, buffer)
    head = _RECORD.pack(header.marker, crc, length, entry.number, synced, entry.sequence)
    return [head, *buffers]


def scan_segment(header: SegmentHeader, content: bytes) -> SegmentContent:
    """Find the records of a segment."""
    records: list[JournalRecord] = []
    at, number = RECORDS_START, header.first
    while (record := _record_at(header, content, at)) is not None and record.number == number:
        records.append(record)
        at, number = record.at + record.size, number + 1
    hidden: list[JournalRecord] = []
    marker = _CRC.pack(header.marker)
    place = content.find(marker, at + 1)
    while place >= 0:
        record = _record_at(header, content, place)
        if record is not None and record.number > number:
            hidden.append(record)
            place = content.find(marker, record.at + record.size)
        else:
            place = content.find(marker, place + 1)
    return SegmentContent(records, at, _is_begun(header, content, at, number), hidden)


def _record_at(header: SegmentHeader, content: bytes, at: int) -> JournalRecord | None:
    start = at + _RECORD.size
    if start > len(content):
        return None
    marker, crc, length, number, synced, sequence = _RECORD.unpack_from(content, at)
    if marker != header.marker or start + length > len(content):
        return None
    view = memoryview(content)[at + _COVERED_FROM : start + length]
    if extend(header.crc, view) != crc:
        return None
    return JournalRecord(number, synced, sequence, start, length)


def _is_begun(header: SegmentHeader, content: bytes, at: int, number: int) -> bool:
    """Return True if a record with this number was written at `at`, in part or with damage."""
    if at + _RECORD.size > len(content):
        return content[at : at + _CRC.size] == _CRC.pack(header.marker)
    marker, _, _, found, _, _ = _RECORD.unpack_from(content, at)
    return bool(marker == header.marker or found == number)


def find_operations(
    content: bytes, record: JournalRecord
) -> Iterator[tuple[int, Family, bytes, int, int]]:
    """Yield kind, family, key, and position and size of the value, of each operation."""
    at, end = record.at, record.at + record.size
    while at < end:
        kind, family, key_length, value_length = _OPERATION.unpack_from(content, at)
        key = at + _OPERATION.size
        value = key + key_length
        at = value + value_length
        yield kind, FAMILIES[family], content[key:value], value, value_length


def decode_operations(content: bytes, record: JournalRecord) -> list[Operation]:
    """Return the operations of an intact record."""
    return [
        (kind, family, key, content[at : at + size])
        for kind, family, key, at, size in find_operations(content, record)
    ]


class JournalReplay:
    """What the segments of a store add to its database, taken in the order of their ordinals."""

    def __init__(self, flushed: int) -> None:
        """Begin with the number of the last write that the database holds."""
        self.number = flushed
        """Number of the last write that the database holds with what was replayed."""
        self.proven = 0
        """Number of the last write that is known to have been synced."""
        self.seen = flushed
        """The greatest number of a write of which anything was found."""
        self.gap = False
        """True if whole segments are missing, and no record before them is damaged."""
        self._damaged = False

    def take(self, header: SegmentHeader, content: bytes) -> Iterator[tuple[int, list[Operation]]]:
        """Yield number and operations of the writes that are to be replayed, in order.

        Where one is missing the replay ends, also for later segments.
        """
        found = scan_segment(header, content)
        self.gap = self.gap or (header.first > self.number + 1 and not self._damaged)
        self._damaged = self._damaged or found.torn or bool(found.hidden)
        # A segment begins once everything before it is on disk.
        self.proven = max(self.proven, header.first - 1)
        for record in (*found.records, *found.hidden):
            self.proven = max(self.proven, record.synced)
            self.seen = max(self.seen, record.number)
        for record in found.records:
            if record.number == self.number + 1:
                yield record.number, decode_operations(content, record)
                self.number = record.number
