"""What changed when: the deltas of WATCH, at the cost of what they hold."""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K", str, int)

MAX_TOMBSTONES: Final = 10_000
"""Deleted names that are remembered for WATCH; who asks from before gets the whole."""


class ChangeIndex(Generic[K]):
    """Names (or numbers) by the version of their last change, and the names that went: WATCH's deltas."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        """Below it, deletions are forgotten: only the whole can be answered."""
        self._changed: dict[K, int] = {}
        self._gone: dict[K, int] = {}

    def touch(self, name: K, version: int) -> None:
        """A name came or changed; versions never go back."""
        self._gone.pop(name, None)
        self._changed.pop(name, None)
        self._changed[name] = version

    def drop(self, name: K, version: int) -> None:
        """A name went."""
        self._changed.pop(name, None)
        self._gone.pop(name, None)
        self._gone[name] = version
        if len(self._gone) > MAX_TOMBSTONES:
            # Many at once: the way to a dict's first entry leads over all that went before it.
            for oldest in list(islice(self._gone, 1 + MAX_TOMBSTONES // 10)):
                self.floor = self._gone.pop(oldest)

    def changed_since(self, version: int) -> list[K]:
        """Names that came or changed after this version: O(answer)."""
        return _newer(self._changed, version)

    def gone_since(self, version: int) -> list[K]:
        """Names that went after this version and did not come back: O(answer)."""
        return _newer(self._gone, version)


def _newer(versions: dict[K, int], version: int) -> list[K]:
    found: list[K] = []
    for name, changed in reversed(versions.items()):
        if changed <= version:
            break
        found.append(name)
    return found
