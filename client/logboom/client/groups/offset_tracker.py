"""A consumer's progress in one queue: the commit point, and the finished ranges above it.

The commit point is the lowest unfinished offset. One slow message holds it back, but the ranges
that were finished above it travel with every commit, so the next owner of the queue does not
receive them again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from logboom.wire.errors import DamagedBatch

VERSION: Final = 1
"""First byte of encoded ranges."""
MAX_RANGES_BYTES: Final = 4096
"""Maximum bytes of encoded ranges in a commit. Higher ranges are left out, and are delivered again
after a crash."""


class OffsetTracker:
    """The finished offsets of one queue: all below `floor`, and disjoint ranges above it."""

    __slots__ = ("_starts", "_stops", "floor")

    def __init__(self, floor: int, ranges: bytes = b"") -> None:
        """Start from a commit.

        Raises:
            DamagedBatch: `ranges` were not made by `encode`.
        """
        self.floor = floor
        """Lowest unfinished offset, which is what a commit carries."""
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in decode_ranges(floor, ranges):
            self.finish(start, stop)

    def finish(self, start: int, stop: int) -> None:
        """Mark the offsets from `start` to before `stop` as finished; repeating it changes nothing."""
        if start <= self.floor:
            if stop > self.floor:
                self.floor = stop
                if self._starts and self._starts[0] <= stop:
                    self._rise()
            return
        if stop <= start:
            return
        starts, stops = self._starts, self._stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            return
        # Ranges that touch or overlap the new one: from `low` to before `high`.
        low = bisect_left(stops, start)
        high = bisect_right(starts, stop)
        if low < high:
            start = min(start, starts[low])
            stop = max(stop, stops[high - 1])
        starts[low:high] = [start]
        stops[low:high] = [stop]

    def _rise(self) -> None:
        """Raise the floor over the ranges that it has reached."""
        gone = bisect_right(self._starts, self.floor)
        self.floor = max(self.floor, self._stops[gone - 1])
        del self._starts[:gone], self._stops[:gone]

    def is_finished(self, offset: int) -> bool:
        """True if this offset is finished."""
        if offset < self.floor:
            return True
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._stops[place]

    @property
    def sparse(self) -> bool:
        """True if anything above the floor is finished."""
        return bool(self._starts)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The finished ranges above the floor, (start, stop) in order."""
        return list(zip(self._starts, self._stops, strict=True))

    def unfinished(self, below: int) -> int:
        """Count the unfinished offsets below `below`."""
        if below <= self.floor:
            return 0
        done = sum(
            min(stop, below) - start
            for start, stop in zip(self._starts, self._stops, strict=True)
            if start < below
        )
        return below - self.floor - done

    def gaps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the unfinished runs within a range, (start, stop) in order."""
        start = max(start, self.floor)
        for place in range(bisect_right(self._stops, start), len(self._starts)):
            if self._starts[place] >= stop:
                break
            if self._starts[place] > start:
                yield start, self._starts[place]
            start = max(start, self._stops[place])
        if start < stop:
            yield start, stop

    def encode(self, trying: int = 0) -> bytes:
        """Encode the ranges above the floor for a commit; b"" if there are none.

        Args:
            trying: what `trying_of` reports to the next owner, unless the floor has moved.
        """
        if not self._starts and not trying:
            return b""
        # A range of length zero, which readers that do not know it skip.
        last = _varint(trying) + _varint(0) if trying else b""
        out = bytearray([VERSION])
        at = self.floor
        for start, stop in zip(self._starts, self._stops, strict=True):
            pair = _varint(start - at) + _varint(stop - start)
            if len(out) + len(pair) + len(last) > MAX_RANGES_BYTES:
                break
            out += pair
            at = stop
        return bytes(out + last)


def decode_ranges(floor: int, encoded: bytes) -> list[tuple[int, int]]:
    """Decode the finished ranges above `floor`, (start, stop) in order.

    Ranges of a later version are ignored, which is safe.

    Raises:
        DamagedBatch: they are truncated.
    """
    numbers = _numbers(encoded)
    found, at = [], floor
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        if length:
            found.append((at + gap, at + gap + length))
        at += gap + length
    return found


def trying_of(encoded: bytes) -> int:
    """Return how many owners have started the message at the commit point without finishing it.

    Only owners that said so are counted.

    Raises:
        DamagedBatch: the ranges are truncated.
    """
    numbers = _numbers(encoded)
    return numbers[-2] if numbers and not numbers[-1] else 0


def _numbers(encoded: bytes) -> list[int]:
    """Decode pairs of a gap and a length; there are none if the version is later."""
    if not encoded or encoded[0] != VERSION:
        return []
    numbers: list[int] = []
    value = shift = 0
    for byte in memoryview(encoded)[1:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    if shift or len(numbers) % 2:
        raise DamagedBatch(
            "finished ranges of a queue are truncated: reset the group's offset there"
        )
    return numbers


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
