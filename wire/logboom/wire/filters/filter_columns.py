"""The columns of a batch that a filter uses, and the judgement of their contents.

Three-valued logic uses bitmaps in Python's integers: bit i stands for message i, and a message in
neither of them is unknown. Combining conditions is then a few operations on words instead of one
step per message. A judge is called once per distinct content of a column, and the loop over the
messages runs in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from logboom.wire.base import UNDECODABLE
from logboom.wire.columns import Columns
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters.syntax import Property, PropertySource
from logboom.wire.unpacking import TagBuffers, bits

UNKNOWN, YES, NO = 0, 1, 2
"""Results of a judge for a content."""

Judge: TypeAlias = Callable[[bytes], int]

_SAMPLE: Final[int] = 64  # messages looked at to learn whether contents repeat
_MOST_FIELDS: Final = 32
"""Names of headers up to which the others are skipped."""
_IS_YES: Final = bytes.maketrans(b"\0\1\2", b"010")
_IS_NO: Final = bytes.maketrans(b"\0\1\2", b"001")
_AWKWARD: Final = frozenset('"\\') | frozenset(map(chr, range(32)))
"""Characters that msgspec does not accept in a field's name."""


class TernaryBits(NamedTuple):
    """The messages for which a condition holds, and those for which it does not, as bits."""

    yes: int
    no: int


