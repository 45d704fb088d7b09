"""Pre-votes, which PySyncObj lacks: a node asks whether it would be elected before it stands.

A node whose election timeout has expired asks the others whether they would vote for it. Nodes that
hear a leader, or lead and are answered, do not reply. Nothing is journalled and safety does not
depend on it: PySyncObj runs the election itself, and pre-votes only decide when it may start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


class VoteTally:
    """The votes of one election, each member counted once, however often its vote arrives (R10)."""

    def __init__(self) -> None:
        self._term = -1
        self._voters: set[str] = set()

    def count(self, term: int, voter: str) -> bool:
        """Count a vote; True if it is the voter's first in this term."""
        if term != self._term:
            self._term, self._voters = term, set()
        if voter in self._voters:
            return False
        self._voters.add(voter)
        return True


class PreVoteRound:
    """One round of requests, repeated until a majority supports this node or a leader is heard."""

    def __init__(self, rng: random.Random, pause_s: float) -> None:
        self._rng = rng
        self._pause_s = pause_s
        self._term = -1
        self._supporters: set[str] = set()
        self.ask_at = float("-inf")
        """Time at which the next round may start."""

    def is_due(self, now: float) -> bool:
        """Return True if a new round may start."""
        return now >= self.ask_at

    def start(self, term: int, now: float) -> None:
        """Start a round for `term`, the one after the current term."""
        self._term, self._supporters = term, set()
        # Drawn at random: two nodes that asked together would otherwise keep doing so.
        self.ask_at = now + self._pause_s * (1 + self._rng.random())

    def support(self, term: int, voter: str) -> None:
        """Note that a member would vote for this node."""
        if term == self._term:
            self._supporters.add(voter)

    def won(self, term: int, members: frozenset[str]) -> bool:
        """Return True if a majority of the members, this node included, supports it in `term`."""
        return term == self._term and 2 * (len(self._supporters & members) + 1) > len(members)

    def clear(self) -> None:
        """Forget the round, because it was used or a leader was heard."""
        self._term, self._supporters = -1, set()
