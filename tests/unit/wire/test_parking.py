"""Bodies of parked and recalled entries, and due times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.batch import (
    control_body,
    encode_batch,
    encode_control,
    release,
    stamp,
    validate_batch,
)
from logboom.wire.errors import DamagedBatch, InvalidRequest
from logboom.wire.frames import decode, encode
from logboom.wire.head import ControlKind
from logboom.wire.messages import Produce
from logboom.wire.parking import (
    AT_ONCE,
    CLOCKS_APART_MS,
    MAX_DELAY_MS,
    Recall,
    Recalled,
    check_due,
    encode_parked,
    encode_recalled,
    parked_body,
    parked_head,
    recalled_body,
)

BATCH = encode_batch([b"a", b"bc"], now_ms=7, producer_id=3, producer_epoch=0, base_sequence=5)


def test_a_parked_batch_comes_out_as_it_went_in() -> None:
    entry = stamp(encode_control(ControlKind.PARKED, encode_parked(BATCH, 99)), 4, 1, 50)
    head = validate_batch(entry)
    assert (head.kind, head.count, head.next_offset) == (ControlKind.PARKED, 0, 4)
    parked = parked_body(control_body(entry, head))
    assert (parked.due_ms, bytes(parked.batch)) == (99, BATCH)
    inner = parked_head(control_body(entry, head))
    assert inner is not None
    assert inner.base_sequence == 5
    released = validate_batch(stamp(release(parked.batch, 4, 0), 4, 1, 99))
    assert (released.count, released.base_sequence) == (2, 5)


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_and_nothing_else_is_raised(body: bytes) -> None:
    for read in (parked_body, parked_head, recalled_body):
        try:
            read(body)
        except DamagedBatch:
            continue


def test_bodies_of_later_versions_are_refused() -> None:
    body = bytearray(encode_parked(BATCH, 99))
    body[0] = 3
    with pytest.raises(DamagedBatch, match="newer version"):
        parked_body(bytes(body))
    with pytest.raises(DamagedBatch):
        parked_body(b"")
    with pytest.raises(DamagedBatch):
        recalled_body(encode_recalled(7, 2) + b"x")


def test_a_recall_names_its_position() -> None:
    assert recalled_body(encode_recalled(7, 2)) == (7, 2)


def test_due_times_from_now_on_up_to_forty_days_are_taken() -> None:
    now_ms = 1_700_000_000_000
    for due_ms in (0, now_ms - 5, now_ms, now_ms + MAX_DELAY_MS + CLOCKS_APART_MS):
        check_due(due_ms, now_ms)
    for due_ms in (-2, now_ms + MAX_DELAY_MS + CLOCKS_APART_MS + 1):
        with pytest.raises(InvalidRequest) as caught:
            check_due(due_ms, now_ms)
        assert caught.value.fields["max_delay_ms"] == MAX_DELAY_MS


def test_messages_travel_and_older_senders_park_nothing() -> None:
    for message in (Recall(1, 5, "t", 0, 7, 2, 9), Recalled(1, True)):
        assert decode(encode(message)) == message
    assert Produce(1, 5, "t", 0, "all").due_ms == AT_ONCE
