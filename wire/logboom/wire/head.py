"""The fixed 96 bytes before a batch's body, and their names.

The table of their offsets is in `logboom.wire.batch`; this module holds the one struct that reads
them all. Nothing here verifies them: `logboom.wire.batch.validate_batch` does.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import msgspec

from logboom.wire.compression import Codec
from logboom.wire.errors import DamagedBatch

STAMP_LENGTH: Final[int] = 24
"""Length of the stamped head, the only part that a broker writes."""

HEAD_LENGTH: Final[int] = 96
"""Length of stamped head and head, which precede the body."""

MAX_BODY: Final[int] = 64 * 1024 * 1024
"""Maximum stored length of a body, and maximum plain length."""

MAX_COUNT: Final[int] = 1 << 20
"""Maximum number of messages in a batch: a body of empty values would decompress to millions."""

MAX_PRODUCED_COUNT: Final[int] = 1 << 16
"""Maximum number of messages in a batch that a broker takes from a producer: each of them costs
whoever opens the batch, however few bytes it has."""

MAGIC: Final[bytes] = b"LGB"
"""First three bytes of the head."""

VERSION: Final[int] = 1
"""The batch format that this code writes and the only one it reads."""

NO_PRODUCER: Final[int] = -1
"""Producer id, epoch and sequence of a producer that is not idempotent."""

EMPTY_STAMP: Final[bytes] = bytes(STAMP_LENGTH)
"""The stamped head of a batch that no broker has stored yet."""

CRC_START: Final[int] = 32
"""The head's checksum covers everything from here to the end."""

CODEC_MASK: Final[int] = 0b111

STAMP: Final = struct.Struct("<QIq")
PREFIX: Final = struct.Struct("<3sBI")
TAIL: Final = struct.Struct("<HBBIqiiqqQQII")
_WHOLE: Final = struct.Struct("<QIqI3sBIHBBIqiiqqQQII")


class Attribute:
    """Bits of the head's attributes above the codec.

    Plain integers: an IntFlag costs more per test than reading the whole head.
    """

    KEYS: Final = 1 << 3
    TAGS: Final = 1 << 4
    HEADERS: Final = 1 << 5
    TIMESTAMPS: Final = 1 << 6
    CONTROL: Final = 1 << 7
    NULL_VALUES: Final = 1 << 8
    NULL_KEYS: Final = 1 << 9
    NULL_TAGS: Final = 1 << 10
    NULL_HEADERS: Final = 1 << 11
    RELEASED: Final = 1 << 12
    """The 12 bytes of `RELEASED_FROM` follow the body: the batch was parked."""


KIND_AT: Final[int] = 34
"""Offset of the kind's byte, which is 0 in batches of messages only."""

RELEASED_FROM: Final = struct.Struct("<QI")
"""Position (offset, side) of the parked entry that a released batch comes from."""

KNOWN_ATTRIBUTES: Final[int] = (1 << 13) - 1
"""The codec and all bits above; a batch with other bits was written by a later version."""


class ControlKind(IntEnum):
    """The kind of a control entry, as in its `kind` byte. A batch of messages has 0."""

    MESSAGES = 0
    PARKED = 1
    RECALLED = 2
    DECIDED = 3
    CURSOR_DELTA = 4
    PRODUCER_EXPIRY = 5
    LOST = 6
    """Stands for `count` offsets whose messages a damaged store has lost: the only kind with
    offsets."""


class BatchHead(msgspec.Struct, frozen=True, gc=False):
    """The head of one entry, in the order of its bytes."""

    base_offset: int
    """Offset of the first message; for a control entry, the offset that it precedes."""
    leader_epoch: int
    append_time_ms: int
    """The leader's wall clock at the append; it never goes back within a queue."""
    stamp_crc: int
    magic: bytes
    version: int
    crc: int
    attributes: int
    kind: int
    reserved: int
    count: int
    """Messages in the batch, or lost messages; 0 in all other control entries."""
    producer_id: int
    producer_epoch: int
    base_sequence: int
    """Sequence of the first message; the others count up from it."""
    first_timestamp_ms: int
    """Message time of the first message, and of all if the batch has no timestamps column."""
    max_timestamp_ms: int
    tag_summary: int
    key_summary: int
    stored_length: int
    """Length of the body as stored."""
    plain_length: int
    """Length of the body after decompression."""

    @property
    def last_offset(self) -> int:
        """Offset of the last message; base offset less 1 for a control entry."""
        return self.base_offset + self.count - 1

    @property
    def next_offset(self) -> int:
        """The offset after this entry."""
        return self.base_offset + self.count

    @property
    def last_sequence(self) -> int:
        """Sequence of the last message, wrapped as `sequence_after` says."""
        return sequence_after(self.base_sequence, self.count - 1)

    @property
    def is_control(self) -> bool:
        """True for an entry that holds no messages."""
        return bool(self.attributes & Attribute.CONTROL)

    @property
    def codec(self) -> Codec:
        """The codec of the body; DamagedBatch if no such codec exists."""
        try:
            return Codec(self.attributes & CODEC_MASK)
        except ValueError:
            text = f"batch is damaged: unknown codec {self.attributes & CODEC_MASK}"
            raise DamagedBatch(f"{text}; read it with a newer version") from None

    @property
    def length(self) -> int:
        """Length of the whole entry in bytes."""
        trailer = RELEASED_FROM.size if self.attributes & Attribute.RELEASED else 0
        return HEAD_LENGTH + self.stored_length + trailer

    def has(self, attribute: int) -> bool:
        """Return True if an attribute bit is set."""
        return bool(self.attributes & attribute)


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence after `count` messages; 2,147,483,647 is followed by 0."""
    return (sequence + count) & 0x7FFFFFFF


def peek(batch: bytes | memoryview) -> BatchHead:
    """Return the head without any check except that there are 96 bytes.

    Raises:
        DamagedBatch: The entry is shorter than its head.
    """
    if len(batch) < HEAD_LENGTH:
        raise DamagedBatch(
            f"batch has {len(batch)} bytes, its head alone has {HEAD_LENGTH}: fetch it again"
        )
    return BatchHead(*_WHOLE.unpack_from(batch))
