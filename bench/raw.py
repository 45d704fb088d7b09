"""Speed of the disk and RocksDB without a broker: `python -m bench.raw [--seconds S] [--json]`.

*Raw*: batches of 1,000 random messages of 100 bytes directly through `WriteBatch`, `write` and
`flush_wal(True)`, 8 batches per sync, with the options of the broker's store. *fdatasync*: the time that 4 KiB take to reach the disk.
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

from bench.figures import percentile
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


class RawStore:
    """A new database with the options of the broker's store."""

    def __init__(self, path: Path) -> None:
        mode = DBRecoveryMode.tolerate_corrupted_tail_records()
        self._database = Rdict(str(path), database_options(mode), {"log": log_options()})
        self._handle = self._database.get_column_family_handle("log")
        self.count = 0
        """The number of entries written."""

    def put(self, entries: Sequence[bytes]) -> None:
        """Write entries, without a sync."""
        batch = WriteBatch(raw_mode=True)
        for entry in entries:
            batch.put(log_key(1, 0, self.count * MESSAGES), entry, self._handle)
            self.count += 1
        self._database.write(batch)

    def sync(self) -> None:
        """Return when everything is on the disk."""
        self._database.flush_wal(True)

    def write(self, entries: Sequence[bytes]) -> None:
        """Write entries with one sync."""
        self.put(entries)
        self.sync()

    def close(self) -> None:
        """Close the database."""
        del self._handle
        self._database.close()


class SyncedFile:
    """A new file that is only appended to."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def write(self, entries: Sequence[bytes]) -> None:
        """Append entries with one fdatasync."""
        self._file.write(b"".join(entries))
        os.fdatasync(self._file.fileno())


def entries(columns: Sequence[Sequence[bytes]] | None = None, codec: str = "none") -> list[bytes]:
    """Return the batches to store.

    Args:
        columns: `DISTINCT` columns of `MESSAGES` values; None: random ones of `WIDTH` bytes.
        codec: How the batches are compressed.
    """
    if columns is None:
        columns = [[os.urandom(WIDTH) for _ in range(MESSAGES)] for _ in range(DISTINCT)]
    return [stamp(encode_batch(column, now_ms=0, codec=codec), 0, 1, 0) for column in columns]


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
    """Write batches into a new database in `folder` for some seconds; see `entries`."""
    disk = fdatasync_ms(folder)
    stored = entries(columns, codec)
    database = RawStore(folder / "raw")
    syncs: list[float] = []
    longest = 0.0
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        at = database.count % DISTINCT
        writing = time.perf_counter()
        database.put(stored[at : at + BATCHES_A_SYNC])
        written = time.perf_counter()
        database.sync()
        syncs.append(1e3 * (time.perf_counter() - written))
        longest = max(longest, 1e3 * (written - writing))
    database.close()
    syncs.sort()
    return RawFigures(
        messages_s=database.count * MESSAGES / spent,
        megabytes_s=database.count * len(stored[0]) / spent / 1e6,
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
