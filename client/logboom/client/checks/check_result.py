"""Results of `logboom doctor`: one line for each check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check."""

    check: str
    result: Outcome
    found: str
    fix: str = ""


def list_some(names: list[str], most: int = 3) -> str:
    """Return the first few of some names."""
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")
