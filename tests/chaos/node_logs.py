"""What nodes wrote into their logs: where it begins, and what of it tells of a fault in our code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FAULTY: Final = (
    "Traceback",
    "report it",
    "ERROR",
    "CRITICAL",
    # The last words of what is not Python: ZeroMQ, RocksDB, the interpreter itself.
    "Assertion failed",
    "Fatal Python error",
    "terminate called",
)
"""Words of which a node in good health says none."""

_HEAD: Final = re.compile(
    rb"^(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z |logboom: |(?: {4})?Traceback |Exception "
    rb"|--- Logging error)",
    re.MULTILINE,
)
"""A traceback is an entry of its own: what explains the line before it does not explain it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a node said, in one line or several."""

    at: int
    """Its place in the log, in bytes. Clocks of a run jump, so times say nothing."""
    text: str


def entries(log: bytes) -> Iterator[Entry]:
    """All of a log."""
    begins = sorted({0, *(head.start() for head in _HEAD.finditer(log))})
    for begin, end in zip(begins, [*begins[1:], len(log)], strict=True):
        if said := log[begin:end].decode(errors="replace").strip():
            yield Entry(begin, said)


def faults(log: bytes) -> list[Entry]:
    """What of a log tells of a fault."""
    return [entry for entry in entries(log) if any(word in entry.text for word in FAULTY)]
