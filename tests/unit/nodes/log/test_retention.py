"""Retention by age and bytes: the oldest goes, whole, never above the limit, with its record."""

import random

import pytest

from logboom.nodes.log import index, index_rows
from logboom.nodes.log.index import BLOCK_ENTRIES, QueueIndex
from logboom.nodes.log.index_rows import block_at, checkpoint
from logboom.nodes.log.keys import Position, log_key, queue_end, queue_key
from logboom.nodes.log.recovery import open_queue
from logboom.nodes.log.retention import (
    STEPS,
    KnownAge,
    RetentionPolicy,
    plan_removal,
    stage_removal,
)
from logboom.nodes.log.storage import WriteSet
from logboom.wire.errors import DamagedBatch
from logboom.wire.hashing import murmur3
from tests.sim.world.storage import SimulatedStorage
from tests.thorough import seeds
from tests.unit.nodes.log.logs import QUEUE, TOPIC, Log, new_index


def a_log() -> Log:
    storage = SimulatedStorage("store")
    return Log(storage, new_index(storage))


def run(
    log: Log, keep: RetentionPolicy, wall_ms: int = 0, limit: int | None = None, uncertain: int = 0
) -> bool:
    """One call, its writes applied; whether something was removed."""
    assert isinstance(log.index, QueueIndex)
    writes = WriteSet()
    found = plan_removal(
        log.storage,
        TOPIC,
        QUEUE,
        log.record,
        keep=keep,
        limit=log.record.hw.offset if limit is None else limit,
        wall_ms=wall_ms,
        uncertain=uncertain,
    )
    if found is None:
        return False
    stage_removal(writes, TOPIC, QUEUE, found, log.index)
    log.storage.write(writes)
    log.record = found
    return True


def stored_size(log: Log) -> int:
    scan = log.storage.scan("log", queue_key(TOPIC, QUEUE), queue_end(TOPIC, QUEUE))
    return sum(len(entry) for _, entry in scan)


def test_what_is_older_than_the_age_goes() -> None:
    log = a_log()
    for number in range(10):
        log.append(2, time_ms=number * 100)
    assert run(log, RetentionPolicy(500, None), wall_ms=1_000)
    # Appended at 500 or later stays: exactly the age is kept.
    assert log.record.start == 10
    assert not run(log, RetentionPolicy(500, None), wall_ms=1_000)
    assert log.record.size == stored_size(log)
    assert open_queue(log.storage, TOPIC, QUEUE).damage is None


def test_the_age_of_a_log_from_the_future_counts_from_when_it_was_seen() -> None:
    age = KnownAge()
    assert age.see(10, 1_000, now=5.0) == 0
    assert age.see(20, 1_000, now=5.5) == 0
    assert age.see(30, 1_000, now=6.0) == 0
    # Exactly the age is kept.
    assert age.see(40, 1_000, now=6.1) == 10
    assert age.see(50, 1_000, now=6.6) == 20
    assert age.see(15, 1_000, now=6.7) == 0, "what was cut is written anew"
    for second in range(7, 10_000):
        aged = age.see(second, 100_000, now=float(second))
        assert aged <= second - 100 or aged <= 15


def test_what_is_known_to_be_old_goes_whatever_its_append_time() -> None:
    log = a_log()
    for _ in range(10):
        log.append(2, time_ms=1 << 40)
    assert not run(log, RetentionPolicy(500, None), wall_ms=1_000)
    assert run(log, RetentionPolicy(500, None, 11), wall_ms=1_000)
    assert log.record.start == 10


def test_bytes_are_cut_down_to_no_less_than_the_bound() -> None:
    log = a_log()
    for _ in range(20):
        log.append(1, width=1_000)
    piece = log.record.size // 20
    assert run(log, RetentionPolicy(None, 5 * piece - 1))
    assert log.record.start == 15
    assert log.record.size == stored_size(log) == 5 * piece


def test_what_may_yet_be_cut_does_not_count_as_kept() -> None:
    log = a_log()
    for _ in range(20):
        log.append(1, width=1_000)
    piece = log.record.size // 20
    assert run(log, RetentionPolicy(None, 5 * piece), limit=16, uncertain=4 * piece)
    assert log.record.start == 11
    assert log.record.size == stored_size(log)


def test_no_limit_keeps_everything() -> None:
    log = a_log()
    log.append()
    assert not run(log, RetentionPolicy(None, None), wall_ms=1 << 50)


def test_nothing_at_or_above_the_limit_goes() -> None:
    log = a_log()
    for _ in range(6):
        log.append(10)
    assert run(log, RetentionPolicy(1, 0), wall_ms=1_000, limit=35)
    assert log.record.start == 30


