"""How long queues were not served: read off the times of acknowledgements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct


class Event(Struct, frozen=True):
    """A fault that struck during a run. Times are seconds since its begin."""

    name: str
    whom: str
    struck: float
    mended: float
    ended: float
    """When the next one struck, or the load ended."""
    served: bool
    """Whether queues were to be served from the strike on; else from the mending on."""
    outages: dict[int, float]
    """Queue → longest time without an acknowledgement that was due, in seconds."""

    @property
    def longest(self) -> float:
        """Of all queues."""
        return max(self.outages.values(), default=0.0)


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """Longest time without an acknowledgement between `begin` and `end`.

    Silence that goes on before or after counts as far as it lies between them.
    """
    place = bisect_right(times, begin)
    last, longest = begin, 0.0
    for at in times[place:]:
        if at >= end:
            break
        longest = max(longest, at - last)
        last = at
    return max(longest, end - last)


def with_outages(event: Event, acks: Mapping[int, Sequence[float]]) -> Event:
    """The event with the outages of each queue, whose acknowledgement times are in order."""
    begin = event.struck if event.served else event.mended
    outages = {
        queue: round(longest_gap(times, begin, event.ended), 3) for queue, times in acks.items()
    }
    return Event(
        event.name, event.whom, event.struck, event.mended, event.ended, event.served, outages
    )
