"""What `consumer` and `push_consumer` take, and what they refuse before anybody is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from logboom.client import Client, aio
from logboom.client.calls import MessageTime
from logboom.client.fetch.fetch_collector import check_start
from logboom.client.group_options import check_groupless, member_options
from logboom.client.producer_options import start_of
from logboom.wire.errors import InvalidRequest

TEN = 1_795_255_200_000
"""2026-11-21T10:00:00Z."""


@pytest.mark.parametrize("client", [Client, aio.Client])
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"thread": 3}, r"push_consumer takes no 'thread', did you mean 'threads'\? it takes .*"),
        ({"sesion_ms": 3}, r"takes no 'sesion_ms', did you mean 'session_ms'\? .*drain_ms"),
        ({"xyzzy": 3}, r"takes no 'xyzzy': it takes self, topics, group, listener, threads"),
        ({"session_ms": "long"}, "wrong type"),
    ],
)
def test_what_a_push_consumer_does_not_take_is_named_with_what_it_takes(
    client: type[Any], settings: dict[str, object], text: str
) -> None:
    call = client.push_consumer
    with pytest.raises(InvalidRequest, match=text) as caught:
        member_options("t", "g", "m", settings=settings, call=call)
    assert "settings" not in str(caught.value).split()


@pytest.mark.parametrize("client", [Client, aio.Client])
@pytest.mark.parametrize("value", [0, 1, "", None])
def test_without_a_group_nothing_unknown_passes(client: type[Any], value: object) -> None:
    with pytest.raises(InvalidRequest, match="consumer takes no 'foo'"):
        check_groupless(client.consumer, {"foo": value})
    with pytest.raises(InvalidRequest, match=r"session_ms: of a group.* say group="):
        check_groupless(client.consumer, {"session_ms": value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instance", "a"),
        ("subscription", "replace"),
        ("commit_every_s", 0),
        ("max_poll_interval_ms", 1),
        ("offsets_file", "x"),
    ],
)
def test_without_a_group_nothing_of_a_member_passes(name: str, value: object) -> None:
    check_groupless(Client.consumer, {}, instance="", subscription="same", commit_every_s=5.0)
    with pytest.raises(InvalidRequest, match=f"{name}: of a group"):
        check_groupless(Client.consumer, {}, **{name: value})


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("first", "first"),
        ("last", "last"),
        (7, 7),
        (datetime(2026, 11, 21, 10, tzinfo=UTC), TEN),
        (datetime(2026, 11, 21, 11, tzinfo=timezone(timedelta(hours=1))), TEN),
        ("2026-11-21T10:00:00Z", TEN),
        ("2026-11-21 11:00:00.5+01:00", TEN + 500),
    ],
)
def test_a_reader_begins_at_an_end_or_a_time(start: object, found: object) -> None:
    assert start_of(start) == found
    assert member_options("t", "g", "m", start=start).config.start == found
    read = check_start(start)
    assert read == found
    assert isinstance(read, MessageTime) == isinstance(found, int)


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (datetime(2026, 11, 21), "has no time zone"),  # noqa: DTZ001 - that is what is tried
        ("2026-11-21T10:00:00", "has no time zone"),
        ("2026-11-21", "has no time zone"),
        ("yesterday", "ISO 8601"),
        (True, "ISO 8601"),
        (1.5, "ISO 8601"),
        (None, "ISO 8601"),
    ],
)
def test_other_beginnings_are_refused_with_those_that_are_not(start: object, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        start_of(start)


@pytest.mark.parametrize("interval", [-1, 1.5, "300", None, True])
def test_the_poll_interval_is_whole_milliseconds(interval: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_poll_interval_ms must be 0 or more"):
        member_options("t", "g", "m", max_poll_interval_ms=interval)
