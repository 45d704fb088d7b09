"""The checks of a batch before a broker stores it, or a reader opens it, and their checksum.

CRC-32C (Castagnoli) is the only checksum of the wire and of the store. The C build of google-crc32c
runs at tens of GB/s; its Python fall-back is about a thousand times slower, see `ACCELERATED`.

Nothing is decompressed here and no column is read; `logboom.wire.unpacking` verifies those. A batch
that passes is whole, of this version, within bounds, and matches its checksums.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

from logboom.wire.errors import DamagedBatch
from logboom.wire.head import (
    CODEC_MASK,
    CRC_START,
    EMPTY_STAMP,
    KNOWN_ATTRIBUTES,
    MAGIC,
    MAX_BODY,
    MAX_COUNT,
    STAMP,
    STAMP_LENGTH,
    VERSION,
    Attribute,
    BatchHead,
    ControlKind,
    peek,
)

ACCELERATED: Final[bool] = google_crc32c.implementation == "c"
"""False if only the slow pure-Python build of google-crc32c is installed."""


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of `data`; `crc32c(b"123456789") == 0xE3069283`."""
    return extend(0, data)


def extend(crc: int, data: bytes | bytearray | memoryview) -> int:
    """Return the checksum of the data that `crc` covers, followed by `data`; 0 covers nothing."""
    # The C build takes only bytes: a view is copied, which costs less than the checksum.
    block = data if type(data) is bytes else bytes(data)
    value: int = google_crc32c.extend(crc, block)
    return value


_NULLABLE: Final = (
    (Attribute.NULL_KEYS, Attribute.KEYS),
    (Attribute.NULL_TAGS, Attribute.TAGS),
    (Attribute.NULL_HEADERS, Attribute.HEADERS),
)
_NULLS: Final = Attribute.NULL_KEYS | Attribute.NULL_TAGS | Attribute.NULL_HEADERS
_LAST_KIND: Final = int(max(ControlKind))
_MAX_OFFSET: Final = 1 << 63


def validate_batch(batch: bytes | memoryview, *, stamped: bool = True) -> BatchHead:
    """Verify lengths, version, checksums and bounds; a batch that passes can be stored and opened.

    Args:
        stamped: False for a batch directly from a producer: its stamped head must be all zero, and
            it may not be a control entry.

    Raises:
        DamagedBatch: A check fails; the text names it. Nothing else is raised, whatever the bytes.
    """
    head = peek(batch)
    if head.magic != MAGIC or head.version != VERSION:
        raise damaged(
            f"magic {head.magic!r} version {head.version} is not {MAGIC!r} version {VERSION}",
            "use a client or node that speaks this version",
        )
    _check_stamp(batch, head, stamped)
    if head.stored_length > MAX_BODY or head.plain_length > MAX_BODY:
        raise damaged(
            f"body of {head.stored_length} bytes ({head.plain_length} plain) exceeds {MAX_BODY}",
            "send smaller batches",
        )
    if len(batch) != head.length:
        raise damaged(f"{len(batch)} bytes, its head says {head.length}", "fetch it again")
    if crc32c(memoryview(batch)[CRC_START:]) != head.crc:
        raise damaged("its checksum does not match", "fetch it again")
    check_fields(head)
    if not stamped and (head.is_control or head.has(Attribute.RELEASED)):
        raise damaged("a producer may not write control or released entries", "send messages")
    return head


def _check_stamp(batch: bytes | memoryview, head: BatchHead, stamped: bool) -> None:
    written = bytes(batch[:STAMP_LENGTH])
    if not stamped:
        if written != EMPTY_STAMP:
            raise damaged("a producer's stamped head is not empty", "send 24 zero bytes")
        return
    if crc32c(written[: STAMP.size]) != head.stamp_crc:
        raise damaged("the checksum of its stamped head does not match", "fetch it again")
    if head.next_offset >= _MAX_OFFSET:
        raise damaged(f"base offset {head.base_offset} is out of range", "fetch it again")


def check_fields(head: BatchHead) -> None:
    """Check fields that no correct writer produces, though their checksum matches."""
    upgrade = "read it with a newer version"
    attributes = head.attributes
    if attributes & ~KNOWN_ATTRIBUTES or head.reserved:
        raise damaged(f"unknown attributes {attributes:#06x}", upgrade)
    if attributes & _NULLS and any(
        attributes & nulls and not attributes & column for nulls, column in _NULLABLE
    ):
        raise damaged("it has nulls in a column that it lacks", "encode it again")
    if not attributes & CODEC_MASK:
        if head.stored_length != head.plain_length:
            text = "plain and stored length of an uncompressed body differ"
            raise damaged(text, "encode it again")
    else:
        _ = head.codec  # raises for one that does not exist
    if attributes & Attribute.CONTROL:
        lost = head.kind == ControlKind.LOST
        if (
            attributes != Attribute.CONTROL
            or head.kind == ControlKind.MESSAGES
            or lost != (head.count > 0)
        ):
            raise damaged("a control entry has messages, columns or no kind", "encode it again")
        if head.kind > _LAST_KIND:
            raise damaged(f"unknown control kind {head.kind}", upgrade)
    elif head.kind != ControlKind.MESSAGES or head.count == 0:
        raise damaged("a batch of messages has a control kind or no message", "encode it again")
    elif head.count > MAX_COUNT or 4 * (head.count + 1) > head.plain_length:
        raise damaged(f"{head.count} messages do not fit its body", "encode it again")


def damaged(what: str, mend: str) -> DamagedBatch:
    """Return the error that names a failed check and the remedy."""
    return DamagedBatch(f"batch is damaged: {what}; {mend}")
