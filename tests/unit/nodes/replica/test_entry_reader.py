"""Reading entries from memory and store, checked: nothing damaged and no hole is served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logboom.nodes.log.keys import Position, log_key, position_of
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.log.tail_cache import ENTRY_BYTES
from logboom.nodes.replica.entry_reader import (
    DamagedEntry,
    FilteredRead,
    entries,
    filter_batches,
    find_batch_start,
    read_batches,
)
from logboom.nodes.replica.pull_filter import OPENED_BYTES, PULL_UNITS, sieve_of
from logboom.wire.batch import encode_batch, peek, validate_batch
from logboom.wire.filters import ScanBudget
from logboom.wire.head import CRC_START, HEAD_LENGTH
from logboom.wire.messages import Pull
from logboom.wire.validation import crc32c
from tests.unit.nodes.log.replica_logs import Log


def log_of(counts: list[int], cache_bytes: int) -> Log:
    """All of it below the HW."""
    log = Log(cache_bytes)
    log.lead(1, counts)
    log.replica.raise_hw(log.replica.end)
    return log


def offsets(batches: list[bytes | memoryview]) -> list[int]:
    """Base offsets of batches."""
    return [peek(each).base_offset for each in batches]


@pytest.mark.parametrize("cache_bytes", [0, 350 + 3 * ENTRY_BYTES, 1 << 20])
def test_whole_batches_from_the_one_that_holds_the_offset(cache_bytes: int) -> None:
    log = log_of([3, 0, 2, 4, 0, 1], cache_bytes)
    for offset, first in [(0, 0), (2, 0), (3, 3), (4, 3), (5, 5), (8, 5), (9, 9)]:
        found = read_batches(log.replica, log.storage, offset, 1 << 20, 0)
        assert offsets(found.batches) == [base for base in (0, 3, 5, 9) if base >= first]
        assert found.next_offset == 10
        assert found.messages == 10 - offset


@pytest.mark.parametrize("offset", [3, 4, 5, 7, 8])
def test_what_a_follower_is_told_of_with_a_hw_behind_it_is_no_damage(offset: int) -> None:
    """The store shows none of it before the turn ends; it was taken for damage where a reader's
    offset lay inside a batch (simulation of transactions, `--rot` 502)."""
    leader, log = log_of([3, 2, 0, 4], 1 << 20), log_of([3], 1 << 20)
    writes = WriteSet()
    for entry, _ in entries(leader.replica, leader.storage, Position(3), leader.replica.end):
        log.replica.append_entry(entry, writes, log.cache)
    log.replica.raise_hw(leader.replica.end)
    found = read_batches(log.replica, log.storage, offset, 1 << 20, 0)
    assert offsets(found.batches) == ([3, 5] if offset < 5 else [5])
    log.commit(writes)
    assert read_batches(log.replica, log.storage, offset, 1 << 20, 0) == found


def test_at_least_one_batch_and_then_no_more_than_asked() -> None:
    log = log_of([3, 2, 4], 0)
    assert offsets(read_batches(log.replica, log.storage, 0, 1, 0).batches) == [0]
    size = len(log.log()[log_key(1, 0, 0)])
    assert offsets(read_batches(log.replica, log.storage, 0, 2 * size, 0).batches) == [0, 3]
    assert offsets(read_batches(log.replica, log.storage, 0, 1 << 20, 4).batches) == [0, 3]


def test_no_batch_is_read_twice_or_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull of 1 MiB read one batch of nearly that size twice, and the next one too."""
    log = log_of([3, 3, 3, 3], 0)
    size = len(log.log()[log_key(1, 0, 0)])
    read: list[int] = []

    def counted(*place: Any, **how: Any) -> Iterator[tuple[bytes, bytes]]:
        for key, entry in scan(*place, **how):
            read.append(position_of(key).offset)
            yield key, entry

    scan = log.storage.scan
    monkeypatch.setattr(log.storage, "scan", counted)
    found = read_batches(log.replica, log.storage, 0, 2 * size + size // 2, 0)
    assert (offsets(found.batches), found.next_offset) == ([0, 3], 6)
    assert read == [0, 3]
    assert offsets(read_batches(log.replica, log.storage, 6, size, 0).batches) == [6]
    assert read == [0, 3, 6]


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_a_pull_does_not_walk_through_all_that_is_parked(cache_bytes: int) -> None:
    log = log_of([3, *[0] * 200, 2], cache_bytes)
    found = read_batches(log.replica, log.storage, 0, 2_000, 0)
    assert offsets(found.batches) == [0]
    assert found.next_offset == 3
    assert offsets(read_batches(log.replica, log.storage, 3, 2_000, 0).batches) == [3]
    assert offsets(read_batches(log.replica, log.storage, 0, 1 << 20, 0).batches) == [0, 3]


def test_nothing_at_or_behind_the_hw() -> None:
    log = Log()
    log.lead(1, [2, 2, 2])
    log.replica.raise_hw(Position(4))
    found = read_batches(log.replica, log.storage, 0, 1 << 20, 0)
    assert offsets(found.batches) == [0, 2]
    assert found.next_offset == 4


def filled(*batches: bytes) -> Log:
    """A log of these batches, all below the HW."""
    log = Log()
    for data in batches:
        writes = WriteSet()
        log.replica.leader_epoch = 1
        log.replica.append_batch(data, validate_batch(data, stamped=False), 1, writes, log.cache)
        log.commit(writes)
    log.replica.raise_hw(log.replica.end)
    return log


def sifted(log: Log, offset: int = 0, units: int = 1 << 20, **asked: Any) -> FilteredRead:
    """One turn's scan."""
    message = Pull(0, 1_000, "flights", 0, offset, 1 << 20, 0, **asked)
    sieve = sieve_of(message)
    assert sieve is not None
    return filter_batches(
        log.replica, log.storage, message, sieve, sieve.grant(units), 1 << 20, 1 << 20
    )


def test_batches_without_the_tag_are_passed_over() -> None:
    log = filled(*(encode_batch([b"x"], tags=[t], now_ms=1) for t in ("late", "early", "late")))
    found = sifted(log, tags=["early"])
    assert (offsets(found.batches), found.matches, found.next_offset) == ([1], [], 3)
    assert sifted(log, 2, tags=["early"]).batches == []
    assert offsets(sifted(log, filter="early").batches) == [1]


def priced(*prices: int, codec: str = "none") -> bytes:
    """A batch of messages with these prices in their headers."""
    headers = [{"price": b"%d" % price} for price in prices]
    return encode_batch([b"v"] * len(prices), headers=headers, now_ms=1, codec=codec)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_messages_are_judged_by_their_columns(codec: str) -> None:
    log = filled(
        priced(1, 5, 1, 7, 1, 1, 1, 1, 9, codec=codec),
        priced(1, 2, codec=codec),
        priced(8, 9, codec=codec),
        encode_batch([b"no headers"], now_ms=1),
    )
    found = sifted(log, filter="WHERE price > 3")
    assert offsets(found.batches) == [0, 11]
    assert found.matches == [bytes([0b1010, 1]), b""]
    assert (found.messages, found.next_offset) == (5, 14)
    # From the middle of a batch on: what stands before says nothing.
    found = sifted(log, 2, filter="WHERE price > 3", max_messages=1)
    assert (found.matches, found.messages, found.next_offset) == ([bytes([0b1000, 1])], 2, 9)
    found = sifted(log, 12, filter="WHERE price > 3")
    assert (found.matches, found.messages) == ([bytes([0b10])], 1)


def test_a_scan_ends_where_its_budget_does_and_the_next_goes_on_there() -> None:
    log = filled(priced(*[1] * 300, 9), priced(9))
    at, turns = 0, []
    while at < 302:
        found = sifted(log, at, 1, filter="WHERE price > 3")
        assert found.next_offset > at
        at = found.next_offset
        turns.append(found)
    assert len(turns) >= 3
    assert [offsets(each.batches) for each in turns if each.batches] == [[0], [301]]


def test_a_batch_that_takes_many_turns_is_judged_as_a_whole() -> None:
    log = filled(priced(9, *[1] * 300, 9), priced(1))
    message = Pull(0, 1_000, "flights", 0, 0, 1 << 20, 0, filter="WHERE price > 3")
    sieve = sieve_of(message)
    assert sieve is not None
    turns = 0
    while True:
        found = filter_batches(
            log.replica, log.storage, message, sieve, sieve.grant(1), 1 << 20, 1 << 20
        )
        turns += 1
        if found.batches:
            break
        assert (found.next_offset, found.passed) == (0, 0)
        assert sieve.partial is not None
    assert turns >= 3
    assert (offsets(found.batches), found.messages, found.next_offset) == ([0], 2, 302)
    assert found.matches == [(1 | 1 << 301).to_bytes(38, "little")]
    assert sieve.partial is None


def test_what_costs_too_much_is_sent_as_it_is() -> None:
    log = filled(priced(1), priced(1, 2), encode_batch([b"x"], now_ms=1), priced(9))
    message = Pull(0, 1_000, "flights", 0, 0, 1 << 20, 0, filter="WHERE price > 3")
    sieve = sieve_of(message)
    assert sieve is not None
    assert sieve.looks
    sieve.settle(PULL_UNITS, ScanBudget(0))
    assert not sieve.looks
    found = filter_batches(
        log.replica, log.storage, message, sieve, sieve.grant(0), 1 << 20, 1 << 20
    )
    # The batch without headers cannot hold a match: its head alone says so.
    assert (offsets(found.batches), found.matches) == ([0, 1, 4], [])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_batches_too_large_to_open_are_sent_as_they_are(codec: str) -> None:
    headers = [{"price": b"1"}]
    large = encode_batch([bytes(OPENED_BYTES)], headers=headers, now_ms=1, codec=codec)
    log = filled(priced(9), large, priced(9))
    found = sifted(log, filter="WHERE price > 3")
    assert (offsets(found.batches), found.matches, found.unseen) == ([0, 1], [b""], 1)
    assert found.next_offset == 2


def test_a_filter_that_costs_too_much_is_its_readers_affair() -> None:
    """Many searches through large headers would hold up the loop."""
    headers = [{"note": b"x" * 10_000}] * 64
    wanted = "WHERE " + " OR ".join(f"note CONTAINS 'y{n}'" for n in range(16))
    log = filled(encode_batch([b"v"] * 64, headers=headers, now_ms=1))
    found = sifted(log, filter=wanted)
    assert (offsets(found.batches), found.matches, found.unseen) == ([0], [], 1)
    few = sifted(log, filter="WHERE note CONTAINS 'y'")
    assert (few.batches, few.opened, few.next_offset) == ([], 1, 64)


def test_a_body_that_does_not_hold_together_is_its_readers_affair() -> None:
    """It is as its producer sent it: no damage of ours."""
    good = priced(1, 2)
    torn = bytearray(good)
    torn[HEAD_LENGTH : HEAD_LENGTH + 4] = b"\xff" * 4
    crc = crc32c(memoryview(torn)[CRC_START:])
    torn[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "little")
    log = filled(good, bytes(torn), good)
    found = sifted(log, filter="WHERE price > 0")
    assert (offsets(found.batches), found.matches, found.unseen) == ([0, 2], [b""], 1)


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
    found = read_batches(log.replica, log.storage, 0, 1 << 20, 0)
    assert offsets(found.batches) == [0, 2]
    assert found.next_offset == 4
    with pytest.raises(DamagedEntry) as caught:
        read_batches(log.replica, log.storage, 4, 1 << 20, 0)
    assert caught.value.position == Position(4)
    with pytest.raises(DamagedEntry):
        list(entries(log.replica, log.storage, Position(0), log.replica.end))


def test_an_end_that_is_missing_is_found() -> None:
    log = log_of([2, 2], 0)
    spoil(log, 2, None)
    with pytest.raises(DamagedEntry):
        list(entries(log.replica, log.storage, Position(2), log.replica.end))
    with pytest.raises(DamagedEntry):
        find_batch_start(log.replica, log.storage, 3)


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
    with pytest.raises(DamagedEntry) as caught:
        read_batches(log.replica, log.storage, offset, 1 << 20, 0)
    assert caught.value.position == position_of(key)
