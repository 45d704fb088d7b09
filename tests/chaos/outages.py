"""How long queues were not served: read off the times of acknowledgements, and of what was read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from tests.chaos.ledger import Verdict

BAR_S: Final = 6.0
"""What a queue may be without service after one fault (the promise)."""
UNHURT_S: Final = 2.0
"""The same for a fault that is to stop nobody: what a busy disk or a connection made anew may take."""
BACK: Final = "a queue is served again in time"


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
    bar_s: float | None = BAR_S
    """Longest outage that is allowed; None where several faults struck together."""
    reads_too: bool = False
    """Whether the bar holds for readers as well."""
    outages: dict[int, float] = {}
    """Queue → longest time without an acknowledgement that was due, in seconds."""
    silences: dict[int, float] = {}
    """Queue → longest time without a message that was read. Readers depend on producers: it may be
    longer by what a message takes on its way."""

    @property
    def longest(self) -> float:
        """The longest outage of all queues."""
        return max(self.outages.values(), default=0.0)

    @property
    def longest_silence(self) -> float:
        """The same of readers."""
        return max(self.silences.values(), default=0.0)


def longest_gap(times: Sequence[float], begin: float, end: float) -> float:
    """Longest time without an acknowledgement, or a message read, between `begin` and `end`.

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


def with_outages(
    event: Event, acks: Mapping[int, Sequence[float]], reads: Mapping[int, Sequence[float]]
) -> Event:
    """The event with the outages of each queue; `acks` and `reads`: queue → their times, in order."""
    begin = event.struck if event.served else event.mended

    def gaps(times: Mapping[int, Sequence[float]]) -> dict[int, float]:
        return {
            queue: round(longest_gap(each, begin, event.ended), 3) for queue, each in times.items()
        }

    return msgspec.structs.replace(event, outages=gaps(acks), silences=gaps(reads))


def judge_outages(events: Iterable[Event], busy: float, verdict: Verdict) -> None:
    """Hold what is due after one fault; `busy`: how often as long a machine may take that does other
    work."""
    for event in events:
        if event.bar_s is None:
            continue
        bar = event.bar_s * busy
        kinds = {"acknowledgement": event.outages}
        if event.reads_too:
            kinds["message read"] = event.silences
        for what, found in kinds.items():
            for queue, outage in found.items():
                if outage > bar:
                    detail = f"{event.name} at {event.struck:.1f} s: queue {queue} had no {what}"
                    verdict.found(BACK, f"{detail} for {outage:.2f} s (bar {bar:.1f} s)")
