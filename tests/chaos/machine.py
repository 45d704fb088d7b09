"""A bad machine for each node: a wall clock that jumps, and power that fails.

`shim.c` is built with the C compiler of this machine and loaded into the nodes. It remembers what
each node has not synced; `cut_power` takes that away from a dead node's files, as a power failure
would: all of it, or all but what happened to be written by then, torn and in any order of pages. It
also kills a node before a certain write, sync, rename or unlink, and fails a certain fsync.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from logboom.wire.errors import StartError

SOURCE: Final = Path(__file__).with_name("shim.c")
UNSYNCED: Final = "unsynced"
PAGE: Final = 4096
STAYS: Final = 0.5
"""How likely it is that a page, or an overwritten place, has not been written when power goes."""
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

    def launcher(
        self, name: str, die_at: int | None = None, fail_sync: int | None = None
    ) -> list[str]:
        """Words before a node's command.

        Args:
            name: of the node.
            die_at: it is killed before this operation on its files, counted from 1.
            fail_sync: this fsync of its files and all later ones fail, counted from 1.
        """
        unsynced = self._data / name / UNSYNCED
        unsynced.mkdir(parents=True, exist_ok=True)
        clock = self._clock(name)
        if not clock.exists():
            self.set_clock(name, 0.0)
        return [
            "env",
            f"LD_PRELOAD={self._library}",
            f"CHAOS_CLOCK={clock}",
            f"CHAOS_ROOT={self.folder(name)}",
            f"CHAOS_UNSYNCED={unsynced}",
            *([] if die_at is None else [f"CHAOS_DIE_AT={die_at}"]),
            *([] if fail_sync is None else [f"CHAOS_FAIL_SYNC={fail_sync}"]),
        ]

    def folder(self, name: str) -> Path:
        """The data folder of a node, whose unsynced writes are known."""
        return self._data / name / "data"

    def run(
        self,
        name: str,
        code: str,
        *words: str,
        die_at: int | None = None,
        fail_sync: int | None = None,
    ) -> list[str]:
        """Run Python code on the node's machine, with its data folder and `words` as arguments, and
        kill it at its end, if not before; the words that it printed."""
        code = f"{code}\nimport os, sys; sys.stdout.flush(); os.kill(os.getpid(), 9)"
        done = subprocess.run(
            [
                *self.launcher(name, die_at, fail_sync),
                *(sys.executable, "-c", code, str(self.folder(name)), *words),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        return done.stdout.split()

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

    def cut_power(
        self, name: str, rng: random.Random | None = None, *, reordered: bool = False
    ) -> int:
        """Take what a dead node had not synced out of its files; how many bytes it was.

        With `rng` a random beginning of each file's unsynced end stays, as it may; `reordered`: some
        pages of that beginning were not written, though later ones were, and so were some of the
        overwritten places.
        """
        unsynced = self._data / name / UNSYNCED
        return cut_power(self.folder(name), unsynced, rng, reordered=reordered)

    def forget(self, name: str) -> None:
        """A dead node's disk is new: nothing of what it had not synced matters."""
        shutil.rmtree(self._data / name / UNSYNCED, ignore_errors=True)


def cut_power(
    data: Path, unsynced: Path, rng: random.Random | None = None, *, reordered: bool = False
) -> int:
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
                lost += _restore(path, record.read_bytes(), rng, reordered=reordered)
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


def _restore(path: Path, record: bytes, rng: random.Random | None, *, reordered: bool) -> int:
    """Give a file the content that it may have had when the power went; how many bytes go."""
    synced, length = _HEAD.unpack_from(record)
    changes = _changes(record[_HEAD.size : _HEAD.size + length])
    size = path.stat().st_size
    kept = rng.randint(synced, size) if rng is not None and size > synced else synced
    shuffled = rng if reordered else None
    with path.open("r+b") as file:
        # Newest first: one place may have been overwritten several times.
        for at, before in reversed(changes):
            if shuffled is None:
                file.seek(at)
                file.write(before)
                continue
            # Large writes reach the disk page by page.
            for page in range(at // PAGE * PAGE, at + len(before), PAGE):
                begin, end = max(page, at), min(page + PAGE, at + len(before))
                if shuffled.random() < STAYS:
                    file.seek(begin)
                    file.write(before[begin - at : end - at])
        file.truncate(kept)
        if shuffled is not None and shuffled.random() < STAYS:
            for page in range(synced // PAGE * PAGE, kept, PAGE):
                if shuffled.random() < STAYS:
                    begin = max(page, synced)
                    file.seek(begin)
                    file.write(bytes(min(page + PAGE, kept) - begin))
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
