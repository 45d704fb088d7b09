"""What goes onto which pile, what is refused, and how much it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.client.producer_options import ProducerOptions
from logboom.client.send.producer_batch import (
    MAX_BATCH_COUNT,
    NOBODY,
    OVERHEAD,
    JoinedBatch,
    ProducerBatch,
)
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.errors import InvalidRequest, Unavailable, UnknownResource
from logboom.wire.hashing import queue_for
from logboom.wire.transactions import TransactionId
from tests.unit.client.send.test_queue_sender import Sent, Unlocked

LARGEST = 5_000


def buffer(
    queues: int = 4, clock: Callable[[], float] = lambda: 7.0, **options: Any
) -> SendBuffer[Sent]:
    made = SendBuffer[Sent](
        ProducerOptions(**options),
        lambda pile, index: (pile, index),
        Unlocked(),
        clock,
        lambda: None,
    )
    made.reshape("t", 1, queues, LARGEST, 0)
    return made


def test_a_key_chooses_its_queue() -> None:
    made = buffer()
    for key in (b"UA", b"AA", b"DL", b"B6"):
        assert made.send("t", b"x", key=key)[0].queue == queue_for(key, 4)


def test_without_a_key_a_batch_stays_together_and_the_next_moves_on() -> None:
    made = buffer(max_batch_bytes=1024)
    queues = [made.send("t", bytes(100))[0].queue for _ in range(36)]
    assert queues == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8 + [0] * 4


def test_keyed_and_keyless_messages_of_a_queue_share_its_pile_in_order() -> None:
    made = buffer(queues=1)
    piles = [made.send("t", b"0"), made.send("t", b"1", key=b"k"), made.send("t", b"2")]
    assert len({id(pile) for pile, _ in piles}) == 1
    pile = piles[0][0]
    assert pile.values == [b"0", b"1", b"2"]
    assert pile.keys == [None, b"k", None]


def test_columns_that_come_late_are_filled_up_from_the_beginning() -> None:
    made = buffer(queues=1)
    pile, _ = made.send("t", b"0")
    made.send("t", b"1", tag="late", headers={"a": b"b"}, timestamp_ms=5)
    made.send("t", b"2")
    assert pile.tags == [None, "late", None]
    assert pile.headers == [None, {"a": b"b"}, None]
    assert pile.times == [None, 5, None]
    pile.time_ms = 9
    assert [pile.time_of(n) for n in range(3)] == [9, 5, 9]


def test_send_many_stays_behind_what_was_sent_before() -> None:
    made = buffer(queues=1)
    first, _ = made.send("t", b"0")
    (second,) = made.send_many("t", [b"1", b"2"])
    third, _ = made.send("t", b"3")
    (line,) = made.topics["t"].queues
    joined, last = made.take(line, 9, filling=True)
    assert isinstance(joined, JoinedBatch)
    assert (joined.parts, last) == ([first, second], third)


def test_small_batches_that_wait_are_sent_as_one() -> None:
    made = buffer(queues=1)
    parts = [made.send_many("t", [b"%d" % n] * 3)[0] for n in range(4)]
    (line,) = made.topics["t"].queues
    (joined,) = made.take(line, 1, filling=False)
    assert isinstance(joined, JoinedBatch)
    assert joined.parts == parts
    assert joined.size == sum(part.size for part in parts) == made.added
    joined.encode(5, "none", NOBODY)
    joined.resolve(40)
    assert [part.get() for part in parts] == [40, 43, 46, 49]
    assert [part.count for part in parts] == [3, 3, 3, 3]


def test_joined_batches_have_at_most_the_size_of_a_batch() -> None:
    made = buffer(queues=1, max_batch_bytes=1024)
    parts = [made.send_many("t", [bytes(384)])[0] for _ in range(5)]
    (line,) = made.topics["t"].queues
    taken = made.take(line, 9, filling=False)
    assert [batch.size for batch in taken] == [800, 800, 400]
    assert taken[-1] is parts[-1]


def test_joined_batches_have_at_most_as_many_messages_as_a_batch() -> None:
    made = buffer(queues=1, max_batch_bytes=4 * 1024 * 1024)
    for _ in range(3):
        made.send_many("t", [None] * (MAX_BATCH_COUNT // 2))
    (line,) = made.topics["t"].queues
    taken = made.take(line, 9, filling=False)
    for batch in taken:
        batch.encode(5, "none", NOBODY)
    assert [batch.count for batch in taken] == [MAX_BATCH_COUNT, MAX_BATCH_COUNT // 2]


def test_batches_that_somebody_refers_to_are_not_joined() -> None:
    made = buffer(queues=1)
    (plain,) = made.send_many("t", [b"0"])
    (delayed,) = made.send_many("t", [b"1"])
    delayed.due_ms = 10_000_000
    encoded = made.send_batch("t", 0, encode_batch([b"2"], now_ms=1), 1, None)
    (following,) = made.send_many("t", [b"3"])
    made.parks = TransactionBatches(TransactionId("a", 1, 1))
    (parked,) = made.send_many("t", [b"4"])
    (line,) = made.topics["t"].queues
    assert made.take(line, 9, filling=False) == [plain, delayed, encoded, following, parked]


def test_batches_far_apart_in_time_are_not_joined() -> None:
    times = iter((1.0, 1.9, 2.1, 2.2))
    made = buffer(queues=1, clock=lambda: next(times))
    parts = [made.send_many("t", [b"x"])[0] for _ in range(4)]
    (line,) = made.topics["t"].queues
    taken = made.take(line, 9, filling=False)
    assert [getattr(batch, "parts", None) for batch in taken] == [parts[:2], parts[2:]]


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=4),
        st.none() | st.sampled_from(["a", "b"]),
        st.none() | st.dictionaries(st.sampled_from("xy"), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=4,
)


def messages(batch: ProducerBatch) -> list[tuple[Any, ...]]:
    """The messages of an encoded batch, each as a tuple of its columns."""
    opened = open_batch(batch.encoded)
    columns = (opened.values(), opened.keys(), opened.tags(), opened.timestamps())
    headers = [opened.headers(n) or None for n in range(len(columns[0]))]
    return list(zip(*columns, headers, strict=True))


@given(
    st.lists(
        st.tuples(
            ROWS, st.booleans(), st.sampled_from([None, "t", "each"]), st.booleans(),
            st.sampled_from([None, 5, "each"]),
        ),
        min_size=2,
        max_size=5,
    )
)  # fmt: skip
def test_a_joined_batch_has_what_its_parts_have(calls: list[Any]) -> None:
    made, alone = buffer(queues=1), buffer(queues=1)
    expected = []
    for rows, keyed, tagged, headed, timed in calls:
        columns: dict[str, Any] = {
            "keys": [row[1] for row in rows] if keyed else None,
            "tags": [row[2] for row in rows] if tagged == "each" else tagged,
            "headers": [row[3] for row in rows] if headed else None,
            "timestamps_ms": list(range(len(rows))) if timed == "each" else timed,
        }
        made.send_many("t", [row[0] for row in rows], **columns)
        (part,) = alone.send_many("t", [row[0] for row in rows], **columns)
        part.encode(77, "none", NOBODY)
        expected += messages(part)
    (line,) = made.topics["t"].queues
    (joined,) = made.take(line, 1, filling=False)
    joined.encode(77, "none", NOBODY)
    assert messages(joined) == expected


def test_send_many_does_not_keep_the_callers_lists() -> None:
    made = buffer(queues=1)
    values: list[bytes | None] = [b"a", b"b"]
    (pile,) = made.send_many("t", values)
    values[0] = b"changed"
    assert pile.values == [b"a", b"b"]


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.none() | st.binary(max_size=4)), min_size=1),
    st.integers(1, 5),
)
def test_send_many_loses_nothing_and_keeps_each_queues_order(
    rows: list[tuple[bytes, bytes | None]], queues: int
) -> None:
    made = buffer(queues, max_batch_bytes=1024)
    values, keys = [value for value, _ in rows], [key for _, key in rows]
    piles = made.send_many("t", values, keys)
    sent = [
        (pile.queue, value, key)
        for pile in piles
        for value, key in zip(pile.values, pile.keys or [], strict=True)
    ]
    assert sorted((v or b"", k or b"") for _, v, k in sent) == sorted(
        (v, k or b"") for v, k in rows
    )
    for queue in range(queues):
        keyed = [(v, k) for q, v, k in sent if q == queue and k is not None]
        assert keyed == [(v, k) for v, k in rows if k is not None and queue_for(k, queues) == queue]
    assert all(len(p.values) == 1 or p.size <= 1024 for p in piles)
    assert made.added == sum(len(v) + len(k or b"") + OVERHEAD for v, k in rows)


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "text"},
        {"value": 5},
        {"value": b"x", "key": "text"},
        {"value": b"x", "tag": b"bytes"},
        {"value": b"x", "tag": "\ud800"},
        {"value": b"x", "headers": {"a": "text"}},
        {"value": b"x", "timestamp_ms": 1 << 63},
        {"value": b"x", "timestamp_ms": 1.5},
    ],
)
def test_a_wrong_type_is_refused_at_once(wrong: dict[str, Any]) -> None:
    made = buffer()
    with pytest.raises(InvalidRequest):
        made.send("t", **wrong)
    assert not made.ready
    assert made.added == 0


def test_other_bytes_are_taken() -> None:
    made = buffer(queues=1)
    pile, _ = made.send("t", bytearray(b"a"), key=memoryview(b"k"))
    assert (pile.values, pile.keys) == ([b"a"], [b"k"])


def test_a_tombstone_is_taken() -> None:
    made = buffer(queues=1)
    pile, _ = made.send("t", None, key=b"k")
    assert pile.values == [None]


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": []},
        {"values": ["text"]},
        {"values": [b"x", None, 3]},
        {"values": [b"x"], "keys": [b"a", b"b"]},
        {"values": [b"x"], "tags": ["a", "b"]},
        {"values": [b"x"], "tags": ["\ud800"]},
        {"values": [b"x"], "headers": [{"a": 1}]},
        {"values": [b"x"], "timestamps_ms": [1, 2]},
        {"values": [b"x"], "timestamps_ms": ["now"]},
    ],
)
def test_wrong_columns_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        buffer().send_many("t", **wrong)


def test_too_large_a_message_is_refused_with_the_limit() -> None:
    made = buffer()
    with pytest.raises(InvalidRequest, match="at most 5000") as one:
        made.send("t", bytes(LARGEST), key=b"k")
    with pytest.raises(InvalidRequest, match="at most 5000") as many:
        made.send_many("t", [b"small", bytes(LARGEST + 1)])
    assert one.value.code == many.value.code == "TOO_LARGE"
    made.send("t", bytes(LARGEST))


def test_a_message_may_be_larger_than_a_batch_is_wanted() -> None:
    made = buffer(queues=1, max_batch_bytes=1024)
    piles = made.send_many("t", [b"a", bytes(3000), b"b"])
    assert [len(pile.values) for pile in piles] == [1, 1, 1]


def test_unknown_topic_and_queue() -> None:
    made = buffer()
    with pytest.raises(UnknownResource):
        made.send("nope", b"x")
    with pytest.raises(UnknownResource, match="queues 0 to 3, not 4"):
        made.send("t", b"x", queue=4)
    with pytest.raises(UnknownResource):
        made.send_many("t", [b"x"], queue=-1)


def test_a_queue_is_taken_or_refused_while_its_batch_fills() -> None:
    made = buffer()
    first, _ = made.send("t", b"0", queue=2)
    assert made.send("t", b"1", queue=2) == (first, 1)
    assert made.send("t", b"2", queue=2, key=b"UA") == (first, 2)
    assert first.keys == [None, None, b"UA"]
    for queue in (-1, 4):
        with pytest.raises(UnknownResource) as caught:
            made.send("t", b"3", queue=queue)
        assert caught.value.code == "UNKNOWN_QUEUE"


def test_past_the_bound_the_hook_is_called() -> None:
    made = buffer(buffer_bytes=2048, max_batch_bytes=1024)
    while not made.full:
        made.send("t", bytes(100))
    with pytest.raises(Unavailable, match="2048"):
        made.send("t", b"x")
    called: list[str] = []
    made.room_wanted.append(lambda: called.append("room"))
    made.free(made.added)
    assert called == ["room"]
    made.send("t", b"x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"acks": "some"},
        {"compression": "gzip"},
        {"linger_ms": -1},
        {"max_batch_bytes": 10},
        {"buffer_bytes": 10},
        {"delivery_timeout_s": 0},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        ProducerOptions(**wrong).validate()


def test_more_queues_take_keys_anew() -> None:
    made = buffer(queues=1)
    made.reshape("t", 1, 8, LARGEST, 0)
    key = next(k for k in (b"a", b"b", b"c", b"d") if queue_for(k, 8) > 0)
    assert made.send("t", b"x", key=key)[0].queue == queue_for(key, 8)
