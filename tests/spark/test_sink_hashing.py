"""The hash of whole columns is the one hash."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from logboom.pipeline.sink_columns import hashes_of
from logboom.pipeline.sink_hashing import LONG_WORDS, buckets_of
from logboom.wire.hashing import key_mask, murmur3

LONG = 4 * LONG_WORDS


@given(st.lists(st.binary(max_size=30), min_size=1), st.integers(0, 3))
def test_each_key_has_its_hash(keys: list[bytes], start: int) -> None:
    column = pa.array(keys, pa.binary()).slice(min(start, len(keys) - 1))
    hashes = hashes_of(column)
    assert hashes.tolist() == [murmur3(key) for key in column.to_pylist()]
    masks = [1 << bucket for bucket in buckets_of(hashes).tolist()]
    assert masks == [key_mask(key) for key in column.to_pylist()]


def test_long_keys_and_none() -> None:
    keys = [b"x" * length for length in (LONG - 1, LONG, LONG + 3, LONG + 4, 9_000, 0, 1)]
    assert hashes_of(pa.array(keys)).tolist() == [murmur3(key) for key in keys]
    assert hashes_of(pa.array([None, b"a", b""], pa.binary()))[1] == murmur3(b"a")
    assert hashes_of(pa.array([None], pa.binary())).tolist() == [murmur3(b"")]
    assert hashes_of(pa.array([], pa.binary())).tolist() == []
