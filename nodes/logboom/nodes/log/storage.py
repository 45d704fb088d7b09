"""The storage interface of a broker's core: ordered reads, one atomic write per turn, sync tokens.

A core reads synchronously and never writes. It returns a `WriteSet` in its effects; the skin (or
the simulation) applies it, unsynced, and later reports `Synced`. What a turn stages is not visible
to reads in that turn. `disk/rocks_storage.py` implements the interface with RocksDB; the simulated
store loses what was not synced. Both read `log` through `body_references.py`.

Families (all keys and values are bytes; for key layouts see `keys.py`):

| family  | holds                                                                              |
|---------|------------------------------------------------------------------------------------|
| log     | every queue's entries: batches and control entries, always complete when read      |
| state   | a queue's state of its log: `log_state.LogState`, epochs, producer windows         |
| parked  | batches that wait and their due times, derived below the HW (Q12)                  |
| cursor  | acknowledgements of subscriptions, derived below the HW (Q12): `cursor_rows.py`    |
| index   | time and key index, derived below the HW (Q12)                                     |
| compact | the latest message of each key, derived below the HW (Q12): `compaction_rows.py`   |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from logboom.wire.name_servers import KnownServer

Family: TypeAlias = Literal["log", "state", "parked", "cursor", "index", "compact"]
FAMILIES: Final[tuple[Family, ...]] = (
    "log",
    "state",
    "parked",
    "cursor",
    "index",
    "compact",
)

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2

Operation: TypeAlias = tuple[int, Family, bytes, bytes]
"""(PUT, family, key, value), (DELETE, family, key, b""), (DELETE_RANGE, family, start, end)."""


class WriteSet:
    """The writes of one turn, in order, which are applied atomically.

    A later operation on a key overrides an earlier one, as if they were applied one by one.
    """

    __slots__ = ("operations", "size")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.size = 0
        """Bytes of all keys and values, which count towards the bound on unsynced bytes."""

    def __len__(self) -> int:
        return len(self.operations)

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.operations.append((PUT, family, key, value))
        self.size += len(key) + len(value)

    def delete(self, family: Family, key: bytes) -> None:
        """Remove a key, if it exists."""
        self.operations.append((DELETE, family, key, b""))
        self.size += len(key)

    def delete_range(self, family: Family, start: bytes, end: bytes) -> None:
        """Remove all keys from `start` (inclusive) to `end` (exclusive)."""
        if start < end:
            self.operations.append((DELETE_RANGE, family, start, end))
            self.size += len(start) + len(end)


class DiskSpace(NamedTuple):
    """Free and total bytes of the file system that contains the data folder."""

    free: int
    """Bytes that this process may still use, less what it has yet to write of data taken already.
    """
    total: int


class Storage(Protocol):
    """A broker's store. Cores only read; `write` and `sync` belong to the skin."""

    store_id: str
    """A random id, created with the data folder and registered at the name servers (Q3)."""
    suspect: bool
    """True if opening could not prove that all synced data is there (Q13)."""
    known_servers: list[KnownServer]
    """The name servers of the cluster that the broker knew before it started."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            DataDamaged: the store cannot read it.
        """
        ...

    def scan(
        self,
        family: Family,
        start: bytes,
        end: bytes,
        *,
        reverse: bool = False,
        values_checked_by_caller: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) from `start` (inclusive) to `end` (exclusive), as of the first step.

        `reverse` begins at the last key before `end`. Release an unfinished iterator, because it
        pins what it reads.

        With `values_checked_by_caller`, forwards only, the store may leave out its own check of a
        value's bytes, and may pass over keys where it is damaged. The caller verifies a checksum
        over all bytes of a value before it uses any, and that no key is missing. Which value
        belongs to a key is checked in any case.

        Raises:
            DataDamaged: the store cannot read on. An iterator that ends without it is complete.
        """
        ...

    def write(self, writes: WriteSet) -> None:
        """Apply all operations or none; visible at once, on disk only after a later `sync`."""
        ...

    def sync(self) -> None:
        """Bring everything written before this call to disk; called from the committer's thread.

        Raises:
            Exception: the disk refused. It is not called again, and the process ends (Q14).
        """
        ...

    def space(self) -> DiskSpace:
        """Return free and total bytes, read now (in some microseconds)."""
        ...
