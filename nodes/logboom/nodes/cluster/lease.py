"""The lease that heartbeats grant a broker (SAFETY Q11).

It counts from *sending* the heartbeat that was granted, so that it ends before the raft leader may
give the broker's queues to another. Leaderships also move while their broker lives (an operator's
wish, a damaged replica): so a grant counts only once the metadata that it was given under is known
here, and a broker that asks to be relieved gives its lease up first. Past the lease: no acks=none
or leader, no end-offset answers. acks=all and reads below the HW need no lease.
"""

from __future__ import annotations


class Lease:
    """Until when this broker is certain that nobody else leads its queues."""

    __slots__ = ("_known", "_later", "_over", "until")

    def __init__(self) -> None:
        self.until = float("-inf")
        """Monotonic seconds."""
        self._known = -1
        self._later: list[tuple[int, float]] = []
        """(metadata version, until) of grants given under metadata that is not known here yet."""
        self._over = False

    def granted(self, sent_at: float, lease_ms: int, version: int) -> None:
        """A heartbeat sent at `sent_at` was granted under metadata `version`; an older grant never
        shortens a newer."""
        if self._over:
            return
        until = sent_at + lease_ms / 1000
        if version <= self._known:
            self.until = max(self.until, until)
        else:
            self._later = [*self._later[-3:], (version, until)]

    def learned(self, version: int) -> None:
        """The metadata known here went forward to `version`."""
        self._known = version
        if self._later:
            for _, until in [grant for grant in self._later if grant[0] <= version]:
                self.until = max(self.until, until)
            self._later = [grant for grant in self._later if grant[0] > version]

    def end(self) -> None:
        """The broker was fenced: the lease is void until it is registered anew."""
        self.until = float("-inf")
        self._later.clear()
        self._over = False

    def give_up(self) -> None:
        """The broker asks others to take over all that it leads: no grant counts any more."""
        self.end()
        self._over = True

    def holds(self, now: float) -> bool:
        """Whether the lease holds at `now`."""
        return now < self.until
