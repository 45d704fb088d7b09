"""First results of proposals, so that a repeated proposal is answered and not applied again.

They are part of the replicated state, so a retry at the next Raft leader, or after a crash, finds
them too. Time is that of the commands, so that every name server forgets the same results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

KEPT_RESULTS: Final = 64
"""Results kept per proposer, and so the number of proposals that it may have in flight."""
KEPT_MS: Final = 3_600_000
"""Time after which a silent proposer is forgotten; no client retries for an hour."""
MAX_PROPOSERS: Final = 10_000
TOO_OLD: Final = b""
"""The answer instead of a result if the number is older than all that are kept."""


@dataclass(slots=True)
class ProposerWindow:
    """The last results of one proposer."""

    results: dict[int, bytes] = field(default_factory=dict)
    """Number → encoded result, in order of application."""
    used_ms: int = 0


class Dedup:
    """The windows of all proposers, least recently used first."""

    def __init__(self) -> None:
        self.windows: dict[str, ProposerWindow] = {}

    def find(self, proposer: str, number: int) -> bytes | None:
        """Find the first result of a proposal; None if it is new, `TOO_OLD` if it may be forgotten."""
        window = self.windows.get(proposer)
        if window is None:
            return None
        found = window.results.get(number)
        if found is None and len(window.results) == KEPT_RESULTS and number < min(window.results):
            return TOO_OLD
        return found

    def keep(self, proposer: str, number: int, result: bytes, now_ms: int) -> None:
        """Keep a first result, and forget results beyond the limits of age and number."""
        window = self.windows.pop(proposer, None) or ProposerWindow()
        window.results[number] = result
        window.used_ms = now_ms
        if len(window.results) > KEPT_RESULTS:
            del window.results[min(window.results)]
        self.windows[proposer] = window
        while self.windows:
            oldest = next(iter(self.windows))
            expired = self.windows[oldest].used_ms < now_ms - KEPT_MS
            if not expired and len(self.windows) <= MAX_PROPOSERS:
                break
            del self.windows[oldest]
