"""Batches that were read for delivery, kept a while: each goes to several consumers."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import Final

from logboom.nodes.subscriptions.dispatch_events import Entry, Source

SHELF_BYTES: Final = 8 * 1024 * 1024
"""Bytes of batches that are kept."""


class Shelf:
    """Recent batches by their offsets; those put in longest ago go first."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._bases: list[int] = []
        self._order: deque[int] = deque()
        self._size = 0

    def put(self, entry: Entry) -> None:
        """Keep a batch."""
        if entry.base in self._entries:
            return
        self._entries[entry.base] = entry
        if self._bases and entry.base < self._bases[-1]:
            insort(self._bases, entry.base)
        else:
            self._bases.append(entry.base)
        self._order.append(entry.base)
        self._size += entry.size
        while self._size > SHELF_BYTES and len(self._order) > 1:
            self._drop(self._order.popleft())

    def _drop(self, base: int) -> None:
        self._size -= self._entries.pop(base).size
        del self._bases[bisect_right(self._bases, base) - 1]

    def holding(self, offset: int, source: Source) -> Entry | None:
        """The batch that holds an offset, read if it is not here; None: it cannot be read now."""
        at = bisect_right(self._bases, offset) - 1
        if at >= 0:
            entry = self._entries[self._bases[at]]
            if offset < entry.next:
                return entry
        read = source.read(offset, 1, 1, 1)
        for entry in read:
            if entry.base <= offset < entry.next:
                self.put(entry)
                return entry
        return None

    def clear(self) -> None:
        """Keep nothing: the log may have changed."""
        self._entries.clear()
        self._bases.clear()
        self._order.clear()
        self._size = 0
