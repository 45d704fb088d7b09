"""Speed of the disk and RocksDB without a broker: `python -m bench.raw [--seconds S] [--json]`.

*Raw*: batches of 1,000 random messages of 100 bytes directly through `WriteBatch`, `write` and
`flush_wal(True)`, 8 batches per sync, with the options of the broker's store. Targets
are stated as shares of it. *fdatasync*: the time that 4 KiB take to reach the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rocksdict import DBRecoveryMode, Rdict, WriteBatch

from logboom.nodes.disk.rocks_storage import database_options, log_options
from logboom.nodes.log.keys import log_key
from logboom.wire.batch import encode_batch, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES: Final = 1_000
WIDTH: Final = 100
BATCHES_A_SYNC: Final = 8
DISTINCT: Final = 64
"""The number of different batches, used in turn."""


class RawFigures(msgspec.Struct, frozen=True):
    """The figures of the raw store."""

    messages_s: float
    megabytes_s: float
    sync_ms_p50: float
    sync_ms_p99: float
    write_ms_max: float
    """The longest single `write`, during which nothing else runs in Python."""
    fdatasync_ms_p50: float
    fdatasync_ms_p99: float


def percentile(sorted_values: list[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def fdatasync_ms(folder: Path, rounds: int = 300) -> list[float]:
    """Return the sorted ms of fdatasync calls, each after 4 KiB written at the end of a file."""
    spent: list[float] = []
    with (folder / "fdatasync").open("wb", buffering=0) as file:
        for _ in range(rounds):
            file.write(os.urandom(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            spent.append(1e3 * (time.perf_counter() - began))
    return sorted(spent)


def measure(
    folder: Path,
    seconds: float,
    columns: Sequence[Sequence[bytes]] | None = None,
    codec: str = "none",
) -> RawFigures:
    """Write batches into a new database in `folder` for some seconds.

    Args:
        folder: Where the database is made.
        seconds: How long to write.
        columns: `DISTINCT` columns of `MESSAGES` values; None: random ones of `WIDTH` bytes.
        codec: How the batches are compressed.
    """
    disk = fdatasync_ms(folder)
    if columns is None:
        columns = [[os.urandom(WIDTH) for _ in range(MESSAGES)] for _ in range(DISTINCT)]
    entries = [stamp(encode_batch(column, now_ms=0, codec=codec), 0, 1, 0) for column in columns]
    mode = DBRecoveryMode.tolerate_corrupted_tail_records()
    database = Rdict(str(folder / "raw"), database_options(mode), {"log": log_options()})
    handle = database.get_column_family_handle("log")
    syncs: list[float] = []
    longest = 0.0
    batches = 0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        batch = WriteBatch(raw_mode=True)
        for _ in range(BATCHES_A_SYNC):
            key = log_key(1, 0, batches * MESSAGES)
            batch.put(key, entries[batches % DISTINCT], handle)
            batches += 1
        writing = time.perf_counter()
        database.write(batch)
        written = time.perf_counter()
        database.flush_wal(True)
        syncs.append(1e3 * (time.perf_counter() - written))
        longest = max(longest, 1e3 * (written - writing))
    del handle
    database.close()
    syncs.sort()
    return RawFigures(
        messages_s=batches * MESSAGES / spent,
        megabytes_s=batches * len(entries[0]) / spent / 1e6,
        sync_ms_p50=percentile(syncs, 0.5),
        sync_ms_p99=percentile(syncs, 0.99),
        write_ms_max=longest,
        fdatasync_ms_p50=percentile(disk, 0.5),
        fdatasync_ms_p99=percentile(disk, 0.99),
    )


def main() -> None:
    """Print the figures, one a line or as JSON."""
    parser = argparse.ArgumentParser(prog="bench.raw", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix=".bench-") as folder:
        raw = measure(Path(folder), arguments.seconds)
    found: dict[str, float] = msgspec.to_builtins(raw)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:18s} {value:12,.2f}")


if __name__ == "__main__":
    main()
