"""The time and key index: the same answers as reading the whole log, wherever the pass stands."""

import random

import pytest

from logboom.nodes.log import index as index_module
from logboom.nodes.log.index import BLOCK_ENTRIES, STEP_BYTES, QueueIndex
from logboom.nodes.log.index_rows import LOOKUP_BLOCKS, IndexBlock, block_at, checkpoint
from logboom.nodes.log.keys import Position, log_key, queue_end, queue_key
from logboom.nodes.log.storage import WriteSet
from logboom.wire.batch import open_batch, peek
from logboom.wire.errors import Unavailable
from logboom.wire.hashing import murmur3
from tests.sim.world.storage import SimulatedStorage
from tests.thorough import seeds
from tests.unit.nodes.log.logs import QUEUE, TOPIC, Log, new_index


def a_log() -> Log:
    storage = SimulatedStorage("store")
    return Log(storage, new_index(storage))


def index_of(log: Log) -> QueueIndex:
    assert log.index is not None
    return log.index


def wanted(log: Log, timestamp_ms: int, start: int = 0) -> tuple[int, int]:
    """OffsetForTime's rule, by reading everything."""
    first = log_key(TOPIC, QUEUE, start)
    for _, entry in log.storage.scan("log", first, queue_end(TOPIC, QUEUE)):
        head = peek(entry)
        if head.count and head.max_timestamp_ms >= timestamp_ms:
            times = open_batch(entry).timestamps()
            place = next(i for i, time_ms in enumerate(times) if time_ms >= timestamp_ms)
            return head.base_offset + place, times[place]
    return log.record.end.offset, -1


@pytest.mark.parametrize("seed", seeds(6))
def test_offset_for_time_finds_what_reading_everything_finds(seed: int) -> None:
    rng = random.Random(seed)
    log = a_log()
    for number in range(900):
        # Mostly growing, with stragglers and gaps.
        middle = number * 10 + rng.choice((0, 0, 0, -2_000, 300))
        log.append(timestamps=[middle + rng.randint(-20, 20) for _ in range(rng.randint(1, 3))])
        if rng.random() < 0.05:
            log.control()
        if rng.random() < 0.1:
            log.advance()
    asked = [rng.randint(-3_000, 10_000) for _ in range(200)]
    for timestamp_ms in asked:
        found = index_of(log).offset_for_time(timestamp_ms, 0, log.record.hw)
        assert found == wanted(log, timestamp_ms)
    assert checkpoint(log.storage, TOPIC, QUEUE) > 0


