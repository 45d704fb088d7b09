"""Amounts in words, for reasons that people read."""

from __future__ import annotations

from typing import Final

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_in_words(size: float) -> str:
    """Return an amount of bytes with two or three digits, as "4 MiB" or "1.5 GiB"."""
    unit = 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size /= 1024
        unit += 1
    return (
        f"{size:.1f}".removesuffix(".0") + f" {UNITS[unit]}"
        if size < 10
        else f"{size:.0f} {UNITS[unit]}"
    )


def seconds_in_words(seconds: float) -> str:
    """Return a duration as "40 s", "12 min" or "3 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as "1 queue" or "12 queues"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
