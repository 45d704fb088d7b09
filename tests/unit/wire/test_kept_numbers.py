"""docs/PROTOCOL.md, 1.4, names every number of every request, with what bounds it.

The numbers are tried at their extremes in `unit/nodes/test_kept_numbers` and `unit/metadata/test_kept_numbers`.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

from logboom.wire.frames import decode_request
from tests.unit.wire.kept_numbers import EXTREMES, Number, numbers

PAGE: Final = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text("utf-8")
NUMBERS: Final = list(numbers())


def rows() -> list[list[str]]:
    """The patterns of each row."""
    chapter = PAGE.split("### 1.4 Numbers", 1)[1].split("\n## ", 1)[0]
    found: list[list[str]] = []
    for line in chapter.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            assert len(cells) == 3, line
            assert all(cells), line
            found.append(re.findall(r"`([^`]+)`", cells[0]))
    return found


PATTERNS: Final = [pattern for row in rows() for pattern in row]


def named(name: str) -> str:
    """The first pattern that names a number; "" if none does."""
    return next((each for each in PATTERNS if fnmatchcase(name, each)), "")


def test_every_number_has_an_entry() -> None:
    assert len(NUMBERS) > 500
    assert [each.name for each in NUMBERS if not named(each.name)] == []


def test_every_entry_names_a_number() -> None:
    used = {named(each.name) for each in NUMBERS}
    assert [each for each in PATTERNS if each not in used] == []


@pytest.mark.parametrize("owner", sorted({each.owner for each in NUMBERS}))
def test_requests_with_these_numbers_are_well_formed(owner: str) -> None:
    """Else the trials would prove nothing."""
    for number in NUMBERS:
        if number.owner == owner:
            for value in EXTREMES:
                decode_request([number.request_with(value, {})], of_client=False)


def test_names_are_those_of_the_page() -> None:
    assert {"decide.parked.places.0", "pull.owner_epoch", "settlemessages.again.2"} <= {
        each.name for each in NUMBERS
    }
    assert isinstance(NUMBERS[0], Number)
