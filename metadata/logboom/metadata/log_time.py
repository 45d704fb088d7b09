"""The time that commands carry; it advances with the Raft leader's monotonic clock.

Wall clocks jump, and state that is kept for a limited time (first results, application ids) must
not expire because a clock was set. Commands therefore do not carry wall-clock time. A leader adds
the time elapsed on its own clock to the time of the last command that it applied. This time may
stand still while there is no leader or no running name server; state is then kept longer.
"""

from __future__ import annotations


class LogTime:
    """The log's current time at one name server, in ms since about when the cluster was founded."""

    def __init__(self, mono: float) -> None:
        self._clock_ms = 0
        """The state's clock: the latest time of an applied command."""
        self._since = mono
        """Monotonic time here at which the log's time was `_clock_ms`."""

    def follow(self, clock_ms: int, mono: float) -> None:
        """Follow the state's clock, which has reached `clock_ms`."""
        passed_ms, self._clock_ms = clock_ms - self._clock_ms, clock_ms
        # Not simply `mono`: the fractions that a busy leader's commands cut off would add up.
        self._since = min(mono, self._since + passed_ms / 1000)

    def stamp_ms(self, mono: float) -> int:
        """Return the time for a command that is being proposed now."""
        return self._clock_ms + int((mono - self._since) * 1000)
