"""A broker's store in memory that loses what was not synced, as power loss does.

Writes are kept in order. A sync makes all before its mark durable; a crash keeps what is durable
and some further writes from the front (the operating system may have written them), never a hole.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from logboom.nodes.disk.data_folder import FORMAT
from logboom.nodes.log.keys import LAST_SIDE, log_key, position_of, queue_of
from logboom.nodes.log.storage import DiskSpace, Family, Operation, WriteSet
from logboom.wire.name_servers import KnownServer
from tests.sim.world.disk_image import Image, Table, entry_of
from tests.sim.world.older_format import OLDEST, aged

IO_ERROR: Final = "a simulated I/O error"
"""What a disk says that refuses a write or a sync."""
SETTLED: Final = 12
"""Newest synced write sets that damage in the journal may still take away."""
READABLE: Final = range(OLDEST, FORMAT + 1)
"""Formats of data folders that this build opens."""


class SimulatedStorage:
    """A `logboom.nodes.log.storage.Storage`; it outlives the process as a disk does."""

    def __init__(self, store_id: str, total: int = 1 << 40) -> None:
        self.store_id = store_id
        self.known_servers: list[KnownServer] = []
        self.suspect = False
        self.total = total
        self.format = FORMAT
        """Of the data folder; an older one becomes this one when it is opened."""
        self.full = False
        """Whether others have filled the file system."""
        self.others_bytes = 0
        """Bytes of the file system that belong to others."""
        self.refuses = False
        """Whether the next sync fails."""
        self.failed = False
        """Whether a sync failed in this life of the process, which must end then (Q14)."""
        self._holed = False
        """Whether a record of the journal is missing: none behind it is ever read."""
        self.on_cut: Callable[[], None] = lambda: None
        """Called when a write takes entries away from a log."""
        self.taken: list[tuple[bytes, bytes]] = []
        """Log entries, by key, that were synced and that the disk lost for good."""
        self.flipped = False
        """Whether a bit of what was synced has changed: more may be refetched for it."""
        self._live = Image()
        self._durable = Image()
        self._synced = Table()
        """Family `log` with all that is synced."""
        self._settled: deque[list[Operation]] = deque()
        """Synced, newer than `_durable`."""
        self._unsynced: deque[list[Operation]] = deque()
        self._written = 0
        """Write sets so far; the mark of a sync."""

    # -- what the core reads ----------------------------------------------------------------

    def get(self, family: Family, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        value = self._live.tables[family].values.get(key)
        return value if value is None else self._whole(family, key, value)

    def _whole(self, family: Family, key: bytes, value: bytes) -> bytes:
        return entry_of(self._live.tables["log"], key, value) if family == "log" else value

    def scan(
        self,
        family: Family,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        values_checked_by_caller: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) in order; fails if it is kept open across a write."""
        assert not (reverse and values_checked_by_caller), "values are left unchecked forwards"
        table = self._live.tables[family]
        low, high = bisect_left(table.keys, start), bisect_left(table.keys, end)
        places = range(high - 1, low - 1, -1) if reverse else range(low, high)
        changes = table.changes
        for place in places:
            assert table.changes == changes, "an iterator was kept open across a write"
            key = table.keys[place]
            yield key, self._whole(family, key, table.values[key])

    def space(self) -> DiskSpace:
        """Free and total bytes."""
        return DiskSpace(0 if self.full else self.total - self.others_bytes, self.total)

    # -- what the skin does -----------------------------------------------------------------

    def open(self) -> None:
        """A process starts on this data folder."""
        assert self.format in READABLE, f"a data folder of format {self.format} is not opened"
        self.format = FORMAT

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
            self._settle(self._unsynced.popleft())

    def sync_failed(self, mark: int, rng: random.Random) -> None:
        """A sync that began at `mark` failed: some of it is on disk, the rest never will be.

        The kernel has dropped the dirty pages and calls them clean: a second sync would succeed.
        """
        self.refuses = False
        self.failed = True
        doomed = [
            self._unsynced.popleft() for _ in range(mark - self._written + len(self._unsynced))
        ]
        kept = rng.randint(0, len(doomed))
        for operations in doomed[:kept]:
            self._settle(operations)
        self._holed = self._holed or kept < len(doomed)

    def _settle(self, operations: list[Operation]) -> None:
        self._settled.append(operations)
        for kind, family, key, value in operations:
            if family == "log":
                self._synced.change(kind, key, value)
        if len(self._settled) > SETTLED:
            self._durable.apply(self._settled.popleft())

    def _fold(self) -> None:
        while self._settled:
            self._durable.apply(self._settled.popleft())

    def sync(self) -> None:
        """Make all durable."""
        self.sync_to(self._written)

    # -- what befalls it --------------------------------------------------------------------

    def crash(self, rng: random.Random, power: bool = True) -> int:
        """The process died; with the power too, unsynced write sets are lost: how many.

        A write set is one record of the journal. What survives is a prefix of them: a torn
        last record fails its checksum and is dropped whole.
        """
        kept = rng.randint(0, len(self._unsynced)) if power else len(self._unsynced)
        if self._holed:
            kept, self._holed = 0, False
        lost = len(self._unsynced) - kept
        for _ in range(kept):
            self._settle(self._unsynced.popleft())
        self._unsynced.clear()
        self._reopen()
        return lost

    def damage(self, rng: random.Random) -> int:
        """After a crash: the journal is damaged within what was synced. The store opens
        without the newest write sets, and says that it is *suspect* (Q13). How many."""
        lost = rng.randint(0, len(self._settled))
        before = Table()
        before.replace(self._synced)
        for _ in range(lost):
            self._settled.pop()
        self._reopen()
        self._miss(before)
        self.suspect = True
        return lost

    def succeed(self, old: SimulatedStorage) -> None:
        """This empty store takes the place of an old one, which is lost with all it held."""
        self.taken += old.taken
        self._miss(old._synced)

    def _miss(self, before: Table) -> None:
        """Remember what was synced and is not there any more."""
        held = self._synced.values
        for key, value in before.values.items():
            if held.get(key) != value:
                self.taken.append((key, entry_of(before, key, value)))

    def grow_old(self) -> int:
        """Before a start: the program that ran until now was of the oldest format. How many bodies
        its folder holds that one of today would have left out."""
        self.format = OLDEST
        tables = self._durable.tables
        bodies, sets = aged(tables["log"], tables["state"], list(self._settled))
        self._settled = deque(sets)
        self._reopen()
        return bodies

    def _reopen(self) -> None:
        self.refuses = self.failed = False
        self._live = Image()
        for family, table in self._durable.tables.items():
            self._live.tables[family].replace(table)
        for operations in self._settled:
            self._live.apply(operations)
        self._synced.replace(self._live.tables["log"])

    def flip(self, rng: random.Random, may: Callable[[bytes], bool]) -> bytes | None:
        """Flip a bit of a synced log entry whose key is one of those that `may`; its key."""
        self._fold()
        live, durable = self._live.tables["log"].values, self._durable.tables["log"].values
        keys = [key for key in self._durable.tables["log"].keys if key in live and may(key)]
        if not keys:
            return None
        key = rng.choice(keys)
        entry = bytearray(durable[key])
        entry[rng.randrange(len(entry))] ^= 1 << rng.randrange(8)
        live[key] = durable[key] = self._synced.values[key] = bytes(entry)
        self.flipped = True
        return key

    def on_disk(self, topic_id: int, queue: int, offset: int) -> bytes | None:
        """The synced entry that should hold this offset of a queue: what a power failure would
        leave, whatever the process takes to be on disk."""
        key = log_key(topic_id, queue, offset, LAST_SIDE)
        table = self._synced
        place = bisect_left(table.keys, key) - 1
        if place < 0 or queue_of(table.keys[place]) != (topic_id, queue):
            return None
        found = table.keys[place]
        return entry_of(table, found, table.values[found])

    def begins_behind(self, topic_id: int, queue: int, offset: int) -> bool:
        """Whether the synced log of a queue begins behind an offset: retention has removed it."""
        keys = self._synced.keys
        place = bisect_left(keys, log_key(topic_id, queue, 0))
        first = keys[place] if place < len(keys) else None
        return (
            first is not None
            and queue_of(first) == (topic_id, queue)
            and position_of(first).offset > offset
        )

    def content(self, family: Family) -> dict[bytes, bytes]:
        """Everything in a family, for the checker."""
        values = self._live.tables[family].values
        return {key: self._whole(family, key, value) for key, value in values.items()}
