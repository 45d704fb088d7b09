"""The headers of copies, which anybody may have written who may write to their topic."""

from __future__ import annotations

import pytest

from logboom.client.fetch.retry_copies import restore_original
from logboom.client.results import Message
from logboom.wire.copy_receipts import ATTEMPT_HEADER, ORIGIN

HUGE = b"9" * 5_000


def copy(origin: bytes, attempt: bytes) -> Message:
    headers = {ORIGIN: origin, ATTEMPT_HEADER: attempt}
    return Message("%RETRY%g", 0, 77, None, b"v", None, headers, 5)


@pytest.mark.parametrize("attempt", [b"", b"many", "²".encode(), HUGE])
def test_an_attempt_that_is_no_number_is_the_second(attempt: bytes) -> None:
    found = restore_original(copy(b"a/b/0/4", attempt))
    assert (found.topic, found.queue, found.offset, found.attempt) == ("a/b", 0, 4, 2)
    assert found.read_from == ("%RETRY%g", 0, 77)


@pytest.mark.parametrize(
    "origin",
    [
        b"",
        b"orders",
        b"orders/1",
        b"orders/1/",
        b"orders/x/1",
        "orders/0/²".encode(),
        b"t/0/" + HUGE,
    ],
)
def test_what_names_no_place_is_taken_as_it_is(origin: bytes) -> None:
    strange = copy(origin, b"3")
    assert restore_original(strange) is strange
