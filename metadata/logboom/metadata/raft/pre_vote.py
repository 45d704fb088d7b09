"""Asking before standing (Raft's pre-vote), which PySyncObj lacks.

A node whose election time has come asks the others whether they would vote for it. Those who hear
a leader, or lead and are answered, say nothing. Nothing here is journalled and no safety rests on
it: the election itself is PySyncObj's, this only decides when one may start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


class VoteTally:
    """The votes of one election: each member counts once (R10)."""

    def __init__(self) -> None:
        self._term = -1
        self._voters: set[str] = set()

    def count(self, term: int, voter: str) -> bool:
        """Whether this is the voter's first vote in this term."""
        if term != self._term:
            self._term, self._voters = term, set()
        if voter in self._voters:
            return False
        self._voters.add(voter)
        return True


class PreVoteRound:
    """One round of asking, repeated until a majority supports or a leader is heard."""

    def __init__(self, rng: random.Random, pause_s: float) -> None:
        self._rng = rng
        self._pause_s = pause_s
        self._term = -1
        self._supporters: set[str] = set()
        self.ask_at = float("-inf")
        """When the next round may start."""

    def is_due(self, now: float) -> bool:
        """Whether a new round may start."""
        return now >= self.ask_at

    def start(self, term: int, now: float) -> None:
        """Ask for support in `term`, the one after the current."""
        self._term, self._supporters = term, set()
        # At random, or two nodes that asked together would go on doing so.
        self.ask_at = now + self._pause_s * (1 + self._rng.random())

    def support(self, term: int, voter: str) -> None:
        """A member would vote for this node."""
        if term == self._term:
            self._supporters.add(voter)

    def won(self, term: int, members: frozenset[str]) -> bool:
        """Whether a majority of the members, this node included, supports it in `term`."""
        return term == self._term and 2 * (len(self._supporters & members) + 1) > len(members)

    def clear(self) -> None:
        """Forget the round: it was used, or a leader was heard."""
        self._term, self._supporters = -1, set()
