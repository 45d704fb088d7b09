"""Entries that stand for lost messages: the log goes on behind them, and readers pass over them."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.recovery import open_queue
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.entry_reader import read_batches
from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.wire.batch import MAX_COUNT, encode_control, encode_lost, peek, stamp, validate_batch
from logboom.wire.errors import DamagedBatch, InvalidRequest
from logboom.wire.head import ControlKind
from tests.unit.nodes.log.replica_logs import Log
from tests.unit.nodes.rig import Rig, pull


def append_lost(log: Log, count: int) -> None:
    """As the recovery of a store writes it, and as a follower takes it."""
    replica = log.replica
    writes = WriteSet()
    lost = stamp(encode_lost(count), replica.end.offset, replica.leader_epoch, 7)
    replica.append_entry(lost, writes, log.cache)
    log.commit(writes)


def a_log() -> Log:
    """Messages 0 to 3, 4 to 13 lost, a control entry, 14 to 15, 16 to 18 lost."""
    log = Log()
    log.lead(1, [2, 2])
    append_lost(log, 10)
    log.lead(1, [0, 2])
    append_lost(log, 3)
    log.replica.raise_hw(log.replica.end)
    return log


def offsets(log: Log, offset: int, most: int = 0) -> tuple[list[int], int]:
    """Base offsets of the batches that a pull gets, and where the next one begins."""
    found = read_batches(log.replica, log.storage, offset, 1 << 20, most)
    return [peek(bytes(batch)).base_offset for batch in found.batches], found.next_offset


def test_it_takes_offsets_and_readers_pass_over_it() -> None:
    log = a_log()
    assert log.replica.end == Position(19)
    assert offsets(log, 0) == ([0, 2, 14], 19)
    assert offsets(log, 3, 1) == ([2], 4)
    assert offsets(log, 4) == ([14], 19)
    assert offsets(log, 9, 1) == ([14], 16)
    assert offsets(log, 17) == ([], 19)


def test_it_outlives_a_restart_and_travels_to_followers() -> None:
    log, other = a_log(), Log()
    log.reopen()
    assert open_queue(log.storage, 1, 0).damage is None
    other.follow(log, 1, 50)
    assert other.log() == log.log()
    assert offsets(other, 4)[0] == []
    other.replica.raise_hw(other.replica.end)
    assert offsets(other, 4) == ([14], 19)


def test_no_time_and_no_block_of_the_index_ends_in_it() -> None:
    log = a_log()
    index = log.replica.index
    assert index.offset_for_time(5, 0, log.replica.hw) == (0, 5)
    assert index.offset_for_time(-(1 << 63), 4, log.replica.hw) == (14, 5)
    assert index.offset_for_time(6, 0, log.replica.hw) == (19, -1)


def test_a_subscription_counts_it_as_acknowledged() -> None:
    entry = stamp(encode_lost(5), 3, 1, 7)
    verdict = EntryFilter().judge(Entry(validate_batch(entry), entry), 0b11101)
    assert verdict is not None
    assert verdict.acked == 0b11101
    assert not verdict.deliver


def test_only_a_lost_entry_may_have_a_count_and_it_must() -> None:
    for count in (0, -1, MAX_COUNT + 1):
        with pytest.raises(InvalidRequest):
            encode_lost(count)
    with pytest.raises(InvalidRequest):
        encode_control(ControlKind.LOST, b"")
    assert validate_batch(stamp(encode_lost(MAX_COUNT), 5, 1, 7)).next_offset == 5 + MAX_COUNT


def test_no_producer_may_write_it() -> None:
    with pytest.raises(DamagedBatch):
        validate_batch(encode_lost(3), stamped=False)


def test_a_pull_in_it_is_sent_behind_it() -> None:
    rig = Rig()
    rig.lead()
    replica = rig.replica()
    writes = WriteSet()
    replica.append_entry(stamp(encode_lost(8), 0, 1, 1), writes, rig.broker.queues.cache)
    replica.stage_record(writes)
    rig.storage.write(writes)
    replica.written = replica.synced = replica.end
    replica.raise_hw(replica.end)
    client = rig.client()
    client.ask(pull(3))
    answer = client.answer()
    assert (answer.status, answer.next_offset, answer.max_offset) == ("NO_MATCHED_MESSAGE", 8, 8)
    client.ask(pull(3, tags=["x"]))
    rig.settle(0.1)
    assert client.answer().next_offset == 8
    assert log_key(1, 0, 0) in rig.storage.content("log")
