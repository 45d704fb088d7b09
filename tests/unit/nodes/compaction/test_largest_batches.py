"""The largest batches are compacted in slices: no turn of the broker lasts."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.body_worker import opening_beside
from logboom.nodes.compaction import survivor_copies
from logboom.nodes.compaction.compaction_pass import advance_pass
from logboom.nodes.compaction.compactor import TURN_UNITS
from logboom.nodes.log.storage import WriteSet
from tests.unit.nodes.compaction.model import CompactedLog
from tests.unit.wire.slow_blocks import slow_batch
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
LARGEST: Final = 65_536
"""Messages of a batch that a producer may send."""
SIZE: Final = 8 << 20
"""Bytes that it opens to."""
Batch = tuple[list[bytes | None], list[bytes | None], str] | bytes
"""Keys, values and codec; or as it is."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others(), opening_beside():
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
    "sequences of LZ4": lambda: slow_batch(SIZE),
    "large keys": lambda: (
        [text(SIZE // 500) + b"%d" % n for n in range(500)],
        [b""] * 500,
        "zstd",
    ),
}


def send(log: CompactedLog, batch: Batch) -> None:
    """Append a batch."""
    if isinstance(batch, bytes):
        log.append(batch)
    else:
        log.send(*batch)


def passing(log: CompactedLog) -> Callable[[], bool]:
    """Turns in which the pass goes on to its end."""

    def turn() -> bool:
        writes = WriteSet()
        spent = advance_pass(log.replica, log.storage, writes, TURN_UNITS)
        log.storage.write(writes)
        return spent > 0

    return turn


@pytest.mark.parametrize("case", WORST)
def test_no_turn_of_the_pass_lasts(case: str) -> None:
    batch = WORST[case]()

    def begin() -> Callable[[], bool]:
        log = CompactedLog()
        send(log, batch)
        log.apply()

        return passing(log)

    assert longest_ms(begin, MOST_MS) <= MOST_MS


# ── what retention and later messages do ────────────────────────────────────────────────────────


def kept(*batches: Batch) -> CompactedLog:
    """A log with these batches and one more, and compacted up to its end."""
    log = CompactedLog()
    for batch in batches:
        send(log, batch)
    log.send([b"last"], [b"v"], "none")
    log.apply()
    finish(log)
    return log


def finish(log: CompactedLog) -> None:
    """The pass, to its end."""
    while log.compact(1 << 30):
        pass


def copying(log: CompactedLog) -> Callable[[], bool]:
    """Turns in which all but the last batch is copied."""
    until = log.replica.end.offset - 1
    gc.collect()
    gc.freeze()

    def turn() -> bool:
        writes = WriteSet()
        args = (log.replica, log.storage, writes, until, 1, survivor_copies.TURN_UNITS)
        assert survivor_copies.copy_survivors(*args)
        log.storage.write(writes)
        return log.replica.compaction.kept < until

    return turn


COPIED: Final[dict[str, Callable[[], Batch]]] = {
    **WORST,
    "tombstones": lambda: (keys(), [None] * LARGEST, "zstd"),
    "no keys": lambda: ([None] * LARGEST, [b"v"] * LARGEST, "zstd"),
    "large messages": lambda: ([b"a", b"b", b"c", b"d"], [text(SIZE // 4)] * 4, "zstd"),
    "large tombstone": lambda: ([text(SIZE // 4), None], [None, b"v"], "zstd"),
}


@pytest.mark.parametrize("case", COPIED)
def test_no_turn_of_copying_lasts(case: str) -> None:
    batch = COPIED[case]()
    assert longest_ms(lambda: copying(kept(batch)), MOST_MS) <= MOST_MS


def test_many_batches_are_copied_in_several_turns() -> None:
    small: Batch = (keys()[:250], [b"v" if n % 2 else None for n in range(250)], "zstd")
    assert longest_ms(lambda: copying(kept(*[small] * 200)), MOST_MS) <= MOST_MS


def retained(*batches: Batch) -> CompactedLog:
    """A log whose batches were removed after they were copied."""
    log = kept(*batches)
    log.copy(log.replica.end.offset - 1)
    log.expire(log.replica.end.offset - 1)
    assert log.replica.start == log.replica.end.offset - 1
    return log


@pytest.mark.parametrize("shuffled", [False, True])
def test_no_turn_lasts_in_which_copies_are_superseded(*, shuffled: bool) -> None:
    later = keys()
    if shuffled:
        random.Random(1).shuffle(later)

    def begin() -> Callable[[], bool]:
        log = retained((keys(), keys(30), "zstd"))
        log.send(later[:4_000], [b"new"] * 4_000, "none")
        log.apply()
        gc.collect()
        gc.freeze()

        return passing(log)

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_no_turn_lasts_in_which_tombstones_are_forgotten() -> None:
    def begin() -> Callable[[], bool]:
        log = retained((keys(), [None] * LARGEST, "zstd"))
        gc.collect()
        gc.freeze()

        def turn() -> bool:
            writes = WriteSet()
            more = survivor_copies.forget_tombstones(log.replica, log.storage, writes, 1 << 50)
            log.storage.write(writes)
            return more

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_no_turn_lasts_in_which_copies_are_fetched() -> None:
    leader = retained((keys(), keys(30), "zstd"))
    start = leader.replica.start

    def begin() -> Callable[[], bool]:
        follower, writes = CompactedLog(), WriteSet()
        follower.replica.trimmed(start, 0)
        follower.replica.compaction.begin(writes, start, leads=False)
        follower.commit(writes)
        gc.collect()
        gc.freeze()

        def turn() -> bool:
            lacks = follower.replica.compaction.lacks
            assert lacks is not None
            page = survivor_copies.read_copy_page(
                leader.replica, leader.storage, (lacks, start), 1 << 20
            )
            assert page is not None
            writes = WriteSet()
            survivor_copies.stage_copy_page(follower.replica, follower.storage, writes, *page, 1)
            follower.storage.write(writes)
            return follower.replica.compaction.lacks is not None

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS
