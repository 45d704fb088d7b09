"""The body of a CURSOR_DELTA entry: acknowledgements and failed deliveries of subscriptions.

It is a msgpack list of `CursorDelta`s, one per subscription that a turn changed. Applied in log
order they yield each subscription's cursor. Applying one twice has no further effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, Literal

import msgspec
from msgspec import Struct

from logboom.wire.base import UNDECODABLE
from logboom.wire.subscription_messages import Span
from logboom.wire.validation import damaged


class CursorDelta(Struct, frozen=True, array_like=True):
    """The changes of one subscription."""

    subscription: str
    change: Literal["acked", "whole", "ended"]
    """acked: in addition to earlier deltas; whole: in place of them; ended: the subscription is
    gone."""
    floor: int = 0
    """Everything below this offset is acknowledged."""
    acked: list[int] = msgspec.field(default_factory=list)
    """Pairs: the gap from the floor, or from the previous span, and the length of a span."""
    counts: list[int] = msgspec.field(default_factory=list)
    """Triples: the gap from offset 0 or the previous run, the length of a run, and the failed
    deliveries of each of its messages."""

    def spans(self) -> Iterator[Span]:
        """The spans of `acked`."""
        at = self.floor
        for gap, length in zip(self.acked[::2], self.acked[1::2], strict=True):
            at += gap + length
            yield at - length, at

    def counted(self) -> Iterator[tuple[int, int]]:
        """(offset, failed deliveries) of all runs."""
        at = 0
        triples = zip(self.counts[::3], self.counts[1::3], self.counts[2::3], strict=True)
        for gap, length, count in triples:
            at += gap + length
            for offset in range(at - length, at):
                yield offset, count


_decode: Final = msgspec.msgpack.Decoder(list[CursorDelta]).decode


def pack_spans(spans: Iterable[Span], floor: int = 0) -> list[int]:
    """Return `CursorDelta.acked` for spans from `floor` on, lowest first."""
    packed: list[int] = []
    at = floor
    for start, stop in spans:
        packed += (start - at, stop - start)
        at = stop
    return packed


def pack_counts(counts: Mapping[int, int]) -> list[int]:
    """Return `CursorDelta.counts` for a mapping of offset to count."""
    packed: list[int] = []
    at = 0
    ordered = sorted(counts.items())
    # Offsets of a run minus their indices in the list are the same number.
    runs = groupby(enumerate(ordered), key=lambda each: (each[1][0] - each[0], each[1][1]))
    for (_, count), run in runs:
        members = [offset for _, (offset, _) in run]
        packed += (members[0] - at, len(members), count)
        at = members[-1] + 1
    return packed


def encode_deltas(deltas: list[CursorDelta]) -> bytes:
    """Encode the body of an entry."""
    return msgspec.msgpack.encode(deltas)


def decode_deltas(body: bytes | memoryview) -> list[CursorDelta]:
    """Decode the body of an entry.

    Raises:
        DamagedBatch: The body is not valid, or of a later version.
    """
    try:
        deltas = _decode(body)
    except UNDECODABLE as error:
        raise damaged(f"a cursor delta: {error}", "read it with a newer version") from None
    for delta in deltas:
        numbers = (delta.floor, *delta.acked, *delta.counts)
        if len(delta.acked) % 2 or len(delta.counts) % 3 or min(numbers) < 0:
            raise damaged("a cursor delta with inconsistent numbers", "fetch it again")
        if sum(delta.counts[1::3]) > _MAX_COUNTED or max(numbers) >> 63:
            raise damaged("a cursor delta of too many messages", "fetch it again")
    return deltas


_MAX_COUNTED: Final = 10_000_000
