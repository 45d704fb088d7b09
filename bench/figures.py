"""The table of figures, and its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class Figure(Struct, frozen=True):
    """A measured figure, and the bar that it has to reach."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    better: Literal["more", "less"] = "more"
    ratio: float | None = None
    """The ratio to the raw store in the same run, where it applies."""
    ratio_bar: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """ "ok", "BELOW" or "" without a bar."""
        if self.bar is None and self.ratio_bar is None:
            return ""
        fine = True
        if self.bar is not None:
            fine = self.value >= self.bar if self.better == "more" else self.value <= self.bar
        if self.ratio_bar is not None:
            fine = fine and self.ratio is not None and self.ratio >= self.ratio_bar
        return "ok" if fine else "BELOW"


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.2f}"


def table(rows: Sequence[Figure]) -> str:
    """Return the rows as aligned text."""
    head = ("what", "measured", "unit", "bar", "x raw", "bar", "", "note")
    lines = [head]
    for row in rows:
        sign = "≥ " if row.better == "more" else "≤ "
        bar = "" if row.bar is None else sign + _figure(row.bar)
        ratio_bar = "" if row.ratio_bar is None else f"≥ {row.ratio_bar:.2f}"
        ratio = _figure(row.ratio)
        figures = (row.name, _figure(row.value), row.unit, bar, ratio, ratio_bar)
        lines.append((*figures, row.verdict, row.note))
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
