"""Sets of offsets as bits: what is put in and taken out over many blocks is exactly that."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.replica.offset_set import BLOCK, OffsetSet, offsets_of
from tests.thorough import seeds

EDGES = [
    (0, BLOCK + 1),
    (5, 2 * BLOCK + 5),
    (BLOCK - 1, 2 * BLOCK + 1),
    (BLOCK, 3 * BLOCK),
    (BLOCK + 7, 3 * BLOCK - 7),
    (BLOCK + 7, 3 * BLOCK + 7),
    (10, 20),
    (BLOCK - 3, BLOCK + 3),
    (30, 30),
]


def full(blocks: int = 4) -> OffsetSet:
    """Everything in so many blocks."""
    made = OffsetSet()
    assert made.add(0, blocks * BLOCK) == blocks * BLOCK
    return made


@pytest.mark.parametrize(("start", "stop"), EDGES)
def test_a_span_is_taken_out_and_nothing_beside_it(start: int, stop: int) -> None:
    made = full()
    assert made.discard(start, stop) == stop - start
    left = [(a, b) for a, b in ((0, start), (stop, 4 * BLOCK)) if a < b]
    assert list(made.spans()) == (left if start < stop else [(0, 4 * BLOCK)])
    assert len(made) == 4 * BLOCK - (stop - start)
    assert made.discard(start, stop) == 0
    assert made.add(start, stop) == stop - start
    assert list(made.spans()) == [(0, 4 * BLOCK)]
    assert made.span_count() == 1


@pytest.mark.parametrize("seed", seeds(20))
def test_it_does_what_a_set_does(seed: int) -> None:
    rng = random.Random(seed)
    made, model = OffsetSet(), set[int]()
    for _ in range(40):
        start = rng.randrange(4 * BLOCK)
        stop = min(4 * BLOCK, start + rng.choice((0, 1, 5, 300, BLOCK, 2 * BLOCK + 3)))
        span = set(range(start, stop))
        if rng.random() < 0.6:
            assert made.add(start, stop) == len(span - model)
            model |= span
        else:
            assert made.discard(start, stop) == len(span & model)
            model -= span
        assert len(made) == len(model)
        assert made.first() == min(model, default=None)
        probe = rng.randrange(4 * BLOCK)
        assert (probe in made) == (probe in model)
        low, high = sorted(rng.randrange(4 * BLOCK) for _ in range(2))
        assert made.bits(low, high) == sum(1 << o - low for o in model if low <= o < high)
    assert [o for start, stop in made.spans() for o in range(start, stop)] == sorted(model)


@pytest.mark.parametrize("seed", seeds(6))
def test_its_spans_are_counted_and_all_of_it_is_taken_part_by_part(seed: int) -> None:
    rng = random.Random(seed)
    made, model = OffsetSet(), set[int]()
    for _ in range(60):
        start = rng.choice((rng.randrange(4 * BLOCK), BLOCK - 1, 2 * BLOCK))
        stop = start + rng.choice((1, 5, 300))
        made.add(start, stop)
        model |= set(range(start, stop))
    assert made.span_count() == len(list(made.spans()))
    taken: set[int] = set()
    while made:
        start, bits = made.take_some(100)
        part = set(offsets_of(bits, start))
        assert part
        assert max(part) - min(part) < 100
        assert not part & taken
        taken |= part
        assert made.count == len(model - taken)
    assert taken == model
