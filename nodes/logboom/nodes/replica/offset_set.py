"""A set of offsets as bits in blocks: a range of thousands costs as much as one offset.

A block of 8,192 offsets is one Python integer of at most 1 KB; empty blocks are not kept. What
looks like many small steps is done by shifts and masks of a block, some 0.2 µs each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, compress
from typing import Final, TypeAlias

BLOCK_BITS: Final = 13
BLOCK: Final = 1 << BLOCK_BITS
"""Offsets per block."""

Span: TypeAlias = tuple[int, int]
"""From the first offset to the one after the last."""


class OffsetSet:
    """A set of offsets."""

    __slots__ = ("blocks", "count")

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        """Number of a block → its bits; the lowest is its first offset."""
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __contains__(self, offset: int) -> bool:
        return bool(self.blocks.get(offset >> BLOCK_BITS, 0) >> (offset & (BLOCK - 1)) & 1)

    def add(self, start: int, stop: int) -> int:
        """Add `start` to before `stop`; return how many were not in the set."""
        before = self.count
        for number, at, length in pieces(start, stop):
            self._put(number, ((1 << length) - 1) << at)
        return self.count - before

    def add_bits(self, start: int, bits: int) -> None:
        """Add `start` + n for each bit n."""
        for number, part in _split(start, bits):
            self._put(number, part)

    def add_each(self, offsets: Iterable[int]) -> None:
        """Add single offsets."""
        for number, bits in blocks_of((offset, offset + 1) for offset in offsets).items():
            self._put(number, bits)

    def _put(self, number: int, part: int) -> None:
        old = self.blocks.get(number, 0)
        new = old | part
        self.count += new.bit_count() - old.bit_count()
        self.blocks[number] = new

    def discard(self, start: int, stop: int) -> int:
        """Remove `start` to before `stop`; return how many were in the set."""
        before = self.count
        if stop - start > BLOCK:
            for number in [n for n in self.blocks if start >> BLOCK_BITS < n < stop >> BLOCK_BITS]:
                self.count -= self.blocks.pop(number).bit_count()
            middle = (start | (BLOCK - 1)) + 1
            self._take_span(start, middle)
            start = max(middle, stop & ~(BLOCK - 1))
        self._take_span(start, stop)
        return before - self.count

    def _take_span(self, start: int, stop: int) -> None:
        for number, at, length in pieces(start, stop):
            self._take(number, ((1 << length) - 1) << at)

    def discard_bits(self, start: int, bits: int) -> None:
        """Remove `start` + n for each bit n."""
        for number, part in _split(start, bits):
            self._take(number, part)

    def _take(self, number: int, part: int) -> None:
        old = self.blocks.get(number)
        if old is None:
            return
        new = old & ~part
        self.count -= old.bit_count() - new.bit_count()
        if new:
            self.blocks[number] = new
        else:
            del self.blocks[number]

    def take_some(self, width: int) -> tuple[int, int]:
        """Remove some offsets, of `width` in a row at most, of a set that is not empty.

        Return them as start and bits. In which order they come is not defined.
        """
        number, bits = self.blocks.popitem()
        low = _lowest(bits)
        part = bits >> low & ((1 << width) - 1)
        if rest := bits ^ (part << low):
            self.blocks[number] = rest
        self.count -= part.bit_count()
        return (number << BLOCK_BITS) + low, part

    def bits(self, start: int, stop: int) -> int:
        """Return which of `start` to before `stop` are in the set: bit n is `start` + n."""
        found = shift = 0
        for number, at, length in pieces(start, stop):
            block = self.blocks.get(number)
            if block is not None:
                found |= (block >> at & ((1 << length) - 1)) << shift
            shift += length
        return found

    def first(self) -> int | None:
        """Return the lowest offset; None if the set is empty."""
        if not self.blocks:
            return None
        number = min(self.blocks)
        return (number << BLOCK_BITS) + _lowest(self.blocks[number])

    def spans(self) -> Iterator[Span]:
        """Yield maximal spans of the set, lowest first."""
        begun: Span | None = None
        for number in sorted(self.blocks):
            for start, stop in spans_of(self.blocks[number], number << BLOCK_BITS):
                if begun is not None and begun[1] == start:
                    begun = begun[0], stop
                    continue
                if begun is not None:
                    yield begun
                begun = start, stop
        if begun is not None:
            yield begun

    def span_count(self) -> int:
        """Return the number of maximal spans."""
        found = 0
        for number, bits in self.blocks.items():
            found += (bits & ~(bits << 1)).bit_count()
            if bits & 1 and self.blocks.get(number - 1, 0) >> (BLOCK - 1):
                found -= 1
        return found

    def shifted(self) -> Iterator[tuple[int, int]]:
        """Yield the set block by block: (first offset of the block, its bits), lowest first."""
        return ((number << BLOCK_BITS, bits) for number, bits in sorted(self.blocks.items()))

    def copy(self) -> OffsetSet:
        """Return an independent copy."""
        made = OffsetSet()
        made.blocks, made.count = dict(self.blocks), self.count
        return made

    def clear(self) -> None:
        """Remove everything."""
        self.blocks.clear()
        self.count = 0


def pieces(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Cut a span at block borders: (number of the block, first bit in it, bits)."""
    while start < stop:
        at = start & (BLOCK - 1)
        length = min(BLOCK - at, stop - start)
        yield start >> BLOCK_BITS, at, length
        start += length


