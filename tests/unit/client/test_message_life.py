"""The life of a message, from what the cluster told."""

from __future__ import annotations

import msgspec
import pytest

from logboom.client.admin_flows import message_facts
from logboom.client.admin_flows.message_life import (
    CopyFacts,
    FinishedOffsets,
    MessageFacts,
    ParkedFacts,
    ReaderFacts,
    message_life,
)
from logboom.client.flows import run_flow
from logboom.client.results import Message
from logboom.wire.backup_messages import EntriesFetched
from logboom.wire.batch import encode_batch, encode_control, peek, stamp
from logboom.wire.head import BatchHead, ControlKind
from logboom.wire.parking import encode_parked
from logboom.wire.transactions import HALF, TransactionId
from logboom.wire.validation import crc32c
from logboom.wire.view import QueueView, TopicConfig, TopicView

PLACE = ("orders", 0)
RETRY, DEAD = "%RETRY%pay", "%DLQ%pay"


def head_of(producer: int = 7) -> BatchHead:
    """The head of a batch at 10 to 12, stored at 2,000."""
    batch = encode_batch(
        [b"a", b"b", b"c"],
        now_ms=1_000,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=40 if producer >= 0 else -1,
    )
    return peek(stamp(batch, 10, 3, 2_000))


def facts(
    *readers: ReaderFacts,
    offset: int = 11,
    head: BatchHead | None = None,
    parked: ParkedFacts | None = None,
    released: bool = False,
) -> MessageFacts:
    """Facts about a message of that batch, in a queue that holds 5 to 99."""
    headers = {"traceparent": b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", "price": b"12"}
    message = None
    if 10 <= offset < 13:
        message = Message("orders", 0, offset, b"key", b"b", "late", headers, 1_000)
    known = head_of() if head is None else head
    stored = None if message is None else known
    return MessageFacts(
        *("orders", 0, offset, 5, 100, message, stored),
        released,
        parked,
        list(readers),
        [],
    )


def group(floor: int | None, *copies: CopyFacts, **others: object) -> ReaderFacts:
    """A group that has finished everything below `floor`."""
    told = ReaderFacts("group", "pay", "", {PLACE: FinishedOffsets(floor, [])}, copies=list(copies))
    return msgspec.structs.replace(told, **others)


def copy(topic: str, offset: int, attempt: int, at_ms: int, due_ms: int | None = None) -> CopyFacts:
    """A copy of the message."""
    return CopyFacts(topic, 0, offset, attempt, "OSError: closed", at_ms, due_ms)


def test_who_produced_it_and_when() -> None:
    life = message_life(facts())
    origin = life.origin
    assert life.state == "stored"
    assert origin is not None
    assert (origin.producer_id, origin.producer_epoch, origin.sequence) == (7, 0, 41)
    assert (origin.message_ms, origin.stored_ms, origin.batch_first) == (1_000, 2_000, 10)
    assert origin.traceparent == f"00-{'a' * 32}-{'b' * 16}-01"
    assert [event.what for event in life.events] == ["produced", "stored"]
    assert any("user" in each for each in life.unknown)


def test_a_producer_without_an_id() -> None:
    life = message_life(facts(head=head_of(producer=-1)))
    assert life.origin is not None
    assert life.origin.producer_id is None
    assert any("not idempotent" in each for each in life.unknown)


@pytest.mark.parametrize(
    ("offset", "state", "word"),
    [(4, "removed", "retention"), (50, "missing", "compaction"), (100, "not yet", "ends at 100")],
)
def test_an_offset_without_a_message(offset: int, state: str, word: str) -> None:
    life = message_life(facts(offset=offset))
    assert (life.state, life.message, life.origin) == (state, None, None)
    assert any(word in each for each in life.unknown)


def test_what_waited_for_a_time() -> None:
    life = message_life(facts(parked=ParkedFacts(1_001, 1_900, None), released=True))
    assert life.waited is not None
    assert (life.waited.kind, life.waited.parked_ms, life.waited.due_ms) == (
        "delayed",
        1_001,
        1_900,
    )
    assert [event.what for event in life.events] == ["produced", "parked", "released"]


@pytest.mark.parametrize(
    ("carried", "parked_ms"), [(None, 2_000), (((3, 1), (7, 2)), None)], ids=["parked", "relocated"]
)
def test_when_what_was_relocated_was_parked_is_not_known(
    carried: tuple[tuple[int, int], tuple[int, int]] | None, parked_ms: int | None
) -> None:
    body = encode_parked(encode_batch([b"a"], now_ms=1_000), 9_000, carried)
    entry = stamp(encode_control(ControlKind.PARKED, body), 9, 3, 2_000)
    fetched = EntriesFetched(0, "here", 9, 1, 3, 3, 13, 0, 0, False, count=1, crc=crc32c(entry))
    topic = TopicView("orders", 1, TopicConfig(), [QueueView(["a"], "a", 3, 1, ["a"], [])], 1)
    flow = message_facts.parked_facts(topic, 0, head_of(), (9, 0), 1.0)
    parked = run_flow(flow, lambda _: (fetched, [entry]))
    assert parked == ParkedFacts(parked_ms, 9_000, None)
    life = message_life(facts(parked=parked, released=True))
    assert life.waited is not None
    assert (life.waited.parked_ms, life.waited.due_ms) == (parked_ms, 9_000)
    named = [event.what for event in life.events]
    assert ("parked" in named) == (parked_ms is not None)
    assert any("when it was parked" in each for each in life.unknown) == (parked_ms is None)


@pytest.mark.parametrize(("sequence", "kind"), [(4, "transaction"), (HALF, "half message")])
def test_what_waited_for_a_decision(sequence: int, kind: str) -> None:
    parked = ParkedFacts(1_001, None, TransactionId("bank", sequence, 2))
    life = message_life(facts(parked=parked, released=True))
    assert life.waited is not None
    assert (life.waited.kind, life.waited.app_id) == (kind, "bank")
    assert "bank" in next(event.text for event in life.events if event.what == "released")


def test_what_waited_for_something_that_is_not_known() -> None:
    life = message_life(facts(released=True))
    assert life.waited is not None
    assert life.waited.kind == "delayed or transaction"
    assert any("why it waited" in each for each in life.unknown)


@pytest.mark.parametrize(
    ("floor", "others", "state", "attempts"),
    [
        (12, {}, "finished", 1),
        (11, {"holder": "m1"}, "held", 0),
        (11, {"why": "the group has no member"}, "waits", 0),
        (None, {}, "unknown", None),
        (11, {"holder": "m1", "deliveries": 3}, "held", 3),
        (12, {"filter": "early"}, "not wanted", None),
        (12, {"filter": "late"}, "finished", 1),
        (12, {"filter": "* WHERE price > 13"}, "not wanted", None),
        (12, {"own_offsets": True}, "unknown", None),
    ],
)
def test_what_a_group_has_done(
    floor: int | None, others: dict[str, object], state: str, attempts: int | None
) -> None:
    (reader,) = message_life(facts(group(floor, **others))).readers
    assert (reader.state, reader.attempts) == (state, attempts)


def test_what_is_finished_above_the_commit_point() -> None:
    one = ReaderFacts("group", "pay", "", {PLACE: FinishedOffsets(6, [(9, 12)])}, holder="m")
    assert message_life(facts(one)).readers[0].state == "finished"
    assert message_life(facts(one, offset=12)).readers[0].state == "held"


def test_progress_that_is_not_told_whole() -> None:
    cut = FinishedOffsets(6, [(8, 9)], complete=False)
    assert (cut.finished(7), cut.finished(8), cut.finished(11)) == (False, True, None)


def test_a_retry_that_waits() -> None:
    waiting = group(12, copy(RETRY, -1, 3, 3_000, due_ms=9_000), copy(RETRY, 4, 2, 2_500))
    life = message_life(facts(waiting))
    assert (life.readers[0].state, life.readers[0].attempts) == ("retries", 2)
    assert [event.what for event in life.events][-2:] == ["retry", "retry waits"]


def test_a_copy_tells_of_a_failure_before_the_commit_does() -> None:
    (reader,) = message_life(facts(group(11, copy(RETRY, -1, 2, 2_500), holder="m"))).readers
    assert reader.state == "retries"
    assert "not committed yet" in reader.detail


def test_a_retry_that_was_handled() -> None:
    told = group(12, copy(RETRY, 4, 2, 2_500))
    told.progress[RETRY, 0] = FinishedOffsets(5, [])
    (reader,) = message_life(facts(told)).readers
    assert (reader.state, reader.attempts) == ("finished", 2)
    told.progress[RETRY, 0] = FinishedOffsets(4, [])
    (reader,) = message_life(facts(told)).readers
    assert (reader.state, reader.attempts) == ("retries", 1)


def test_a_dead_letter_and_its_redrive() -> None:
    dead = copy(DEAD, 0, 16, 3_000)
    (reader,) = message_life(facts(group(12, dead))).readers
    assert (reader.state, reader.attempts, reader.redriven) == ("dead letter", 16, 0)
    told = group(12, copy(RETRY, 5, 1, 3_000), dead)
    told.progress[RETRY, 0] = FinishedOffsets(6, [])
    life = message_life(facts(told))
    assert (life.readers[0].state, life.readers[0].redriven) == ("finished", 1)
    # In the same millisecond, the redrive follows from the dead letter.
    assert [event.what for event in life.events][-3:] == ["dead letter", "redrive", "finished"]


def test_why_copies_were_not_looked_for_is_said_once() -> None:
    one = group(12, unsearched="too large")
    other = group(12, unsearched="too large", name="tax")
    life = message_life(facts(one, other))
    (line,) = [each for each in life.unknown if "too large" in each]
    assert "group pay, group tax" in line
    assert "not all" in life.readers[0].detail


def test_a_life_without_a_message_that_readers_never_get() -> None:
    (reader,) = message_life(facts(group(3), offset=4)).readers
    assert reader.state == "finished"
    assert "retention" in reader.detail
