"""What was measured, and what is made of it: medians, spreads, ratios within a round."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Work: TypeAlias = Literal["produce", "singly", "consume", "both", "latency"]

OWN: Final = "logboom"
LIMITS: Final = ("raw_rocksdb", "raw_disk", "memcpy")
"""What stands beside the rivals as the machine's limit, by the names in the JSON."""


class Setup(Struct, frozen=True, order=True):
    """What the servers and the messages of a burst are like."""

    brokers: int
    size: int
    """Bytes of a message."""
    codec: str


class BurstResult(Struct, frozen=True):
    """One burst of one rival, or of one limit."""

    rival: str
    work: Work
    setup: Setup
    round: int
    messages: int
    seconds: float
    server_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    acknowledged_ms: tuple[float, float] | None = None
    """p50 and p99 from sending to the acknowledgement."""
    delivered_ms: tuple[float, float] | None = None
    """p50 and p99 from sending to the arrival at the consumer."""

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


class Competitor(Struct, frozen=True):
    """A rival that took part, or why it did not."""

    name: str
    title: str
    version: str = ""
    durability: str = ""
    left_out: dict[str, str] = {}
    """What was not measured of it, and why."""


class RunReport(Struct):
    """All of a run, as it is written to JSON."""

    date: str
    machine: dict[str, str]
    rounds: int
    competitors: list[Competitor]
    results: list[BurstResult]
    idle_cores: dict[str, dict[str, float]] = {}
    """Number of brokers → rival → cores that its idle servers take."""
    foreign_cores: dict[str, float] = {}
    """Number of brokers → cores that all other processes took while it was measured, with what the
    hypervisor took away."""


class Spread(Struct, frozen=True):
    """The median of some figures, with the least and the greatest."""

    median: float
    least: float
    greatest: float
    count: int


def spread(figures: Iterable[float]) -> Spread | None:
    """Return the spread of figures, or None if there are none."""
    listed = sorted(figures)
    if not listed:
        return None
    return Spread(statistics.median(listed), listed[0], listed[-1], len(listed))


def percentile(figures: Sequence[float], share: float) -> float:
    """Return the figure below which `share` of all figures lie."""
    ordered = sorted(figures)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def select(
    results: Iterable[BurstResult], rival: str, work: Work, setup: Setup
) -> list[BurstResult]:
    """Return the bursts of one kind, in the order of their rounds."""
    found = [r for r in results if (r.rival, r.work, r.setup) == (rival, work, setup)]
    return sorted(found, key=lambda result: result.round)


def rate_spread(
    results: Iterable[BurstResult], rival: str, work: Work, setup: Setup
) -> Spread | None:
    """Return the spread of messages per second over the rounds."""
    return spread(result.rate for result in select(results, rival, work, setup))


def cpu_spread(
    results: Iterable[BurstResult],
    rival: str,
    work: Work,
    setup: Setup,
    seconds: Callable[[BurstResult], float],
) -> Spread | None:
    """Return the spread of processor seconds per million messages over the rounds."""
    found = select(results, rival, work, setup)
    return spread(seconds(result) * 1e6 / result.messages for result in found)


def ratio_spread(
    results: Sequence[BurstResult], rival: str, work: Work, setup: Setup
) -> Spread | None:
    """Return the spread of logboom's rate as a multiple of a rival's in the same round."""
    own = {result.round: result.rate for result in select(results, OWN, work, setup)}
    other = {result.round: result.rate for result in select(results, rival, work, setup)}
    return spread(own[number] / other[number] for number in sorted(own.keys() & other.keys()))


def merge(reports: Sequence[RunReport]) -> RunReport:
    """Join runs on one machine, such as one with one broker and one with three.

    Raises:
        ValueError: they are of different machines, or measured the same.
    """
    first = reports[0]
    kinds: set[tuple[str, Work, Setup]] = set()
    for report in reports:
        if report.machine.get("processor") != first.machine.get("processor"):
            raise ValueError("the runs are of different machines: their figures do not compare")
        own = {(result.rival, result.work, result.setup) for result in report.results}
        if own & kinds:
            raise ValueError("the runs measured the same work: give one of them")
        kinds |= own
    competitors: dict[str, Competitor] = {}
    for competitor in (each for report in reports for each in report.competitors):
        known = competitors.get(competitor.name, competitor)
        left_out = known.left_out | competitor.left_out
        text = known.durability or competitor.durability
        competitors[competitor.name] = Competitor(
            known.name, known.title, known.version or competitor.version, text, left_out
        )
    return RunReport(
        first.date,
        first.machine,
        min(report.rounds for report in reports),
        list(competitors.values()),
        [result for report in reports for result in report.results],
        {key: value for report in reports for key, value in report.idle_cores.items()},
        {key: value for report in reports for key, value in report.foreign_cores.items()},
    )
