"""Ids of backups: the time, and always above those that there are."""

from __future__ import annotations

import pytest

from logboom.backup.backup_writer import new_id

NOON = 1_700_000_000.9
"""14 November 2023, 22:13:20 UTC."""


@pytest.mark.parametrize(
    ("taken", "made"),
    [
        ([], "20231114T221320Z"),
        (["20231114T221319Z"], "20231114T221320Z"),
        (["20231114T221320Z"], "20231114T221321Z"),
        # Those between were removed: it must not stand before the newest.
        (["20231114T221320Z", "20231114T221329Z"], "20231114T221330Z"),
        # The clock went back.
        (["20240101T000000Z"], "20240101T000001Z"),
        (["notes", "2023", "20231114T2213"], "20231114T221320Z"),
    ],
)
def test_a_new_backup_stands_after_all_others(taken: list[str], made: str) -> None:
    assert new_id(taken, NOON) == made
