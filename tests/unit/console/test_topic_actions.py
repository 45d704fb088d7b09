"""The command lines of actions on topics and messages are those that the command line takes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logboom.cli.app import build
from logboom.client.admin_flows.dead_letter_flows import DeadLetterQueue, DeadLetterSummary
from logboom.client.written_values import size_bytes
from logboom.console.routes.consumer_group_routes import delete_group as run_delete
from logboom.console.routes.message_routes import produce_command, read_headers, tail_starts
from logboom.console.routes.replica_routes import elect_command
from logboom.console.routes.site_map import SUBJECTS
from logboom.console.routes.topic_routes import (
    alter_command,
    create_command,
    written_size,
)
from logboom.console.site import PageRequest
from logboom.console.widgets.page_query import FormValues
from logboom.wire.errors import InvalidRequest


def form(**values: str) -> FormValues:
    return FormValues(values.items())


def parsed(words: Any) -> dict[str, Any]:
    """Return the arguments that the command line takes from these words."""
    _, bound, _ = build(list(words)).parse_args(list(words), exit_on_error=False, print_error=False)
    return dict(bound.arguments)


def test_create_says_what_is_not_as_usual() -> None:
    usual = form(name="flights", queues="4", retention="7d", compaction="off")
    assert create_command(usual) == ["topic", "create", "flights"]
    words = create_command(form(name="f", queues="8", retention="30d", unclean_election="on"))
    got = parsed(words)
    assert (got["name"], got["queues"], got["retention"]) == ("f", 8, "30d")
    assert got["unclean_election"] is True


def test_alter_says_what_differs() -> None:
    words = alter_command(
        form(topic="f", queues="8", was_queues="4", retention="7d", was_retention="7d")
    )
    assert words == ["topic", "alter", "f", "--queues", "8", "--yes"]
    off = alter_command(form(topic="f", was_unclean_election="on"))
    assert parsed(off)["unclean_election"] is False
    with pytest.raises(InvalidRequest, match="nothing is changed"):
        alter_command(form(topic="f", queues="4", was_queues="4"))


@pytest.mark.parametrize("size", [1, 1_000, 1_024, 1 << 20, 3 << 29, -1])
def test_sizes_are_written_as_they_are_read(size: int) -> None:
    assert size_bytes(written_size(size)) == size


@pytest.mark.parametrize(
    "values",
    [
        {"value": "hello", "key": "k", "tag": "t", "headers": "a=b=c\n x = y", "queue": "0"},
        {"value": "two\nlines", "key": "k"},
        {"value": "-dash"},
        {"no_value": "on", "key": "k"},
        {"value": "later", "delay": "15m"},
        {"value": "quotes \" and ' and $x"},
    ],
)
def test_produce_can_be_said_on_the_command_line(values: dict[str, str]) -> None:
    got = parsed(produce_command(form(topic="f", **values)))
    assert got["topic"] == "f"
    assert len(got["values"]) == 1
    if "\n" not in values.get("value", "\n") and not values["value"].startswith("-"):
        assert got["values"] == [values["value"]]


def test_headers_are_lines() -> None:
    assert read_headers("a=1\n\n b = 2 ") == {"a": b"1", "b": b" 2"}
    for wrong in ("no equals sign", "=x", "a=1\na=2"):
        with pytest.raises(InvalidRequest):
            read_headers(wrong)


def test_elect_may_prefer_a_broker() -> None:
    assert parsed(elect_command(form(topic="f", queue="3", prefer="b2")))["prefer"] == "b2"
    assert elect_command(form(topic="f", queue="3")) == ("queue", "elect", "f", "3")


def test_a_stream_goes_on_where_it_broke_off_but_not_from_far_back() -> None:
    bounds = {0: (10, 5_000), 1: (10, 20)}
    assert tail_starts([0, 1], {0: 4_900, 1: 0, 2: 7}, bounds) == {0: 4_900, 1: 10}
    assert tail_starts([0, 1], {0: 10, 1: 99}, bounds) == {0: 3_000, 1: 20}
    assert tail_starts([0, 1], {0: 4_900}, bounds) == {0: 4_900, 1: 20}
    assert tail_starts([1], {}, bounds) == {1: 20}


def test_a_stream_waits_for_a_queue_without_a_leader_where_the_browser_is() -> None:
    assert tail_starts([0, 1], {0: 7}, {}) == {0: 7}


def test_dead_letters_stay_with_their_group_gone_also_if_all_were_sent_again() -> None:
    deleted: list[dict[str, bool]] = []

    async def describe(_: str) -> DeadLetterSummary:
        return DeadLetterSummary("g", [DeadLetterQueue(0, 0, 3, 3)], None)

    async def delete_group(_: str, *, dead_letters: bool) -> None:
        deleted.append({"dead_letters": dead_letters})

    boom = SimpleNamespace(
        dead_letters=SimpleNamespace(describe=describe),
        admin=SimpleNamespace(delete_group=delete_group),
    )
    request = SimpleNamespace(cluster=SimpleNamespace(boom=boom))
    done = asyncio.run(run_delete(cast("PageRequest", request), form(group="g")))
    assert deleted == [{"dead_letters": False}]
    assert "3 dead letters stay" in done.message
    asyncio.run(run_delete(cast("PageRequest", request), form(group="g", dead_letters="on")))
    assert deleted[1] == {"dead_letters": True}


def test_no_two_actions_have_one_name() -> None:
    names = [action.name for subject in SUBJECTS for action in subject.actions]
    assert len(names) == len(set(names))
