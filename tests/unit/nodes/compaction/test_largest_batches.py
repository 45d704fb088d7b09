"""The largest batches are compacted in slices: no turn of the broker lasts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.compaction.compaction_pass import advance_pass
from logboom.nodes.compaction.compactor import TURN_UNITS
from logboom.nodes.log.storage import WriteSet
from tests.unit.nodes.compaction.model import CompactedLog
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LARGEST: Final = 65_536
"""Messages of a batch that a producer may send."""
SIZE: Final = 8 << 20
"""Bytes that it opens to."""
Batch = tuple[list[bytes | None], list[bytes | None], str]
"""Keys, values and codec."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def text(size: int) -> bytes:
    """Text that is slow to decompress."""
    return bytes(random.Random(1).choices(b"abcdefgh", k=size))


def keys(width: int = 1) -> list[bytes | None]:
    """As many keys as fit, of different lengths."""
    return [b"%0*d" % (width + n % 5, n) for n in range(LARGEST)]


WORST: Final[dict[str, Callable[[], Batch]]] = {
    "tiny": lambda: (keys(), [b"v"] * LARGEST, "none"),
    "long keys": lambda: (keys(100), [b"v"] * LARGEST, "zstd"),
    "some keys": lambda: ([k if n % 3 else None for n, k in enumerate(keys(9))], keys(60), "zstd"),
    "text": lambda: ([b"a"], [text(SIZE)], "zstd"),
    "large keys": lambda: (
        [text(SIZE // 500) + b"%d" % n for n in range(500)],
        [b""] * 500,
        "zstd",
    ),
}


@pytest.mark.parametrize("case", WORST)
def test_no_turn_of_the_pass_lasts(case: str) -> None:
    batch = WORST[case]()

    def begin() -> Callable[[], bool]:
        log = CompactedLog()
        log.send(*batch)
        log.apply()

        def turn() -> bool:
            writes = WriteSet()
            spent = advance_pass(log.replica, log.storage, writes, TURN_UNITS)
            log.storage.write(writes)
            return spent > 0

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS
