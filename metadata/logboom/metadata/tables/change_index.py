"""The index of changes by version, from which WATCH takes its deltas."""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K", str, int)

MAX_TOMBSTONES: Final = 10_000
"""Deleted names remembered for WATCH; a client that is further behind gets a full view."""


class ChangeIndex(Generic[K]):
    """Names (or numbers) by the version of their last change, and the names that were deleted."""

    def __init__(self, floor: int = 0) -> None:
        self.floor = floor
        """Deletions below this version are forgotten, so that only a full view can answer."""
        self._changed: dict[K, int] = {}
        self._gone: dict[K, int] = {}

    def touch(self, name: K, version: int) -> None:
        """Note that a name was added or changed; versions never go back."""
        self._gone.pop(name, None)
        self._changed.pop(name, None)
        self._changed[name] = version

    def drop(self, name: K, version: int) -> None:
        """Note that a name was deleted."""
        self._changed.pop(name, None)
        self._gone.pop(name, None)
        self._gone[name] = version
        if len(self._gone) > MAX_TOMBSTONES:
            # Many at once, because finding a dict's first entry scans all entries deleted before
            # it.
            for oldest in list(islice(self._gone, 1 + MAX_TOMBSTONES // 10)):
                self.floor = self._gone.pop(oldest)

    def changed_since(self, version: int) -> list[K]:
        """Return the names added or changed after this version; costs O(answer)."""
        return _newer(self._changed, version)

    def gone_since(self, version: int) -> list[K]:
        """Return the names deleted after this version and not added again; costs O(answer)."""
        return _newer(self._gone, version)


def _newer(versions: dict[K, int], version: int) -> list[K]:
    found: list[K] = []
    for name, changed in reversed(versions.items()):
        if changed <= version:
            break
        found.append(name)
    return found
