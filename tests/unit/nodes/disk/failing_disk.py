"""The folder of a journal on a disk whose power fails: what was not synced may be there or not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

PAGE = 4096


class PowerFailure(Exception):
    """The power failed in the middle of something."""


class SimulatedFile:
    """One file: what is on disk for sure, and what was written since."""

    def __init__(self) -> None:
        self.durable = b""
        self.current = bytearray()
        self.versions: dict[int, list[bytes]] = {}
        """Page → all that it has held since the last sync."""

    def write(self, at: int, content: bytes) -> None:
        """Overwrite or append; the pages in it may reach the disk one by one."""
        end = at + len(content)
        if end > len(self.current):
            self.current += bytes(end - len(self.current))
        self.current[at:end] = content
        for page in range(at // PAGE, -(-end // PAGE)):
            held = bytes(self.current[page * PAGE : (page + 1) * PAGE])
            self.versions.setdefault(page, []).append(held)

    def sync(self) -> None:
        """All of it is on disk."""
        self.durable = bytes(self.current)
        self.versions.clear()

    def fail(self, rng: random.Random) -> None:
        """Keep any subset of the pages that were written since the last sync, and any length."""
        content = bytearray(self.durable)
        # Of a file that has become longer, any part of the end may be missing.
        length = rng.choice((len(self.durable), len(self.current), rng.randint(0, 1 << 20)))
        length = min(max(length, len(self.durable)), len(self.current))
        content += bytes(length - len(content))
        for page, versions in self.versions.items():
            begin = page * PAGE
            old = bytes(content[begin : begin + PAGE])
            held = rng.choice((old, *versions, versions[-1]))
            content[begin : begin + PAGE] = held[: max(0, length - begin)]
        self.current = content
        self.sync()


class FailingDisk:
    """A `write_journal.JournalDisk` in memory."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.files: dict[str, SimulatedFile] = {}
        self._named: dict[str, SimulatedFile] = {}
        """The files whose names are on disk."""
        self._open: dict[int, SimulatedFile] = {}
        self._next = 0
        self.left: int | None = None
        """Operations until the power fails."""
        self.room: int | None = None
        """Bytes by which files may still grow."""
        self.refuses = False
        """Whether syncs fail."""

    def step(self) -> None:
        """Something is about to be done: the power may fail before it."""
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise PowerFailure

    def fail(self) -> None:
        """The power fails, and comes back."""
        names = {
            name: file
            for name, file in (self._named | self.files).items()
            if self._rng.random() < 0.5 or (name in self._named and name in self.files)
        }
        for file in names.values():
            file.fail(self._rng)
        self.files, self._named = names, dict(names)
        self._open.clear()
        self.left = None

    def kill(self) -> None:
        """The process dies; what it wrote is in the page cache."""
        self._open.clear()
        self.left = None

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str, limit: int | None = None) -> bytes:
        return bytes(self.files[name].current[:limit])

    def open(self, name: str, *, create: bool) -> tuple[int, int]:
        self.step()
        assert create != (name in self.files)
        if create:
            self.files[name] = SimulatedFile()
        self._next += 1
        self._open[self._next] = self.files[name]
        return self._next, len(self.files[name].current)

    def write(self, handle: int, at: int, buffers: Sequence[bytes]) -> None:
        content = b"".join(buffers)
        file = self._open[handle]
        grows = max(0, at + len(content) - len(file.current))
        if self.room is not None and grows > self.room:
            file.write(at, content[: len(content) - grows + self.room])
            self.room = 0
            raise OSError(28, "No space left on device")
        if self.room is not None:
            self.room -= grows
        half = self._rng.randint(0, len(content))
        try:
            self.step()
        except PowerFailure:
            file.write(at, content[:half])
            raise
        file.write(at, content)

    def sync(self, handle: int) -> None:
        self.step()
        if self.refuses:
            raise OSError(5, "Input/output error")
        self._open[handle].sync()

    def sync_names(self) -> None:
        self.step()
        self._named = dict(self.files)

    def remove(self, name: str) -> None:
        self.step()
        del self.files[name]

    def close(self, handle: int) -> None:
        self._open.pop(handle, None)

    def change(self, name: str, how: Callable[[bytearray], None]) -> None:
        """Damage what is on disk of a file."""
        file = self.files[name]
        how(file.current)
        file.sync()
