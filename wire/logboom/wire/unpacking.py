"""The decoding of a column from a body, and the refusal of inconsistent ones.

Offsets are verified to begin at 0, to grow and to stay inside the body before any is used, so that
a hostile body raises DamagedBatch and nothing, here or in Arrow, reads out of range. Columns of
equally long values are recognised by comparing their offsets with the expected ones. This is also
their verification, and `struct` then cuts them several times faster than slices would.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from logboom.wire.errors import DamagedBatch
from logboom.wire.packing import TABLE_LIMIT, even_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STRIDE: Final[int] = 64  # values cut per step from an even column
_STRIDE_WIDTH: Final[int] = 4096  # above it the copying outweighs the cutting
_TAGS_PER_STEP: Final[int] = 4_096
_INDICES_PER_STEP: Final[int] = 32_768


class BinaryBuffers(NamedTuple):
    """An Arrow binary column: i32 offsets and blob; `validity` is None if there are no nulls."""

    validity: memoryview | None
    offsets: memoryview
    data: memoryview


class TagBuffers(NamedTuple):
    """An Arrow dictionary column: i32 indices into a column of distinct tags."""

    validity: memoryview | None
    indices: memoryview
    dictionary: BinaryBuffers


class BodyReader:
    """A walk over a body, which returns views that are certain to be inside."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def take(self, length: int) -> memoryview:
        """Return the next `length` bytes, and skip the padding after them."""
        end = self._at + length
        padded = end + -end % 8
        if padded > len(self._body):
            raise damaged(f"a column needs {padded} bytes of a body of {len(self._body)}")
        view = self._body[self._at : end]
        self._at = padded
        return view

    def finish(self) -> None:
        """Refuse bytes after the last column."""
        if self._at != len(self._body):
            raise damaged(f"{len(self._body) - self._at} bytes follow the last column")


