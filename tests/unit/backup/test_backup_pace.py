"""The rate of a backup."""

from __future__ import annotations

from logboom.backup.backup_pace import BackupPace


def test_bytes_are_waited_for_as_the_rate_says() -> None:
    pace = BackupPace(100)
    assert [pace.take(50, now=10.0), pace.take(100, now=10.0)] == [0.5, 1.5]
    # What was not used before is not made up for.
    assert pace.take(100, now=20.0) == 1.0


def test_without_a_rate_nobody_waits() -> None:
    assert BackupPace(0).take(1 << 40, now=0.0) == 0.0
