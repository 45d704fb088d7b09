"""Plots of a run as SVG, written as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from bench.rivals.report import WORKS, digits, rate_text, setup_title, setups
from bench.rivals.results import BurstResult, RunReport, Spread, rate_spread, select, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH: Final = 760
LABELS: Final = 170
"""Pixels for the names at the left."""
VALUES: Final = 150
"""Pixels for the figures at the right."""
BAR: Final = 16
GAP: Final = 6
HEADING: Final = 30
OWN_COLOUR: Final = "#c2410c"
OTHER_COLOUR: Final = "#64748b"


class Bars:
    """Some bars under one heading, on one scale."""

    def __init__(self, heading: str, bars: Sequence[tuple[str, Spread]]) -> None:
        self.heading = heading
        self.bars = bars


def svg(title: str, groups: Sequence[Bars], text: Callable[[float], str]) -> str:
    """Return horizontal bars with a whisker from the least to the greatest figure.

    Args:
        title: The line above all.
        groups: Each has a scale of its own, from 0.
        text: Writes a figure.
    """
    height = HEADING + sum(HEADING + len(group.bars) * (BAR + GAP) for group in groups) + GAP
    size = f'width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}"'
    parts = [
        f'{head} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    y = HEADING
    for group in groups:
        parts.append(f'<text x="8" y="{y + 20}" font-weight="bold">{escape(group.heading)}</text>')
        y += HEADING
        scale = (WIDTH - LABELS - VALUES) / max(each.greatest for _, each in group.bars)
        for name, each in group.bars:
            colour = OWN_COLOUR if name.startswith("logboom") else OTHER_COLOUR
            left, right = (LABELS + figure * scale for figure in (each.least, each.greatest))
            bar = f'width="{each.median * scale:.1f}" height="{BAR}" fill="{colour}"'
            ends = "".join(f"M{x:.1f} {y + 4}v{BAR - 8}" for x in (left, right))
            whisker = f"M{left:.1f} {y + BAR // 2}H{right:.1f}{ends}"
            parts += [
                f'<text x="{LABELS - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{LABELS}" y="{y}" {bar}/>',
                f'<path d="{whisker}" stroke="#0f172a" fill="none"/>',
                f'<text x="{right + 6:.1f}" y="{y + 12}">{escape(text(each.median))}</text>',
            ]
            y += BAR + GAP
    return "\n".join([*parts, "</svg>", ""])


def plots(report: RunReport) -> dict[str, str]:
    """Return the plots of a run by the names of their files."""
    found = {}
    titles = {each.name: each.title for each in report.competitors}
    for brokers in sorted({result.setup.brokers for result in report.results}):
        results = [result for result in report.results if result.setup.brokers == brokers]
        count = f"{brokers} broker" + ("s" if brokers > 1 else "")
        groups = []
        for setup in setups(results, brokers):
            for work, title in WORKS:
                spreads = {name: rate_spread(results, name, work, setup) for name in titles}
                bars = [(titles[name], each) for name, each in spreads.items() if each]
                if bars and setup.codec == "none":
                    groups.append(Bars(f"{title}, {setup_title(setup)}", bars))
        if groups:
            name = f"rates-{brokers}.svg"
            found[name] = svg(f"Messages per second, {count}", groups, rate_text)
        groups = _latencies(results, titles)
        if groups:
            name = f"latency-{brokers}.svg"
            found[name] = svg(f"Milliseconds at 1,000 messages/s, {count}", groups, digits)
    return found


def _latencies(results: Sequence[BurstResult], titles: dict[str, str]) -> list[Bars]:
    groups = []
    for at, share in enumerate(("p50", "p99")):
        bars = []
        for name, title in titles.items():
            found = spread(
                result.delivered_ms[at]
                for setup in {result.setup for result in results}
                for result in select(results, name, "latency", setup)
                if result.delivered_ms is not None
            )
            if found is not None:
                bars.append((title, found))
        if bars:
            groups.append(Bars(f"From sending to arrival at the consumer, {share}", bars))
    return groups
