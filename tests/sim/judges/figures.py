"""What a plain run must have come to: one in which little happened proves little.

Runs under an attack or with a single fault are another matter: they have one thing happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LEAST_S: Final = 30.0
"""Seconds of true time in the world."""
LEAST: Final[Mapping[str, int]] = {"acked": 200, "faults": 3, "healed": 1, "compared": 1}
"""What is counted, and how much of it there must be."""
LEAST_KINDS: Final = 2
"""Kinds of faults."""


def plain(options: str) -> bool:
    """Whether runs with these options of the command line must reach the figures."""
    return "--attack" not in options and "--single" not in options


def short(totals: Mapping[str, int], seconds: float) -> str:
    """What a run fell short of, in words; "" if of nothing."""
    missing = [
        f"{what} {totals.get(what, 0)}" for what in LEAST if totals.get(what, 0) < LEAST[what]
    ]
    kinds = sum(what.startswith("fault: ") for what in totals)
    if kinds < LEAST_KINDS:
        missing.append(f"kinds of faults {kinds}")
    if seconds < LEAST_S:
        missing.append(f"seconds {seconds:.1f}")
    return ", ".join(missing)
