"""Where messages are read, how queues are merged, and where the next page begins."""

from __future__ import annotations

import pytest

from logboom.client.results import Message
from logboom.console.pages.messages_page import (
    MessagesWish,
    QueueRead,
    build_messages,
    build_tail,
    merge_queues,
    plan_reads,
    positions_after,
    positions_before,
    read_positions,
    read_wish,
    wished_time_ms,
)
from logboom.console.pages.topic_page import build_head
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.errors import InvalidRequest
from logboom.wire.view import QueueView, TopicConfig, TopicView

TOO_LONG = "9" * 5_000
"""More digits than Python makes a number of."""
BOUNDS = {0: (10, 20), 1: (0, 5), 2: (7, 7)}
TOPIC = TopicView(
    "a%b", 1, TopicConfig(), [QueueView(["b1"], "b1", 1, 1, ["b1"], []) for _ in range(3)], 1
)


def wish(parameters: str) -> MessagesWish:
    return read_wish(PageQuery("/topics/a%25b", parameters))


def message(queue: int, offset: int, at_ms: int = 0, value: bytes | None = b"v") -> Message:
    return Message("a%b", queue, offset, b"k", value, None, None, at_ms)


@pytest.mark.parametrize(
    ("parameters", "reads"),
    [
        ("", [QueueRead(0, 10, 20, True), QueueRead(1, 0, 5, True)]),
        ("from=oldest", [QueueRead(0, 10, 20, False), QueueRead(1, 0, 5, False)]),
        ("from=offset&at=3", [QueueRead(0, 10, 20, False), QueueRead(1, 3, 5, False)]),
        ("from=time&at=1h", [QueueRead(0, 15, 20, False)]),
        ("after=0:12,1:5", [QueueRead(0, 12, 20, False)]),
        ("after=0:3", [QueueRead(0, 10, 20, False)]),
        ("before=0:12,1:0", [QueueRead(0, 10, 12, True)]),
        ("before=0:99", [QueueRead(0, 10, 20, True)]),
    ],
)
def test_what_is_read(parameters: str, reads: list[QueueRead]) -> None:
    assert plan_reads(wish(parameters), BOUNDS, {0: 15, 1: 5}) == reads


@pytest.mark.parametrize(
    "parameters",
    [
        "queue=x",
        "queue=-1",
        "after=0",
        "before=a:b",
        f"queue={TOO_LONG}",
        f"after=0:{TOO_LONG}",
        f"after={TOO_LONG}:0",
        f"before=0:{2**63}",
    ],
)
def test_what_is_no_number_is_refused(parameters: str) -> None:
    with pytest.raises(InvalidRequest):
        wish(parameters)


@pytest.mark.parametrize("at", ["last", TOO_LONG, str(2**63)])
def test_an_offset_must_be_given(at: str) -> None:
    with pytest.raises(InvalidRequest, match="whole number") as refused:
        plan_reads(wish(f"from=offset&at={at}"), BOUNDS, {})
    assert len(refused.value.text) < 200


def test_strange_choices_are_as_if_not_made() -> None:
    made = wish("from=there&limit=7&as=pdf")
    assert (made.begin, made.limit, made.show_as) == ("newest", 50, "auto")


def test_times_are_read_as_people_write_them() -> None:
    assert wished_time_ms(wish("from=time&at=1h"), 7_200_000) == 3_600_000
    with pytest.raises(InvalidRequest):
        wished_time_ms(wish("from=time&at=first"), 0)


@pytest.mark.parametrize("at", [TOO_LONG, str(2**63), "1" + "0" * 11 + "d", TOO_LONG + "d"])
def test_times_that_fit_into_no_message_are_refused(at: str) -> None:
    with pytest.raises(InvalidRequest):
        wished_time_ms(wish(f"from=time&at={at}"), 1_700_000_000_000)


def test_queues_are_merged_by_time_and_keep_their_own_order() -> None:
    # The times of queue 1 go back, as its producers say.
    found = {
        0: [message(0, 10, 100), message(0, 11, 300)],
        1: [message(1, 0, 200), message(1, 1, 50)],
    }
    merged = merge_queues(found, 10, backward=False)
    assert [(each.queue, each.offset) for each in merged] == [(0, 10), (1, 0), (1, 1), (0, 11)]
    newest = merge_queues(found, 2, backward=True)
    assert [each.offset for each in newest if each.queue == 1] in ([], [1])
    assert len(newest) == 2


def test_the_next_page_goes_on_where_this_one_ended() -> None:
    reads = [QueueRead(0, 10, 20, False), QueueRead(1, 0, 5, False), QueueRead(3, 2, 9, False)]
    shown = [message(0, 10), message(1, 0), message(0, 11)]
    assert positions_after(shown, reads, {3: 9}) == {0: 12, 1: 1, 3: 9}
    assert positions_before(shown, reads, {3: 2}) == {0: 10, 1: 0, 3: 2}
    assert read_positions("0:12,1:1") == {0: 12, 1: 1}


def test_rows_are_the_newest_first_and_links_keep_the_wish() -> None:
    query = PageQuery("/topics/a%25b", "filter=x+%3E+1&as=hex")
    model = build_messages(
        build_head(TOPIC, "Messages"),
        read_wish(query),
        [message(0, 10, 5), message(0, 11, 6, None)],
        query,
        older={0: 10},
    )
    assert [row.message.offset for row in model.rows] == [11, 10]
    assert model.rows[0].value.kind == "none"
    assert model.rows[1].href == "/topics/a%25b/0/10"
    assert model.older_url == "/topics/a%25b?filter=x+%3E+1&as=hex&before=0%3A10"
    assert model.newer_url == ""
    assert model.follow_url == "/topics/a%25b?filter=x+%3E+1&as=hex&live=1"
    assert [row["offset"] for row in model.table.every_row] == [11, 10]


def test_a_tail_says_what_it_leaves_out() -> None:
    model = build_tail([message(0, 1), message(0, 2)], 98, "auto")
    assert [row.message.offset for row in model.rows] == [2, 1]
    assert model.left_out == 98
