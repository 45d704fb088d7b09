"""Figures and times as pages show them, pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from logboom.client.written_values import bytes_text, duration_text

UNKNOWN: Final = "\N{EN DASH}"


def count_text(value: float | None) -> str:
    """Return a number with separators: 1,234,567."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.2f}"


def short_text(value: float | None) -> str:
    """Return a number for a tile: 950, 12.3 k, 4.56 M."""
    if value is None:
        return UNKNOWN
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g} {unit}"
    return f"{value:.0f}" if abs(value) >= 10 or float(value).is_integer() else f"{value:.1f}"


def size_text(value: float | None) -> str:
    """Return a size: 17.0 MiB."""
    return UNKNOWN if value is None else bytes_text(value)


def span_text(milliseconds: float | None) -> str:
    """Return a span of time for people: 340 ms, 4.2 s, 3 min, 5 h, 2 d."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    for limit, unit, size in ((60, "s", 1), (3_600, "min", 60), (172_800, "h", 3_600)):
        if seconds < limit:
            scaled = seconds / size
            return f"{scaled:.1f} {unit}" if scaled < 10 and unit == "s" else f"{scaled:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def time_text(wall_ms: float | None) -> str:
    """Return a time in UTC: 2026-11-21 10:00:00.123."""
    if wall_ms is None:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms:.0f} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03}"


def iso_text(wall_ms: float) -> str:
    """Return a time for machines (RFC 3339); "" if there is no such date."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return ""


def kept_text(milliseconds: float | None) -> str:
    """Return a setting that is a duration, as the command line takes it: 7d, ever."""
    return UNKNOWN if milliseconds is None else duration_text(int(milliseconds))


def plain_text(value: Any) -> str:
    """Return anything else as text."""
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_text, value)) or UNKNOWN
    return str(value)


def command_parts(text: str) -> list[tuple[str, bool]]:
    """Return the parts of a text, and for each whether it stood between backquotes."""
    parts = re.split(r"`([^`]*)`", text)
    return [(part, place % 2 == 1) for place, part in enumerate(parts) if part]
