"""The cache of recent entries: bounded over all queues, and gap-free to each queue's end."""

from __future__ import annotations

from logboom.nodes.log.keys import Position
from logboom.nodes.log.tail_cache import Tail, TailCache, cut_tail


def test_the_oldest_of_all_queues_go_first_and_only_between_turns() -> None:
    cache, one, two = TailCache(30), Tail(), Tail()
    for at in range(4):
        cache.add(one if at % 2 else two, Position(at), bytes(10), Position(at + 1))
    assert (len(one), len(two), cache.size) == (2, 2, 40)
    cache.trim()
    assert (list(two), list(one), cache.size) == ([Position(2)], [Position(1), Position(3)], 30)


def test_what_was_appended_after_a_cut_is_not_let_go_for_what_stood_there_before() -> None:
    cache, tail = TailCache(25), Tail()
    cache.add(tail, Position(0), b"a" * 10, Position(1))
    cache.add(tail, Position(1), b"b" * 10, Position(2))
    cut_tail(tail, Position(1))
    cache.add(tail, Position(1), b"c" * 10, Position(2))
    cache.max_bytes = 10
    cache.trim()
    assert tail == {Position(1): (b"c" * 10, Position(2))}
