"""Encoding of messages as frames, and decoding.

Hostile bytes raise InvalidRequest and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from logboom.wire.base import WireMessage
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import MAX_BATCH_BYTES, MAX_MESSAGE_FRAME, AnyMessage

Frame: TypeAlias = bytes | memoryview
"""One frame: a message, or a batch."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: WireMessage, batches: Sequence[Frame] = ()) -> list[Frame]:
    """Return the frames of a message and of the batches that follow it."""
    if batches:
        return [_encode(message), *batches]
    return [_encode(message)]


def decode(frames: Sequence[Frame]) -> AnyMessage:
    """Return the message in the first frame.

    Raises:
        InvalidRequest: MALFORMED, UNKNOWN_TYPE or TOO_LARGE, with `fields["id"]` if it is known.
    """
    if not frames:
        raise InvalidRequest("empty message: send at least the message frame", "MALFORMED")
    head = frames[0]
    if len(head) > MAX_MESSAGE_FRAME:
        text = f"message frame of {len(head)} bytes; at most {MAX_MESSAGE_FRAME} are accepted"
        raise InvalidRequest(text, "TOO_LARGE")
    for frame in frames[1:]:
        if len(frame) > MAX_BATCH_BYTES + 1024:
            text = f"batch of {len(frame)} bytes; at most {MAX_BATCH_BYTES} are accepted"
            raise InvalidRequest(text, "TOO_LARGE", id=id_of(head))
    try:
        return _decoder.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise _refusal(head, str(error)) from None


def _refusal(head: Frame, why: str) -> InvalidRequest:
    if why.startswith("Invalid value") and why.endswith("`$[0]`"):
        text = f"unknown message type ({why}): this node speaks an older protocol?"
        return InvalidRequest(text, "UNKNOWN_TYPE", id=id_of(head))
    return InvalidRequest(f"malformed message: {why}", "MALFORMED", id=id_of(head))


def id_of(head: Frame) -> int:
    """Return the correlation id of a message frame, which may be malformed; 0 if it has none."""
    try:
        raw = msgspec.msgpack.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return 0
    if isinstance(raw, list) and len(raw) > 1 and isinstance(raw[1], int):
        return int(raw[1])
    return 0
