"""Figures with their bars, and the table of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class Comparison(Struct, frozen=True):
    """A measured value beside that of a reference in the same run."""

    value: float
    """The median of what was measured."""
    reference: str
    reference_value: float
    """The median of the reference."""
    ratio: float
    """The median of the ratios of neighbouring measurements."""


class Figure(Struct, frozen=True):
    """A measured figure, and the bar that it has to reach."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    """The bar of the ratio. Without a reference it is the bar of the value, a count or a size."""
    better: Literal["more", "less"] = "more"
    note: str = ""
    reference: str = ""
    reference_value: float | None = None
    ratio: float | None = None

    @property
    def verdict(self) -> str:
        """ "ok", "MISSED", or "" without a bar."""
        if self.bar is None:
            return ""
        value = self.value if self.ratio is None else self.ratio
        reached = value >= self.bar if self.better == "more" else value <= self.bar
        return "ok" if reached else "MISSED"


def compared(
    name: str,
    comparison: Comparison,
    unit: str,
    bar: float | None = None,
    better: Literal["more", "less"] = "more",
    note: str = "",
) -> Figure:
    """Make a figure whose bar is one of its ratio to a reference."""
    return Figure(
        name,
        comparison.value,
        unit,
        bar,
        better,
        note,
        comparison.reference,
        comparison.reference_value,
        comparison.ratio,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _digits(value: float | None) -> str:
    """Return a value with three significant digits at least."""
    if value is None:
        return ""
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.3g}"


def table(rows: Sequence[Figure]) -> str:
    """Return the rows as aligned text."""
    head = ("what", "measured", "unit", "ratio", "bar", "", "reference", "its value", "note")
    lines = [head]
    for row in rows:
        sign = "≥" if row.better == "more" else "≤"
        bar = "" if row.bar is None else f"{sign} {_digits(row.bar)}"
        figures = (row.name, _digits(row.value), row.unit, _digits(row.ratio), bar, row.verdict)
        lines.append((*figures, row.reference, _digits(row.reference_value), row.note))
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
