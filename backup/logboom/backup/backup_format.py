"""The format of backups: manifests, and segment files with entries of queues; pure.

A backup is a folder, named by its time:

| file                                   | holds                                                   |
|----------------------------------------|---------------------------------------------------------|
| `manifest.json`                        | `Manifest`; written last, so that a folder without it   |
|                                        | is an unfinished backup                                 |
| `state.msgpack`                        | the replicated state at the cut, a `ClusterSnapshot`    |
| `<topic id>/<queue>/<offset>-<side>.seg` | entries of a queue's log from that position on         |
| `<topic id>/<queue>/<offset>.copies`   | of a compacted topic: the survivors from that offset on |
| `progress.json`                        | `Progress`, while the backup is unfinished              |
| `claim-<owner>`                        | empty; of a process that is about to write here         |

An incremental backup has the entries that its base lacks, and its manifest names all files, also
those of earlier backups. A segment file is a header of 36 bytes, blocks, and an end that a truncated
file lacks. All numbers are little endian:

| bytes | field    | type        | meaning                                                     |
|------:|----------|-------------|-------------------------------------------------------------|
|     8 | magic    | `LOGBOOM\\n` |                                                            |
|     2 | format   | u16         | `FORMAT`                                                    |
|     2 | kind     | u16         | 1: entries, 2: copies                                       |
|     8 | queue    | u32 u32     | topic id and number                                         |
|    12 | begin    | u64 u32     | position of the first entry                                 |
|     4 | crc      | u32         | crc32c of these                                             |
|       | blocks   |             | length u32 (not 0), crc32c u32, content                     |
|     8 | end      |             | length 0, crc32c of the following                           |
|    28 | totals   | u64 u64 u64 u32 | entries, messages, position after the last entry        |

The content of a block is whole entries, one after the other (`wire.batch`). A block of copies has
for each batch a u32, the length of the bits of its survivors, the bits, and the batch.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import BinaryIO, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import DamagedBatch, DataDamaged, StartError
from logboom.wire.head import HEAD_LENGTH, peek
from logboom.wire.validation import crc32c, extend

FORMAT: Final = 1
"""The format that this code writes, and the newest that it reads."""
SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""Approximate size at which a segment file is closed and the next one begun."""
MOST_BLOCK_BYTES: Final = 192 * 1024 * 1024
"""Largest block that a reader accepts: an entry of the largest size, and a whole block before it."""
ID: Final = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
"""The id of a backup: when it was begun, in UTC."""
STALE_S: Final = 60.0
"""Seconds after which an unfinished backup without news is nobody's."""
MANIFEST: Final = "manifest.json"
PROGRESS: Final = "progress.json"
CLAIM: Final = "claim-"
"""Prefix of the file of a process that is about to write in a folder."""
STATE: Final = "state.msgpack"

_SEGMENT: Final = re.compile(r"\d+/\d+/\d{20}(-\d+\.seg|\.copies)", re.ASCII)
"""What `segment_name` returns."""
_HEADER: Final = struct.Struct("<8sHHIIQI")
_CRC: Final = struct.Struct("<I")
_BLOCK: Final = struct.Struct("<II")
_TOTALS: Final = struct.Struct("<QQQI")
_MAGIC: Final = b"LOGBOOM\n"
HEADER_BYTES: Final = _HEADER.size + _CRC.size

LogPosition: TypeAlias = tuple[int, int]
"""Position (offset, side) in a queue's log, between two entries."""
SegmentKind: TypeAlias = Literal["entries", "copies"]
_KINDS: Final[tuple[SegmentKind, ...]] = ("entries", "copies")
_M = TypeVar("_M", "Manifest", "Progress")


# ── manifests ───────────────────────────────────────────────────────────────────────────────────


class SegmentRecord(Struct, frozen=True):
    """One segment file."""

    backup: str
    """Id of the backup whose folder holds it."""
    file: str
    """Its path in that folder."""
    begin: LogPosition
    end: LogPosition
    last_epoch: int
    """Leader epoch of the entry before `end`."""
    size: int
    """Bytes of the file."""
    crc: int
    """crc32c of the whole file."""
    entries: int
    messages: int


