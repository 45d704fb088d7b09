"""The time that commands carry: it passes as the raft leader's monotonic clock does.

Wall clocks jump, and what the state keeps for a time (first results, application ids) must not end
because one was set. So no command takes the time from a wall clock: a leader says the time of the
last command that it applied, and what has passed here since. While nobody leads, or no name server
runs, this time may stand still: what is kept is then kept longer.
"""

from __future__ import annotations


class LogTime:
    """What time it is for the log, at one name server: ms since about when the cluster began."""

    def __init__(self, mono: float) -> None:
        self._clock_ms = 0
        """The state's clock: the greatest time of a command applied."""
        self._since = mono
        """Monotonic seconds here when it was as late as that."""

    def follow(self, clock_ms: int, mono: float) -> None:
        """The state's clock stands at `clock_ms` now."""
        passed_ms, self._clock_ms = clock_ms - self._clock_ms, clock_ms
        # Not simply now: what a busy leader's commands cut off would add up.
        self._since = min(mono, self._since + passed_ms / 1000)

    def stamp_ms(self, mono: float) -> int:
        """The time of a command that is taken now."""
        return self._clock_ms + int((mono - self._since) * 1000)
