"""The lease that a broker receives with each granted heartbeat.

It counts from the time at which the heartbeat was *sent*, so that it ends before the Raft leader
may give the broker's queues to another (see docs/SAFETY.md, Q11). Leaderships also move while their
broker is alive, at an operator's request or because a replica is damaged. A grant therefore counts
only once this broker knows the metadata version under which it was given, and a broker that asks to
be relieved gives its lease up first. Without a lease the broker refuses acks=none, acks=leader and
queries for end offsets. acks=all and reads of committed messages need no lease.
"""

from __future__ import annotations


class Lease:
    """The time until which no other broker can lead the queues that this one leads."""

    __slots__ = ("_known", "_later", "_over", "until")

    def __init__(self) -> None:
        self.until = float("-inf")
        """Monotonic seconds."""
        self._known = -1
        self._later: list[tuple[int, float]] = []
        """(metadata version, until) of grants under metadata that this broker does not know yet."""
        self._over = False

    def granted(self, sent_at: float, lease_ms: int, version: int) -> None:
        """Take a grant for a heartbeat sent at `sent_at`, under metadata `version`.

        An older grant never shortens a newer one.
        """
        if self._over:
            return
        until = sent_at + lease_ms / 1000
        if version <= self._known:
            self.until = max(self.until, until)
        else:
            self._later = [*self._later[-3:], (version, until)]

    def learned(self, version: int) -> None:
        """Count the grants under metadata up to `version`, which is now known here."""
        self._known = version
        if self._later:
            for _, until in [grant for grant in self._later if grant[0] <= version]:
                self.until = max(self.until, until)
            self._later = [grant for grant in self._later if grant[0] > version]

    def end(self) -> None:
        """End the lease until the broker has registered again, because it was fenced."""
        self.until = float("-inf")
        self._later.clear()
        self._over = False

    def give_up(self) -> None:
        """Ignore all grants from now on: the broker asks others to take over its leaderships."""
        self.end()
        self._over = True

    @property
    def given_up(self) -> bool:
        """True if it was given up, and not lost."""
        return self._over

    def holds(self, now: float) -> bool:
        """True if the lease holds at `now`."""
        return now < self.until