class QueueRecord(Struct, frozen=True):
    """What a backup has of one queue: its log from `begin` to `end`, without gaps."""

    queue: int
    begin: LogPosition
    end: LogPosition
    last_epoch: int
    """Leader epoch of the entry before `end`; -1 if there is none."""
    leader_epoch: int
    """Leader epoch when it was read."""
    cursors_end: LogPosition
    """Acknowledgements of subscriptions from here on came after the cut, and do not count."""
    state: bytes = b""
    """Epochs and producer windows as of `begin`, as in RESET."""
    segments: list[SegmentRecord] = []
    """In the order of their positions."""
    copies: list[SegmentRecord] = []
    """Of a compacted topic: survivors from before `begin`."""
    decided: bool = False
    """True if the log goes on with a transaction that was decided after the cut."""


class TopicRecord(Struct, frozen=True):
    """A topic in a backup; its settings are in the state."""

    name: str
    id: int
    queues: list[QueueRecord]


class StateRecord(Struct, frozen=True):
    """The file with the replicated state."""

    version: int
    """Metadata version of the cut."""
    size: int
    crc: int


class Manifest(Struct, frozen=True):
    """A finished backup."""

    id: str
    cluster_id: str
    base: str
    """Id of the backup that it continues; "" if it is complete in itself."""
    begun_ms: int
    ended_ms: int
    """Unix times in milliseconds by the clock of the machine that wrote it."""
    software: str
    state: StateRecord
    topics: list[TopicRecord]
    """Those that were chosen, by name."""
    new_bytes: int
    """Bytes of the files of this backup itself."""
    notes: list[str] = []
    """What somebody who relies on this backup should know, such as messages that retention removed
    before they were copied."""

    def records(self) -> Iterator[tuple[TopicRecord, QueueRecord, SegmentRecord]]:
        """Yield all segment files, also those of earlier backups."""
        for topic in self.topics:
            for queue in topic.queues:
                for record in (*queue.copies, *queue.segments):
                    yield topic, queue, record

    def needs(self) -> set[str]:
        """Return the ids of all backups whose files it names, and its own."""
        return {self.id, *(record.backup for _, _, record in self.records())}

    def queue(self, topic_id: int, queue: int) -> QueueRecord | None:
        """Return a queue's record, or None if the backup does not have the queue."""
        for topic in self.topics:
            if topic.id == topic_id:
                return next((each for each in topic.queues if each.queue == queue), None)
        return None

    @property
    def size(self) -> int:
        """Bytes of all files that it needs, but for manifests."""
        return self.state.size + sum(record.size for _, _, record in self.records())

    @property
    def messages(self) -> int:
        """Messages in all logs."""
        return sum(
            record.messages
            for topic in self.topics
            for queue in topic.queues
            for record in queue.segments
        )


class Progress(Struct, frozen=True):
    """What an unfinished backup has already: queues whose ranges end at a finished segment file."""

    id: str
    cluster_id: str
    base: str
    begun_ms: int
    owner: str
    """The process that writes it; "" if it has ended."""
    updated_ms: int
    topics: list[TopicRecord]
    notes: list[str] = []
    needs: list[str] = []
    """Ids of the earlier backups whose files it refers to, or may refer to."""

    def is_written(self, now: float) -> bool:
        """Return True if a process still writes this backup; `now` is in seconds since 1970."""
        # The time may be that of another machine, whose clock may be ahead of this one's.
        return bool(self.owner) and abs(now - self.updated_ms / 1000) < STALE_S


def whole_part(
    queue: QueueRecord, is_whole: Callable[[SegmentRecord, SegmentKind], bool]
) -> QueueRecord | None:
    """Return the part of a queue's record up to the first file that is not whole; None: nothing is."""
    if not all(is_whole(record, "copies") for record in queue.copies):
        return None
    kept = list(takewhile(lambda record: is_whole(record, "entries"), queue.segments))
    if len(kept) == len(queue.segments):
        return queue
    if not kept:
        return None
    last = kept[-1]
    return msgspec.structs.replace(queue, segments=kept, end=last.end, last_epoch=last.last_epoch)


