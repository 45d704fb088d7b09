"""The cache of recent entries: bounded over all queues, and gap-free to each queue's end."""

from __future__ import annotations

import tracemalloc

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.log.tail_cache import ENTRY_BYTES, Tail, TailCache, cut_tail

OF_TEN: int = 10 + ENTRY_BYTES
"""What an entry of ten bytes takes."""


def test_the_oldest_of_all_queues_go_first_and_only_between_turns() -> None:
    cache, one, two = TailCache(3 * OF_TEN), Tail(), Tail()
    for at in range(4):
        cache.add(one if at % 2 else two, Position(at), bytes(10), Position(at + 1))
    assert (len(one), len(two), cache.size) == (2, 2, 4 * OF_TEN)
    cache.trim()
    assert (list(two), list(one), cache.size) == (
        [Position(2)],
        [Position(1), Position(3)],
        3 * OF_TEN,
    )


@pytest.mark.parametrize("size", [100, 1_000])
def test_small_entries_take_no_more_memory_than_the_cache_may_have(size: int) -> None:
    cache, tail, after = TailCache(1 << 20), Tail(), Position(1 << 20)
    tracemalloc.start()
    try:
        for _ in range(5_000):
            at, after = after, Position(after.offset + 1)
            cache.add(tail, at, bytes(size), after)
            cache.trim()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.max_bytes * 0.7 < taken < cache.max_bytes * 1.1


def test_what_was_appended_after_a_cut_is_not_let_go_for_what_stood_there_before() -> None:
    cache, tail = TailCache(2 * OF_TEN), Tail()
    cache.add(tail, Position(0), b"a" * 10, Position(1))
    cache.add(tail, Position(1), b"b" * 10, Position(2))
    cut_tail(tail, Position(1))
    cache.add(tail, Position(1), b"c" * 10, Position(2))
    cache.max_bytes = OF_TEN
    cache.trim()
    assert tail == {Position(1): (b"c" * 10, Position(2))}
