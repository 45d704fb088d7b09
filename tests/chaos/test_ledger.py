"""The judge of the chaos runs can object: each promise is broken in a history that it is shown."""

from __future__ import annotations

import pytest

from tests.chaos import ledger
from tests.chaos.ledger import judge
from tests.chaos.payload import keys, runs, values
from tests.chaos.record import Acked, Failed, Read, Record, Sent, Wrong
from tests.sim.judges import logs
from tests.sim.judges.logs import Stored, Stream

ONE, TWO = Stream("p", 0), Stream("q", 0)
STORED = [Stored(0, ONE, 0, 10), Stored(10, TWO, 0, 5), Stored(15, ONE, 10, 10)]


def history() -> list[Record]:
    """What clients saw when all went well."""
    return [
        Sent("p", 0, 20),
        Sent("q", 0, 6),
        Acked("p", 0, 0, 0, 10, 0.0, 1.0),
        Acked("p", 0, 10, 15, 10, 0.0, 1.0),
        Acked("q", 0, 0, 10, 5, 0.0, 1.0),
        Failed("q", 0, 5, 1, 1.0, "given up"),
        Read("r", 0, 0, "p", 0, 0, 10, 1.0),
        Read("r", 0, 10, "q", 0, 0, 5, 1.0),
        Read("r", 0, 15, "p", 0, 10, 10, 1.0),
    ]


def broken(records: list[Record], rows: list[Stored]) -> dict[str, int]:
    """The properties that the judge finds broken."""
    return dict(judge(records, {0: rows}, {"r": {0}}).broken)


def test_it_has_no_objection_to_what_is_right() -> None:
    verdict = judge(history(), {0: STORED}, {"r": {0}})
    assert verdict.clean
    counted = (verdict.sent, verdict.acked, verdict.failed, verdict.stored, verdict.read)
    assert counted == (26, 25, 1, 25, 25)


def test_a_failed_send_may_be_stored_once() -> None:
    rows = [*STORED, Stored(25, TWO, 5, 1)]
    records = [*history(), Read("r", 0, 25, "q", 0, 5, 1, 2.0)]
    assert broken(records, rows) == {}


def test_a_lost_tail() -> None:
    found = broken(history(), STORED[:2])
    assert found[logs.LOST] == 10
    assert found[logs.UNSTABLE] == 10


def test_another_message_at_an_acknowledged_offset() -> None:
    rows = [STORED[0], Stored(10, TWO, 1, 4), Stored(14, TWO, 0, 1), STORED[2]]
    assert broken(history(), rows)[logs.LOST] == 5


def test_a_doubled_batch() -> None:
    rows = [*STORED, Stored(25, ONE, 10, 10)]
    records = [*history(), Read("r", 0, 25, "p", 0, 10, 10, 2.0)]
    assert broken(records, rows) == {logs.DOUBLED: 10}


def test_two_batches_of_one_producer_swapped() -> None:
    rows = [Stored(0, ONE, 10, 10), STORED[1], Stored(15, ONE, 0, 10)]
    records = [
        *(r for r in history() if not (isinstance(r, Acked | Read) and r.producer == "p")),
        Acked("p", 0, 0, 15, 10, 0.0, 1.0),
        Acked("p", 0, 10, 0, 10, 0.0, 1.0),
        Read("r", 0, 0, "p", 0, 10, 10, 1.0),
        Read("r", 0, 15, "p", 0, 0, 10, 1.0),
    ]
    assert broken(records, rows) == {logs.REORDERED: 10}


def test_a_gap_in_the_offsets() -> None:
    rows = [*STORED[:2], Stored(16, ONE, 10, 10)]
    assert logs.GAPS in broken(history(), rows)


@pytest.mark.parametrize("stranger", [Stored(25, Stream("x", 0), 0, 1), Stored(25, ONE, 20, 1)])
def test_what_nobody_sent(stranger: Stored) -> None:
    assert broken(history(), [*STORED, stranger])[logs.PHANTOM] == 1


def test_a_reader_that_missed_the_end() -> None:
    assert broken(history()[:-1], STORED) == {ledger.UNREAD: 10}


def test_a_send_without_an_outcome_and_one_with_two() -> None:
    records = history()
    assert broken([r for r in records if not isinstance(r, Failed)], STORED) == {logs.OUTCOMES: 1}
    assert broken([*records, Failed("p", 0, 19, 1, 2.0, "late")], STORED)[logs.OUTCOMES] == 1


def test_nothing_acknowledged_and_nothing_read() -> None:
    silent: list[Record] = [record for record in history() if isinstance(record, Sent)]
    silent += [Failed("p", 0, 0, 20, 1.0, "given up"), Failed("q", 0, 0, 6, 1.0, "given up")]
    # Nothing is stored, so nothing is lost, doubled or unread.
    assert broken(silent, []) == {ledger.SERVED: 2}
    unread = [record for record in history() if not isinstance(record, Read)]
    assert dict(judge(unread, {0: STORED}, {}).broken) == {ledger.SERVED: 1}
    assert dict(judge([], {}, {}).broken) == {ledger.SERVED: 1}


def test_one_queue_of_two_that_is_never_served() -> None:
    verdict = judge(history(), {0: STORED, 1: []}, {"r": {0, 1}})
    assert dict(verdict.broken) == {ledger.SERVED: 2}


@pytest.mark.parametrize(("healed", "found"), [(1.5, {}), (0.5, {ledger.SERVED: 1})])
def test_a_send_that_fails_after_healing(healed: float, found: dict[str, int]) -> None:
    assert dict(judge(history(), {0: STORED}, {"r": {0}}, healed=healed).broken) == found


def test_what_a_reader_saw_and_must_not() -> None:
    records = [*history(), Wrong("r", "a fail-over never rewinds a reader", "told 7", 1.0)]
    assert broken(records, STORED) == {"a fail-over never rewinds a reader": 1}


def test_messages_tell_who_sent_them() -> None:
    one, two = Stream("p", 2), Stream("q", 2)
    sent = [*values(one, 8, 30), *values(two, 0, 3), *values(one, 40, 1)]
    sent_keys: list[bytes | None] = [
        *keys(one, 8, 30, 4),
        *keys(two, 0, 3, 4),
        *keys(one, 40, 1, 4),
    ]
    assert runs(sent, sent_keys, 4) == [(one, 8, 30), (two, 0, 3), (one, 40, 1)]
    with pytest.raises(ValueError, match="keys of"):
        runs(sent, sent_keys[::-1], 4)
    with pytest.raises(ValueError, match="not what was sent"):
        runs([sent[0][:-1] + b"?"], sent_keys[:1], 4)
