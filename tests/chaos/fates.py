"""What becomes of a member of the group, and what it may do then."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from tests.chaos.outages import UNHURT_S
from tests.chaos.record import Acked, Fate, Record

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
WAKING_S: Final = 5.0
"""Within so long after it woke, a member learns that it is out; time in which nobody was served, and
nobody could tell it, does not count."""


def unserved(records: Iterable[Record]) -> list[tuple[float, float]]:
    """When no producer at all had an acknowledgement for longer than a fault that stops nobody may
    take: from when to when, in order."""
    times = sorted(record.at for record in records if isinstance(record, Acked))
    return [each for each in pairwise(times) if each[1] - each[0] > UNHURT_S]


class Fates:
    """All members of a run."""

    def __init__(self, fates: Iterable[Fate], unserved: Sequence[tuple[float, float]]) -> None:
        """`unserved`: when nobody could be told anything, in order."""
        self._unserved = unserved
        self._times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for fate in sorted(fates, key=lambda fate: fate.at):
            self._times[fate.member, fate.what].append(fate.at)

    def count(self, what: str) -> int:
        """How often it happened, to whomever."""
        return sum(len(times) for (_, each), times in self._times.items() if each == what)

    def undone(self, member: str, at: float) -> bool:
        """Whether what a member had finished at a time may come again to others."""
        lost = any(self._within(member, what, at - SLACK_S, float("inf")) for what in LOST)
        return lost or self._unaware(member, at)

    def _unaware(self, member: str, at: float) -> bool:
        """Whether a member was out at a time, as it had slept beyond its session, and had not heard
        it yet: no commit of it counts, and it may never hear it if it leaves first."""
        times = self._times.get((member, WOKEN), [])
        place = bisect_right(times, at + SLACK_S)
        if not place or times[place - 1] < self._before(at, WAKING_S):
            return False
        return not self._within(member, OUT, times[place - 1], at - SLACK_S)

    def behind(self, member: str, at: float) -> bool:
        """Whether a member may have in its hands, at a time, what has been given to others: it was
        out and had not learned it yet."""
        return (
            self._within(member, WOKEN, self._before(at, WAKING_S), at + SLACK_S)
            or self._within(member, OUT, at - SLACK_S, float("inf"))
            or self._within(member, UNHEARD, at - SLACK_S, float("inf"))
        )

    def _before(self, at: float, seconds: float) -> float:
        """The time so many seconds earlier, of those in which somebody was served."""
        begin = at - seconds
        for dark, light in reversed(self._unserved):
            if dark < at and light > begin:
                begin -= min(light, at) - dark
        return begin

    def _within(self, member: str, what: str, begin: float, end: float) -> bool:
        times = self._times.get((member, what), [])
        place = bisect_left(times, begin)
        return place < len(times) and times[place] <= end