class _Envelope(Struct):
    format: int
    crc: int
    content: msgspec.Raw


class _Outline(Struct):
    format: int


def encode_manifest(content: Manifest | Progress) -> bytes:
    """Encode a manifest, or the progress of an unfinished backup, with a checksum."""
    raw = msgspec.json.encode(content)
    return msgspec.json.encode(_Envelope(FORMAT, crc32c(raw), msgspec.Raw(raw))) + b"\n"


def decode_manifest(encoded: bytes, name: str) -> Manifest:
    """Decode a manifest; `name` is what an error calls it.

    Raises:
        StartError: NEWER_FORMAT, it was written in a newer format.
        DataDamaged: it is damaged.
    """
    return _decode(encoded, name, Manifest)


def decode_progress(encoded: bytes, name: str) -> Progress:
    """Decode the progress of an unfinished backup; errors as `decode_manifest`."""
    return _decode(encoded, name, Progress)


def _decode(encoded: bytes, name: str, kind: type[_M]) -> _M:
    try:
        check_format(msgspec.json.decode(encoded, type=_Outline).format, name)
        envelope = msgspec.json.decode(encoded, type=_Envelope)
        if crc32c(bytes(envelope.content)) != envelope.crc:
            raise DataDamaged(f"{name} is damaged: its checksum is wrong")
        content = msgspec.json.decode(envelope.content, type=kind)
    except UNDECODABLE as error:
        raise DataDamaged(f"{name} is damaged: {error}") from None
    _check_files(content.topics, name)
    return content


def _check_files(topics: list[TopicRecord], name: str) -> None:
    """Refuse names that lead elsewhere than to a segment file: anybody can compute a checksum.

    Raises:
        DataDamaged: there is one.
    """
    for topic in topics:
        for queue in topic.queues:
            for record in (*queue.copies, *queue.segments):
                if not ID.fullmatch(record.backup) or not _SEGMENT.fullmatch(record.file):
                    where = f"{record.backup}/{record.file}"
                    raise DataDamaged(f"{name} is damaged: {where!r} is no segment file")


def check_format(number: int, name: str) -> None:
    """Refuse a file of a newer format.

    Raises:
        StartError: NEWER_FORMAT.
        DataDamaged: there is no such format.
    """
    if number < 1:
        raise DataDamaged(f"{name} is damaged: it has format {number}")
    if number > FORMAT:
        raise StartError(
            f"{name} has format {number}, and this logboom reads formats up to {FORMAT}: use the "
            "version that wrote the backup, or a newer one",
            "NEWER_FORMAT",
        )


# ── segment files ───────────────────────────────────────────────────────────────────────────────


class SegmentHead(NamedTuple):
    """What a segment file says of itself."""

    kind: SegmentKind
    topic_id: int
    queue: int
    begin: LogPosition


class SegmentTotals(NamedTuple):
    """The end of a segment file."""

    entries: int
    messages: int
    end: LogPosition


def segment_name(topic_id: int, queue: int, begin: LogPosition, kind: SegmentKind) -> str:
    """Return the path of a segment file in the folder of its backup."""
    if kind == "copies":
        return f"{topic_id}/{queue}/{begin[0]:020}.copies"
    return f"{topic_id}/{queue}/{begin[0]:020}-{begin[1]}.seg"


