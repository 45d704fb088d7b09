"""The poll timer of a member: one whose application no longer polls must not keep its queues.

The core checks the clock, because an application that hangs cannot (see docs/SAFETY.md, G4). The
reader only counts polls.
"""

from __future__ import annotations

from logboom.client.groups.member import MemberState


class PollTimer:
    """Time for which a member's application has neither polled nor acknowledged."""

    def __init__(self, member: MemberState, now: float) -> None:
        self._member = member
        self._seen = member.asked
        self._since = now
        self._left_at = -1
        """The poll count when the member left."""

    @property
    def bound_s(self) -> float:
        """Seconds without a poll after which the member leaves; 0 if its reader polls on its own."""
        return self._member.options.max_poll_interval_ms / 1000

    def look(self, now: float) -> float:
        """Return the time since which the application has not polled; `now` if nobody counts."""
        if not self.bound_s or self._seen != self._member.asked:
            self._seen, self._since = self._member.asked, now
        return self._since

    def over(self, now: float) -> bool:
        """True if the application has not polled for too long."""
        return bool(self.bound_s) and now - self.look(now) >= self.bound_s

    def leave(self) -> None:
        """Note that the member leaves; it comes back with the next poll."""
        self._left_at = self._member.asked

    @property
    def wanted(self) -> bool:
        """True if the application has polled since the member left."""
        return self._member.asked != self._left_at

    def reason(self) -> str:
        """Explain why the member left, and how it comes back."""
        return (
            f"no poll for {self.bound_s:g} s (max_poll_interval_ms), so this member has left group "
            f"{self._member.options.group!r}: what it had not committed is delivered to others; "
            "the next poll joins again"
        )