def test_what_is_parked_before_the_first_batch_is_not_read_before_it_expires() -> None:
    log = a_log()
    for _ in range(3):
        log.control()
    log.append(5, time_ms=100)
    # If it were read it would be found to be damaged.
    writes = WriteSet()
    writes.put("log", log_key(TOPIC, QUEUE, 0, 1), b"nothing that could be read")
    log.storage.write(writes)
    assert not run(log, RetentionPolicy(1_000, None), wall_ms=900)
    assert not run(log, RetentionPolicy(None, 1 << 20), wall_ms=900)
    with pytest.raises(DamagedBatch):
        run(log, RetentionPolicy(1_000, None), wall_ms=5_000)


def test_q10_an_idle_queue_may_be_emptied_and_keeps_its_end() -> None:
    log = a_log()
    for _ in range(3):
        log.append(5)
        log.control()
    assert run(log, RetentionPolicy(1, None), wall_ms=1_000)
    assert (log.record.start, log.record.end) == (15, Position(15, 1))
    found = open_queue(log.storage, TOPIC, QUEUE)
    assert found.damage is None
    assert found.record == log.record
    assert log.record.size == stored_size(log) > 0


def test_control_entries_go_with_the_batch_behind_them() -> None:
    log = a_log()
    log.control()
    log.append(2)
    log.control()
    log.append(2, time_ms=5_000)
    assert run(log, RetentionPolicy(1_000, None), wall_ms=5_500)
    assert log.record.start == 2
    assert log.storage.get("log", log_key(TOPIC, QUEUE, 2, 0)) is not None
    assert log.record.size == stored_size(log)
    assert open_queue(log.storage, TOPIC, QUEUE).damage is None


