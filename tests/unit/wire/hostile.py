"""Hostile frames by grammar: every message of the protocol with fields no honest peer would send.

A field is drawn by its declared type, from values at and beyond the edges; then bytes may be
flipped, cut off or added, and batches may follow where none belong.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from logboom.wire.batch import encode_batch, stamp
from logboom.wire.frames import encode
from logboom.wire.messages import AnyMessage

NUMBERS: Final = (
    0,
    1,
    -1,
    2,
    3,
    7,
    52,
    1000,
    1 << 20,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    -(2**63),
)
HUGE: Final = (2**64 - 1, 2**63)
TEXTS: Final = (
    "flights",
    "broker-1",
    "broker-2",
    "name-1",
    "a client",
    "",
    "none",
    "x" * 5_000,
    "\0",
    "é%",
)
BATCHES: Final = (
    b"",
    b"\0" * 40,
    encode_batch([b"v"], now_ms=5),
    encode_batch([b"v"] * 3, now_ms=5, producer_id=1, producer_epoch=0, base_sequence=2**31 - 1),
    stamp(encode_batch([b"v"], now_ms=5), 0, 1, 5),
    stamp(encode_batch([b"v"], now_ms=5), 2**63 - 1, 2**31 - 1, -1),
)


def _of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type, legal for the decoder."""
    origin = get_origin(kind)
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin in (Union, types.UnionType):
        return st.one_of([_of(part) for part in get_args(kind)])
    if origin is list:
        return st.lists(_of(get_args(kind)[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*[_of(part) for part in get_args(kind)])
    if origin is dict:
        key, value = get_args(kind)
        return st.dictionaries(_of(key), _of(value), max_size=2)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.sampled_from(NUMBERS) | st.sampled_from(HUGE) | st.integers(-3, 10),
        str: st.sampled_from(TEXTS),
        bytes: st.sampled_from(BATCHES) | st.binary(max_size=20),
        bool: st.booleans(),
        type(None): st.none(),
        Any: st.sampled_from((None, 1, "x")),
        float: st.sampled_from((0.0, -1.0, 1e308)),
    }
    return simple[kind]


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Instances of a message or of a part of one."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, *[_of(hints[name]) for name in kind.__struct_fields__])


messages: Final = st.one_of([structs(kind) for kind in get_args(AnyMessage)])
"""Any message of the protocol, well formed."""


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """The bytes of a message with one thing changed."""
    raw = bytearray(encode(draw(messages))[0])
    at = draw(st.integers(0, len(raw) - 1))
    match draw(st.sampled_from(("flip", "cut", "add", "count"))):
        case "flip":
            raw[at] ^= draw(st.integers(1, 255))
        case "cut":
            del raw[at:]
        case "add":
            raw += draw(st.binary(min_size=1, max_size=8))
        case _:
            # An array or text that claims 4 billion elements.
            raw[at : at + 1] = draw(st.sampled_from((b"\xdd", b"\xdb", b"\xc6"))) + b"\xff" * 4
    return bytes(raw)


frames: Final = st.one_of(
    st.tuples(messages, st.lists(st.sampled_from(BATCHES), max_size=2)).map(
        lambda pair: encode(pair[0], pair[1])
    ),
    st.tuples(mangled()).map(list),
    st.lists(st.binary(max_size=30), max_size=3),
)
"""What one peer may put on the wire."""
