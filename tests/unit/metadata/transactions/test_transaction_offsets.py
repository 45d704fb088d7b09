"""Offsets that transactions commit where nobody is a member: what is known of a queue stays true."""

from __future__ import annotations

from tests.unit.metadata.transactions.tables import TransactionTables


def left_behind() -> TransactionTables:
    """Group g without a member; of queue 0 offsets 7 and 8 were finished above offset 5."""
    tables = TransactionTables()
    tables.join("m1")
    tables.settle()
    tables.commit("m1", tables.last(tables.key(0), 5, seen_end=20, ranges=b"7-8"))
    tables.leave("m1")
    return tables


def test_what_a_transaction_saw_of_the_end_is_remembered() -> None:
    tables = left_behind()
    tables.commit_txn(1, consumed=[tables.consumed([tables.offset(0, 6, seen_end=40)])])
    # A leader that took over may show a smaller end for a while (G3).
    tables.commit_txn(2, consumed=[tables.consumed([tables.offset(0, 30, seen_end=10)])])
    assert tables.committed(0) == 30
    beyond = tables.consumed([tables.offset(0, 41, seen_end=10)])
    assert tables.refused_txn(3, consumed=[beyond]) == "BEYOND_END"


def test_finished_ranges_end_where_a_transaction_moves_a_queue() -> None:
    tables = left_behind()
    topic = tables.group.topics[tables.key(0)[0]]
    assert topic.ranges == {0: b"7-8"}
    tables.commit_txn(1, consumed=[tables.consumed([tables.offset(0, 4)])])
    assert topic.ranges == {0: b"7-8"}
    tables.commit_txn(2, consumed=[tables.consumed([tables.offset(0, 9)])])
    assert (tables.committed(0), topic.ranges) == (9, {})


def test_of_a_topic_that_the_group_does_not_read_offsets_are_checked_too() -> None:
    tables = left_behind()
    tables.create("u", queues=1)
    beyond = tables.consumed([tables.offset(0, 1001, topic="u")])
    assert tables.refused_txn(1, consumed=[beyond]) == "BEYOND_END"
    negative = tables.consumed([tables.offset(0, -1, topic="u")])
    assert tables.refused_txn(1, consumed=[negative]) == "INVALID_ARGUMENT"


def test_who_opened_nothing_has_no_epoch() -> None:
    # Leaders' aborts of orphans make an application known that nobody has opened.
    tables = TransactionTables()
    tables.abort_txn(0, tables.parked(0))
    assert tables.app.epoch == 0
    assert tables.refused_txn(1, epoch=1) == "INVALID_ARGUMENT"
    assert tables.open() == (1, -1)
