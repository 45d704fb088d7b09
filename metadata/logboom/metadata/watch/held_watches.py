"""Held WATCH requests, woken by the changes they are interested in, with exact deadlines (R14)."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from logboom.wire.actor import PeerAddress

MAX_HOLDS: Final = 50_000
"""Maximum number of held requests; more are answered BUSY."""
MAX_NAMES: Final = 2_000_000
"""Maximum number of topic and group names in all held requests."""
MAX_WAIT_S: Final = 60.0
"""Maximum seconds for which a request is held."""


@dataclass(slots=True)
class HeldWatch:
    """One held request."""

    address: PeerAddress
    id: int
    version: int
    """The answer must not be older than this."""
    topics: frozenset[str] | None
    """Topics of interest; None: all."""
    deadline: float
    """Monotonic seconds."""
    groups: frozenset[str] | None = frozenset()
    """Consumer groups of interest; None: all."""
    members_at: str = ""
    """A broker that gets the members of the groups it coordinates, and of no others."""
    decisions: bool = False
    """True if it wants decisions on transactions."""

    @property
    def names(self) -> int:
        """The number of names that it holds."""
        return len(self.topics or ()) + len(self.groups or ())


class HeldWatches:
    """The held requests of one name server."""

    def __init__(self) -> None:
        self._holds: dict[tuple[PeerAddress, int], HeldWatch] = {}
        self._of_decisions: dict[tuple[PeerAddress, int], HeldWatch] = {}
        """Requests for decisions: from brokers, few among many clients."""
        self._deadlines: list[tuple[float, int, HeldWatch]] = []
        self._count = 0
        self._names = 0
        """Number of topic and group names in all held requests."""

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, hold: HeldWatch) -> bool:
        """Hold a request, replacing an earlier copy of the same one; False if there are too many."""
        key = (hold.address, hold.id)
        replaced = self._holds.get(key)
        if replaced is not None:
            self._remove(replaced)
        if len(self._holds) >= MAX_HOLDS or self._names + hold.names > MAX_NAMES:
            return False
        self._holds[key] = hold
        self._names += hold.names
        if hold.decisions:
            self._of_decisions[key] = hold
        self._count += 1
        heapq.heappush(self._deadlines, (hold.deadline, self._count, hold))
        if len(self._deadlines) > 64 + 4 * len(self._holds):
            # Most of them were answered or replaced.
            self._deadlines = [entry for entry in self._deadlines if self._is_held(entry[2])]
            heapq.heapify(self._deadlines)
        return True

    def take_due(self, now: float) -> list[HeldWatch]:
        """Remove and return the requests that have expired."""
        due: list[HeldWatch] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, hold = heapq.heappop(self._deadlines)
            if self._remove(hold):
                due.append(hold)
        return due

    def take_woken(
        self,
        version: int,
        topics: Collection[str] | None,
        groups: Collection[str] = (),
        *,
        everybody: bool,
        decisions: bool = False,
    ) -> list[HeldWatch]:
        """Remove and return the requests that a change to `version` concerns.

        `topics` and `groups` are the names that changed; `decisions` is True if any decision did.
        With `everybody`, brokers or name servers changed too, or the changes are not known.
        """
        others = everybody or bool(topics) or bool(groups)
        woken = [
            hold
            for hold in (self._holds if others else self._of_decisions).values()
            if hold.version < version
            and (
                everybody
                or (decisions and hold.decisions)
                or hold.topics is None
                or not hold.topics.isdisjoint(topics or ())
                or (bool(groups) if hold.groups is None else not hold.groups.isdisjoint(groups))
            )
        ]
        for hold in woken:
            self._remove(hold)
        return woken

    def forget(self, addresses: Collection[PeerAddress]) -> None:
        """Drop the requests of peers that are gone."""
        gone = set(addresses)
        for hold in [h for h in self._holds.values() if h.address in gone]:
            self._remove(hold)

    def deadline(self) -> float | None:
        """Return when the first request expires."""
        while self._deadlines and not self._is_held(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _is_held(self, hold: HeldWatch) -> bool:
        return self._holds.get((hold.address, hold.id)) is hold

    def _remove(self, hold: HeldWatch) -> bool:
        if not self._is_held(hold):
            return False
        del self._holds[hold.address, hold.id]
        self._names -= hold.names
        self._of_decisions.pop((hold.address, hold.id), None)
        return True
