"""The seeds of `make test`, and those that once found something."""

from __future__ import annotations

from typing import Final

SEEDS: Final = range(50)
"""Run by `make test`."""
FOUND: Final[dict[int, str]] = {}
"""Seed → what it once broke; all of them run too. (A change of the simulation itself changes what
a seed does: then the note is what remains.)"""
COUNTED: Final = (
    "acked",
    "read",
    "raft elections",
    "queue elections",
    "cuts",
    "ISR changes",
    "snapshots",
    "crashes",
    "crashes after an ack",
    "partitions",
    "pauses",
    "graceful stops",
)
"""What must have happened at least once over all seeds: else they prove nothing."""
