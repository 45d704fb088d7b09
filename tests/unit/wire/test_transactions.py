"""Bodies of decided entries and of batches parked for a decision; application ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.batch import encode_batch
from logboom.wire.errors import DamagedBatch, InvalidRequest
from logboom.wire.parking import encode_parked, parked_body
from logboom.wire.transactions import (
    DecidedBody,
    TransactionId,
    check_app_id,
    decided_body,
    encode_decided,
)

BATCH = encode_batch([b"a", b"bc"], now_ms=7)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
PLACES = st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1))


@given(st.integers(0, 1 << 63), st.text(max_size=60), I64, I64, st.booleans(), st.lists(PLACES))
def test_a_decision_comes_out_as_it_went_in(
    number: int,
    app_id: str,
    sequence: int,
    attempt: int,
    commit: bool,
    places: list[tuple[int, int]],
) -> None:
    decided = DecidedBody(number, app_id, sequence, attempt, commit, places)
    assert decided_body(encode_decided(decided)) == decided


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_and_nothing_else_is_raised(body: bytes) -> None:
    try:
        decided_body(body)
    except DamagedBatch:
        return


def test_a_cut_decision_is_refused() -> None:
    body = encode_decided(DecidedBody(7, "a", 1, 2, True, [(3, 4)]))
    for size in range(len(body)):
        with pytest.raises(DamagedBatch):
            decided_body(body[:size])


@pytest.mark.parametrize("carried", [None, ((3, 1), (9, 0))])
def test_a_parked_batch_says_whose_it_is(
    carried: tuple[tuple[int, int], tuple[int, int]] | None,
) -> None:
    whose = TransactionId("Überweisung", 5, 77)
    parked = parked_body(encode_parked(BATCH, 99, carried, whose))
    assert (parked.due_ms, parked.carried, parked.transaction) == (99, carried, whose)
    assert bytes(parked.batch) == BATCH


def test_a_cut_application_id_is_refused() -> None:
    body = encode_parked(b"", 99, None, TransactionId("app", 5, 77))
    for size in range(len(body)):
        with pytest.raises(DamagedBatch):
            parked_body(body[:size])


@pytest.mark.parametrize("app_id", ["", "x" * 256, "ü" * 128, "a\0b", "a\nb", "\ud800"])
def test_application_ids_that_no_entry_could_hold_are_refused(app_id: str) -> None:
    with pytest.raises(InvalidRequest, match="application id"):
        check_app_id(app_id)


def test_good_application_ids_pass() -> None:
    check_app_id("billing/7 ü")