class BinaryColumn:
    """A column of byte strings."""

    __slots__ = ("_data", "_offsets", "_valid", "_validity", "_view", "_width", "count")

    def __init__(self, cursor: BodyReader, count: int, *, nulls: bool) -> None:
        self.count = count
        self._validity = cursor.take(-(-count // 8)) if nulls else None
        self._valid: str | None = None
        self._view = cursor.take(4 * (count + 1))
        self._offsets: tuple[int, ...] = ()
        end: int = struct.unpack_from("<i", self._view, 4 * count)[0]
        if end < 0:
            raise damaged(f"a column ends at {end}")
        self._data = cursor.take(end)
        self._width = self._even_width(end)
        if self._width is None:
            self._offsets = _increasing(self._view)

    def _even_width(self, end: int) -> int | None:
        """Return the width that all values have, or None if they differ."""
        if self.count > TABLE_LIMIT or end % self.count:
            return None
        width = end // self.count
        return width if self._view == even_offsets(width, self.count) else None

    def get(self, i: int) -> bytes | None:
        """Return item `i`, which the caller keeps in range."""
        if self._validity is not None and not self._validity[i >> 3] >> (i & 7) & 1:
            return None
        if self._width is not None:
            return bytes(self._data[i * self._width : (i + 1) * self._width])
        return bytes(self._data[self._offsets[i] : self._offsets[i + 1]])

    def get_all(self, start: int, stop: int) -> list[bytes | None]:
        """Return items `start` to `stop`."""
        items = self._cut_even(start, stop) if self._width is not None else self._cut(start, stop)
        if self._validity is None:
            return items
        valid = self.valid()[start:stop]
        return [item if bit == "1" else None for item, bit in zip(items, valid, strict=True)]

    def get_some(self, places: Sequence[int]) -> list[bytes | None]:
        """Return some items; if they are less than half, this is faster than to cut all."""
        # One copy of the blob, because slicing bytes is twice as fast as slicing a view.
        blob, width, offsets = bytes(self._data), self._width, self._offsets
        items: list[bytes | None]
        if width is not None:
            items = [blob[place * width : place * width + width] for place in places]
        else:
            items = [blob[offsets[place] : offsets[place + 1]] for place in places]
        if self._validity is None:
            return items
        valid = self.valid()
        return [i if valid[n] == "1" else None for i, n in zip(items, places, strict=True)]

    def valid(self) -> str:
        """Return one "1" or "0" per item; only for a column with nulls."""
        if self._valid is None:
            self._valid = bits(self._validity, self.count)
        return self._valid

    def buffers(self) -> BinaryBuffers:
        """Return the views, for Arrow."""
        return BinaryBuffers(self._validity, self._view, self._data)

    def _cut_even(self, start: int, stop: int) -> list[bytes | None]:
        width = self._width or 0
        if width == 0:
            return [b""] * (stop - start)
        if width > _STRIDE_WIDTH:
            data = self._data
            return [
                bytes(data[at : at + width]) for at in range(start * width, stop * width, width)
            ]
        stride, single = _cutters(width)
        middle = start + (stop - start) // _STRIDE * _STRIDE
        items = list(
            chain.from_iterable(stride.iter_unpack(self._data[start * width : middle * width]))
        )
        items += chain.from_iterable(single.iter_unpack(self._data[middle * width : stop * width]))
        return items

    def _cut(self, start: int, stop: int) -> list[bytes | None]:
        offsets = self._offsets
        if (start, stop) != (0, self.count):
            offsets = offsets[start : stop + 1]
        base = offsets[0]
        # One copy of the blob, because slicing bytes is twice as fast as slicing a view.
        blob = bytes(self._data[base : offsets[-1]])
        if base:
            return [blob[begin - base : end - base] for begin, end in pairwise(offsets)]
        return [blob[begin:end] for begin, end in pairwise(offsets)]


class TagColumn:
    """The dictionary-encoded tags."""

    __slots__ = ("_dictionary", "_indices", "_tags", "_validity", "count")

    def __init__(self, count: int) -> None:
        self.count = count
        self._tags: list[str] = []

    def read(self, cursor: BodyReader, *, nulls: bool) -> Iterator[None]:
        """Read the column in steps, before anything else is asked for.

        Raises:
            DamagedBatch: It is inconsistent.
        """
        count = self.count
        distinct = int.from_bytes(cursor.take(8), "little")
        if not 0 < distinct <= count:
            raise damaged(f"{distinct} distinct tags of {count} messages")
        self._validity = cursor.take(-(-count // 8)) if nulls else None
        self._indices = cursor.take(4 * count).cast("i")
        self._dictionary = BinaryColumn(cursor, distinct, nulls=False)
        for start in range(0, count, _INDICES_PER_STEP):
            yield
            places = self._indices[start : start + _INDICES_PER_STEP].tolist()
            if min(places) < 0 or max(places) >= distinct:
                raise damaged(f"a tag index is outside its dictionary of {distinct}")
        for start in range(0, distinct, _TAGS_PER_STEP):
            yield
            self._tags += _texts(self._dictionary, start)

    def get(self, i: int) -> str | None:
        """Return tag `i`, which the caller keeps in range."""
        if self._validity is not None and not self._validity[i >> 3] >> (i & 7) & 1:
            return None
        return self._tags[self._indices[i]]

    def get_all(self, start: int, stop: int) -> list[str | None]:
        """Return tags `start` to `stop`."""
        tags = list(map(self._tags.__getitem__, self._indices[start:stop].tolist()))
        if self._validity is None:
            return list(tags)
        valid = bits(self._validity, self.count)[start:stop]
        return [tag if bit == "1" else None for tag, bit in zip(tags, valid, strict=True)]

    def buffers(self) -> TagBuffers:
        """Return the views, for Arrow."""
        return TagBuffers(self._validity, self._indices, self._dictionary.buffers())


def bits(bitmap: memoryview | None, count: int) -> str:
    """Return the first `count` bits of an Arrow bitmap as "1" and "0", in order."""
    number = int.from_bytes(bitmap or b"", "little")
    return f"{number:0{count}b}"[::-1][:count]


def damaged(what: str) -> DamagedBatch:
    """Return the error for a body with inconsistent columns."""
    return DamagedBatch(f"batch is damaged: {what}; encode it again")


def _increasing(view: memoryview) -> tuple[int, ...]:
    offsets: tuple[int, ...] = struct.unpack(f"<{len(view) // 4}i", view)
    # Sorting a sorted list is one pass in C, four times as fast as comparing pairs.
    if offsets[0] != 0 or tuple(sorted(offsets)) != offsets:
        raise damaged("the offsets of a column do not grow from 0")
    return offsets


def _texts(dictionary: BinaryColumn, start: int) -> list[str]:
    stop = min(start + _TAGS_PER_STEP, dictionary.count)
    try:
        return [str(item or b"", "utf-8") for item in dictionary.get_all(start, stop)]
    except UnicodeDecodeError as error:
        raise damaged(f"a tag is not UTF-8: {error}") from error


@lru_cache(maxsize=32)
def _cutters(width: int) -> tuple[struct.Struct, struct.Struct]:
    """Return structs that cut a stride of values of one width, and a single one."""
    return struct.Struct(f"{width}s" * _STRIDE), struct.Struct(f"{width}s")
