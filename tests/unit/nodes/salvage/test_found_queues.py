"""Which entries make up a queue's log, and what is missing of it."""

from __future__ import annotations

from logboom.nodes.log.keys import Position, position_of
from logboom.nodes.log.log_state import LogState
from logboom.nodes.salvage.found_queues import (
    EntryChain,
    FoundEntry,
    FoundQueue,
    OffsetGap,
    find_chain,
)
from logboom.nodes.salvage.log_rewriter import rewrite_log
from logboom.wire.batch import encode_batch, encode_control, peek, stamp, validate_batch
from logboom.wire.head import ControlKind


def find(*entries: tuple[int, int, int, int], record: LogState | None = None) -> FoundQueue:
    """What was found: (offset, side, messages, epoch) of each entry; 0 messages: a control entry."""
    found = FoundQueue()
    found.record = record
    for offset, side, count, epoch in entries:
        after = Position(offset + count) if count else Position(offset, side + 1)
        kind = ControlKind.MESSAGES if count else ControlKind.DECIDED
        found.entries[Position(offset, side)] = FoundEntry(b"", after, epoch, 5, 100, kind)
    return found


def places(chain: EntryChain) -> list[tuple[int, int]]:
    return [(place.offset, place.side) for place, _ in chain.entries]


def test_a_log_without_a_hole() -> None:
    chain = find_chain(find((3, 0, 2, 1), (5, 0, 0, 1), (5, 1, 4, 2)))
    assert (chain.start, chain.end, chain.gaps, chain.controls) == (3, Position(9), [], 0)
    assert (chain.messages, chain.size, chain.lost) == (6, 300, 0)


def test_holes_are_named_also_before_the_first_and_behind_the_last() -> None:
    record = LogState(start=2, end=Position(40, 2))
    chain = find_chain(find((5, 1, 3, 1), (12, 2, 2, 1), (20, 0, 1, 2), record=record))
    assert chain.gaps == [OffsetGap(2, 5), OffsetGap(8, 12), OffsetGap(14, 20), OffsetGap(21, 40)]
    assert (chain.start, chain.end) == (5, Position(40, 2))
    assert chain.controls == 1 + 2 + 2


def test_what_retention_removed_is_not_brought_back() -> None:
    chain = find_chain(find((0, 0, 5, 1), (5, 0, 5, 1), record=LogState(5, Position(10))))
    assert places(chain) == [(5, 0)]
    assert chain.gaps == []


def test_a_later_leaders_history_counts() -> None:
    # Epoch 1 wrote 0 to 30, was cut at 10, and epoch 2 wrote other batches from there on.
    old = [(at, 0, 5, 1) for at in range(0, 30, 5)]
    assert places(find_chain(find(*old, (10, 0, 7, 2), (17, 0, 7, 2)))) == [
        *[(0, 0), (5, 0), (10, 0), (17, 0)]
    ]
    assert places(find_chain(find(*old, (8, 0, 30, 2)))) == [(0, 0), (8, 0)]
    assert find_chain(find(*old, (8, 0, 30, 2))).gaps == [OffsetGap(5, 8)]


def test_a_queue_of_which_nothing_is_left_keeps_its_end() -> None:
    chain = find_chain(find(record=LogState(7, Position(50))))
    assert (chain.start, chain.end, chain.gaps) == (50, Position(50), [OffsetGap(7, 50)])
    assert find_chain(find(record=LogState(7, Position(7)))).gaps == []


def rewritten(entries: dict[Position, bytes], record: LogState) -> list[tuple[Position, bytes]]:
    """The log that is written of entries and what their record says."""
    found = FoundQueue()
    found.record = record
    for at, entry in entries.items():
        head = validate_batch(entry)
        after = Position(at.offset + head.count) if head.count else Position(at.offset, at.side + 1)
        found.entries[at] = FoundEntry(entry, after, head.leader_epoch, 5, len(entry), head.kind)
    written = []
    for writes in rewrite_log((1, 0), find_chain(found), lambda _place, held: bytes(held.value)):
        for _, family, key, value in writes.operations:
            if family == "log" and len(key) == 20:
                written.append((position_of(key), value))
    return written


def test_decisions_are_carried_out_anew_only_where_something_is_lost() -> None:
    decided = stamp(encode_control(ControlKind.DECIDED, b"\x90"), 2, 1, 5)
    batch = stamp(encode_batch([b"a", b"b"], now_ms=1), 0, 1, 5)
    entries = {Position(0): batch, Position(2): decided}
    assert rewritten(entries, LogState(0, Position(2, 1))) == list(entries.items())
    short = rewritten(entries, LogState(0, Position(6)))
    assert [(place, peek(entry).kind) for place, entry in short] == [
        (Position(0), ControlKind.MESSAGES),
        (Position(2), ControlKind.PRODUCER_EXPIRY),
        (Position(2, 1), ControlKind.LOST),
    ]
    assert peek(short[-1][1]).next_offset == 6


def test_a_long_gap_becomes_several_entries() -> None:
    batch = stamp(encode_batch([b"a"], now_ms=1), 0, 4, 5)
    written = rewritten({Position(0): batch}, LogState(0, Position(3_000_000, 2)))
    heads = [validate_batch(entry) for _, entry in written]
    assert [head.count for head in heads] == [1, 1 << 20, 1 << 20, 3_000_000 - 1 - (2 << 20), 0, 0]
    assert {head.leader_epoch for head in heads} == {4}
    assert written[-1][0] == Position(3_000_000, 1)
