"""A bad machine for each node: a wall clock that jumps, and power that fails.

`shim.c` is built with the C compiler of this machine and loaded into the nodes. It remembers what
each node has not synced; `cut_power` takes that away from a dead node's files, as a power failure
would: all of it, or all but a random beginning.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logboom.wire.errors import StartError

SOURCE: Final = Path(__file__).with_name("shim.c")
UNSYNCED: Final = "unsynced"
_HEAD: Final = struct.Struct("<qq")
_RECORD: Final = struct.Struct("<qq")


class Machine:
    """Clock and power of the nodes of one cluster in `data`."""

    def __init__(self, data: Path) -> None:
        """Build the shim.

        Raises:
            StartError: there is no C compiler.
        """
        self._data = data.absolute()
        self._library = self._data / "shim.so"
        self._data.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise StartError("a C compiler is needed for wrong clocks and power cuts: install gcc")
        options = ["-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run([compiler, *options, "-lpthread"], check=True)

    def launcher(self, name: str) -> list[str]:
        """Words before a node's command."""
        unsynced = self._data / name / UNSYNCED
        unsynced.mkdir(parents=True, exist_ok=True)
        clock = self._clock(name)
        if not clock.exists():
            self.set_clock(name, 0.0)
        return [
            "env",
            f"LD_PRELOAD={self._library}",
            f"CHAOS_CLOCK={clock}",
            f"CHAOS_ROOT={self._data / name / 'data'}",
            f"CHAOS_UNSYNCED={unsynced}",
        ]

    def _clock(self, name: str) -> Path:
        return self._data / name / "clock"

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set a node's wall clock ahead of (or, below 0, behind) the true time, at once."""
        # Written in place: the node has the file mapped.
        handle = os.open(self._clock(name), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(handle, struct.pack("<q", round(ahead_s * 1e9)), 0)
        finally:
            os.close(handle)

    def cut_power(self, name: str, rng: random.Random | None = None) -> int:
        """Take what a dead node had not synced out of its files; how many bytes it was.

        With `rng` a random beginning of each file's unsynced end stays, as it may.
        """
        return cut_power(self._data / name / "data", self._data / name / UNSYNCED, rng)

    def forget(self, name: str) -> None:
        """A dead node's disk is new: nothing of what it had not synced matters."""
        shutil.rmtree(self._data / name / UNSYNCED)


def cut_power(data: Path, unsynced: Path, rng: random.Random | None = None) -> int:
    """See `Machine.cut_power`."""
    names = unsynced / "names"
    if names.exists():
        for line in reversed(names.read_text(encoding="utf-8").splitlines()):
            _undo(*line.split("\t"))
    lost = 0
    for folder, _, files in os.walk(data):
        for file in files:
            path = Path(folder) / file
            record = unsynced / f"{path.stat().st_ino}.pre"
            if record.exists():
                lost += _restore(path, record.read_bytes(), rng)
    # From here on everything is on disk.
    shutil.rmtree(unsynced)
    unsynced.mkdir()
    return lost


def _undo(kind: str, path: str, to: str, grave: str) -> None:
    """Take back one change of a folder."""
    if kind == "C":
        Path(path).unlink(missing_ok=True)
    elif kind == "R" and Path(to).exists():
        Path(to).rename(path)
    buried, old = Path(grave), Path(to if kind == "R" else path)
    if grave and buried.exists() and not old.exists():
        os.link(buried, old)


def _restore(path: Path, record: bytes, rng: random.Random | None) -> int:
    """Give a file the content that it had at its last fsync; how many bytes go."""
    synced, length = _HEAD.unpack_from(record)
    changes = _changes(record[_HEAD.size : _HEAD.size + length])
    size = path.stat().st_size
    kept = rng.randint(synced, size) if rng is not None and size > synced else synced
    with path.open("r+b") as file:
        for at, before in reversed(changes):
            file.seek(at)
            file.write(before)
        file.truncate(kept)
    return max(0, size - kept) + sum(len(before) for _, before in changes)


def _changes(content: bytes) -> Sequence[tuple[int, bytes]]:
    found = []
    place = 0
    while place < len(content):
        at, length = _RECORD.unpack_from(content, place)
        place += _RECORD.size
        found.append((at, content[place : place + length]))
        place += length
    return found
