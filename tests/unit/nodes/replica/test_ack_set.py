"""Sets of offsets and of acknowledgements, against plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.replica.ack_set import AckSet, decode_block, encode_block
from logboom.nodes.replica.offset_set import BLOCK, OffsetSet, bits_of, blocks_of, spans_of
from tests.thorough import examples

OFFSETS = st.one_of(
    st.integers(0, 80),
    st.integers(BLOCK - 40, BLOCK + 40),
)
SPANS = st.tuples(OFFSETS, OFFSETS).map(lambda pair: (min(pair), max(pair)))


def model_spans(model: set[int]) -> list[tuple[int, int]]:
    """The spans of a plain set."""
    found: list[tuple[int, int]] = []
    for offset in sorted(model):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "discard", "bits", "without"]), SPANS), max_size=10)
)
def test_offsets_are_in_as_in_a_plain_set(steps: list[tuple[str, tuple[int, int]]]) -> None:
    offsets, model = OffsetSet(), set[int]()
    for what, (start, stop) in steps:
        before = len(model)
        if what == "add":
            model |= set(range(start, stop))
            assert offsets.add(start, stop) == len(model) - before
        elif what == "discard":
            model -= set(range(start, stop))
            assert offsets.discard(start, stop) == before - len(model)
        elif what == "bits":
            offsets.add_bits(start, 0b1011)
            model |= {start, start + 1, start + 3}
        else:
            offsets.discard_bits(start, 0b1101)
            model -= {start, start + 2, start + 3}
        assert len(offsets) == len(model)
        assert (start in offsets) == (start in model)
        wanted = sum(1 << (o - start) for o in range(start, stop) if o in model)
        assert offsets.bits(start, stop) == wanted
    assert list(offsets.spans()) == model_spans(model)
    assert offsets.first() == min(model, default=None)
    other = offsets.copy()
    other.clear()
    assert (len(other), len(offsets)) == (0, len(model))
    assert all(offsets.blocks.values())


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 90), st.lists(st.tuples(st.booleans(), SPANS), max_size=10), OFFSETS)
def test_acks_are_those_of_a_plain_set(
    floor: int, steps: list[tuple[bool, tuple[int, int]]], end: int
) -> None:
    acks, model = AckSet(floor), set(range(floor))
    for cumulative, (start, stop) in steps:
        before = len(model)
        if cumulative:
            model |= set(range(stop))
            assert acks.raise_to(stop) == len(model) - before
        else:
            model |= set(range(start, stop))
            assert acks.add(start, stop) == len(model) - before
        assert acks.floor not in acks
        assert acks.floor == min(set(range(len(model) + 1)) - model)
        assert (stop in acks) == (stop in model)
        bits = sum(1 << (o - start) for o in range(start, stop) if o in model)
        assert acks.bits(start, stop) == bits
        assert acks.missing(start, stop) == ((1 << (stop - start)) - 1) ^ bits
    top = max(model, default=0) + 5
    assert acks.unacked(top) == top - len(model)
    assert list(acks.spans()) == model_spans({o for o in model if o >= acks.floor})
    cut = acks.copy()
    cut.cut(end)
    kept = {o for o in model if o < end}
    assert cut.floor == min(set(range(len(kept) + 1)) - kept)
    assert list(cut.spans()) == model_spans({o for o in kept if o >= cut.floor})
    assert len(cut.above) == sum(stop - start for start, stop in cut.spans())


@settings(deadline=None)
@given(st.sets(st.integers(0, BLOCK - 1), max_size=40), st.booleans())
def test_a_block_is_stored_and_read(few: set[int], opposite: bool) -> None:
    bits = sum(1 << n for n in few) ^ ((1 << BLOCK) - 1 if opposite else 0)
    stored = encode_block(bits)
    assert decode_block(stored) == bits
    assert len(stored) <= min(1 + BLOCK // 8, 1 + 4 * (len(few) + 1))


def test_a_block_of_holes_is_stored_as_bits() -> None:
    bits = int("10" * (BLOCK // 2), 2)
    assert len(encode_block(bits)) == 1 + BLOCK // 8
    assert decode_block(encode_block(bits)) == bits
    assert encode_block((1 << BLOCK) - 1) == b"\2"


@pytest.mark.parametrize(
    "stored", [b"", b"\3", b"\1\0", b"\1\2\0\1\0", b"\2\0\0\0\xff", b"\0" + bytes(2_000)]
)
def test_no_block(stored: bytes) -> None:
    with pytest.raises(ValueError, match="acknowledgements"):
        decode_block(stored)


def test_a_hundred_thousand_holes_fit_the_store_and_cost_no_search() -> None:
    acks = AckSet()
    for offset in range(1, 200_000, 2):
        acks.add(offset, offset + 1)
    assert acks.unacked(200_000) == 100_000
    stored = [encode_block(block) for block in acks.above.blocks.values()]
    assert sum(len(each) + 24 for each in stored) < 100_000
    # As far apart as they are one by one: still below the megabyte.
    sparse = AckSet()
    for number in range(100_000):
        sparse.add(number * 100 + 1, number * 100 + 100)
    assert sparse.unacked(10_000_000) == 100_000
    stored = [encode_block(block) for block in sparse.above.blocks.values()]
    assert sum(len(each) + 24 for each in stored) < 1_000_000
    assert list(spans_of(0b1101, 5)) == [(5, 6), (7, 9)]


def test_an_ack_among_holes_works_on_one_block_alone() -> None:
    acks = AckSet()
    for offset in range(1, 200_000, 2):
        acks.add(offset, offset + 1)
    before = dict(acks.above.blocks)
    assert acks.add(100_000, 100_001) == 1
    changed = [n for n, block in acks.above.blocks.items() if before[n] != block]
    assert changed == [100_000 // BLOCK]
    assert acks.floor == 0
    assert acks.add(0, 1) == 1
    assert acks.floor == 2


@given(
    st.integers(0, 3 * BLOCK),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=120),
    st.booleans(),
)
def test_many_spans_are_the_bits_of_each(
    first: int, steps: list[tuple[int, int]], in_order: bool
) -> None:
    spans, at = [], first
    for gap, length in steps:
        spans.append((at + gap, at + gap + length))
        at += gap + length if in_order else 1
    plain = OffsetSet()
    for start, stop in spans:
        plain.add(start, stop)
    found = {number: bits for number, bits in blocks_of(spans).items() if bits}
    assert found == plain.blocks


@given(st.sets(st.integers(0, 3_000)))
def test_bits_of_places(places: set[int]) -> None:
    assert bits_of(places) == sum(1 << place for place in places)
