"""The largest message of a batch is found without opening what need not be opened."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.batch import encode_batch, open_batch, validate_batch
from logboom.wire.errors import DamagedBatch, Unavailable
from logboom.wire.head import HEAD_LENGTH
from logboom.wire.message_sizes import MOST_STEPS, find_oversized

CODECS = ("none", "lz4", "zstd")
texts = st.none() | st.binary(max_size=12)


def measured(batch: bytes, limit: int) -> tuple[int | None, int]:
    """What `find_oversized` finds, and how many bytes it opens."""
    opened: list[int] = []
    found = find_oversized(batch, validate_batch(batch, stamped=False), limit, opened.append)
    return found, sum(opened)


@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=20),
    st.booleans(),
    st.integers(-1, 26),
    st.sampled_from(CODECS),
)
def test_it_finds_what_a_look_at_each_message_finds(
    rows: list[tuple[bytes | None, bytes | None]], keyed: bool, limit: int, codec: str
) -> None:
    values = [value for value, _ in rows]
    keys = [key for _, key in rows] if keyed else None
    batch = encode_batch(values, keys, now_ms=0, codec=codec)
    columns = open_batch(batch)
    pairs = zip(columns.values(), columns.keys(), strict=True)
    sizes = [len(value or b"") + len(key or b"") for value, key in pairs]
    found, _ = measured(batch, limit)
    assert found in [size for size in sizes if size > limit] or (
        found is None and max(sizes) <= limit
    )


def test_of_large_values_only_the_offsets_are_opened() -> None:
    values = [bytes(40_000)] * 100
    batch = encode_batch(values, [b"key"] * 100, now_ms=0, codec="zstd")
    found, opened = measured(batch, 100_000)
    assert (found, opened) == (None, 128 * 1024)
    assert measured(batch, 30_000)[0] == 40_003


def test_keys_are_opened_only_if_they_may_matter() -> None:
    batch = encode_batch([bytes(30_000)] * 100, [bytes(10_000)] * 100, now_ms=0, codec="zstd")
    assert measured(batch, 1_100_000) == (None, 128 * 1024)
    found, opened = measured(batch, 100_000)
    assert found is None
    assert opened > 4_000_000


def test_what_may_not_be_opened_is_not() -> None:
    batch = encode_batch([bytes(1_000_000)], now_ms=0, codec="lz4")

    def refuse(size: int) -> None:
        raise Unavailable(f"{size} bytes", "BUSY")

    with pytest.raises(Unavailable):
        find_oversized(batch, validate_batch(batch, stamped=False), 10, refuse)


def test_many_steps_end_in_one_look_at_all() -> None:
    count = 4 * MOST_STEPS
    batch = encode_batch([b"x"] * (count - 1) + [b"yz"], now_ms=0)
    assert measured(batch, 1)[0] == 2
    assert measured(batch, 2)[0] is None
    keyed = encode_batch([b""] * count, [b"x"] * (count - 1) + [b"yz"], now_ms=0)
    assert measured(keyed, 1)[0] == 2
    assert measured(keyed, 2)[0] is None


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(-1, 400))
def test_a_made_up_body_raises_nothing_but_damage(codec: str, noise: bytes, limit: int) -> None:
    batch = encode_batch([b"some text"] * 20, [b"key"] * 20, now_ms=0, codec=codec)
    head = validate_batch(batch, stamped=False)
    body = (noise + batch[HEAD_LENGTH:])[: head.stored_length]
    with contextlib.suppress(DamagedBatch):
        find_oversized(batch[:HEAD_LENGTH] + body, head, limit, lambda _: None)
