"""What is left to `make verify`: of seeds, examples and the like `make test` runs few."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import pytest

SHARE: Final = 6
"""Of so many `make test` runs one."""
_asked: Final[set[str]] = set()
"""The option, if it was given."""


def leave_nothing_out() -> None:
    """Note, before anything is collected, that everything is to run."""
    _asked.add("--thorough")


def few_of(everything: Iterable[object], few: Collection[object]) -> list[Any]:
    """Make parameters, of which all but a few are left to `make verify`."""
    return [
        pytest.param(*values, marks=[] if each in few else pytest.mark.thorough)
        for each in dict.fromkeys(everything)
        for values in [each if isinstance(each, tuple) else (each,)]
    ]


def examples(count: int) -> int:
    """How many examples a property is tried with, of those that `make verify` tries."""
    return count if _asked else max(10, count // SHARE)


def seeds(count: int) -> list[Any]:
    """Make parameters of the seeds from 0 on, of which a share is for `make test`."""
    return few_of(range(count), range(max(2, count // SHARE)))