def test_times_and_offsets_beyond_all_that_is_stored_find_nothing() -> None:
    """Found by frames of a fuzzer: any whole number travels, also one that no key can hold."""
    log = a_log()
    for _ in range(3):
        log.append()
    log.advance()
    index = index_of(log)
    for timestamp_ms in ((1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        assert index.offset_for_time(timestamp_ms, 0, log.record.hw) == (3, -1)
    assert index.offset_for_time(-(1 << 63), 0, log.record.hw)[0] == 0
    assert index.find_key(1, -5, 10, 0)[0] == []


def test_a_time_after_all_messages_is_the_hw() -> None:
    log = a_log()
    log.append(timestamps=[5])
    assert index_of(log).offset_for_time(6, 0, log.record.hw) == (1, -1)


def test_nothing_above_the_hw_is_found() -> None:
    log = a_log()
    log.append(timestamps=[5])
    log.append(timestamps=[9], keys=[b"k"])
    hw = Position(1, 0)
    assert index_of(log).offset_for_time(7, 0, hw) == (1, -1)
    assert index_of(log).advance(WriteSet(), hw) is False
    assert index_of(log).find_key(murmur3(b"k"), 10, 5, 0) == ([], 1)


def test_find_key_names_batches_newest_first_within_limit_and_before() -> None:
    log = a_log()
    for number in range(3 * BLOCK_ENTRIES):
        log.append(keys=[b"key-%d" % (number % 50)])
    log.advance()
    digest = murmur3(b"key-7")
    found, reach = index_of(log).find_key(digest, 1 << 60, 5, 0)
    assert reach == 3 * BLOCK_ENTRIES
    assert found == sorted(found, reverse=True)
    everything, _ = index_of(log).find_key(digest, 1 << 60, 10_000, 0)
    assert found == everything[:5]
    assert {number for number in range(3 * BLOCK_ENTRIES) if number % 50 == 7} <= set(everything)
    assert len(everything) < 3 * BLOCK_ENTRIES / 4
    older, _ = index_of(log).find_key(digest, everything[3], 3, 0)
    assert older == everything[4:7]
    assert index_of(log).find_key(digest, 1 << 60, 0, 0)[0] == []


def test_batches_without_keys_are_no_candidates() -> None:
    log = a_log()
    log.append(5)
    log.append(keys=[b"k", b"l"])
    log.append(5)
    log.advance()
    assert index_of(log).find_key(murmur3(b"l"), 100, 10, 0) == ([5], 12)


def test_a_long_search_names_its_edge_so_that_it_can_go_on() -> None:
    log = a_log()
    writes = WriteSet()
    for number in range(LOOKUP_BLOCKS + 10):
        key = queue_key(TOPIC, QUEUE, b"b" + number.to_bytes(8, "big"))
        writes.put("index", key, bytes(24))
    log.storage.write(writes)
    index_of(log)._block_start = LOOKUP_BLOCKS + 10  # noqa: SLF001 - the state after as many blocks
    assert index_of(log).find_key(1, 1 << 60, 5, 0)[0] == [10]
    assert index_of(log).find_key(1, 10, 5, 0)[0] == []


def test_the_pass_goes_on_after_a_restart_without_a_hole() -> None:
    storage = SimulatedStorage("store")
    log = Log(storage, new_index(storage))
    for number in range(BLOCK_ENTRIES + 40):
        log.append(keys=[b"key-%d" % number], timestamps=[number])
    log.advance()
    assert checkpoint(storage, TOPIC, QUEUE) == BLOCK_ENTRIES
    log.index = new_index(storage)
    assert log.index.reach == Position(BLOCK_ENTRIES, 0)
    for number in range(BLOCK_ENTRIES + 40, 3 * BLOCK_ENTRIES):
        log.append(keys=[b"key-%d" % number], timestamps=[number])
    log.advance()
    assert log.index.reach == log.record.end
    for number in (0, BLOCK_ENTRIES + 10, 3 * BLOCK_ENTRIES - 1):
        found, _ = log.index.find_key(murmur3(b"key-%d" % number), 1 << 60, 1 << 30, 0)
        assert number in found
        assert log.index.offset_for_time(number, 0, log.record.hw) == (number, number)


def test_an_index_lost_whole_is_built_again() -> None:
    storage = SimulatedStorage("store")
    log = Log(storage)
    for number in range(700):
        log.append(timestamps=[number])
    log.index = new_index(storage)
    log.advance()
    assert checkpoint(storage, TOPIC, QUEUE) == 512
    assert log.index.reach == log.record.end


def test_one_call_does_a_bounded_amount() -> None:
    log = a_log()
    for _ in range(10 * BLOCK_ENTRIES):
        log.append()
    writes = WriteSet()
    assert index_of(log).advance(writes, log.record.hw, max_blocks=2)
    assert index_of(log).reach == Position(2 * BLOCK_ENTRIES, 0)
    assert len(writes) == 6


def test_reading_back_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "READ_BYTES", 10_000)
    storage = SimulatedStorage("store")
    log = Log(storage)
    for _ in range(100):
        log.append(width=1000)
    index = new_index(storage)
    assert index.advance(WriteSet(), log.record.hw)
    assert 0 < index.reach.offset <= 12


def test_blocks_end_behind_a_batch_and_count_control_entries() -> None:
    log = a_log()
    for _ in range(BLOCK_ENTRIES - 1):
        log.append(time_ms=1)
    log.control(time_ms=2)
    log.append(time_ms=3)
    size = log.record.size
    log.append(time_ms=4)
    log.advance()
    assert block_at(log.storage, TOPIC, QUEUE, 0) == IndexBlock(BLOCK_ENTRIES, size, 3)
    assert block_at(log.storage, TOPIC, QUEUE, 1) is None


def test_a_cut_above_the_hw_is_followed_by_what_replaces_it() -> None:
    log = a_log()
    hw = Position(2, 0)
    for number in range(4):
        log.append(keys=[b"old-%d" % number])
    index = index_of(log)
    index.advance(WriteSet(), hw)
    index.cut(hw)
    log.record = type(log.record)(end=hw, hw=hw)
    for number in range(3):
        log.append(keys=[b"new-%d" % number], epoch=2)
    log.advance()
    assert index.reach == Position(5, 0)
    assert index.find_key(murmur3(b"new-2"), 100, 10, 0)[0][0] == 4


def test_entries_that_were_not_noted_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_NOTED", 10)
    log = a_log()
    for number in range(2 * BLOCK_ENTRIES):
        log.append(timestamps=[number])
    log.advance()
    log.append(timestamps=[9_999])
    log.advance()
    assert index_of(log).reach == log.record.end
    assert checkpoint(log.storage, TOPIC, QUEUE) == 2 * BLOCK_ENTRIES


def test_a_lookup_past_an_index_that_lags_asks_for_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "LOOKUP_BYTES", 5_000)
    log = a_log()
    for number in range(30):
        log.append(width=1000, timestamps=[number])
    with pytest.raises(Unavailable, match="ask again") as refused:
        index_of(log).offset_for_time(29, 0, log.record.hw)
    assert refused.value.code == "BUSY"


FUTURE_US = 1_700_000_000_000_000


