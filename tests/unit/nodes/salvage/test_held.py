"""Which entries make up a queue's log, and what is missing of it."""

from __future__ import annotations

from logboom.nodes.log.keys import Position, position_of
from logboom.nodes.log.records import QueueRecord
from logboom.nodes.salvage.held import Chain, Gap, Held, QueueFind, chain_of
from logboom.nodes.salvage.rewriting import rewrite
from logboom.wire.batch import check, encode_batch, encode_control, peek, stamp
from logboom.wire.head import Kind


def find(*entries: tuple[int, int, int, int], record: QueueRecord | None = None) -> QueueFind:
    """What was found: (offset, side, messages, epoch) of each entry; 0 messages: a control entry."""
    found = QueueFind()
    found.record = record
    for offset, side, count, epoch in entries:
        after = Position(offset + count) if count else Position(offset, side + 1)
        kind = Kind.MESSAGES if count else Kind.DECIDED
        found.entries[Position(offset, side)] = Held(b"", after, epoch, 5, 100, kind)
    return found


def places(chain: Chain) -> list[tuple[int, int]]:
    return [(place.offset, place.side) for place, _ in chain.entries]


def test_a_log_without_a_hole() -> None:
    chain = chain_of(find((3, 0, 2, 1), (5, 0, 0, 1), (5, 1, 4, 2)))
    assert (chain.start, chain.end, chain.gaps, chain.controls) == (3, Position(9), [], 0)
    assert (chain.messages, chain.size, chain.lost) == (6, 300, 0)


def test_holes_are_named_also_before_the_first_and_behind_the_last() -> None:
    record = QueueRecord(start=2, end=Position(40, 2))
    chain = chain_of(find((5, 1, 3, 1), (12, 2, 2, 1), (20, 0, 1, 2), record=record))
    assert chain.gaps == [Gap(2, 5), Gap(8, 12), Gap(14, 20), Gap(21, 40)]
    assert (chain.start, chain.end) == (5, Position(40, 2))
    assert chain.controls == 1 + 2 + 2


def test_what_retention_removed_is_not_brought_back() -> None:
    chain = chain_of(find((0, 0, 5, 1), (5, 0, 5, 1), record=QueueRecord(5, Position(10))))
    assert places(chain) == [(5, 0)]
    assert chain.gaps == []


def test_a_later_leaders_history_counts() -> None:
    # Epoch 1 wrote 0 to 30, was cut at 10, and epoch 2 wrote other batches from there on.
    old = [(at, 0, 5, 1) for at in range(0, 30, 5)]
    assert places(chain_of(find(*old, (10, 0, 7, 2), (17, 0, 7, 2)))) == [
        *[(0, 0), (5, 0), (10, 0), (17, 0)]
    ]
    assert places(chain_of(find(*old, (8, 0, 30, 2)))) == [(0, 0), (8, 0)]
    assert chain_of(find(*old, (8, 0, 30, 2))).gaps == [Gap(5, 8)]


def test_a_queue_of_which_nothing_is_left_keeps_its_end() -> None:
    chain = chain_of(find(record=QueueRecord(7, Position(50))))
    assert (chain.start, chain.end, chain.gaps) == (50, Position(50), [Gap(7, 50)])
    assert chain_of(find(record=QueueRecord(7, Position(7)))).gaps == []


def rewritten(entries: dict[Position, bytes], record: QueueRecord) -> list[tuple[Position, bytes]]:
    """The log that is written of entries and what their record says."""
    found = QueueFind()
    found.record = record
    for at, entry in entries.items():
        head = check(entry)
        after = Position(at.offset + head.count) if head.count else Position(at.offset, at.side + 1)
        found.entries[at] = Held(entry, after, head.leader_epoch, 5, len(entry), head.kind)
    written = []
    for writes in rewrite((1, 0), chain_of(found), lambda _place, held: bytes(held.value)):
        for _, family, key, value in writes.operations:
            if family == "log" and len(key) == 20:
                written.append((position_of(key), value))
    return written


def test_decisions_are_carried_out_anew_only_where_something_is_lost() -> None:
    decided = stamp(encode_control(Kind.DECIDED, b"\x90"), 2, 1, 5)
    batch = stamp(encode_batch([b"a", b"b"], now_ms=1), 0, 1, 5)
    entries = {Position(0): batch, Position(2): decided}
    assert rewritten(entries, QueueRecord(0, Position(2, 1))) == list(entries.items())
    short = rewritten(entries, QueueRecord(0, Position(6)))
    assert [(place, peek(entry).kind) for place, entry in short] == [
        (Position(0), Kind.MESSAGES),
        (Position(2), Kind.PRODUCER_EXPIRY),
        (Position(2, 1), Kind.LOST),
    ]
    assert peek(short[-1][1]).next_offset == 6


def test_a_long_gap_becomes_several_entries() -> None:
    batch = stamp(encode_batch([b"a"], now_ms=1), 0, 4, 5)
    written = rewritten({Position(0): batch}, QueueRecord(0, Position(3_000_000, 2)))
    heads = [check(entry) for _, entry in written]
    assert [head.count for head in heads] == [1, 1 << 20, 1 << 20, 3_000_000 - 1 - (2 << 20), 0, 0]
    assert {head.leader_epoch for head in heads} == {4}
    assert written[-1][0] == Position(3_000_000, 1)
