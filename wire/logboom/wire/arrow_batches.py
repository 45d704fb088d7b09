"""Batches from columns that are in memory in Arrow's layout.

It is the reverse of `Columns.arrow_buffers`, with no work per message.
"""

from __future__ import annotations

from itertools import pairwise

from logboom.wire.batch import NO_PRODUCER, assemble
from logboom.wire.columns import ArrowBuffers
from logboom.wire.compression import codec_for
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import EVERY_BIT, tag_summary
from logboom.wire.head import MAX_COUNT, Attribute
from logboom.wire.packing import PackedColumns, padded
from logboom.wire.unpacking import BinaryBuffers, TagBuffers

NOBODY = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER)


def encode_arrow(
    count: int,
    columns: ArrowBuffers,
    times: tuple[int, int],
    *,
    codec: str = "none",
    key_summary: int = EVERY_BIT,
) -> bytes:
    """Encode a batch with an empty stamped head and no producer.

    Args:
        columns: Columns of `count` messages each; offsets begin at 0, and each blob ends at the last.
        times: Message times in ms, of the first message and the greatest. All messages have the
            first unless there is a column `timestamp`.
        key_summary: `hashing.key_mask` of every key, or-ed; additional bits do no harm.

    Raises:
        InvalidRequest: The lengths of the buffers do not fit together, or TOO_LARGE.
    """
    if not 0 < count <= MAX_COUNT:
        raise InvalidRequest(f"a batch holds 1 to {MAX_COUNT} messages, not {count}", "TOO_LARGE")
    packed = [_binary(columns.value, count, 0, Attribute.NULL_VALUES)]
    if columns.key is not None:
        found = _binary(columns.key, count, Attribute.KEYS, Attribute.NULL_KEYS)
        packed.append(found._replace(key_summary=key_summary))
    if columns.tag is not None:
        packed.append(_tags(columns.tag, count))
    if columns.headers is not None:
        packed.append(_binary(columns.headers, count, Attribute.HEADERS, Attribute.NULL_HEADERS))
    if columns.timestamp is not None:
        stamps = _cut(columns.timestamp, 8 * count)
        packed.append(PackedColumns([stamps], Attribute.TIMESTAMPS))
    return assemble(packed, count, codec_for(codec), NOBODY, times)


def _binary(column: BinaryBuffers, count: int, attribute: int, nulls: int) -> PackedColumns:
    offsets = _cut(column.offsets, 4 * (count + 1))
    first, end = (int.from_bytes(offsets[at : at + 4], "little") for at in (0, 4 * count))
    if first != 0 or end != column.data.nbytes:
        text = f"a column goes from {first} to {end} in a blob of {column.data.nbytes} bytes"
        raise InvalidRequest(f"{text}: it must begin at 0 and fill the blob")
    parts = [*padded(offsets), *padded(bytes(column.data))]
    if column.validity is None:
        return PackedColumns(parts, attribute)
    return PackedColumns(
        [*padded(_cut(column.validity, -(-count // 8))), *parts], attribute | nulls
    )


def _tags(column: TagBuffers, count: int) -> PackedColumns:
    words = column.dictionary
    distinct = words.offsets.nbytes // 4 - 1
    dictionary = _binary(words, distinct, 0, 0)
    blob = bytes(words.data)
    ends = words.offsets.cast("B").cast("i").tolist()
    texts = [blob[start:end].decode() for start, end in pairwise(ends)]
    parts = [distinct.to_bytes(8, "little")]
    attributes = Attribute.TAGS
    if column.validity is not None:
        parts += padded(_cut(column.validity, -(-count // 8)))
        attributes |= Attribute.NULL_TAGS
    parts += [*padded(_cut(column.indices, 4 * count)), *dictionary.parts]
    return PackedColumns(parts, attributes, tag_summary=tag_summary(texts))


def _cut(view: memoryview, length: int) -> bytes:
    if view.nbytes < length:
        raise InvalidRequest(f"a column needs {length} bytes and has {view.nbytes}")
    return bytes(view.cast("B")[:length])
