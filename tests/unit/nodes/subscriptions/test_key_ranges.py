"""Key ranges: Pulsar's vectors, and what holds for any consumers that come and go."""

from __future__ import annotations

import uuid
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.subscriptions.key_ranges import (
    RING,
    AutoSplitSelector,
    ConsistentHashSelector,
    Range,
    StickySelector,
)
from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import murmur3, slot_of
from tests.thorough import examples

NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


class Named(NamedTuple):
    """A consumer that is more than its name."""

    number: int
    name: str
    priority: int = 0


def names(count: int) -> list[str]:
    """consumer1, consumer2, …"""
    return [f"consumer{n}" for n in range(1, count + 1)]


# ── hashes ──────────────────────────────────────────────────────────────────────────────────────


def test_hashes_are_pulsars() -> None:
    keys = [b"key1", b"key2", b"key3"]
    assert murmur3(b"") == 0
    assert murmur3(b"key1") == 462881061
    assert murmur3(b"k1") == 2110152746
    assert murmur3(b"k2") == 1479966664
    assert [slot_of(key) for key in (b"k1", b"k2", b"key1")] == [24618, 32712, 293]
    assert all(0 <= slot_of(key) < 65_536 for key in keys)


# ── halving ─────────────────────────────────────────────────────────────────────────────────────


def test_the_largest_range_is_halved_and_the_newcomer_takes_the_lower_half() -> None:
    split = AutoSplitSelector[str](64)
    assert split.select(0) is None
    assert split.uncovered() == [(0, 63)]
    one, two, three, four = names(4)
    for name in (one, two, three, four):
        split.add(name)
    table = {one: [(49, 64)], four: [(33, 48)], two: [(17, 32)], three: [(0, 16)]}
    assert split.ranges() == table
    for name, [(first, last)] in table.items():
        assert {split.select(slot) for slot in range(first, last + 1)} == {name}
    assert split.select(65) is None
    assert split.select(-1) is None


def test_the_range_of_who_goes_is_merged_into_the_one_above() -> None:
    split = AutoSplitSelector[str](64)
    one, two, three, four = names(4)
    for name in (one, two, three, four):
        split.add(name)
    split.remove(two)
    assert split.ranges() == {three: [(0, 16)], four: [(17, 48)], one: [(49, 64)]}
    # The topmost has none above: the next one below takes its bound.
    split.remove(one)
    assert split.ranges() == {three: [(0, 16)], four: [(17, 64)]}
    split.remove(one)
    split.remove(four)
    split.remove(three)
    assert split.ranges() == {}
    assert split.select(5) is None


def test_as_many_consumers_as_slots_and_no_more() -> None:
    split = AutoSplitSelector[str](16)
    everyone = names(17)
    for name in everyone[:16]:
        split.add(name)
    before = split.ranges()
    with pytest.raises(InvalidRequest, match="no range is left"):
        split.add(everyone[16])
    assert split.ranges() == before


@pytest.mark.parametrize("size", [-4, 0, 1, 6, 65_535])
def test_sizes_that_cannot_be_halved(size: int) -> None:
    with pytest.raises(InvalidRequest, match="power of two"):
        AutoSplitSelector[str](size)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_halving_covers_every_slot_once_and_survivors_keep_theirs(
    steps: list[tuple[bool, int]],
) -> None:
    split = AutoSplitSelector[int](64)
    here: set[int | None] = set()
    for adding, who in steps:
        before = {slot: split.select(slot) for slot in range(64)}
        if adding and who not in here:
            split.add(who)
            here.add(who)
            assert all(split.select(s) in (before[s], who) for s in range(64))
        elif not adding:
            split.remove(who)
            here.discard(who)
            moved = [s for s in range(64) if split.select(s) != before[s]]
            assert all(before[s] == who for s in moved)
        owners = {split.select(slot) for slot in range(64)}
        assert owners <= (here or {None})
        assert split.ranges().keys() == here
        table = sorted(r for ranges in split.ranges().values() for r in ranges)
        for (_, last), (first, _) in pairwise(table):
            assert first == last + 1
        if table:
            assert (table[0][0], table[-1][1]) == (0, 64)


# ── sticky ──────────────────────────────────────────────────────────────────────────────────────


def test_sticky_ranges_as_they_are_named() -> None:
    sticky = StickySelector[str](10)
    one, two = names(2)
    sticky.add(one, [(0, 2)])
    assert [sticky.select(slot) for slot in (0, 1, 2, 4)] == [one, one, one, None]
    assert sticky.uncovered() == [(3, 9)]
    sticky.add(two, [(3, 9)])
    assert {sticky.select(slot) for slot in range(3, 10)} == {two}
    assert sticky.uncovered() == []
    assert sticky.ranges() == {one: [(0, 2)], two: [(3, 9)]}
    sticky.remove(one)
    sticky.remove(one)
    assert sticky.select(1) is None
    assert sticky.select(3) == two


@pytest.mark.parametrize(
    "ranges",
    [
        [],
        [(2, 1)],
        [(0, 2)],
        [(2, 6)],
        [(5, 7)],
        [(0, 9)],
        [(4, 4)],
        [(7, 8), (6, 7)],
        [(-1, 1)],
        [(9, 10)],
        [(1, 2), (9, 8)],
    ],
)
def test_ranges_that_cannot_be_leave_everything_as_it_was(ranges: list[Range]) -> None:
    sticky = StickySelector[str](10)
    one, two = names(2)
    sticky.add(one, [(1, 1), (4, 5)])
    with pytest.raises(InvalidRequest):
        sticky.add(two, ranges)
    assert sticky.ranges() == {one: [(1, 1), (4, 5)]}
    with pytest.raises(InvalidRequest):
        sticky.add(one, [(7, 7)])
    with pytest.raises(InvalidRequest):
        sticky.add(two)
    assert sticky.uncovered() == [(0, 0), (2, 3), (6, 9)]


