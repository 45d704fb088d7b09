"""The simulated store loses what was not synced, never more and never a hole."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.log.keys import log_key, queue_end, queue_key
from logboom.nodes.log.storage import WriteSet
from tests.sim.world.storage import SETTLED, SimulatedStorage


def put(storage: SimulatedStorage, *keys: bytes) -> None:
    writes = WriteSet()
    for key in keys:
        writes.put("log", key, b"v" + key)
    storage.write(writes)


def keys(storage: SimulatedStorage) -> list[bytes]:
    return [key for key, _ in storage.scan("log", b"", b"\xff")]


def test_scans_are_ordered_and_bounded_both_ways() -> None:
    storage = SimulatedStorage("s")
    put(storage, b"c", b"a", b"d", b"b")
    assert keys(storage) == [b"a", b"b", b"c", b"d"]
    assert list(storage.scan("log", b"b", b"d")) == [(b"b", b"vb"), (b"c", b"vc")]
    assert next(storage.scan("log", b"a", b"d", reverse=True)) == (b"c", b"vc")
    assert list(storage.scan("state", b"", b"\xff")) == []


def test_later_operations_of_a_write_set_win() -> None:
    storage = SimulatedStorage("s")
    writes = WriteSet()
    writes.put("log", b"a", b"1")
    writes.delete_range("log", b"a", b"b")
    writes.put("log", b"a2", b"2")
    writes.put("log", b"b", b"3")
    writes.delete("log", b"b")
    storage.write(writes)
    assert keys(storage) == [b"a2"]


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest(seed: int) -> None:
    storage = SimulatedStorage("s")
    put(storage, b"a")
    put(storage, b"b")
    mark = storage.mark()
    put(storage, b"c")
    put(storage, b"d")
    storage.sync_to(mark)
    lost = storage.crash(random.Random(seed))
    assert keys(storage) == [b"a", b"b", b"c", b"d"][: 4 - lost]
    assert 0 <= lost <= 2
    assert storage.crash(random.Random(seed)) == 0, "what survived once is on disk"


def test_some_crashes_lose_all_that_was_not_synced() -> None:
    losses = set()
    for seed in range(20):
        storage = SimulatedStorage("s")
        put(storage, b"a")
        put(storage, b"b")
        losses.add(storage.crash(random.Random(seed)))
    assert losses == {0, 1, 2}


def test_an_iterator_across_a_write_is_caught() -> None:
    storage = SimulatedStorage("s")
    put(storage, b"a", b"b")
    held = storage.scan("log", b"", b"\xff")
    next(held)
    put(storage, b"c")
    with pytest.raises(AssertionError, match="kept open"):
        next(held)


def test_a_failed_sync_loses_what_a_second_one_would_not_bring_back() -> None:
    left = set()
    for seed in range(20):
        storage = SimulatedStorage("s")
        put(storage, b"a")
        storage.sync()
        put(storage, b"b")
        put(storage, b"c")
        mark = storage.mark()
        put(storage, b"d")
        storage.sync_failed(mark, random.Random(seed))
        assert keys(storage) == [b"a", b"b", b"c", b"d"], "memory still has it"
        storage.sync()
        storage.crash(random.Random(seed))
        left.add(b"".join(keys(storage)))
    assert left == {b"ad", b"abd", b"abcd"}


def test_damage_takes_the_newest_of_what_was_synced_and_is_known() -> None:
    left = set()
    for seed in range(60):
        storage = SimulatedStorage("s")
        for number in range(SETTLED + 3):
            put(storage, b"%02d" % number)
            storage.sync()
        storage.crash(random.Random(seed))
        lost = storage.damage(random.Random(seed))
        assert storage.suspect
        assert len(keys(storage)) == SETTLED + 3 - lost
        assert keys(storage) == [b"%02d" % n for n in range(SETTLED + 3 - lost)]
        left.add(lost)
    assert left == set(range(SETTLED + 1))


def test_only_what_is_synced_counts_as_on_disk() -> None:
    storage = SimulatedStorage("s")
    writes = WriteSet()
    writes.put("log", log_key(1, 0, 5), b"entry")
    storage.write(writes)
    assert storage.on_disk(1, 0, 6) is None
    storage.sync()
    assert storage.on_disk(1, 0, 6) == b"entry"
    assert storage.on_disk(1, 0, 4) is None
    assert storage.on_disk(1, 1, 6) is None


def test_cuts_are_told_from_retention() -> None:
    storage = SimulatedStorage("s")
    cuts: list[int] = []
    storage.on_cut = lambda: cuts.append(1)
    writes = WriteSet()
    for offset in range(4):
        writes.put("log", log_key(1, 0, offset), b"entry")
    writes.delete_range("log", queue_key(1, 0), log_key(1, 0, 2))
    storage.write(writes)
    assert cuts == []
    writes = WriteSet()
    writes.delete_range("log", log_key(1, 0, 3), queue_end(1, 0))
    storage.write(writes)
    assert cuts == [1]


def test_a_folder_of_a_newer_format_is_not_opened() -> None:
    storage = SimulatedStorage("s")
    storage.open()
    storage.format += 1
    with pytest.raises(AssertionError, match="is not opened"):
        storage.open()
