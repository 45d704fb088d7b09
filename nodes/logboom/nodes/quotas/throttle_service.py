"""The throttle of a broker, as a part of its turns."""

from __future__ import annotations

from logboom.nodes.turn import Figures, Service
from logboom.wire.quotas.throttle import Throttle


class ThrottleService(Service):
    """The figures and the deadline of a throttle; the broker asks it about requests by itself."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle

    def figures(self, now: float) -> Figures:
        """Return how much waits, and for how long users have waited."""
        return self._throttle.figures()

    def deadline(self) -> float:
        """Return when a waiting request is due, or looked at."""
        return self._throttle.deadline()
