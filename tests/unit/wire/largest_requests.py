"""Every request with the most that a client may put into a field, as bytes.

The bytes are written by hand, since none of our encoders writes what a hostile peer does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec.inspect as kinds
from msgspec import msgpack

from logboom.wire.base import WireMessage
from logboom.wire.frames import REQUESTS

EMPTY_ARRAY: Final = b"\x90"
EMPTY_MAP: Final = b"\x80"
NUMBER: Final = b"\x07"
"""The id of every request here, and every number in it."""


class Field(NamedTuple):
    """A field of a request, or of a record or command in it."""

    request: type[WireMessage]
    name: str
    kind: kinds.Type
    whole: Callable[[bytes], bytes]
    """Makes the request of the encoded field; all others are as short as they may be."""

    def __str__(self) -> str:
        return f"{tag_of(self.request)}.{self.name}"


def tag_of(request: type[WireMessage]) -> str:
    """What the request is called on the wire."""
    return str(request.__struct_config__.tag)


def alternatives(kind: kinds.Type) -> list[kinds.Type]:
    """The kinds of which a field may be, but for nil."""
    of = kind.types if isinstance(kind, kinds.UnionType) else (kind,)
    return [each for each in of if not isinstance(each, kinds.NoneType)]


def fields() -> Iterator[Field]:
    """All fields of all requests, and those of records and commands within; not those of elements."""
    for request in REQUESTS:
        yield from _fields(request, kinds.type_info(request), "", lambda record: record)


def _fields(
    request: type[WireMessage], kind: kinds.Type, name: str, whole: Callable[[bytes], bytes]
) -> Iterator[Field]:
    if not isinstance(kind, kinds.StructType):
        yield Field(request, name, kind, whole)
        return
    for place, field in enumerate(kind.fields):
        for each in alternatives(field.type):
            called = f"{name}.{field.name}" if name else field.name
            if isinstance(each, kinds.StructType) and each.tag is not None:
                called += f"({each.tag})"
            yield from _fields(request, each, called, _setter(kind, place, whole))


def _setter(
    record: kinds.StructType, place: int, whole: Callable[[bytes], bytes]
) -> Callable[[bytes], bytes]:
    def with_field(value: bytes) -> bytes:
        parts = [shortest(each.type) for each in record.fields]
        parts[place] = value
        tag = [] if record.tag is None else [msgpack.encode(record.tag)]
        return whole(array([*tag, *parts]))

    return with_field


def shortest(kind: kinds.Type) -> bytes:
    """The shortest encoding of a value of a kind."""
    kind = alternatives(kind)[0]
    if isinstance(kind, kinds.StructType):
        tag = [] if kind.tag is None else [msgpack.encode(kind.tag)]
        return array([*tag, *(shortest(each.type) for each in kind.fields if each.required)])
    if isinstance(kind, kinds.TupleType):
        return array([shortest(each) for each in kind.item_types])
    if isinstance(kind, kinds.LiteralType):
        return msgpack.encode(kind.values[0])
    simple: dict[type[kinds.Type], bytes] = {
        kinds.IntType: NUMBER,
        kinds.FloatType: msgpack.encode(0.5),
        kinds.StrType: b"\xa0",
        kinds.BytesType: b"\xc4\x00",
        kinds.BoolType: b"\xc2",
        kinds.ListType: EMPTY_ARRAY,
        kinds.DictType: EMPTY_MAP,
    }
    return simple[type(kind)]


def array(parts: list[bytes]) -> bytes:
    """An array of encoded elements."""
    return counted(parts, 0x90, 0xDC) + b"".join(parts)


def counted(parts: list[bytes], small: int, large: int, each: int = 1) -> bytes:
    """The head of an array or a map."""
    count = len(parts) // each
    if count < 16:
        return bytes([small + count])
    if count < 1 << 16:
        return bytes([large]) + count.to_bytes(2, "big")
    return bytes([large + 1]) + count.to_bytes(4, "big")


def fullest(field: Field, size: int) -> list[bytes]:
    """What fills the field of a frame of at most `size` bytes: as many elements as possible, or bytes.

    Of a list, once as many as it may have, and once as large as they may be.
    """
    room = size - len(field.whole(b"")) - 16
    kind = field.kind
    if isinstance(kind, kinds.ListType):
        one = shortest(kind.item_type)
        most = room // len(one) if kind.max_length is None else kind.max_length
        return [array([one] * min(most, room // len(one)))]
    if isinstance(kind, kinds.DictType):
        value = shortest(kind.value_type)
        most = room // (5 + len(value)) if kind.max_length is None else kind.max_length
        count = min(most, room // (5 + len(value)))
        parts = [part for each in range(count) for part in (b"\xa4%04x" % each, value)]
        if not isinstance(kind.key_type, kinds.StrType):
            parts = [
                part for each in range(count) for part in (b"\xcd%c%c" % divmod(each, 256), value)
            ]
        return [counted(parts, 0x80, 0xDE, 2) + b"".join(parts)]
    if isinstance(kind, kinds.StrType):
        length = room if kind.max_length is None else kind.max_length
        # Letters of four bytes, where they count.
        letter = b"x" if kind.max_length is None else "\N{SNOWMAN}".encode()
        return [b"\xdb" + (length * len(letter)).to_bytes(4, "big") + letter * length]
    if isinstance(kind, kinds.BytesType):
        length = room if kind.max_length is None else kind.max_length
        return [b"\xc6" + length.to_bytes(4, "big") + bytes(length)]
    if isinstance(kind, kinds.IntType):
        return [msgpack.encode(each) for each in (-(1 << 63), (1 << 64) - 1)]
    return [shortest(kind)]
