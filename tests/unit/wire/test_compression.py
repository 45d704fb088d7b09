"""Round trips of each codec, and what must be refused before memory is spent on it."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.compression import Codec, codec_for, compress, decompress
from logboom.wire.errors import DamagedBatch, InvalidRequest

REAL = [Codec.LZ4, Codec.ZSTD]
BOMB = 256 * 1024 * 1024


@given(st.sampled_from(Codec), st.binary(min_size=1, max_size=5000))
def test_what_goes_in_comes_out(codec: Codec, plain: bytes) -> None:
    stored = compress(codec, plain)
    assert decompress(codec, stored, len(plain)) == plain
    assert decompress(codec, memoryview(stored), len(plain)) == plain


@pytest.mark.parametrize("codec", REAL)
def test_repetition_shrinks(codec: Codec) -> None:
    assert len(compress(codec, b"flight" * 1000)) < 200


def test_names() -> None:
    assert [codec_for(name) for name in ("none", "lz4", "zstd")] == list(Codec)
    with pytest.raises(InvalidRequest, match="'gzip': use one of none, lz4, zstd"):
        codec_for("gzip")


@given(st.sampled_from(Codec), st.binary(max_size=200), st.integers(0, 300))
def test_any_bytes_give_the_stated_length_or_damage(
    codec: Codec, stored: bytes, length: int
) -> None:
    try:
        plain = decompress(codec, stored, length)
    except DamagedBatch:
        return
    assert len(plain) == length


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("difference", [-1, 1])
def test_another_length_is_damage(codec: Codec, difference: int) -> None:
    plain = b"flight" * 100
    with pytest.raises(DamagedBatch):
        decompress(codec, compress(codec, plain), len(plain) + difference)


@pytest.mark.parametrize("codec", REAL)
def test_a_cut_block_is_damage(codec: Codec) -> None:
    plain = b"flight" * 100
    stored = compress(codec, plain)
    for length in range(len(stored)):
        with pytest.raises(DamagedBatch):
            decompress(codec, stored[:length], len(plain))


def test_bytes_after_a_frame_are_damage() -> None:
    plain = b"flight" * 100
    stored = compress(Codec.ZSTD, plain)
    for extra in (b"x", stored):
        with pytest.raises(DamagedBatch):
            decompress(Codec.ZSTD, stored + extra, len(plain))


@pytest.mark.parametrize("stated", [True, False], ids=["size stated", "size hidden"])
def test_a_zstd_bomb_costs_no_memory(stated: bool) -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=stated).compress(bytes(BOMB))
    assert len(bomb) < BOMB // 1000
    assert peak_of_refusal(Codec.ZSTD, bomb) < 1024 * 1024


def test_an_lz4_bomb_costs_no_memory() -> None:
    bomb = lz4.block.compress(bytes(BOMB), store_size=False)
    assert len(bomb) < BOMB // 100
    assert peak_of_refusal(Codec.LZ4, bomb) < 1024 * 1024


def peak_of_refusal(codec: Codec, bomb: bytes) -> int:
    """Bytes that Python held at most while it refused the bomb."""
    tracemalloc.start()
    try:
        with pytest.raises(DamagedBatch):
            decompress(codec, bomb, 1000)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_threads_do_not_share_a_context() -> None:
    def turn(number: int) -> bool:
        plain = b"%d-" % number * 20_000
        return decompress(Codec.ZSTD, compress(Codec.ZSTD, plain), len(plain)) == plain

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(turn, range(200)))
