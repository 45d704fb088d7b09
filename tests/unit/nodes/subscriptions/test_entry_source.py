"""Batches kept for delivery: found by any of their offsets, bounded, read again when they went."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.subscriptions import entry_source
from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.nodes.subscriptions.entry_source import EntryCache
from tests.unit.nodes.subscriptions.dispatch_bench import Log


def log_of(*counts: int) -> Log:
    """A log of batches of these sizes."""
    log = Log()
    for count in counts:
        log.append([b"k"] * count)
    return log


def kept(shelf: EntryCache, log: Log) -> list[int]:
    """Which batches are found without reading."""
    reads, log.broken = log.reads, True
    found = [entry.base for entry in log.entries if shelf.holding(entry.base, log) is not None]
    log.reads, log.broken = reads, False
    return found


def test_a_batch_is_read_once_and_found_by_each_of_its_offsets() -> None:
    log = log_of(3, 1, 4)
    shelf = EntryCache()
    for offset in [*range(8), *range(8)]:
        entry = shelf.holding(offset, log)
        assert entry is not None
        assert entry.base <= offset < entry.next
    assert log.reads == 3
    assert shelf.holding(8, log) is None
    shelf.clear()
    assert kept(shelf, log) == []
    assert shelf.holding(0, log) is not None


def test_what_is_put_in_twice_is_kept_once_and_in_any_order() -> None:
    log = log_of(*[2] * 20)
    shelf, rng = EntryCache(), random.Random(1)
    entries = log.entries * 2
    rng.shuffle(entries)
    for entry in entries:
        shelf.put(entry)
    assert kept(shelf, log) == [entry.base for entry in log.entries]


def test_what_was_put_in_first_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(*[2] * 6)
    size = log.entries[0].size
    monkeypatch.setattr(entry_source, "MAX_CACHE_BYTES", 3 * size)
    shelf = EntryCache()
    order = [log.entries[at] for at in (4, 0, 5, 2, 1)]
    for entry in order:
        shelf.put(entry)
    assert kept(shelf, log) == sorted(entry.base for entry in order[2:])
    # What went is read again, and takes the place of another.
    assert shelf.holding(9, log) is log.entries[4]
    assert kept(shelf, log) == [2, 4, 8]
    shelf.clear()
    for entry in order:
        shelf.put(entry)
    assert len(kept(shelf, log)) == 3


def test_a_batch_larger_than_the_shelf_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(1, 50, 1)
    monkeypatch.setattr(entry_source, "MAX_CACHE_BYTES", 10)
    shelf = EntryCache()
    for entry in log.entries:
        shelf.put(entry)
        assert kept(shelf, log) == [entry.base]


def test_what_the_source_does_not_have_is_nowhere() -> None:
    class Beside(Log):
        """Tells of other batches than it was asked for."""

        def read(self, offset: int, messages: int, size: int, batches: int) -> list[Entry]:
            return self.entries

    log = Beside()
    log.append([b"k"] * 2)
    shelf = EntryCache()
    assert shelf.holding(2, log) is None
