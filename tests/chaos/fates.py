"""What becomes of a member of the group, and what it may do then."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tests.chaos.outages import BAR_S
from tests.chaos.record import Fate

JOINED: Final = "joined"
LEFT: Final = "left in good order"
UNHEARD: Final = "left while nobody could hear it"
KILLED: Final = "killed"
PAUSED: Final = "stopped for a while"
WOKEN: Final = "went on"
OUT: Final = "found itself out"
"""It was not heard for a session, and learned it when it was heard again."""

LOST: Final = (UNHEARD, KILLED, PAUSED, OUT)
"""What it had not committed by then may come again."""
SLACK_S: Final = 1.0
"""Between what happens to a member and the line that says so."""
WAKING_S: Final = 5.0 + BAR_S
"""Within so long after it woke, a member learns that it is out: 5 s after there is anybody to tell it,
and a fault that strikes just then may leave it alone for as long as a queue may be without service."""


class Fates:
    """All members of a run."""

    def __init__(self, fates: Iterable[Fate]) -> None:
        self._times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for fate in sorted(fates, key=lambda fate: fate.at):
            self._times[fate.member, fate.what].append(fate.at)

    def count(self, what: str) -> int:
        """How often it happened, to whomever."""
        return sum(len(times) for (_, each), times in self._times.items() if each == what)

    def undone(self, member: str, at: float) -> bool:
        """Whether what a member had finished at a time may come again to others."""
        return any(self._within(member, what, at - SLACK_S, float("inf")) for what in LOST)

    def behind(self, member: str, at: float) -> bool:
        """Whether a member may have in its hands, at a time, what has been given to others: it was
        out and had not learned it yet."""
        return (
            self._within(member, WOKEN, at - WAKING_S, at + SLACK_S)
            or self._within(member, OUT, at - SLACK_S, float("inf"))
            or self._within(member, UNHEARD, at - SLACK_S, float("inf"))
        )

    def _within(self, member: str, what: str, begin: float, end: float) -> bool:
        times = self._times.get((member, what), [])
        place = bisect_left(times, begin)
        return place < len(times) and times[place] <= end
