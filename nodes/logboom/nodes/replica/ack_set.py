"""The acknowledgements of a subscription in one queue: a floor, and bits above it.

Everything below the floor (Pulsar's mark-delete position) is acknowledged. The floor advances as
soon as there is no gap at it. An acknowledgement takes some microseconds, however many holes there
are (see `offset_set`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS, OffsetSet, Span

_ALL: Final = (1 << BLOCK) - 1
_ONES: Final = re.compile("1+")
_RUN: Final = struct.Struct("<HH")


class AckSet:
    """The acknowledged offsets of one subscription and queue."""

    __slots__ = ("above", "floor")

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        """Everything below is acknowledged; this offset is not."""
        self.above = OffsetSet()
        """Offsets acknowledged above the floor."""

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or offset in self.above

    def add(self, start: int, stop: int) -> int:
        """Acknowledge `start` to before `stop`; return how many were not acknowledged before."""
        if stop <= self.floor:
            return 0
        if start <= self.floor:
            return self.raise_to(stop)
        return self.above.add(start, stop)

    def add_bits(self, start: int, bits: int) -> int:
        """Acknowledge `start` + n for each bit n; return how many were not acknowledged before."""
        if start < self.floor:
            bits >>= self.floor - start
            start = self.floor
        if not bits:
            return 0
        before = self.above.count
        self.above.add_bits(start, bits)
        added = self.above.count - before
        if self.floor in self.above:
            self._advance()
        return added

    def raise_to(self, offset: int) -> int:
        """Acknowledge everything below `offset`; return how many were not acknowledged before."""
        if offset <= self.floor:
            return 0
        added = offset - self.floor - self.above.discard(self.floor, offset)
        self.floor = offset
        self._advance()
        return added

    def _advance(self) -> None:
        """Advance the floor over acknowledged offsets without a gap."""
        blocks = self.above.blocks
        while (number := self.floor >> BLOCK_BITS) in blocks:
            at = self.floor & (BLOCK - 1)
            rest = ~(blocks[number] >> at)
            run = (rest & -rest).bit_length() - 1
            if not run:
                return
            self.above.discard(self.floor, self.floor + run)
            self.floor += run

    def bits(self, start: int, stop: int) -> int:
        """Return which of `start` to before `stop` are acknowledged: bit n is `start` + n."""
        below = max(0, min(stop, self.floor) - start)
        found = (1 << below) - 1
        if stop > self.floor and self.above.count:
            found |= self.above.bits(start + below, stop) << below
        return found

    def missing(self, start: int, stop: int) -> int:
        """Return the complement of `bits`."""
        if stop <= start:
            return 0
        return ~self.bits(start, stop) & ((1 << (stop - start)) - 1)

    def unacked(self, end: int) -> int:
        """Count the offsets below `end` that are not acknowledged."""
        return max(0, end - self.floor - self.above.count)

    def spans(self) -> Iterator[Span]:
        """Yield the acknowledged spans above the floor, lowest first."""
        return self.above.spans()

    def cut(self, end: int) -> None:
        """Follow a truncation of the log to `end`: forget acknowledgements from there on."""
        self.floor = min(self.floor, end)
        for number in [n for n in self.above.blocks if n > end >> BLOCK_BITS]:
            self.above.count -= self.above.blocks.pop(number).bit_count()
        self.above.discard(end, (end | (BLOCK - 1)) + 1)

    def copy(self) -> AckSet:
        """Return an independent copy."""
        made = AckSet(self.floor)
        made.above = self.above.copy()
        return made


def encode_block(bits: int) -> bytes:
    """Encode one block in the shortest form: as bits, as runs, or as the runs that are missing.

    The first byte is 0, 1 or 2 accordingly; runs are (first u16, last u16), little endian.
    """
    plain = b"\0" + bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    best = plain
    for letter, shown in ((b"\1", bits), (b"\2", bits ^ _ALL)):
        if 1 + 4 * _run_count(shown) < len(best):
            best = letter + _runs(shown)
    return best


def decode_block(stored: bytes) -> int:
    """Decode the bits of a stored block.

    Raises:
        ValueError: it is malformed.
    """
    if not stored or stored[0] > 2:
        raise ValueError(f"a block of acknowledgements begins with {stored[:1]!r}")
    if stored[0] == 0:
        if len(stored) > 1 + BLOCK // 8:
            raise ValueError(f"a block of acknowledgements has {len(stored)} bytes")
        return int.from_bytes(stored[1:], "little")
    bits = 0
    if len(stored) % 4 != 1:
        raise ValueError(f"runs of acknowledgements have {len(stored)} bytes")
    for at in range(1, len(stored), 4):
        first = int.from_bytes(stored[at : at + 2], "little")
        last = int.from_bytes(stored[at + 2 : at + 4], "little")
        if not first <= last < BLOCK:
            raise ValueError(f"a run of acknowledgements from {first} to {last}")
        bits |= ((1 << (last - first + 1)) - 1) << first
    return bits if stored[0] == 1 else bits ^ _ALL


def _run_count(bits: int) -> int:
    """Count the runs of set bits."""
    return (bits & ~(bits << 1)).bit_count()


def _runs(bits: int) -> bytes:
    # A search in a text is several times as fast as shifts of a large number.
    found = _ONES.finditer(f"{bits:b}"[::-1]) if bits else ()
    return b"".join(_RUN.pack(run.start(), run.end() - 1) for run in found)
