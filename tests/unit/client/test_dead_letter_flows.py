"""Dead letters: what their headers say, and how far they count as sent again."""

from __future__ import annotations

import pytest

from logboom.client.admin_flows.dead_letter_flows import (
    DeadLetterQueue,
    DeadLetterSummary,
    check_chosen,
    dead_letter,
    is_subscription,
    now_begun,
    owners_of,
    redriven_headers,
)
from logboom.client.results import Message
from logboom.wire.errors import InvalidRequest


def message(**headers: bytes) -> Message:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Message("%DLQ%billing", 1, 7, b"k", b"v", None, named or None, 5)


def test_headers_tell_where_it_comes_from_and_why() -> None:
    found = dead_letter(
        message(boom_origin=b"orders/3/12", boom_attempt=b"16", boom_cause=b"OSError: closed")
    )
    assert (found.origin, found.attempts, found.cause) == ("orders/3/12", 16, "OSError: closed")
    strange = dead_letter(message(boom_attempt=b"many", boom_cause=b"\xff"))
    assert (strange.origin, strange.attempts, strange.cause) == ("", None, "�")
    assert dead_letter(message()).attempts is None


def test_it_is_sent_again_as_a_first_delivery_with_its_other_headers() -> None:
    headers = redriven_headers(message(boom_attempt=b"16", traceparent=b"00-1"))
    assert headers == {"boom-attempt": b"1", "traceparent": b"00-1"}


def test_only_the_first_ones_of_a_queue_move_on() -> None:
    queue = DeadLetterQueue(0, 2, 5, 9)
    assert now_begun(queue, {6, 7}) == 5
    assert now_begun(queue, {5, 6, 8}) == 7
    assert now_begun(queue, range(100)) == 9


def test_owners_are_groups_and_subscriptions() -> None:
    topics = ["orders", "%RETRY%b", "%DLQ%orders%sums", "%DLQ%b"]
    assert owners_of(topics) == ["b", "orders%sums"]
    assert [is_subscription(owner) for owner in owners_of(topics)] == [False, True]
    found = DeadLetterSummary("b", [DeadLetterQueue(0, 2, 5, 9), DeadLetterQueue(1, 0, 0, 1)], None)
    assert (found.messages, found.open) == (8, 5)


def test_one_by_one_or_by_queue() -> None:
    check_chosen([(0, 1)], None, None)
    check_chosen([], [0], 3)
    with pytest.raises(InvalidRequest, match="not both"):
        check_chosen([(0, 1)], [0], None)
