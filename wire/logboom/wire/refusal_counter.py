"""Refusals and other events that repeat, told at most once a second each, pure.

Whoever is refused tries again, and a log that tells each time is a way to fill a disk. The first
refusal of a key (such as an address) is told at once, and further ones as one number once a second,
with the details of the last one. What is too much for a second is told as one number for all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K")
D = TypeVar("D")

TOLD_EVERY_S: Final = 1.0
"""Seconds between two mentions of one key."""
MAX_TOLD_PER_S: Final = 20
"""Maximum number of mentions a second, of all keys together."""
MAX_KEYS: Final = 10_000
"""Keys that are counted one by one; those beyond are counted together."""


@dataclass(slots=True)
class _Repeats(Generic[D]):
    told_at: float
    details: D
    untold: int = 0


class RefusalCounter(Generic[K, D]):
    """Counts of refusals by key.

    `tell` gets a key, the details of its last refusal, and the number of those not told yet. Key and
    details are None for all refusals together that were too many to be told one by one.
    """

    def __init__(
        self,
        tell: Callable[[K | None, D | None, int], None],
        every_s: float = TOLD_EVERY_S,
        most_per_s: int = MAX_TOLD_PER_S,
        whose: Callable[[K], Hashable] = lambda _: None,
    ) -> None:
        """Create a counter.

        Args:
            tell: see above.
            every_s: seconds between two mentions of one key, one at least.
            most_per_s: maximum number of mentions a second, of all keys together.
            whose: returns whose key it is; each may have one mention a second in any case.
        """
        self._tell = tell
        self._every_s = every_s
        self._most_per_s = most_per_s
        self._whose = whose
        self._keys: dict[K, _Repeats[D]] = {}
        self._others = 0
        """Refusals of keys that were too many."""
        self._second = float("-inf")
        """Begin of the second in which mentions are counted."""
        self._told = 0
        """Mentions in this second."""
        self._heard: set[Hashable] = set()
        """Who has one in this second."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: K, details: D, now: float, count: int = 1) -> None:
        """Count a refusal, or several with the same details, and tell them if that is due."""
        self.tick(now)
        known = self._keys.get(key)
        if known is not None:
            known.untold += count
            known.details = details
        elif len(self._keys) < MAX_KEYS and self._may_tell(key):
            self._keys[key] = _Repeats(now, details)
            self._tell(key, details, count)
        else:
            self._others += count

    def tick(self, now: float) -> None:
        """Tell what has waited for a second; forget keys that were quiet."""
        if now - self._second < TOLD_EVERY_S:
            return
        self._second = now
        self._told = 0
        self._heard.clear()
        if self._others:
            self._tell(None, None, self._others)
            self._others = 0
        for key, known in list(self._keys.items()):
            if now - known.told_at < self._every_s:
                continue
            if not known.untold:
                del self._keys[key]
            elif self._may_tell(key):
                self._tell(key, known.details, known.untold)
                known.told_at, known.untold = now, 0

    def _may_tell(self, key: K) -> bool:
        """Count a mention of a key; return False if there were too many in this second."""
        whose = self._whose(key)
        if self._told >= self._most_per_s and whose in self._heard:
            return False
        self._told += 1
        self._heard.add(whose)
        return True

    def flush(self) -> None:
        """Tell everything that was not told yet, because nothing more comes."""
        for key, known in self._keys.items():
            if known.untold:
                self._tell(key, known.details, known.untold)
        if self._others:
            self._tell(None, None, self._others)
        self._keys.clear()
        self._others = 0
