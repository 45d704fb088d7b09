"""SVG plots: lines over time, with axes and a legend, without further packages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 720
HEIGHT: Final = 360
LEFT: Final = 70
RIGHT: Final = 20
TOP: Final = 40
BOTTOM: Final = 50
TICKS: Final = 5
COLOURS: Final = ("#1f77b4", "#ff7f0e", "#d62728", "#2ca02c", "#9467bd", "#8c564b")


class Line(NamedTuple):
    """A named line through points."""

    name: str
    points: Sequence[tuple[float, float]]


def svg(title: str, lines: Sequence[Line], across: str, up: str) -> str:
    """Return a plot of the lines.

    Its axes begin at 0; `across` and `up` name the axes and units.
    """
    points = [point for line in lines for point in line.points]
    right = _ceiling(max((x for x, _ in points), default=1.0))
    top = _ceiling(max((y for _, y in points), default=1.0))
    space = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg {space} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 22, title, "middle", 15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across, "middle"),
        _text(10, TOP - 12, up, "start"),
    ]
    for tick in range(TICKS + 1):
        x, y = _x(right * tick / TICKS, right), _y(top * tick / TICKS, top)
        parts.append(_rule(LEFT, y, WIDTH - RIGHT, y))
        parts.append(_text(LEFT - 6, y + 4, _number(top * tick / TICKS), "end"))
        parts.append(_text(x, HEIGHT - BOTTOM + 18, _number(right * tick / TICKS), "middle"))
    for place, line in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        path = " ".join(f"{_x(x, right):.1f},{_y(y, top):.1f}" for x, y in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = LEFT + 10 + 90 * place
        parts.append(f'<rect x="{at}" y="{TOP + 2}" width="14" height="4" fill="{colour}"/>')
        parts.append(_text(at + 20, TOP + 9, line.name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _x(value: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / most


def _y(value: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most


def _ceiling(value: float) -> float:
    """Return the next of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 15 …, where axes divide evenly."""
    if value <= 0:
        return 1.0
    unit: float = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * unit >= value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f"<text {place}>{escape(text)}</text>"


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="#ddd"/>'
