"""The load of the benchmarks: distinct random values, and a checksum that both ends compute."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from logboom.wire.validation import crc32c, extend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 100
BATCH: Final = 1_000


def values(count: int, width: int = WIDTH, seed: int = 1) -> list[bytes]:
    """Return `count` random values of `width` bytes, which are almost certainly distinct."""
    source = random.Random(seed)
    found: list[bytes] = []
    while len(found) < count:
        blob = source.randbytes(min(10_000, count - len(found)) * width)
        found += [blob[at : at + width] for at in range(0, len(blob), width)]
    return found


def chunks(items: Sequence[bytes], size: int = BATCH) -> list[list[bytes]]:
    """Cut a sequence into lists of `size`."""
    return [list(items[at : at + size]) for at in range(0, len(items), size)]


class Checksum:
    """A running crc32c over all values of a queue in order, with their count."""

    def __init__(self) -> None:
        self.count = 0
        self.crc = crc32c(b"")

    def add(self, blob: bytes | memoryview, count: int) -> None:
        """Add `count` values, joined."""
        self.crc = extend(self.crc, blob)
        self.count += count

    def add_values(self, items: Iterable[bytes]) -> None:
        """Add values one by one."""
        listed = list(items)
        self.add(b"".join(listed), len(listed))
