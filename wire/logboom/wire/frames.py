"""Encoding of messages as frames, and decoding.

Hostile bytes raise InvalidRequest and nothing else. What is refused has cost no more than a walk over
its bytes: the limits of a message are compared with what its bytes announce, before any object is built.
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Sequence
from typing import Final, TypeAlias, get_args

import msgspec

from logboom.wire.base import SMALL_FRAME, UNDECODABLE, Request, WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import (
    MAX_BATCH_BYTES,
    MAX_MESSAGE_FRAME,
    AnyMessage,
    Hello,
    Ping,
    Prove,
    RaftFrame,
)

Frame: TypeAlias = bytes | memoryview
"""One frame: a message, or a batch."""

REQUESTS: Final[tuple[type[WireMessage], ...]] = tuple(
    each
    for each in get_args(AnyMessage)
    if issubclass(each, Request) or each in (Hello, Prove, Ping, RaftFrame)
)
"""What a listener takes. All other messages are answers, and only who has dialled gets any."""
MAX_FIELDS: Final = 256
"""Maximum fields of a long message, those of later versions included."""
MAX_SHOWN: Final = 200
"""Maximum length of what a refusal quotes from a frame, in characters."""

ELEMENT_BYTES: Final = 64
"""Memory of an element of a list, such as a text, in addition to its bytes in a frame."""

_PLAIN: Final = frozenset({int, str, bytes, bool, float, type(None)})
_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(AnyMessage)
_request_decoder: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(
    functools.reduce(operator.or_, REQUESTS)
)
_limits: Final = {str(each.__struct_config__.tag): each.FRAME_BYTES for each in REQUESTS}
"""Type of a request → maximum length of its frame from a client."""


def encode(message: WireMessage, batches: Sequence[Frame] = ()) -> list[Frame]:
    """Return the frames of a message and of the batches that follow it."""
    if batches:
        return [_encode(message), *batches]
    return [_encode(message)]


def memory_of(message: WireMessage) -> int:
    """Return the bytes of memory that a message takes, beside what all messages take.

    A short tag or name takes two bytes of a frame, and 30 times as many here.
    """
    return len(_encode(message)) + ELEMENT_BYTES * _elements_of(message)


def _elements_of(record: msgspec.Struct) -> int:
    count = 0
    for value in msgspec.structs.astuple(record):
        kind = type(value)
        if kind is list or kind is dict:
            count += len(value)
        elif kind not in _PLAIN and isinstance(value, msgspec.Struct):
            count += _elements_of(value)
    return count


def decode(frames: Sequence[Frame]) -> AnyMessage:
    """Return the message in the first frame, for whoever has dialled and gets answers.

    Raises:
        InvalidRequest: MALFORMED, UNKNOWN_TYPE or TOO_LARGE, with `fields["id"]` if it is known.
    """
    return _decode(_decoder, frames)


def decode_request(frames: Sequence[Frame], *, of_client: bool) -> AnyMessage:
    """Return the request in the first frame, for a listener.

    Args:
        frames: what came.
        of_client: whether the limits of its type for clients hold; those of lists hold for nodes, too.

    Raises:
        InvalidRequest: As `decode`.
    """
    if of_client and frames and len(frames[0]) > SMALL_FRAME:
        _check_length(frames[0])
    return _decode(_request_decoder, frames)


def _check_length(head: Frame) -> None:
    """Refuse a client's frame that is longer than its type may be.

    Raises:
        InvalidRequest: TOO_LARGE.
    """
    kind, number = _envelope(head)
    limit = _limits.get(kind, SMALL_FRAME)
    if len(head) > limit:
        # A longer frame of an unknown type may be one of a later version.
        name = f" of {kind!r}" if kind in _limits else ""
        text = f"message frame{name} of {len(head)} bytes; at most {limit} are accepted: send it in parts"
        raise InvalidRequest(text, "TOO_LARGE", id=number)
    # What follows the last field that is known would be skipped, all of it.
    count = int.from_bytes(head[1 : _ARRAYS.get(head[0], 1)])
    if count > MAX_FIELDS:
        text = f"message of {count} fields; at most {MAX_FIELDS} are accepted"
        raise InvalidRequest(text, "MALFORMED", id=number)


def _decode(decoder: msgspec.msgpack.Decoder[AnyMessage], frames: Sequence[Frame]) -> AnyMessage:
    if not frames:
        raise InvalidRequest("empty message: send at least the message frame", "MALFORMED")
    head = frames[0]
    if len(head) > MAX_MESSAGE_FRAME:
        text = f"message frame of {len(head)} bytes; at most {MAX_MESSAGE_FRAME} are accepted"
        raise InvalidRequest(text, "TOO_LARGE", id=id_of(head))
    for frame in frames[1:]:
        if len(frame) > MAX_BATCH_BYTES + 1024:
            text = f"batch of {len(frame)} bytes; at most {MAX_BATCH_BYTES} are accepted"
            raise InvalidRequest(text, "TOO_LARGE", id=id_of(head))
    try:
        return decoder.decode(head)
    except UNDECODABLE as error:
        raise _refusal(head, str(error)) from None


def _refusal(head: Frame, why: str) -> InvalidRequest:
    number, shown = id_of(head), why if len(why) <= MAX_SHOWN else f"{why[:MAX_SHOWN]}…"
    if why.startswith("Invalid value") and why.endswith("`$[0]`"):
        text = f"unknown message type ({shown}): this node speaks an older protocol?"
        return InvalidRequest(text, "UNKNOWN_TYPE", id=number)
    if why.startswith(("Expected `array` of length <=", "Expected `object` of length <=")):
        text = f"too many elements: {shown}: send several requests"
        return InvalidRequest(text, "TOO_LARGE", id=number)
    return InvalidRequest(f"malformed message: {shown}", "MALFORMED", id=number)


def id_of(head: Frame) -> int:
    """Return the correlation id of a message frame, which may be malformed; 0 if it has none."""
    return _envelope(head)[1]


_ENVELOPE_BYTES: Final = 64
"""Bytes within which the head of the array, the type and the id of a message end."""
_ARRAYS: Final = {0xDC: 3, 0xDD: 5, **dict.fromkeys(range(0x90, 0xA0), 1)}
"""First byte of an array → bytes before its first element."""
_TEXTS: Final = {0xD9: ">xB", 0xDA: ">xH", 0xDB: ">xI"}
"""First byte of a text → format of its length; shorter ones have the length in this byte."""
_INTEGERS: Final = {
    0xCC: ">xB",
    0xCD: ">xH",
    0xCE: ">xI",
    0xCF: ">xQ",
    0xD0: ">xb",
    0xD1: ">xh",
    0xD2: ">xi",
    0xD3: ">xq",
}
"""First byte of an integer → its format; small ones are their own byte."""


def _envelope(head: Frame) -> tuple[str, int]:
    """Return the type and the correlation id of a message frame; "" and 0 if it has none.

    Nothing behind them is looked at: it may be malformed, and of any length.
    """
    first = bytes(head[:_ENVELOPE_BYTES])
    try:
        at = _ARRAYS[first[0]]
        begins = first[at]
        if 0xA0 <= begins < 0xC0:
            at, length = at + 1, begins & 0x1F
        else:
            form = _TEXTS[begins]
            (length,) = struct.unpack_from(form, first, at)
            at += struct.calcsize(form)
        kind = first[at : at + length].decode()
        at += length
        begins = first[at]
        if begins < 0x80 or begins >= 0xE0:
            return kind, begins if begins < 0x80 else begins - 0x100
        return kind, int(struct.unpack_from(_INTEGERS[begins], first, at)[0])
    except (LookupError, struct.error, UnicodeDecodeError):
        return "", 0
