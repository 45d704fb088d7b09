"""Whether the caller of a member still asks for messages: one that does not must not keep its queues.

The core looks at the clock, since a caller that hangs cannot. What it needs of the reader is a count.
"""

from __future__ import annotations

from logboom.client.groups.member import MemberState


class PollTimer:
    """How long a member's caller has neither polled nor acknowledged."""

    def __init__(self, member: MemberState, now: float) -> None:
        self._member = member
        self._seen = member.asked
        self._since = now
        self._left_at = -1
        """The count when the member left."""

    @property
    def bound_s(self) -> float:
        """Seconds after which the member leaves; 0: its reader asks by itself."""
        return self._member.options.max_poll_interval_ms / 1000

    def look(self, now: float) -> float:
        """Since when the caller has asked for nothing; `now` if nobody counts it."""
        if not self.bound_s or self._seen != self._member.asked:
            self._seen, self._since = self._member.asked, now
        return self._since

    def over(self, now: float) -> bool:
        """Whether it has been too long."""
        return bool(self.bound_s) and now - self.look(now) >= self.bound_s

    def leave(self) -> None:
        """The member leaves: it comes back once the caller asks for anything."""
        self._left_at = self._member.asked

    @property
    def wanted(self) -> bool:
        """Whether it has."""
        return self._member.asked != self._left_at

    def reason(self) -> str:
        """Why the member left, and what brings it back."""
        return (
            f"no poll for {self.bound_s:g} s (max_poll_interval_ms), so this member has left group "
            f"{self._member.options.group!r}: what it had not committed is delivered to others; "
            "the next poll joins again"
        )
