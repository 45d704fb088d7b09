"""Dead letters: what their headers say, and how far they count as sent again."""

from __future__ import annotations

import pytest

from logboom.client.admin_flows.dead_letter_flows import (
    DeadLetterQueue,
    DeadLetterSummary,
    check_chosen,
    dead_letter,
    get,
    is_subscription,
    now_begun,
    owners_of,
    read,
    redriven_headers,
)
from logboom.client.calls import AskLeader
from logboom.client.flows import run_flow
from logboom.client.results import Message
from logboom.wire.batch import encode_batch, encode_lost, stamp
from logboom.wire.errors import InvalidRequest, OffsetOutOfRange
from logboom.wire.messages import Pull, Pulled


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
    endless = dead_letter(message(boom_attempt=b"9" * 5_000))
    assert endless.attempts is None


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


def log(call: object) -> object:
    """Answer pulls of a dead-letter queue that has lost its offsets 1 to 3, an entry at a time."""
    assert isinstance(call, AskLeader)
    pull = call.message(100)
    assert isinstance(pull, Pull)
    assert (pull.topic, pull.queue) == ("%DLQ%b", 0)
    for base, end in ((0, 1), (1, 4), (4, 5)):
        if base <= pull.offset < end:
            entry = encode_lost(3) if base == 1 else encode_batch([b"%d" % base], now_ms=0)
            return Pulled(0, "FOUND", end, 0, 5), [stamp(entry, base, 1, 0)]
    return Pulled(0, "OFFSET_ILLEGAL", 5, 0, 5), []


def test_what_was_lost_is_passed_over() -> None:
    queue = DeadLetterQueue(0, 0, 0, 5)
    found = run_flow(read("b", [queue], 9, 1.0), log)
    assert [each.message.offset for each in found] == [0, 4]
    gone = run_flow(read("b", [DeadLetterQueue(0, 0, 5, 6)], 9, 1.0), log)
    assert gone == []


def test_one_is_got_and_never_another_in_its_place() -> None:
    assert run_flow(get("b", 0, 4, 1.0), log).message.value == b"4"
    for offset in (1, 3, 5):
        with pytest.raises(OffsetOutOfRange):
            run_flow(get("b", 0, offset, 1.0), log)
