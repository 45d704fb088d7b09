"""A broker's store in memory that loses what was not synced, as power loss does.

Writes are kept in order. A sync makes all before its mark durable; a crash keeps what is durable
and some further writes from the front (the operating system may have written them), never a hole.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator

from logboom.nodes.storage import DELETE, FAMILIES, PUT, Family, Operation, Space, WriteSet


class _Table:
    """One family: keys in order."""

    __slots__ = ("changes", "keys", "values")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}
        self.changes = 0

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            insort(self.keys, key)
        self.values[key] = value

    def delete_range(self, start: bytes, end: bytes) -> None:
        low, high = bisect_left(self.keys, start), bisect_left(self.keys, end)
        for key in self.keys[low:high]:
            del self.values[key]
        del self.keys[low:high]


class _Image:
    """The whole content at one time."""

    def __init__(self) -> None:
        self.tables: dict[Family, _Table] = {family: _Table() for family in FAMILIES}

    def apply(self, operations: list[Operation]) -> int:
        """How many log entries a range took away: without retention, a cut."""
        cut = 0
        for kind, family, key, value in operations:
            table = self.tables[family]
            table.changes += 1
            if kind == PUT:
                table.put(key, value)
            else:
                if kind == DELETE:
                    value = key + b"\0"
                before = len(table.keys)
                table.delete_range(key, value)
                cut += (before - len(table.keys)) * (family == "log")
        return cut


class SimulatedStorage:
    """A `logboom.nodes.storage.Storage`; it outlives the process as a disk does."""

    def __init__(self, store_id: str, total: int = 1 << 40) -> None:
        self.store_id = store_id
        self.suspect = False
        self.total = total
        self.on_cut: Callable[[], None] = lambda: None
        """Called when a write takes entries away from a log."""
        self._live = _Image()
        self._durable = _Image()
        self._unsynced: deque[list[Operation]] = deque()
        self._written = 0
        """Write sets so far; the mark of a sync."""

    # -- what the core reads ----------------------------------------------------------------

    def get(self, family: Family, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        return self._live.tables[family].values.get(key)

    def scan(
        self, family: Family, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) in order; fails if it is kept open across a write."""
        table = self._live.tables[family]
        low, high = bisect_left(table.keys, start), bisect_left(table.keys, end)
        places = range(high - 1, low - 1, -1) if reverse else range(low, high)
        changes = table.changes
        for place in places:
            assert table.changes == changes, "an iterator was kept open across a write"
            key = table.keys[place]
            yield key, table.values[key]

    def space(self) -> Space:
        """Free and total bytes."""
        return Space(self.total, self.total)

    # -- what the skin does -----------------------------------------------------------------

    def write(self, writes: WriteSet) -> None:
        """Apply all, visible at once, not durable."""
        operations = list(writes.operations)
        if self._live.apply(operations):
            self.on_cut()
        self._unsynced.append(operations)
        self._written += 1

    def mark(self) -> int:
        """What a sync that begins now will cover."""
        return self._written

    def sync_to(self, mark: int) -> None:
        """A sync that began at `mark` ended."""
        while self._unsynced and self._written - len(self._unsynced) < mark:
            self._durable.apply(self._unsynced.popleft())

    def sync(self) -> None:
        """Make all durable."""
        self.sync_to(self._written)

    # -- what befalls it --------------------------------------------------------------------

    def crash(self, rng: random.Random, power: bool = True) -> int:
        """The process died; with the power too, unsynced write sets are lost: how many."""
        kept = rng.randint(0, len(self._unsynced)) if power else len(self._unsynced)
        lost = len(self._unsynced) - kept
        for _ in range(kept):
            self._durable.apply(self._unsynced.popleft())
        self._unsynced.clear()
        self._live = _Image()
        for family, table in self._durable.tables.items():
            self._live.tables[family].keys = list(table.keys)
            self._live.tables[family].values = dict(table.values)
        return lost

    def flip(self, rng: random.Random, may: Callable[[bytes], bool]) -> bytes | None:
        """Flip a bit of a synced log entry whose key is one of those that `may`; its key."""
        live, durable = self._live.tables["log"].values, self._durable.tables["log"].values
        keys = [key for key in self._durable.tables["log"].keys if key in live and may(key)]
        if not keys:
            return None
        key = rng.choice(keys)
        entry = bytearray(durable[key])
        entry[rng.randrange(len(entry))] ^= 1 << rng.randrange(8)
        live[key] = durable[key] = bytes(entry)
        return key

    def content(self, family: Family) -> dict[bytes, bytes]:
        """Everything in a family, for the checker."""
        return dict(self._live.tables[family].values)