def removed(log: Log, log_start: int) -> None:
    """The log begins at `log_start`, as retention leaves it."""
    writes = WriteSet()
    index_of(log).trim(writes, log_start)
    writes.delete_range("log", log_key(TOPIC, QUEUE, 0), log_key(TOPIC, QUEUE, log_start))
    log.storage.write(writes)


@pytest.mark.parametrize("runs", [256, 2])
def test_a_message_from_the_future_breaks_no_later_lookup(
    monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    """Its producer wrote microseconds for milliseconds; retention has removed it since."""
    monkeypatch.setattr(index_module, "RUN_BLOCKS", runs)
    log = a_log()
    log.append(timestamps=[FUTURE_US])
    for number in range(10 * BLOCK_ENTRIES):
        log.append(timestamps=[number])
    log.advance()
    start = BLOCK_ENTRIES // 2
    removed(log, start)
    # A lookup reads a block or two, wherever it is; and so it does after a restart.
    monkeypatch.setattr(index_module, "LOOKUP_BYTES", 2 * BLOCK_ENTRIES * STEP_BYTES)
    for index in (index_of(log), QueueIndex(log.storage, TOPIC, QUEUE, start)):
        for number in range(start, 10 * BLOCK_ENTRIES, 97):
            found = index.offset_for_time(number, start, log.record.hw)
            assert found == wanted(log, number, start)
        assert index.offset_for_time(FUTURE_US, start, log.record.hw)[1] == -1


def test_a_lookup_that_is_broken_off_goes_on_and_repairs_what_an_older_release_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its one row says that everything is older than the future, which helps nobody."""
    log = a_log()
    for number in range(10 * BLOCK_ENTRIES):
        log.append(timestamps=[number])
    log.advance()
    writes = WriteSet()
    writes.delete_range("index", queue_key(TOPIC, QUEUE, b"m"), queue_key(TOPIC, QUEUE, b"n"))
    future = (FUTURE_US + (1 << 63)).to_bytes(8, "big")
    writes.put(
        "index", queue_key(TOPIC, QUEUE, b"t" + future), (10 * BLOCK_ENTRIES).to_bytes(8, "big")
    )
    log.storage.write(writes)
    monkeypatch.setattr(index_module, "LOOKUP_BYTES", BLOCK_ENTRIES * STEP_BYTES)
    index = QueueIndex(log.storage, TOPIC, QUEUE, 0)

    def look() -> tuple[int, int] | None:
        writes = WriteSet()
        try:
            return index.offset_for_time(9 * BLOCK_ENTRIES, 0, log.record.hw, writes)
        except Unavailable:
            return None
        finally:
            log.storage.write(writes)

    answers = [look() for _ in range(12)]
    assert answers[0] is None
    assert answers[-1] == (9 * BLOCK_ENTRIES, 9 * BLOCK_ENTRIES)
    # The next one need not read it all again.
    again = QueueIndex(log.storage, TOPIC, QUEUE, 0)
    assert again.offset_for_time(9 * BLOCK_ENTRIES, 0, log.record.hw) == answers[-1]


def test_no_lookup_passes_more_than_some_runs_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_module, "LOOKUP_BYTES", 3 * STEP_BYTES)
    log = a_log()
    for number in range(10 * BLOCK_ENTRIES):
        log.append(timestamps=[number])
    log.advance()
    index = index_of(log)
    asked = 0
    while True:
        asked += 1
        try:
            assert index.offset_for_time(2_500, 0, log.record.hw) == (2_500, 2_500)
        except Unavailable:
            continue
        break
    assert 2 <= asked <= 60


def test_very_many_control_entries_cost_a_lookup_little_and_one_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Parked batches: there may be a million of them before the next message.
    log = a_log()
    log.append(timestamps=[5])
    for _ in range(300):
        log.control()
    log.append(timestamps=[7])
    for _ in range(10):
        log.control()
    log.advance()
    monkeypatch.setattr(index_module, "LOOKUP_BYTES", 100 * 110)
    assert index_of(log).offset_for_time(6, 0, log.record.hw) == (1, 7)
    assert index_of(log).offset_for_time(8, 0, log.record.hw) == (2, -1)
    assert len(vars(index_of(log))["_open"]) == 4
    for _ in range(BLOCK_ENTRIES):
        log.append(width=10)
    log.advance()
    block = block_at(log.storage, TOPIC, QUEUE, 0)
    assert block is not None
    size = sum(
        len(entry)
        for key, entry in log.storage.scan("log", b"", b"\xff" * 20)
        if key < log_key(TOPIC, QUEUE, block.next_offset)
    )
    assert block.size == size


def test_a_reset_forgets_all_rows() -> None:
    log = a_log()
    for _ in range(BLOCK_ENTRIES):
        log.append()
    log.advance()
    writes = WriteSet()
    index_of(log).reset(writes, 40)
    log.storage.write(writes)
    assert list(log.storage.scan("index", b"", b"\xff" * 20)) == []
    assert index_of(log).reach == Position(40, 0)
