"""The hash against published vectors, and the summaries' one promise: nothing is missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.hashing import (
    EVERY_BIT,
    SLOTS,
    key_mask,
    key_summary,
    murmur3,
    queue_for,
    queues_for,
    slot_of,
    tag_mask,
    tag_summary,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # Pulsar's vectors, then those of the reference murmur3 with seed 0, less the sign bit.
        (b"k1", 2110152746),
        (b"k2", 1479966664),
        (b"key1", 462881061),
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog.", 0xD5C48BFC & 0x7FFFFFFF),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21\x43\x65\x87", 0xF55B516B & 0x7FFFFFFF),
        (b"\x21", 0x72661CF4),
    ],
)
def test_murmur3_matches_known_vectors(data: bytes, expected: int) -> None:
    assert murmur3(data) == expected


@pytest.mark.parametrize(("key", "slot"), [(b"k1", 24618), (b"k2", 32712), (b"key1", 293)])
def test_slots_match_known_vectors(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot
    assert key_mask(key) == 1 << (slot // 1024)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 1000))
def test_a_key_has_one_queue(keys: list[bytes], queues: int) -> None:
    found = queues_for(keys, queues)
    assert found == [queue_for(key, queues) for key in keys]
    assert all(0 <= queue < queues for queue in found)
    assert found == [murmur3(key) % queues for key in keys]


@given(st.lists(st.none() | st.binary(max_size=4), max_size=400))
def test_the_key_summary_misses_no_key(keys: list[bytes | None]) -> None:
    summary = key_summary(keys)
    assert all(summary & key_mask(key) for key in keys if key is not None)
    assert 0 <= summary <= EVERY_BIT
    assert bool(summary) == any(key is not None for key in keys)


def test_few_keys_set_few_bits() -> None:
    assert key_summary([b"k1", b"k1", None]) == key_mask(b"k1")
    assert key_summary([b"%d" % number for number in range(SLOTS // 100)]) == EVERY_BIT


@given(st.lists(st.text(max_size=8)))
def test_the_tag_summary_misses_no_tag(tags: list[str]) -> None:
    summary = tag_summary(tags)
    assert all(summary & tag_mask(tag) == tag_mask(tag) for tag in tags)


def test_a_tag_sets_at_most_two_bits_of_its_hash() -> None:
    digest = murmur3(b"late")
    assert tag_mask("late") == 1 << (digest % 64) | 1 << (digest // 64 % 64)
    assert tag_summary([]) == 0