def test_no_slot_no_points() -> None:
    with pytest.raises(InvalidRequest):
        StickySelector[str](0)
    with pytest.raises(InvalidRequest):
        ConsistentHashSelector[str](0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.lists(st.tuples(st.integers(-1, 32), st.integers(-1, 32)), max_size=3),
        ),
        max_size=20,
    )
)
def test_sticky_slots_are_of_one_consumer_or_nobodys(
    steps: list[tuple[int, list[Range]]],
) -> None:
    sticky = StickySelector[int](32)
    model: dict[int, int] = {}
    for who, ranges in steps:
        if who in model.values():
            sticky.remove(who)
            model = {slot: owner for slot, owner in model.items() if owner != who}
            continue
        slots = [slot for first, last in ranges for slot in range(first, last + 1)]
        good = all(0 <= first <= last < 32 for first, last in ranges) and bool(ranges)
        if good and len(set(slots)) == len(slots) and not set(slots) & model.keys():
            sticky.add(who, ranges)
            model.update(dict.fromkeys(slots, who))
        else:
            with pytest.raises(InvalidRequest):
                sticky.add(who, ranges)
        assert {slot: sticky.select(slot) for slot in range(32)} == {
            slot: model.get(slot) for slot in range(32)
        }
        holes = {s for first, last in sticky.uncovered() for s in range(first, last + 1)}
        assert holes == set(range(32)) - model.keys()


# ── the ring ────────────────────────────────────────────────────────────────────────────────────


def test_a_ring_without_consumers_selects_nobody() -> None:
    ring = ConsistentHashSelector[str]()
    assert ring.select(0) is None
    assert ring.uncovered() == [(0, RING - 1)]
    ring.remove("nobody")
    ring.add("one")
    assert {ring.select(h) for h in (0, 1, RING - 1)} == {"one"}
    assert ring.ranges() == {"one": [(0, RING - 1)]}
    assert ring.uncovered() == []


def test_names_that_end_in_digits_do_not_collide() -> None:
    ring = ConsistentHashSelector[str]()
    ring.add("consumer1")
    ring.add("consumer11")
    assert ring.held() == {"consumer1": 100, "consumer11": 100}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shares_are_within_a_quarter_of_fair(count: int) -> None:
    ring = ConsistentHashSelector[str](100)
    for name in names(count):
        ring.add(name)
    rng = Random(7)
    keys = [murmur3(str(uuid.UUID(int=rng.getrandbits(128))).encode()) for _ in range(1_000)]
    chosen = [ring.select(key) for key in keys]
    for name in names(count):
        assert 0.75 <= chosen.count(name) / (1_000 / count) <= 1.25


@settings(max_examples=examples(30), deadline=None)
@given(NAMES, st.integers(0, 1 << 32))
def test_only_a_newcomers_keys_and_those_of_who_goes_move(everyone: list[str], seed: int) -> None:
    rng = Random(seed)
    hashes = [rng.randrange(RING) for _ in range(100)]
    ring = ConsistentHashSelector[str](10)
    for name in everyone:
        before = [ring.select(h) for h in hashes]
        ring.add(name)
        after = [ring.select(h) for h in hashes]
        assert all(now in (then, name) for now, then in zip(after, before, strict=True))
    rng.shuffle(everyone)
    for name in everyone:
        before = [ring.select(h) for h in hashes]
        ring.remove(name)
        ring.remove(name)
        for now, then in zip([ring.select(h) for h in hashes], before, strict=True):
            assert now == then if then != name else now != name
    assert ring.ranges() == {}


@settings(max_examples=examples(20), deadline=None)
@given(NAMES)
def test_ranges_of_a_ring_are_what_is_selected(everyone: list[str]) -> None:
    ring = ConsistentHashSelector[str](5)
    for name in everyone:
        ring.add(name)
    rows = sorted((r, name) for name, ranges in ring.ranges().items() for r in ranges)
    assert (rows[0][0][0], rows[-1][0][1]) == (0, RING - 1)
    for (first, last), name in rows:
        assert ring.select(first) == ring.select(last) == name


def test_who_shares_a_point_waits_behind_and_takes_over() -> None:
    ring = ConsistentHashSelector[Named](20)
    first, second = Named(1, "same"), Named(2, "same")
    ring.add(first)
    ring.add(second)
    # Of one name all points collide: they share them.
    assert sorted(ring.held().values()) == [10, 10]
    better = Named(3, "same", -1)
    ring.add(better)
    assert ring.ranges()[better] == [(0, RING - 1)]
    ring.remove(better)
    assert sorted(ring.held().values()) == [10, 10]
    ring.remove(first)
    assert ring.ranges() == {second: [(0, RING - 1)]}


@pytest.mark.parametrize("make", [AutoSplitSelector[str], ConsistentHashSelector[str]])
def test_ranges_and_second_additions_are_refused(
    make: type[AutoSplitSelector[str] | ConsistentHashSelector[str]],
) -> None:
    ranges = make()
    with pytest.raises(InvalidRequest, match="assigns the ranges"):
        ranges.add("one", [(0, 1)])
    ranges.add("one")
    with pytest.raises(InvalidRequest, match="already"):
        ranges.add("one")
