"""CRC-32C against its check value, whole and in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.validation import ACCELERATED, crc32c, extend


def test_known_vectors() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_the_fast_build_is_installed() -> None:
    assert ACCELERATED


@given(st.binary(), st.binary())
def test_pieces_give_the_whole(first: bytes, second: bytes) -> None:
    whole = crc32c(first + second)
    assert extend(crc32c(first), second) == whole
    assert extend(crc32c(memoryview(first)), bytearray(second)) == whole
