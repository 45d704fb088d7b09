"""What happened in a simulated world: a hash over everything, a short log, and totals."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable


class BrokenProperty(AssertionError):
    """A promise of the system that the run broke."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


class Trace:
    """Notes of one run."""

    def __init__(self, now: Callable[[], float], kept: int = 400) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16)
        self.events: deque[str] = deque(maxlen=kept)
        """The last few notes, for a person."""
        self.totals: Counter[str] = Counter()
        self.echo: Callable[[str], None] | None = None
        """Told every note as it is made."""

    def note(self, who: str, what: str) -> None:
        """Something that a person who studies a failure wants to read."""
        line = f"{self._now():10.6f} {who:<10} {what}"
        self._hash.update(line.encode())
        self.events.append(line)
        if self.echo is not None:
            self.echo(line)

    def mix(self, *pieces: bytes) -> None:
        """Something that only has to be the same in every run of the seed."""
        self._hash.update(b"".join((repr(self._now()).encode(), *pieces)))

    def count(self, what: str, times: int = 1) -> None:
        """Add to the totals."""
        self.totals[what] += times

    def digest(self) -> str:
        """The hash over all that happened so far."""
        return self._hash.hexdigest()
