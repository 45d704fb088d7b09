"""What `logboom group` reads and prints."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from logboom.cli.group_tables import age_text, headline
from logboom.cli.options import when
from logboom.client.admin_flows.group_lag import GroupDescription, GroupQueue
from logboom.client.group_arguments import assigned, offsets_of, subscription_of
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import GroupConfig


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (12_900, "12s"),
        (60_000, "1m"),
        (450_000, "7m 30s"),
        (3_600_000, "1h"),
        (18_120_000, "5h 2m"),
        (86_400_000, "1d"),
        (40 * 86_400_000 + 7_200_000, "40d 2h"),
    ],
)
def test_an_age_for_people(milliseconds: int, text: str) -> None:
    assert age_text(milliseconds) == text


@pytest.mark.parametrize(
    ("lag", "text"), [(1, ", 1 message behind,"), (1_500, ", 1,500 messages ")]
)
def test_one_message_is_one(lag: int, text: str) -> None:
    queue = GroupQueue("orders", 0, 5, 0, 5 + lag, lag, 0, "", "")
    group = GroupDescription("g", 1, GroupConfig(), {}, 1, "b", 1, 1, 1, "", [], [queue])
    assert text in headline(group)


def test_places_and_times() -> None:
    assert when("first") == "first"
    assert when("1234") == 1234
    utc = datetime(2026, 11, 21, 10, tzinfo=UTC)
    assert when("2026-11-21T10:00:00Z") == utc.timestamp() * 1000
    assert when("2026-11-21T12:00:00+02:00") == utc.timestamp() * 1000
    hour, two = when("1h"), when("2h")
    assert isinstance(hour, int)
    assert isinstance(two, int)
    assert 3_500_000 < hour - two < 3_700_000


@pytest.mark.parametrize("text", ["", "middle", "ever", "-1", "-5m"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a reset target"):
        when(text)


@pytest.mark.parametrize("text", ["orders=5", "orders/0", "orders/x=5", "orders/0=-5", "/0=5"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write orders/0=1200"):
        offsets_of([text])


def test_a_subscription_is_read_topic_by_topic() -> None:
    parts = ["orders=late WHERE price = 3", "refunds"]
    wanted = {"orders": "late WHERE price = 3", "refunds": ""}
    assert subscription_of(parts) == wanted
    with pytest.raises(InvalidRequest, match="twice"):
        subscription_of(["orders", "orders=a"])


def test_queues_are_assigned_by_member() -> None:
    texts = ["a=orders/0-1", "b=orders/2", "a=refunds/0", "x=y=orders/3,5"]
    assert assigned(texts) == {
        "a": [("orders", 0), ("orders", 1), ("refunds", 0)],
        "b": [("orders", 2)],
        "x=y": [("orders", 3), ("orders", 5)],
    }
    for text in ("a", "a=orders", "=orders/1", "a=/1", "a=orders/x"):
        with pytest.raises(InvalidRequest):
            assigned([text])
    with pytest.raises(InvalidRequest, match="orders/0 is given to 'a' and to 'b'"):
        assigned(["a=orders/0", "b=orders/0"])
