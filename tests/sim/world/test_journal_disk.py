"""A name server's disk that refuses: the turn is on it whole, or not at all."""

from __future__ import annotations

import random

import pytest

from logboom.metadata.raft.journal_store import JournalError
from tests.sim.world.journal_disk import JournalDisk


def staged(disk: JournalDisk) -> None:
    disk.put_vote(3, "name-2")
    disk.put_entry((b"x", 1, 3))
    disk.put_entry((b"y", 2, 3))


def test_a_failed_sync_leaves_all_or_nothing_of_its_turn() -> None:
    left = set()
    for seed in range(20):
        disk = JournalDisk(random.Random(seed))
        staged(disk)
        disk.refuses = True
        with pytest.raises(JournalError, match="I/O error"):
            disk.sync()
        disk.crash()
        left.add((disk.durable.term, len(disk.durable.entries)))
        staged(disk)
        disk.sync()
    assert left == {(0, 0), (3, 2)}


def test_a_full_disk_takes_nothing_until_there_is_room() -> None:
    disk = JournalDisk(random.Random(1))
    disk.full = True
    for _ in range(3):
        staged(disk)
        with pytest.raises(JournalError, match="no space"):
            disk.sync()
        with pytest.raises(JournalError, match="no space"):
            disk.save_snapshot(b"s")
        disk.crash()
    assert disk.durable.entries == []
    disk.full = False
    staged(disk)
    disk.sync()
    assert len(disk.durable.entries) == 2


def test_a_newer_format_is_not_opened() -> None:
    disk = JournalDisk(random.Random(1))
    disk.format += 1
    with pytest.raises(AssertionError, match="is not opened"):
        disk.load()