def blocks_of(spans: Iterable[Span]) -> dict[int, int]:
    """Convert spans to bits by the numbers of their blocks; many short ones are handled together."""
    listed = list(spans)
    if len(listed) >= _MANY:
        edges = list(chain.from_iterable(listed))
        near = edges[-1] - edges[0] < _SCATTERED * len(listed)
        if near and edges[0] >= 0 and edges == sorted(edges):
            return _between(edges)
    found: dict[int, int] = {}
    for start, stop in listed:
        at, number = start & (BLOCK - 1), start >> BLOCK_BITS
        if stop - start == 1:
            found[number] = found.get(number, 0) | 1 << at
            continue
        for each, first, length in pieces(start, stop):
            found[each] = found.get(each, 0) | ((1 << length) - 1) << first
    return found


def _between(edges: list[int]) -> dict[int, int]:
    """Apply `blocks_of` to spans in order, by all their starts and stops."""
    first, length = edges[0], edges[-1] - edges[0]
    marks = bytearray(length + 1)
    for edge in edges:
        marks[edge - first] ^= 1
    bits, shift = int(marks[::-1].translate(_DIGITS), 2), 1
    while shift <= length:
        # An offset is in the set if the number of edges up to it is odd: each step sums up twice as
        # many.
        bits ^= bits << shift
        shift *= 2
    return dict(_split(first, bits & ((1 << length) - 1)))


def bits_of(places: Iterable[int]) -> int:
    """Return the bits of these numbers."""
    listed = sorted(places)
    if not listed:
        return 0
    found = bytearray(listed[-1] + 1)
    for place in listed:
        found[place] = 1
    return int(found[::-1].translate(_DIGITS), 2)


def spans_of(bits: int, base: int) -> Iterator[Span]:
    """Yield the runs of set bits as spans of offsets, lowest first; bit 0 is `base`."""
    # Where a bit differs from the one below, a run begins or ends, alternately.
    edges = _set_bits(bits ^ (bits << 1), base)
    return zip(edges, edges, strict=False)


def offsets_of(bits: int | OffsetSet, base: int = 0) -> Iterator[int]:
    """Yield the single offsets of bits (bit 0 is `base`), or of a set, lowest first."""
    if isinstance(bits, OffsetSet):
        found = sorted(bits.blocks.items())
        return chain.from_iterable(_set_bits(part, n << BLOCK_BITS) for n, part in found)
    return _set_bits(bits, base)


def _set_bits(bits: int, base: int) -> Iterator[int]:
    length = bits.bit_length()
    if bits.bit_count() * _SPARSE < length:
        return _few_bits(bits, base)
    # One pass in C over the digits, which cost some 10 ns each.
    digits = f"{bits:b}"[::-1].encode().translate(_ONES)
    return compress(range(base, base + length), digits)


def _few_bits(bits: int, base: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield base + low.bit_length() - 1
        bits ^= low


def _lowest(bits: int) -> int:
    """Return the number of the lowest set bit."""
    return (bits & -bits).bit_length() - 1


def _split(start: int, bits: int) -> Iterator[tuple[int, int]]:
    """Split bits that begin at an offset into (number of a block, bits in it)."""
    number, at = start >> BLOCK_BITS, start & (BLOCK - 1)
    bits <<= at
    while bits:
        part = bits & ((1 << BLOCK) - 1)
        if part:
            yield number, part
        bits >>= BLOCK
        number += 1


_SPARSE: Final = 20
"""Digits per set bit from which on searching for single bits is faster."""
_MANY: Final = 32
"""Spans from which on handling them together is faster …"""
_SCATTERED: Final = 256
"""… and offsets per span at which it no longer is."""
_ONES: Final = bytes.maketrans(b"01", b"\0\1")
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")
