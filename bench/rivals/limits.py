"""The machine's limits for the same batches: RocksDB, the disk, and memory, without any broker."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench import raw
from bench.figures import percentile
from bench.load import BATCH, chunks
from bench.rivals import payload
from bench.rivals.results import BurstResult, Setup
from logboom.wire.batch import encode_batch

SYNC_BYTES: Final = 1 << 20
"""Bytes that the disk is given before each fdatasync."""
COPIED_BYTES: Final = 64 << 20


def disk_rate(folder: Path, batches: list[bytes], seconds: float) -> tuple[int, float]:
    """Append batches to a file, sync each MiB, and return (batches, seconds)."""
    block = b"".join(batches)
    block *= -(-SYNC_BYTES // len(block))
    each = len(block) / (sum(map(len, batches)) / len(batches))
    view, written = memoryview(block), 0
    with (folder / "disk").open("wb", buffering=0) as file:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for at in range(0, len(view), SYNC_BYTES):
                file.write(view[at : at + SYNC_BYTES])
                os.fdatasync(file.fileno())
            written += 1
        spent = time.perf_counter() - began
    return round(written * each), spent


def copy_rate(batches: list[bytes], seconds: float) -> tuple[int, float]:
    """Copy batches within memory that no cache holds, and return (batches, seconds)."""
    block = b"".join(batches)
    block *= -(-COPIED_BYTES // len(block))
    each = len(block) / (sum(map(len, batches)) / len(batches))
    target, copied = bytearray(len(block)), 0
    view = memoryview(target)
    view[:] = block  # the pages are there before the clock starts
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        view[:] = block
        copied += 1
    return round(copied * each), spent


def measure(folder: Path, setup: Setup, number: int, seconds: float) -> list[BurstResult]:
    """Return one burst of each limit for batches of 1,000 messages.

    Args:
        folder: Where the servers keep their data, so that the disk is theirs.
        setup: The messages' size and codec.
        number: The round.
        seconds: The time for each of the three.
    """
    columns = chunks(payload.values(raw.DISTINCT * BATCH, setup.size))
    batches = [encode_batch(column, now_ms=0, codec=setup.codec) for column in columns]
    found = []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="raw-") as inner:
        stored = raw.measure(Path(inner), seconds, columns, setup.codec)
        found.append(("raw_rocksdb", seconds * stored.messages_s, seconds))
        count, spent = disk_rate(Path(inner), batches, seconds)
        found.append(("raw_disk", count * BATCH, spent))
    count, spent = copy_rate(batches, seconds)
    found.append(("memcpy", count * BATCH, spent))
    return [
        BurstResult(name, "produce", setup, number, round(messages), spent)
        for name, messages, spent in found
    ]


def sync_ms(folder: Path) -> tuple[float, float]:
    """Return p50 and p99, in ms, of an fdatasync of 4 KiB where the servers keep their data."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="raw-") as inner:
        found = raw.fdatasync_ms(Path(inner))
    return percentile(found, 0.5), percentile(found, 0.99)
