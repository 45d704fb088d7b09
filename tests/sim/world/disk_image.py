"""What a simulated store holds: tables of keys in order, and write sets applied to them."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from logboom.nodes.log.body_references import referenced_key, resolve_body
from logboom.nodes.log.keys import queue_key
from logboom.nodes.log.storage import DELETE, FAMILIES, PUT, Family, Operation

QUEUE_KEY: Final = len(queue_key(0, 0))


class Table:
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

    def change(self, kind: int, key: bytes, value: bytes) -> int:
        """One operation; how many keys went."""
        self.changes += 1
        if kind == PUT:
            self.put(key, value)
            return 0
        before = len(self.keys)
        self.delete_range(key, key + b"\0" if kind == DELETE else value)
        return before - len(self.keys)

    def replace(self, other: Table) -> None:
        """Hold what another holds."""
        self.keys, self.values = list(other.keys), dict(other.values)


class Image:
    """The whole content at one time."""

    def __init__(self) -> None:
        self.tables: dict[Family, Table] = {family: Table() for family in FAMILIES}

    def apply(self, operations: list[Operation]) -> int:
        """How many log entries a cut took away."""
        cut = 0
        for kind, family, key, value in operations:
            gone = self.tables[family].change(kind, key, value)
            # What goes from a queue's very beginning is retention, a reset or a deleted topic.
            if family == "log" and len(key) > QUEUE_KEY:
                cut += gone
        return cut


def entry_of(log: Table, key: bytes, stored: bytes) -> bytes:
    """A log entry with its body, which it may borrow from another entry."""
    lender = referenced_key(key, stored)
    return stored if lender is None else resolve_body(stored, log.values.get(lender))
