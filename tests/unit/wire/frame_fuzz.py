"""Mutated requests against the decoder: nothing but InvalidRequest, and 10 ms per 64 KiB at most."""

from __future__ import annotations

import contextlib
import random
from functools import partial
from typing import Final

from logboom.wire.base import SMALL_FRAME
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import decode, decode_request, id_of
from tests.unit.wire.largest_requests import fields, fullest
from tests.unit.wire.work import cost_ms

MOST_MS: Final = 10.0
"""Processor time of one decoding, for each 64 KiB that have begun."""
TRIES: Final = 40
"""How often what took longer is tried: thousands of inputs are measured, on a machine that others use."""
HEADS: Final = (
    *(bytes([each]) for each in (0x80, 0x81, 0x8F, 0x90, 0x91, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC4)),
    *(bytes([each]) + b"\xff" * 4 for each in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF)),
    *(bytes([each]) + b"\x00\x00\xff\xff" for each in (0xC6, 0xDB, 0xDD, 0xDF)),
    *(bytes([each]) + b"\xff" * 8 for each in (0xCB, 0xCF, 0xD3)),
    b"\x81\xa0",
    b"\x92\x90\x90",
    b"\xa1\xff",
)
"""Pieces of msgpack that announce much, or hold little."""


def seeds() -> list[bytes]:
    """Every request with a little, and with the most, in each field."""
    return [
        field.whole(value)
        for field in fields()
        for size in (200, field.request.FRAME_BYTES)
        for value in fullest(field, len(field.whole(b"")) + size if size == 200 else size)
    ]


def mutated(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    """A frame with some things changed; not longer than that of any client."""
    frame = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 5))):
        # What decides is mostly at the beginning.
        at = rng.randrange(min(len(frame), rng.choice((8, 64, 1 << 22))) + 1)
        match rng.randrange(6):
            case 0:
                frame[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                frame[at : at + rng.randrange(9)] = rng.choice(HEADS)
            case 2:
                piece = rng.choice(HEADS)
                frame[at:at] = piece * rng.choice((1, 20, SMALL_FRAME // len(piece)))
            case 3:
                del frame[at:]
            case 4:
                frame[at:] = other[rng.randrange(len(other)) :]
            case _:
                piece = bytes(frame[at : at + rng.randrange(1, 40)])
                frame[at:at] = piece * rng.choice((2, 1_000))
    return bytes(frame[: 2 * 1024 * 1024])


def attempt(raw: bytes, *, of_client: bool) -> None:
    """Decode what came; anything but InvalidRequest is a fault."""
    with contextlib.suppress(InvalidRequest):
        decode_request([raw], of_client=of_client)


def check(raw: bytes) -> None:
    """Fail if a frame does more than be decoded, or refused, at the price of its length."""
    id_of(raw)
    most_ms = MOST_MS * (1 + len(raw) // SMALL_FRAME)
    for of_client in (True, False):
        spent = cost_ms(partial(attempt, raw, of_client=of_client), most_ms, TRIES)
        assert spent <= most_ms, f"{spent:.1f} ms for {len(raw)} bytes: {raw[:100]!r}"
    if len(raw) <= SMALL_FRAME:
        # An answer comes from a node, which no limits bind.
        with contextlib.suppress(InvalidRequest):
            decode([raw])


def run(rng: random.Random, count: int, known: list[bytes]) -> None:
    """Try so many frames."""
    for _ in range(count):
        check(mutated(rng.choice(known), rng.choice(known), rng))
