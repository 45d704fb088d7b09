"""What a broker's core asks of its disk: ordered reads, one atomic write per turn, sync tokens.

A core reads synchronously and never writes: it returns a `WriteSet` in its effects, the skin (or
the simulation) applies it, unsynced, and later reports `Synced`. What a turn stages is not visible
to reads of that turn. `rocks_storage.py` is the RocksDB body; the simulated one
loses what was not synced. Both read `log` by way of `body_references.py`.

Families (all keys and values are bytes; key layouts stand in `keys.py`):

| family  | holds                                                                              |
|---------|------------------------------------------------------------------------------------|
| log     | every queue's entries: batches and control entries; read they are always whole     |
| state   | what a queue knows of its log: `log_state.LogState`, epochs, producer windows      |
| parked  | which batches wait, and until when, derived below the HW (Q12)                     |
| cursor  | what subscriptions acknowledged, derived below the HW (Q12): `cursor_rows.py`      |
| index   | time and key index, derived below the HW (Q12)                                     |
| compact | what is the latest of its key, derived below the HW (Q12): `compaction_rows.py`       |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

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
    """The writes of one turn, in order; applied all or none.

    A later operation on a key wins over an earlier one, as if they were applied one by one.
    """

    __slots__ = ("operations", "size")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.size = 0
        """Bytes of all keys and values: what counts against the unsynced bound."""

    def __len__(self) -> int:
        return len(self.operations)

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.operations.append((PUT, family, key, value))
        self.size += len(key) + len(value)

    def delete(self, family: Family, key: bytes) -> None:
        """Remove a key; nothing happens if it is not there."""
        self.operations.append((DELETE, family, key, b""))
        self.size += len(key)

    def delete_range(self, family: Family, start: bytes, end: bytes) -> None:
        """Remove all keys from `start` (inclusive) to `end` (exclusive)."""
        if start < end:
            self.operations.append((DELETE_RANGE, family, start, end))
            self.size += len(start) + len(end)


class DiskSpace(NamedTuple):
    """Bytes of the file system that the data folder is on."""

    free: int
    """What this process may still take, less what it has yet to write of what it took already."""
    total: int


class Storage(Protocol):
    """A broker's store. Cores call the reads alone; `write` and `sync` belong to the skin."""

    store_id: str
    """Random, made with the data folder, registered at the name server (Q3)."""
    suspect: bool
    """Whether opening could not prove that all synced data is there (Q13)."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        """The value of a key, or None.

        Raises:
            DataDamaged: the store cannot read it.
        """
        ...

    def scan(
        self, family: Family, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) from `start` (inclusive) to `end` (exclusive), as of the first step.

        `reverse` begins at the last key before `end`. Let go of an unfinished iterator: it pins
        what it reads.

        Raises:
            DataDamaged: the store cannot read on. An iterator that ends without it is complete.
        """
        ...

    def write(self, writes: WriteSet) -> None:
        """Apply all or none, visible at once, on disk only after a `sync` that begins later."""
        ...

    def sync(self) -> None:
        """Bring all that was written before this call to disk; called from the committer thread.

        Raises:
            Exception: the disk refused. Never called again then: the process ends (Q14).
        """
        ...

    def space(self) -> DiskSpace:
        """Free and total bytes, read now (some microseconds)."""
        ...