class HeaderReader:
    """A decoder of the named headers, which skips all others."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        # To make a type of hundreds of fields costs more than to decode the headers that it would skip.
        self._plain = len(names) <= _MOST_FIELDS and not any(map(_AWKWARD.intersection, names))
        if self._plain:
            fields = [(f"p{place}", bytes, None) for place in range(len(names))]
            rename = {f"p{place}": name for place, name in enumerate(names)}
            kind: type[Any] = msgspec.defstruct("Named", fields, rename=rename, gc=False)
        else:
            kind = dict[str, bytes]
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._empty = {} if not self._plain else kind()

    def rows(self, encoded: Sequence[bytes | None]) -> list[Any]:
        """Decode the named headers of each message, for `column`.

        Raises:
            DamagedBatch: The headers are not a map of text to bytes.
        """
        known = _Decoded({None: self._empty}, self._decode)
        try:
            if _repeats(encoded):
                return list(map(known.__getitem__, encoded))
            return [known[None] if each is None else self._decode(each) for each in encoded]
        except UNDECODABLE as error:
            text = f"batch is damaged: headers are not a msgpack map: {error}; encode it again"
            raise DamagedBatch(text) from error

    def column(self, rows: list[Any], name: str) -> list[bytes | None]:
        """Return one header of all rows."""
        if self._plain:
            return list(map(attrgetter(f"p{self._places[name]}"), rows))
        return [row.get(name) for row in rows]


class _Decoded(dict[Any, Any]):
    """A cache that decodes each distinct content once."""

    __slots__ = ("_decode",)

    def __init__(self, known: dict[Any, Any], decode: Callable[[bytes], Any]) -> None:
        super().__init__(known)
        self._decode = decode

    def __missing__(self, content: bytes) -> Any:
        found = self[content] = self._decode(content)
        return found


class FilterColumns:
    """The columns of a batch, or of a slice of it, that one filter uses.

    All methods raise DamagedBatch if the body is inconsistent.
    """

    __slots__ = ("_columns", "_headers", "_known", "_reader", "count", "every")

    def __init__(self, columns: Columns, reader: HeaderReader) -> None:
        self._columns = columns
        self._reader = reader
        self._headers: list[Any] | None = None
        self._known: dict[Property, list[bytes | None] | None] = {}
        self.count: Final = columns.count
        self.every: Final = (1 << columns.count) - 1
        """A bit for every message."""

    def column(self, asked: Property) -> list[bytes | None] | None:
        """Return the contents of a property; None if no message has it."""
        if asked not in self._known:
            self._known[asked] = self._read(asked)
        return self._known[asked]

    def judged(self, asked: Property, judge: Judge, null: int = UNKNOWN) -> TernaryBits:
        """Judge every message by a property; `null` is the result for those without it."""
        if asked.source is PropertySource.TAGS:
            return self._judged_tags(judge, null)
        if asked.source is PropertySource.TIMESTAMP and self.times() is None:
            return self.same(judge(b"%d" % self._columns.head.first_timestamp_ms))
        column = self.column(asked)
        if column is None:
            return self.same(null)
        if _repeats(column):
            return self.truth(bytes(map(_Decoded({None: null}, judge).__getitem__, column)))
        return self.truth(bytes([null if each is None else judge(each) for each in column]))

    def times(self) -> list[int] | None:
        """Return the message times in ms; None if all have the head's first."""
        if self._columns.arrow_buffers().timestamp is None:
            return None
        return self._columns.timestamps()

    @property
    def first_time(self) -> int:
        """The time of all messages if `times` is None."""
        return self._columns.head.first_timestamp_ms

    def same(self, state: int) -> TernaryBits:
        """Return the same result for every message."""
        return TernaryBits(self.every if state == YES else 0, self.every if state == NO else 0)

    def truth(self, states: bytes) -> TernaryBits:
        """Convert one state per message to bits."""
        if not states:
            return TernaryBits(0, 0)
        last_first = states[::-1]
        return TernaryBits(
            int(last_first.translate(_IS_YES), 2), int(last_first.translate(_IS_NO), 2)
        )

    def _read(self, asked: Property) -> list[bytes | None] | None:
        columns = self._columns
        match asked.source:
            case PropertySource.HEADER:
                if self._headers is None:
                    encoded = columns.encoded_headers()
                    if encoded is None:
                        return None
                    self._headers = self._reader.rows(encoded)
                return self._reader.column(self._headers, asked.name)
            case PropertySource.TAGS:
                tags = columns.arrow_buffers().tag
                return None if tags is None else list(self._tags_spread(tags))
            case PropertySource.KEYS:
                return columns.keys() if columns.arrow_buffers().key is not None else None
            case PropertySource.TIMESTAMP:
                return [b"%d" % time for time in columns.timestamps()]

    def _judged_tags(self, judge: Judge, null: int) -> TernaryBits:
        """Judge each distinct tag once, and translate the indices."""
        tags = self._columns.arrow_buffers().tag
        if tags is None:
            return self.same(null)
        if len(tags.dictionary.offsets) <= 4 * 257:
            # An index of four bytes is small enough to be its lowest byte.
            states = bytes(map(judge, _distinct(tags)))
            first, end = self._columns.first, self._columns.first + self.count
            lowest = bytes(tags.indices.cast("B")[4 * first : 4 * end : 4])
            found = self.truth(lowest.translate(states.ljust(256, b"\0")))
        else:
            indices = self._indices(tags)
            judged = {place: judge(tag) for place, tag in _used(tags, indices).items()}
            found = self.truth(bytes(map(judged.__getitem__, indices)))
        if tags.validity is None:
            return found
        valid = int(self._valid(tags)[::-1] or "0", 2)
        nulls = self.same(null)
        missing = self.every & ~valid
        return TernaryBits(
            found.yes & valid | nulls.yes & missing, found.no & valid | nulls.no & missing
        )

    def _tags_spread(self, tags: TagBuffers) -> Iterable[bytes | None]:
        indices = self._indices(tags)
        spread = map(_used(tags, indices).__getitem__, indices)
        valid: Iterable[str] = repeat("1") if tags.validity is None else self._valid(tags)
        return (tag if bit == "1" else None for tag, bit in zip(spread, valid, strict=False))

    def _indices(self, tags: TagBuffers) -> list[int]:
        return tags.indices[self._columns.first : self._columns.first + self.count].tolist()

    def _valid(self, tags: TagBuffers) -> str:
        first = self._columns.first
        return bits(tags.validity, self._columns.head.count)[first : first + self.count]


def _distinct(tags: TagBuffers) -> list[bytes]:
    """Return the dictionary of a tags column."""
    ends = tags.dictionary.offsets.cast("i").tolist()
    data = bytes(tags.dictionary.data)
    return [data[ends[place] : ends[place + 1]] for place in range(len(ends) - 1)]


def _used(tags: TagBuffers, indices: Sequence[int]) -> dict[int, bytes]:
    """Return the tags of some messages by their indices: a slice needs few of a large dictionary."""
    ends = tags.dictionary.offsets.cast("B").cast("i")
    data = tags.dictionary.data
    return {place: bytes(data[ends[place] : ends[place + 1]]) for place in set(indices)}


def _repeats(contents: Sequence[bytes | None]) -> bool:
    """Return True if caching the results by content is likely to pay."""
    sample = contents[:_SAMPLE]
    return 2 * len(set(sample)) <= len(sample)
