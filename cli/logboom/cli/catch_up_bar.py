"""Progress of a node that is catching up, from its own counters, as `status` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from logboom.wire.messages import StatsResult

BAR: Final = 10
"""Cells of a bar."""


def percent(counters: Mapping[str, Any], commit_index: int) -> float | None:
    """Return the share that a node holds of what it should hold, 0 to 100, or None if unknown.

    For a broker it is the share of the committed messages of the queues that it follows, for a name
    server that of the entries up to `commit_index`, the greatest that any of them knows.
    """
    if "raft_applied_index" in counters:
        return _share(int(counters["raft_applied_index"]), commit_index)
    if "followed_messages" not in counters:
        return None
    followed, behind = int(counters["followed_messages"]), int(counters["behind_messages"])
    if counters.get("catching_up") and not behind:
        # It has not heard from a leader yet, or lacks entries without offsets.
        return min(99.0, _share(max(0, followed - 1), followed))
    return _share(followed - behind, followed)


def _share(held: int, whole: int) -> float:
    if held >= whole:
        return 100.0
    # Never 100 while anything is missing.
    return min(99.9, 100.0 * max(0, held) / whole)


def commit_index(stats: Iterable[StatsResult | None]) -> int:
    """Return the greatest Raft index that any name server knows to be committed."""
    return max((int(s.counters.get("raft_commit_index", 0)) for s in stats if s), default=0)


def bar(share: float | None) -> str | None:
    """Return a bar for people: `████░░░░░░ 42 %`, or only the number once it is full."""
    if share is None:
        return None
    if share >= 100.0:
        return "100 %"
    full = int(share * BAR / 100)
    return f"{'█' * full}{'░' * (BAR - full)} {int(share)} %"
