"""Counters and histograms of a node: a flat table for STATS, and what expositions are made of."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, TypeAlias

BOUNDS_MS: Final[tuple[float, ...]] = tuple(0.01 * float(1 << n) for n in range(24))
"""Upper bounds of a histogram's buckets, in milliseconds: 0.01 ms to 84 s."""

FigureTable: TypeAlias = dict[str, int | float | str]
"""Name → value; flat."""


class Histogram:
    """Counts of durations in buckets of doubling size. Quantiles are upper bounds of buckets."""

    __slots__ = ("buckets", "count", "total_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        self.count = 0
        self.total_s = 0.0
        """Sum of all durations, in seconds."""

    def add(self, seconds: float) -> None:
        """Count one duration."""
        hundredths = int(seconds * 100_000)
        self.buckets[min(hundredths.bit_length(), len(BOUNDS_MS))] += 1
        self.count += 1
        self.total_s += seconds

    def copy(self) -> Histogram:
        """Return a copy that does not change any more."""
        made = Histogram()
        made.buckets, made.count, made.total_s = [*self.buckets], self.count, self.total_s
        return made

    def quantile(self, share: float) -> float:
        """Return the bound in ms below which `share` of all durations lie; 0 if there are none."""
        wanted = share * self.count
        seen = 0
        for at, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return BOUNDS_MS[min(at, len(BOUNDS_MS) - 1)]
        return 0.0


class Statistics:
    """The counters and histograms of a node."""

    def __init__(self) -> None:
        self.counters: defaultdict[str, int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """Counters of time, in seconds."""
        self.histograms: defaultdict[str, Histogram] = defaultdict(Histogram)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self.counters[name] += by

    def count_failure(self, code: str) -> None:
        """Count an answer with an error."""
        self.counters[f"failures.{code}"] += 1

    def totals(self) -> FigureTable:
        """Return the counters."""
        return {**self.counters, **self.seconds}

    def flat(self) -> FigureTable:
        """Return everything as one flat table: `<name>`, `<name>_ms.p50`, `<name>_ms.p99`."""
        table = self.totals()
        for name, histogram in self.histograms.items():
            table[f"{name}.count"] = histogram.count
            table[f"{name}_ms.p50"] = histogram.quantile(0.5)
            table[f"{name}_ms.p99"] = histogram.quantile(0.99)
        return table
