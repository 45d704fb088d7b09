"""CRC-32C (Castagnoli), the one checksum of the wire and of the store.

The C build of google-crc32c runs at tens of GB/s; its Python fall-back is some thousand times
slower, which `ACCELERATED` shows.
"""

from __future__ import annotations

from typing import Final

import google_crc32c

ACCELERATED: Final[bool] = google_crc32c.implementation == "c"
"""False when only the slow pure-Python build of google-crc32c is installed."""


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C of `data`; `crc32c(b"123456789") == 0xE3069283`."""
    return extend(0, data)


def extend(crc: int, data: bytes | bytearray | memoryview) -> int:
    """The checksum of (what `crc` covers, then `data`); 0 covers nothing."""
    # The C build takes bytes alone: a view is copied, which costs less than the checksum.
    block = data if type(data) is bytes else bytes(data)
    value: int = google_crc32c.extend(crc, block)
    return value
