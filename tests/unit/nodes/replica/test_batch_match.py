"""Filters that share a queue evaluate large batches one after the other, whoever has a turn."""

from __future__ import annotations

import pytest

from logboom.nodes.replica.batch_match import BatchMatch, MatchQueue
from logboom.wire.batch import encode_batch, peek, stamp
from logboom.wire.errors import DamagedBatch
from logboom.wire.filters import Filter, ScanBudget

COUNT = 9_000
"""Messages of a batch that is not small."""


def large(base: int) -> bytes:
    """A large batch."""
    keys: list[bytes | None] = [b"%d" % (n % 10) for n in range(COUNT)]
    return stamp(encode_batch([b""] * COUNT, keys, now_ms=1), base, 1, 1)


def match(batch: bytes, key: int = 7) -> BatchMatch:
    """Its evaluation."""
    return BatchMatch(Filter.of(where=f"KEYS = '{key}'").matcher(), peek(batch), batch)


def places(found: BatchMatch) -> list[int]:
    """The messages that match."""
    assert found.whole
    assert found.bits is not None
    return [n for n in range(COUNT) if found.bits >> n & 1]


def test_filters_of_the_same_and_of_other_batches_all_get_done() -> None:
    queue = MatchQueue()
    asked = [match(large(base), key) for base in (0, 0, COUNT) for key in (3, 7)]
    assert not any(each.small for each in asked)
    turns = 0
    while not all(each.whole for each in asked):
        for each in asked:
            queue.advance(each, ScanBudget(1_000))
        turns += 1
    assert turns > 3
    for number, each in enumerate(asked):
        assert places(each) == list(range(7 if number % 2 else 3, COUNT, 10))


def test_what_nobody_wants_any_more_holds_up_none() -> None:
    queue, gone, wanted = MatchQueue(), match(large(0)), match(large(COUNT))
    assert not queue.advance(gone, ScanBudget(1))
    calls = 1
    while not queue.advance(wanted, ScanBudget(1_000)):
        calls += 1
    assert gone.whole
    assert places(wanted) == list(range(7, COUNT, 10))
    assert calls < 100


def test_a_damaged_batch_is_found_by_its_own_filter_only() -> None:
    batch = large(0)
    bad, good = match(batch[:96] + b"\xff" * (len(batch) - 96)), match(large(COUNT))
    queue = MatchQueue()
    assert not queue.advance(bad, ScanBudget(1))
    while not queue.advance(good, ScanBudget(1_000)):
        pass
    assert places(good) == list(range(7, COUNT, 10))
    with pytest.raises(DamagedBatch):
        queue.advance(bad, ScanBudget(1 << 40))