def test_very_many_control_entries_wait_for_their_block(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log()
    for _ in range(11):
        log.control()
    monkeypatch.setattr(index, "BLOCK_BYTES", stored_size(log))
    for _ in range(BLOCK_ENTRIES):
        log.append()
    assert not run(log, RetentionPolicy(1_000, None), wall_ms=5_500)
    log.advance()
    # It ends with the batch, and so never reaches beyond a limit behind this.
    block = block_at(log.storage, TOPIC, QUEUE, 0)
    assert block is not None
    assert block.next_offset == 1
    assert run(log, RetentionPolicy(1_000, None), wall_ms=5_500)
    assert log.record.start == BLOCK_ENTRIES
    assert log.record.size == stored_size(log)


MANY_CONTROLS = 5_000


def test_many_control_entries_go_though_their_block_reaches_past_the_limit() -> None:
    """The limit of a follower is its leader's log start, and their blocks need not be the same."""
    log = a_log()
    for _ in range(MANY_CONTROLS):
        log.control()
    for _ in range(BLOCK_ENTRIES):
        log.append()
    log.advance()
    block = block_at(log.storage, TOPIC, QUEUE, 0)
    assert block is not None
    assert block.next_offset > 1
    assert run(log, RetentionPolicy(None, 0), limit=1)
    assert log.record.start == 1
    assert log.record.size == stored_size(log)


def test_many_control_entries_of_an_idle_queue_go_though_no_block_is_full() -> None:
    log = a_log()
    for _ in range(MANY_CONTROLS):
        log.control()
    log.append()
    log.advance()
    assert block_at(log.storage, TOPIC, QUEUE, 0) is None
    assert run(log, RetentionPolicy(1_000, None), wall_ms=5_500)
    assert log.record.start == 1
    assert log.record.size == stored_size(log) == 0


PARTED_BATCHES = BLOCK_ENTRIES - 1
"""With control entries in a row, which the index counts as one, these fill a block."""


def in_the_middle_of_a_block(monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log whose block was removed in part, down to more control entries than are read."""
    log = a_log()
    for number in range(PARTED_BATCHES):
        if number == 7:
            for _ in range(20):
                log.control(time_ms=100)
        log.append(time_ms=0 if number < 7 else 100, keys=[b"k"])
    log.advance()
    assert run(log, RetentionPolicy(50, None), wall_ms=100)
    assert log.record.start == 7
    # As if blocks had been larger when this one was built.
    monkeypatch.setattr(index, "BLOCK_BYTES", 500)
    return log


def test_very_many_control_entries_in_the_middle_of_a_block_go_with_its_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = in_the_middle_of_a_block(monkeypatch)
    block = block_at(log.storage, TOPIC, QUEUE, 7)
    assert block == (PARTED_BATCHES, stored_size(log), 100)
    assert log.index is not None
    found, _ = log.index.find_key(murmur3(b"k"), 1 << 60, 1 << 30, 7)
    assert found == list(range(PARTED_BATCHES - 1, 6, -1))
    assert run(log, RetentionPolicy(50, None), wall_ms=1_000)
    assert log.record.start == PARTED_BATCHES
    assert log.record.size == stored_size(log) == 0


def test_the_rest_of_a_block_that_an_older_version_did_not_cut_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = in_the_middle_of_a_block(monkeypatch)
    rest = block_at(log.storage, TOPIC, QUEUE, 7)
    assert rest is not None
    writes = WriteSet()
    index_rows.trim(log.storage, writes, TOPIC, QUEUE, rest.next_offset)
    whole = rest._replace(size=rest.size + 1_000)
    index_rows.put_block(writes, TOPIC, QUEUE, 0, whole, [], 0)
    log.storage.write(writes)
    new = WriteSet()
    index_rows.trim(log.storage, new, TOPIC, QUEUE, 7)
    log.storage.write(new)
    assert block_at(log.storage, TOPIC, QUEUE, 0) == whole
    assert run(log, RetentionPolicy(50, None), wall_ms=1_000)
    assert log.record.start == PARTED_BATCHES
    assert log.record.size == stored_size(log) == 0


def test_whole_blocks_go_at_once_and_their_index_rows_with_them() -> None:
    log = a_log()
    for number in range(4 * BLOCK_ENTRIES):
        log.append(time_ms=number, timestamps=[number], keys=[b"k"])
    log.advance()
    cut = 2 * BLOCK_ENTRIES + 10
    while run(log, RetentionPolicy(0, None), wall_ms=cut):
        pass
    assert log.record.start == cut
    assert log.record.size == stored_size(log)
    rows = log.storage.scan("index", queue_key(TOPIC, QUEUE, b"b"), queue_end(TOPIC, QUEUE))
    blocks = [key for key, _ in rows if key[8:9] == b"b"]
    assert len(blocks) == 2
    assert log.index is not None
    assert log.index.offset_for_time(0, log.record.start, log.record.hw) == (cut, cut)
    assert log.index.offset_for_time(cut + 30, cut, log.record.hw) == (cut + 30, cut + 30)
    found, _ = log.index.find_key(murmur3(b"k"), 1 << 60, 1 << 30, log.record.start)
    assert found == list(range(4 * BLOCK_ENTRIES - 1, cut - 1, -1))


def test_a_block_that_reaches_past_the_limit_goes_batch_by_batch() -> None:
    """What is parked, or not yet below the HW, lies in a block that the index has finished."""
    log = a_log()
    for _ in range(3 * BLOCK_ENTRIES):
        log.append()
    log.advance()
    limit = BLOCK_ENTRIES + 7
    while run(log, RetentionPolicy(0, None), wall_ms=1_000, limit=limit):
        assert log.record.start <= limit
    assert log.record.start == limit
    assert log.storage.get("log", log_key(TOPIC, QUEUE, limit)) is not None
    assert log.record.size == stored_size(log)


def test_removing_what_the_index_has_not_reached_moves_the_pass_on() -> None:
    log = a_log()
    for number in range(50):
        log.append(time_ms=number, timestamps=[number])
    assert run(log, RetentionPolicy(0, None), wall_ms=20)
    assert checkpoint(log.storage, TOPIC, QUEUE) == 20
    log.advance()
    assert log.index is not None
    assert log.index.reach == Position(50, 0)
    assert log.index.offset_for_time(30, 20, log.record.hw) == (30, 30)


def test_one_call_removes_a_bounded_number() -> None:
    log = a_log()
    for _ in range(STEPS + 50):
        log.append()
    assert run(log, RetentionPolicy(0, None), wall_ms=1_000)
    assert log.record.start == STEPS
    assert run(log, RetentionPolicy(0, None), wall_ms=1_000)
    assert log.record.start == STEPS + 50


@pytest.mark.parametrize("seed", seeds(5))
def test_size_and_log_agree_after_any_mixture(seed: int) -> None:
    rng = random.Random(seed)
    log = a_log()
    now = 0
    for _ in range(900):
        now += rng.randint(0, 3)
        if rng.random() < 0.1:
            log.control(time_ms=now)
        else:
            log.append(rng.randint(1, 4), width=rng.choice((1, 500)), time_ms=now)
        if rng.random() < 0.05:
            log.advance()
        if rng.random() < 0.02:
            run(log, RetentionPolicy(rng.choice((None, 300)), rng.choice((None, 40_000))), now)
        if rng.random() < 0.02:
            log.index = new_index(log.storage, log.record.start)
    assert log.record.start > 0
    assert log.record.size == stored_size(log)
    assert open_queue(log.storage, TOPIC, QUEUE).damage is None
    log.advance()
    assert log.index is not None
    assert log.index.reach == log.record.end
