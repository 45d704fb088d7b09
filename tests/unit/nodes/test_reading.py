"""Reading entries from memory and store, checked: nothing damaged and no hole is served."""

from __future__ import annotations

import pytest

from logboom.nodes.keys import Position, log_key, position_of
from logboom.nodes.reading import Damaged, collect, covering, entries
from logboom.nodes.storage import WriteSet
from logboom.wire.batch import check, encode_batch, peek
from tests.unit.nodes.test_replica import Log


def log_of(counts: list[int], cache_bytes: int) -> Log:
    """All of it below the HW."""
    log = Log(cache_bytes)
    log.lead(1, counts)
    log.replica.raise_hw(log.replica.end)
    return log


def offsets(batches: list[bytes | memoryview]) -> list[int]:
    """Base offsets of batches."""
    return [peek(each).base_offset for each in batches]


@pytest.mark.parametrize("cache_bytes", [0, 350, 1 << 20])
def test_whole_batches_from_the_one_that_holds_the_offset(cache_bytes: int) -> None:
    log = log_of([3, 0, 2, 4, 0, 1], cache_bytes)
    for offset, first in [(0, 0), (2, 0), (3, 3), (4, 3), (5, 5), (8, 5), (9, 9)]:
        found = collect(log.replica, log.storage, offset, 1 << 20, 0, None)
        assert offsets(found.batches) == [base for base in (0, 3, 5, 9) if base >= first]
        assert found.next_offset == 10
        assert found.messages == 10 - offset


def test_at_least_one_batch_and_then_no_more_than_asked() -> None:
    log = log_of([3, 2, 4], 0)
    assert offsets(collect(log.replica, log.storage, 0, 1, 0, None).batches) == [0]
    size = len(log.log()[log_key(1, 0, 0)])
    assert offsets(collect(log.replica, log.storage, 0, 2 * size, 0, None).batches) == [0, 3]
    assert offsets(collect(log.replica, log.storage, 0, 1 << 20, 4, None).batches) == [0, 3]


def test_nothing_at_or_behind_the_hw() -> None:
    log = Log()
    log.lead(1, [2, 2, 2])
    log.replica.raise_hw(Position(4))
    found = collect(log.replica, log.storage, 0, 1 << 20, 0, None)
    assert offsets(found.batches) == [0, 2]
    assert found.next_offset == 4


def test_batches_without_the_tag_are_passed_over() -> None:
    log = Log()
    for tag in ("late", "early", "late"):
        writes = WriteSet()
        data = encode_batch([b"x"], tags=[tag], now_ms=1)
        log.replica.leader_epoch = 1
        log.replica.append_batch(data, check(data, stamped=False), 1, writes, log.cache)
        log.commit(writes)
    log.replica.raise_hw(Position(3))
    found = collect(log.replica, log.storage, 0, 1 << 20, 0, ["early"])
    assert offsets(found.batches) == [1]
    assert found.next_offset == 3
    assert collect(log.replica, log.storage, 2, 1 << 20, 0, ["early"]).batches == []


def spoil(log: Log, offset: int, value: bytes | None) -> None:
    """Replace an entry in the store, or remove it."""
    writes = WriteSet()
    if value is None:
        writes.delete("log", log_key(1, 0, offset))
    else:
        writes.put("log", log_key(1, 0, offset), value)
    log.storage.write(writes)


@pytest.mark.parametrize("how", ["flipped", "missing", "truncated", "another"])
def test_what_is_damaged_is_found_and_what_stands_before_it_is_served(how: str) -> None:
    log = log_of([2, 2, 2, 2], 0)
    entry = log.log()[log_key(1, 0, 4)]
    other = log.log()[log_key(1, 0, 6)]
    spoilt = {
        "flipped": entry[:-1] + bytes([entry[-1] ^ 8]),
        "missing": None,
        "truncated": entry[:50],
        "another": other,
    }
    spoil(log, 4, spoilt[how])
    found = collect(log.replica, log.storage, 0, 1 << 20, 0, None)
    assert offsets(found.batches) == [0, 2]
    assert found.next_offset == 4
    with pytest.raises(Damaged) as caught:
        collect(log.replica, log.storage, 4, 1 << 20, 0, None)
    assert caught.value.position == Position(4)
    with pytest.raises(Damaged):
        list(entries(log.replica, log.storage, Position(0), log.replica.end))


def test_an_end_that_is_missing_is_found() -> None:
    log = log_of([2, 2], 0)
    spoil(log, 2, None)
    with pytest.raises(Damaged):
        list(entries(log.replica, log.storage, Position(2), log.replica.end))
    with pytest.raises(Damaged):
        covering(log.replica, log.storage, 3)


@pytest.mark.parametrize("offset", [0, 3, 5, 6, 8, 9])
@pytest.mark.parametrize("how", ["missing", "torn"])
def test_the_place_of_damage_is_where_the_whole_part_ends(offset: int, how: str) -> None:
    """An offset within a damaged batch is no place to cut at."""
    counts = [3, 0, 2, 4, 0, 1]
    log = log_of(counts, 0)
    starts = [key for key in log.log() if peek(log.log()[key]).count]
    begin = max(base for base in (0, 3, 5, 9) if base <= offset)
    (key,) = (key for key in starts if peek(log.log()[key]).base_offset == begin)
    writes = WriteSet()
    if how == "torn":
        writes.put("log", key, b"torn")
    else:
        writes.delete("log", key)
    log.storage.write(writes)
    with pytest.raises(Damaged) as caught:
        collect(log.replica, log.storage, offset, 1 << 20, 0, None)
    assert caught.value.position == position_of(key)
