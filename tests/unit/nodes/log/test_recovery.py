"""What a broker finds when it starts: whole queues, and each kind of damage (Q10, Q13, Q14)."""

import msgspec
import pytest

from logboom.nodes.log.keys import EPOCHS, RECORD, Position, log_key, queue_key
from logboom.nodes.log.log_state import (
    LogState,
    decode_epochs,
    decode_record,
    encode_epochs,
    forget_queue,
    put_record,
)
from logboom.nodes.log.recovery import RecoveredQueue, open_queue, open_queues
from logboom.nodes.log.storage import FAMILIES, Family, WriteSet
from logboom.wire.errors import DataDamaged
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.log.logs import QUEUE, TOPIC, Log


def opened(log: Log) -> RecoveredQueue:
    return open_queue(log.storage, TOPIC, QUEUE)


def a_log(batches: int = 12) -> Log:
    log = Log(SimulatedStorage("store"))
    for number in range(batches):
        log.append(3, time_ms=number, epoch=1 + number // 5)
        if number % 4 == 0:
            log.control(time_ms=number, epoch=1 + number // 5)
    return log


def remove(log: Log, at: Position) -> None:
    writes = WriteSet()
    writes.delete("log", log_key(TOPIC, QUEUE, *at))
    log.storage.write(writes)


def test_a_whole_queue_opens_as_it_was_left() -> None:
    log = a_log()
    found = opened(log)
    assert found.damage is None
    assert found.record == log.record
    assert found.record.end == Position(36, 0)
    assert found.epochs == log.epochs == [(1, (0, 0)), (2, (15, 1)), (3, (30, 0))]


def test_a_log_that_ends_with_a_control_entry_opens() -> None:
    log = a_log(1)
    assert log.record.end == Position(3, 1)
    assert opened(log).damage is None


def test_every_queue_is_found_in_order() -> None:
    storage = SimulatedStorage("store")
    writes = WriteSet()
    for topic_id, queue in ((9, 0), (2, 5), (2, 4294967295), (3, 0)):
        put_record(writes, topic_id, queue, LogState())
    storage.write(writes)
    found = [(queue.topic_id, queue.queue) for queue in open_queues(storage)]
    assert found == [(2, 5), (2, 4294967295), (3, 0), (9, 0)]
    assert all(queue.damage is None for queue in open_queues(storage))


def test_a_forgotten_queue_is_gone_and_its_neighbours_stay() -> None:
    storage = SimulatedStorage("store")
    writes = WriteSet()
    for queue in (0, 1, 2):
        put_record(writes, TOPIC, queue, LogState())
    forget_queue(writes, TOPIC, 1)
    storage.write(writes)
    assert [queue.queue for queue in open_queues(storage)] == [0, 2]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_queue_is_found_by_what_any_family_holds_of_it(family: Family) -> None:
    """Versions that forgot a family left rows of deleted queues: unfound, nothing removes them."""
    storage = SimulatedStorage("store")
    writes = WriteSet()
    writes.put(family, queue_key(TOPIC, 1, b"z"), b"something")
    writes.put(family, b"scrub", b"the broker's own")
    storage.write(writes)
    (found,) = open_queues(storage)
    assert (found.topic_id, found.queue) == (TOPIC, 1)


def test_q10_an_end_that_went_back_is_damage() -> None:
    log = a_log()
    remove(log, Position(33, 0))
    assert "not 36" in str(opened(log).damage)


def test_q10_an_emptied_log_is_damage() -> None:
    log = a_log(2)
    for at in (Position(0, 0), Position(3, 0), Position(3, 1)):
        remove(log, at)
    assert "empty" in str(opened(log).damage)


def test_q10_an_empty_queue_keeps_its_offsets() -> None:
    log = a_log(2)
    for at in (Position(0, 0), Position(3, 0), Position(3, 1)):
        remove(log, at)
    writes = WriteSet()
    kept = msgspec.structs.replace(log.record, start=6, end=Position(6, 0), size=0)
    put_record(writes, TOPIC, QUEUE, kept)
    log.storage.write(writes)
    found = opened(log)
    assert found.damage is None
    assert found.record.end == Position(6, 0)


def test_a_hole_in_the_tail_is_damage() -> None:
    log = a_log()
    remove(log, Position(30, 0))
    assert "breaks at 30" in str(opened(log).damage)


def test_a_missing_first_entry_is_damage() -> None:
    log = a_log()
    remove(log, Position(0, 0))
    assert "first entry" in str(opened(log).damage)


@pytest.mark.parametrize("at", [5, 30, 60, 110])
def test_q14_a_flipped_bit_in_the_tail_is_damage(at: int) -> None:
    log = a_log()
    key = log_key(TOPIC, QUEUE, 33)
    entry = bytearray(log.storage.get("log", key) or b"")
    entry[at] ^= 1
    writes = WriteSet()
    writes.put("log", key, bytes(entry))
    log.storage.write(writes)
    assert opened(log).damage is not None


def test_entries_without_a_record_are_damage() -> None:
    log = a_log(1)
    writes = WriteSet()
    writes.delete("state", queue_key(TOPIC, QUEUE, RECORD))
    writes.delete("state", queue_key(TOPIC, QUEUE, EPOCHS))
    log.storage.write(writes)
    (found,) = open_queues(log.storage)
    assert "record is missing" in str(found.damage)


def test_an_epoch_that_the_table_does_not_know_is_damage() -> None:
    log = a_log()
    writes = WriteSet()
    writes.put("state", queue_key(TOPIC, QUEUE, EPOCHS), encode_epochs(log.epochs[:1]))
    log.storage.write(writes)
    assert "lacks epoch 3" in str(opened(log).damage)


def test_an_append_time_later_than_the_record_says_is_damage() -> None:
    log = a_log()
    writes = WriteSet()
    put_record(writes, TOPIC, QUEUE, msgspec.structs.replace(log.record, append_time_ms=3))
    log.storage.write(writes)
    assert "append time" in str(opened(log).damage)


@pytest.mark.parametrize("stored", [b"", b"\x01", bytes(57), b"\x02" + bytes(56)])
def test_a_record_that_cannot_be_read_is_damage(stored: bytes) -> None:
    with pytest.raises(DataDamaged):
        decode_record(stored)


def test_records_and_epoch_tables_come_back_as_they_were() -> None:
    record = LogState(5, Position(1 << 60, 7), -3, Position(9, 1), Position(8, 0), 1 << 50)
    assert decode_record(record.encode()) == record
    table = [(1, Position(0, 0)), (4294967295, Position(1 << 60, 3))]
    assert decode_epochs(encode_epochs(table)) == table
    with pytest.raises(DataDamaged):
        decode_epochs(b"123")
