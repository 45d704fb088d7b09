"""Which messages a reader takes out of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logboom.client.calls import AskLeader
from logboom.client.fetch.message_filter import (
    match_messages,
    matcher_of,
    tags_of,
    text_of,
    wanted_of,
)
from logboom.client.fetch.message_flows import EVERYTHING, pull
from logboom.client.results import PullResult
from logboom.wire.batch import encode_batch, open_batch, stamp
from logboom.wire.errors import InvalidFilter, InvalidRequest
from logboom.wire.filters import Filter
from logboom.wire.messages import Pull, Pulled, PullStatus

DEAR = Filter.of(where="price > 3")


def priced(*prices: int, base: int = 0) -> bytes:
    """A stored batch of messages with these prices."""
    headers = [{"price": b"%d" % price} for price in prices]
    values = [b"%d" % price for price in prices]
    return stamp(encode_batch(values, headers=headers, now_ms=1), base, 1, 1)


@pytest.mark.parametrize(
    ("tags", "where", "wanted"),
    [
        (None, None, Filter.of()),
        ("b || a", None, Filter.of(["a", "b"])),
        (["a"], "x > 1", Filter.of("a", "x > 1")),
        (None, DEAR, DEAR),
    ],
)
def test_what_a_caller_wants(
    tags: str | list[str] | None, where: str | Filter | None, wanted: Filter
) -> None:
    assert wanted_of(tags, where) == wanted


def test_wrong_wishes_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no other tags"):
        wanted_of("a", DEAR)
    with pytest.raises(InvalidFilter) as caught:
        wanted_of(None, "price >")
    assert caught.value.fields["position"] == 7


def test_what_a_broker_is_told() -> None:
    assert (tags_of(Filter.of("b || a")), text_of(Filter.of("a"))) == (["a", "b"], "")
    assert (tags_of(DEAR), text_of(DEAR)) == (None, "* WHERE price > 3")


@pytest.mark.parametrize(
    ("wanted", "first", "matches", "picked"),
    [
        (Filter.of(), 0, None, None),
        (DEAR, 0, None, [0, 1, 1]),
        (DEAR, 1, None, None),
        (DEAR, 0, b"", None),
        (DEAR, 0, b"\1", [1, 0, 0]),
        (DEAR, 2, b"\3", [0]),
        (Filter.of("late"), 1, None, [0, 0]),
    ],
)
def test_the_brokers_word_counts_and_else_the_columns(
    wanted: Filter, first: int, matches: bytes | None, picked: list[int] | None
) -> None:
    columns = open_batch(priced(1, 5, 9)).slice(first)
    found = match_messages(matcher_of(wanted), columns, matches)
    assert (None if found is None else list(found)) == picked


def test_a_bitmap_of_another_batch_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="does not fit"):
        match_messages(matcher_of(DEAR), open_batch(priced(1, 5, 9)), b"\1\1")


def pulled(
    wanted: Filter,
    batches: Sequence[bytes],
    matches: list[bytes] | None = None,
    offset: int = 0,
    most: int = 100,
    status: PullStatus = "FOUND",
) -> PullResult:
    """The result of a pull that is answered so."""
    flow = pull("t", 0, offset, most, 0, wanted, 1.0)
    call = next(flow)
    asked = call.message(500)
    assert isinstance(asked, Pull)
    assert (asked.tags, asked.filter) == (tags_of(wanted), text_of(wanted))
    with pytest.raises(StopIteration) as end:
        flow.send((Pulled(0, status, 6, 0, 9, None, matches), list(batches)))
    result = end.value.value
    assert isinstance(result, PullResult)
    return result


def test_a_pull_gives_what_matches_and_goes_on_behind_it() -> None:
    batches = [priced(5, 1, 9), priced(9, 9, 1, base=3)]
    for matches in (None, [b"\5"], [b"\5", b"\3"]):
        result = pulled(DEAR, batches, matches)
        assert [message.offset for message in result.messages] == [0, 2, 3, 4]
        assert (len(result.messages), result.next_offset, result.status) == (4, 6, "FOUND")
        assert result.selectors() == [b"\1\0\1", b"\1\1\0"]
        assert [len(columns) for columns in result.columns()] == [3, 3]


@pytest.mark.parametrize(
    ("most", "offsets", "next_offset"),
    [(1, [0], 1), (2, [0, 2], 3), (3, [0, 2, 3], 4), (4, [0, 2, 3, 4], 6)],
)
def test_a_cut_goes_on_at_the_next_message(most: int, offsets: list[int], next_offset: int) -> None:
    result = pulled(DEAR, [priced(5, 1, 9), priced(9, 9, 1, base=3)], [b"\5"], most=most)
    assert [message.offset for message in result.messages] == offsets
    assert len(result.messages) == most
    assert result.next_offset == next_offset


def test_batches_that_hold_no_match_after_all_are_none_found() -> None:
    result = pulled(DEAR, [priced(1, 2, 3), priced(1, 2, 3, base=3)])
    assert (result.status, result.next_offset) == ("NO_MATCHED_MESSAGE", 6)
    assert not result.messages
    assert not result.columns()


def test_a_pull_waits_longer_than_brokers_hold_it() -> None:
    flow = pull("t", 0, 5, 1, 150_000, EVERYTHING, 1.0)
    nothing = Pulled(1, "NO_NEW_MESSAGE", 5, 0, 5)

    def hold(asked: object) -> tuple[int, float]:
        assert isinstance(asked, AskLeader)
        message = asked.message(int(asked.timeout * 1000))
        assert isinstance(message, Pull)
        return message.wait_ms, asked.timeout

    assert hold(next(flow)) == (60_000, 61.0)
    assert hold(flow.send((nothing, []))) == (60_000, 61.0)
    assert hold(flow.send((nothing, []))) == (30_000, 31.0)
    with pytest.raises(StopIteration) as ended:
        flow.send((nothing, []))
    assert ended.value.value.status == "NO_NEW_MESSAGE"
