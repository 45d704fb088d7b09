"""The lease that heartbeats grant a broker (SAFETY Q11).

It counts from *sending* the heartbeat that was granted, so that it ends before the raft leader may
give the broker's queues to another. Past it: no acks=none or leader, no end-offset answers.
acks=all and reads below the HW need no lease.
"""

from __future__ import annotations


class Lease:
    """Until when this broker is certain that nobody else leads its queues."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = float("-inf")
        """Monotonic seconds."""

    def granted(self, sent_at: float, lease_ms: int) -> None:
        """A heartbeat sent at `sent_at` was granted; an older grant never shortens a newer."""
        self.until = max(self.until, sent_at + lease_ms / 1000)

    def end(self) -> None:
        """The broker was fenced: the lease is void."""
        self.until = float("-inf")

    def holds(self, now: float) -> bool:
        """Whether the lease holds at `now`."""
        return now < self.until
