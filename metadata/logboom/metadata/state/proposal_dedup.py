"""First results of proposals, so that a repeated proposal is answered and not applied again.

They are part of the replicated state, so a retry at the next Raft leader, or after a crash, finds
them too. Time is that of the commands, so that every name server forgets the same results. When the
table is full, whoever has most proposers in it loses the oldest of its own: nobody loses results
while somebody else has more proposers. Who has most may lose results to one with fewer, whose new
proposer fills the table (see docs/SAFETY.md, A5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

KEPT_RESULTS: Final = 64
"""Results kept per proposer, and so the number of proposals that it may have in flight."""
KEPT_MS: Final = 3_600_000
"""Time after which a silent proposer is forgotten; no client retries for an hour."""
MAX_PROPOSERS: Final = 10_000
"""Windows that are kept of all proposers together."""
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

    def __init__(self, max_proposers: int = MAX_PROPOSERS) -> None:
        self.max_proposers = max_proposers
        self.windows: dict[str, ProposerWindow] = {}
        self._owned: dict[str, dict[str, None]] = {}
        """Owner → its proposers, least recently used first; derived from `windows`."""

    def find(self, proposer: str, number: int) -> bytes | None:
        """Find the first result of a proposal; None if it is new, `TOO_OLD` if it may be forgotten."""
        window = self.windows.get(proposer)
        if window is None:
            return None
        found = window.results.get(number)
        if found is None and len(window.results) == KEPT_RESULTS and number < min(window.results):
            return TOO_OLD
        return found

    def put(self, proposer: str, window: ProposerWindow) -> None:
        """Add a window as the last used one."""
        self._forget(proposer)
        self.windows[proposer] = window
        self._owned.setdefault(owner_of(proposer), {})[proposer] = None

    def keep(
        self, proposer: str, number: int, result: bytes, now_ms: int, *, by_owner: bool
    ) -> None:
        """Keep a first result, and forget results beyond the limits of age and number.

        `by_owner`: beyond the number, the owner of most windows loses its oldest; otherwise the
        oldest of all goes, as below features level `RESULTS_BY_OWNER`.
        """
        window = self.windows.get(proposer) or ProposerWindow()
        window.results[number] = result
        window.used_ms = now_ms
        if len(window.results) > KEPT_RESULTS:
            del window.results[min(window.results)]
        self.put(proposer, window)
        while self.windows:
            oldest = next(iter(self.windows))
            if self.windows[oldest].used_ms >= now_ms - KEPT_MS:
                if len(self.windows) <= self.max_proposers:
                    break
                if by_owner:
                    oldest = self._oldest_of_most()
            self._forget(oldest)

    def _oldest_of_most(self) -> str:
        """Return the proposer to forget: the oldest of whoever has most.

        Of equals it is whose oldest is older, then whose name is greater: every name server must
        choose alike, also one that begins with a snapshot.
        """

        def share(owner: str) -> tuple[int, int, str]:
            proposers = self._owned[owner]
            return len(proposers), -self.windows[next(iter(proposers))].used_ms, owner

        return next(iter(self._owned[max(self._owned, key=share)]))

    def _forget(self, proposer: str) -> None:
        if self.windows.pop(proposer, None) is not None:
            owner = owner_of(proposer)
            of_owner = self._owned[owner]
            del of_owner[proposer]
            if not of_owner:
                del self._owned[owner]


def owner_of(proposer: str) -> str:
    """Return whose results a proposer's are: a user's, those of clients without one, or of nodes.

    See `proposal_checks.proposer_of` for the prefixes.
    """
    kind, _, rest = proposer.partition(":")
    if kind == "user":
        return f"user:{rest.partition(':')[0]}"
    return "client" if kind == "client" else ""