class ReadableFile(Protocol):
    """A file that is read from its beginning."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""


class SegmentWriter:
    """Writes a segment file to an open file.

    `crc` and `size` are those of what was written so far.
    """

    def __init__(self, file: BinaryIO, header: SegmentHead) -> None:
        self._file = file
        self.header = header
        self.size = 0
        self.crc = 0
        self.entries = 0
        self.messages = 0
        self.end = header.begin
        head = _HEADER.pack(
            _MAGIC,
            FORMAT,
            1 + _KINDS.index(header.kind),
            header.topic_id,
            header.queue,
            *header.begin,
        )
        self._write(head + _CRC.pack(crc32c(head)))

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.size += len(data)
        self.crc = extend(self.crc, data)

    def write(
        self, content: bytes | memoryview, crc: int, entries: int, messages: int, end: LogPosition
    ) -> None:
        """Write a block, whose checksum the caller knows and has verified."""
        self._write(_BLOCK.pack(len(content), crc))
        self._write(content)
        self.entries += entries
        self.messages += messages
        self.end = end

    def finish(self) -> None:
        """Write the end."""
        totals = _TOTALS.pack(self.entries, self.messages, *self.end)
        self._write(_BLOCK.pack(0, crc32c(totals)) + totals)

    def record(self, backup: str, name: str, last_epoch: int) -> SegmentRecord:
        """Return the record of the finished file."""
        return SegmentRecord(
            backup,
            name,
            self.header.begin,
            self.end,
            last_epoch,
            self.size,
            self.crc,
            self.entries,
            self.messages,
        )


class SegmentReader:
    """Reads a segment file block by block; it never holds more than one block.

    `name` is what errors call the file. All errors are DataDamaged, or StartError for a newer
    format.
    """

    def __init__(self, file: ReadableFile, name: str) -> None:
        self._file = file
        self.name = name
        self.size = 0
        self.crc = 0
        self.totals: SegmentTotals | None = None
        """The end, once all blocks were read."""
        head = self._read(HEADER_BYTES)
        magic, number, kind, topic_id, queue, offset, side = _HEADER.unpack_from(head)
        if magic != _MAGIC:
            raise DataDamaged(f"{name} is damaged: it is no segment file of a backup")
        check_format(number, name)
        if _CRC.unpack_from(head, _HEADER.size)[0] != crc32c(head[: _HEADER.size]):
            raise DataDamaged(f"{name} is damaged: the checksum of its header is wrong")
        if not 0 < kind <= len(_KINDS):
            raise DataDamaged(f"{name} is damaged: it has kind {kind}")
        self.header = SegmentHead(_KINDS[kind - 1], topic_id, queue, (offset, side))

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        left = size
        while left:
            part = self._file.read(left)
            if not part:
                raise DataDamaged(
                    f"{self.name} is truncated: it ends after {self.size + size - left} bytes"
                )
            parts.append(part)
            left -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.size += size
        self.crc = extend(self.crc, data)
        return data

    def blocks(self) -> Iterator[bytes]:
        """Yield the content of each block, whose checksum is right."""
        while True:
            at = self.size
            length, crc = _BLOCK.unpack(self._read(_BLOCK.size))
            if length == 0:
                break
            if length > MOST_BLOCK_BYTES:
                raise DataDamaged(f"{self.name} is damaged at byte {at}: a block of {length} bytes")
            content = self._read(length)
            if crc32c(content) != crc:
                raise DataDamaged(f"{self.name} is damaged at byte {at}: a checksum is wrong")
            yield content
        data = self._read(_TOTALS.size)
        if crc32c(data) != crc:
            raise DataDamaged(
                f"{self.name} is damaged at byte {at}: the checksum of its end is wrong"
            )
        entries, messages, offset, side = _TOTALS.unpack(data)
        self.totals = SegmentTotals(entries, messages, (offset, side))
        if self._file.read(1):
            raise DataDamaged(f"{self.name} is damaged: something follows its end")


def encode_copy(bits: bytes, batch: bytes | memoryview) -> bytes:
    """Encode one batch of a block of copies."""
    return b"".join((_CRC.pack(len(bits)), bits, batch))


def split_copies(content: bytes | memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield (bits of the survivors, batch) of a block of copies.

    Raises:
        DamagedBatch: the lengths do not add up.
    """
    view = memoryview(content)
    at = 0
    while at < len(view):
        if len(view) - at < _CRC.size:
            raise DamagedBatch("a copy is longer than its block")
        (length,) = _CRC.unpack_from(view, at)
        at += _CRC.size
        bits = bytes(view[at : at + length])
        at += length
        size = peek(view[at : at + HEAD_LENGTH]).length
        if at + size > len(view):
            raise DamagedBatch("a copy is longer than its block")
        yield bits, view[at : at + size]
        at += size


def position_after(at: LogPosition, count: int) -> LogPosition:
    """Return the position after an entry at `at` that takes `count` offsets."""
    return (at[0] + count, 0) if count else (at[0], at[1] + 1)
