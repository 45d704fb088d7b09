"""Charts: what static/console.js draws with uPlot, and what stands there for a screen reader; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from logboom.console.widgets.formats import short_text, size_text, span_text

ChartUnit: TypeAlias = Literal["count", "rate", "bytes", "bytes_rate", "ms"]


@dataclass(frozen=True, slots=True)
class ChartSeries:
    """One line: its label, and a value for each time."""

    label: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ChartModel:
    """Lines over time."""

    name: str
    """An id that is unique on its page."""
    title: str
    unit: ChartUnit
    times_s: Sequence[float]
    """Seconds since 1970 UTC, ascending."""
    series: Sequence[ChartSeries]
    spark: bool = False
    """True for a small line without axes."""

    @property
    def json(self) -> str:
        """What the script draws."""
        drawn = {
            "unit": self.unit,
            "spark": self.spark,
            "labels": [each.label for each in self.series],
            "data": [list(self.times_s), *(list(each.values) for each in self.series)],
        }
        return msgspec.json.encode(drawn).decode()

    @property
    def description(self) -> str:
        """The newest value of each line, in words."""
        told = [
            f"{each.label} {unit_text(_newest(each.values), self.unit)}" for each in self.series
        ]
        return f"{self.title}: {', '.join(told) or 'no data yet'}"


def _newest(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def unit_text(value: float | None, unit: ChartUnit) -> str:
    """Return a value with its unit."""
    match unit:
        case "count":
            return short_text(value)
        case "rate":
            return short_text(value) if value is None else f"{short_text(value)}/s"
        case "bytes":
            return size_text(value)
        case "bytes_rate":
            return size_text(value) if value is None else f"{size_text(value)}/s"
        case "ms":
            return span_text(value)
