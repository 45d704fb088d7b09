"""The list of groups and the page of one, from plain data."""

from __future__ import annotations

import msgspec
import pytest

from logboom.client.admin_flows.group_lag import GroupDescription, GroupMember, GroupQueue
from logboom.client.admin_flows.offset_resets import OffsetReset
from logboom.console.consumer_survey import (
    ConsumerHistory,
    ConsumerSurvey,
    GroupProgress,
    QueueLag,
    build_survey,
)
from logboom.console.pages.group_page import (
    build_group,
    places_text,
    reset_facts,
    reset_table,
    setting_rows,
    stuck_queues,
)
from logboom.console.pages.groups_page import build_groups, state_of
from logboom.console.routes.consumer_group_routes import (
    alter_command,
    alter_form,
    alter_settings,
    reset_arguments,
    reset_command,
)
from logboom.console.widgets.page_query import FormValues, PageQuery
from logboom.wire.errors import InvalidRequest
from logboom.wire.group_view import GroupConfig, GroupOffsets, GroupSummary, StrategyOptions
from logboom.wire.survey_messages import GroupSurvey, QueueSurvey
from tests.sim.world.processor import counted


def summary(name: str, members: int = 1, fault: str = "", **changes: int | bool) -> GroupSummary:
    epochs = (changes.get("group_epoch", 2), changes.get("target_epoch", 2))
    paused = bool(changes.get("paused"))
    return GroupSummary(
        name, 1, "clustering", ["orders"], members, "broker-1", *epochs, fault, paused
    )


def standing(told: GroupSummary, lag: int | None = 0, age_ms: int | None = None) -> GroupProgress:
    return GroupProgress(told, (QueueLag("orders", 0, 1, 0, 9, lag),), age_ms)


def surveyed(*standings: GroupProgress) -> ConsumerSurvey:
    return ConsumerSurvey(1.0, {each.summary.name: each for each in standings}, {}, {})


def names(parameters: str, *standings: GroupProgress) -> list[str]:
    query = PageQuery("/groups", parameters)
    model = build_groups(surveyed(*standings), ConsumerHistory(), query)
    return [row.source["name"] for row in model.table.rows]


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (summary("a"), "stable"),
        (summary("a", 0), "empty"),
        (summary("a", 2, "queues without owner"), "fault"),
        (summary("a", group_epoch=3), "rebalancing"),
        (summary("a", 0, paused=True), "paused"),
    ],
)
def test_a_group_has_one_state(told: GroupSummary, state: str) -> None:
    assert state_of(told) == state


def test_the_groups_that_are_most_behind_come_first() -> None:
    late = standing(summary("late"), 10, 90_000)
    far = standing(summary("far"), 900, 5)
    unknown = standing(summary("unknown"), None)
    left = standing(summary("left", 0), 3)
    everything = (unknown, late, far, left)
    assert names("", *everything) == ["far", "late", "left", "unknown"]
    assert names("state=late", *everything) == ["late"]
    assert names("state=stuck", *everything) == ["left"]
    assert names("state=empty", *everything) == ["left"]
    assert names("find=FAR", *everything) == ["far"]
    model = build_groups(
        surveyed(*everything), ConsumerHistory(), PageQuery("/groups", "state=late")
    )
    assert [(link.title, link.count, link.current) for link in model.states] == [
        ("All", 4, False),
        ("A minute behind and more", 1, True),
        ("Behind without members", 1, False),
        ("Empty", 1, False),
        ("Stable", 3, False),
    ]


def test_the_list_says_if_nothing_was_surveyed_yet() -> None:
    model = build_groups(None, ConsumerHistory(), PageQuery("/groups"))
    assert (model.surveyed, model.table.total) == (False, 0)


def test_two_thousand_groups_are_built_at_once() -> None:
    groups = [
        GroupSurvey(
            summary(f"group-{number:04}"),
            [GroupOffsets(1, "orders", True, [number] * 16, [number] * 16)],
        )
        for number in range(2_000)
    ]
    queues = {(1, queue): QueueSurvey(1, queue, 0, 5_000, 1) for queue in range(16)}
    history = ConsumerHistory()
    for at_s in range(1, 8):
        history.add(build_survey(float(at_s), groups, queues, {}, {1: "orders"}))
    query = PageQuery("/groups", "sort=-lag")
    model, calls = counted(lambda: build_groups(history.newest, history, query))
    assert (model.table.total, len(model.table.rows)) == (2_000, 50)
    assert model.table.rows[0].source["name"] == "group-0000"
    assert calls < 100 * len(groups)


def queue(number: int, lag: int | None, stuck: str = "", still_ms: int | None = None) -> GroupQueue:
    age = None if not lag else 5_000
    return GroupQueue("orders", number, 1, 0, 9, lag, age, "m-1", stuck, still_ms)


def described(*queues: GroupQueue, config: GroupConfig | None = None) -> GroupDescription:
    member = GroupMember("m-1", "client", "", "", 1, 9_000, 1, [("orders", 0), ("orders", 2)])
    return GroupDescription(
        "billing",
        1,
        config or GroupConfig(),
        {"orders": "late || lost", "refunds": "*"},
        1,
        "broker-1",
        1,
        2,
        2,
        "",
        [member],
        list(queues),
    )


def test_equal_reasons_are_told_once() -> None:
    found = stuck_queues(
        [
            queue(0, 5, "not polled for 61 s", 61_000),
            queue(1, 7, "not polled for 9.5 s", 9_500),
            queue(2, 90, "the group has no member"),
            queue(3, 4),
        ]
    )
    assert [(each.reason, each.queues, each.lag, each.longest_ms) for each in found] == [
        ("the group has no member", ("orders/2",), 90, None),
        ("not polled", ("orders/0", "orders/1"), 12, 61_000),
    ]


def test_the_page_of_a_group() -> None:
    model = build_group(
        described(queue(0, 5), queue(1, None)), ConsumerHistory(), 3, PageQuery("/groups/billing")
    )
    assert (model.state, model.lag, model.age_ms, model.dead_letters) == ("stable", 5, 5_000, 3)
    assert model.subscription == (
        ("orders", "late || lost", "/topics/orders"),
        ("refunds", "", "/topics/refunds"),
    )
    (member,) = model.members.rows
    assert (member.source["queues"], member.source["is_silent"]) == ("orders/0 2", True)


def test_settings_that_differ_from_their_defaults_are_marked() -> None:
    rows = {row["name"]: row for row in setting_rows(GroupConfig(session_ms=30_000))}
    assert (rows["session_ms"]["value"], rows["session_ms"]["default"]) == ("30s", "10s")
    assert [name for name, row in rows.items() if row["changed"]] == ["session_ms"]
    assert places_text([]) == "none"


def test_a_plan_says_what_is_read_again_and_passed_over() -> None:
    lines = [
        OffsetReset("orders", 0, 5, 9, 0, 9),
        OffsetReset("orders", 1, 8, 2, 0, 9),
        OffsetReset("orders", 2, 3, 3, 0, 9),
        OffsetReset("orders", 3, None, 4, 0, 9),
    ]
    facts, warning = reset_facts(lines)
    assert [text for _, text in facts] == ["4, 1 of them as they are", "6 messages", "4 messages"]
    assert "never see the 4 messages" in warning
    assert reset_facts(lines[1:3])[1] == ""
    rows = [row.source["change"] for row in reset_table(lines, PageQuery("/")).rows]
    assert rows == [4, -6, 0, None]


def form(**values: str) -> FormValues:
    return FormValues(values.items())


@pytest.mark.parametrize(
    ("values", "arguments", "words"),
    [
        ({"way": "first"}, {"to": "first"}, ["--to", "first"]),
        ({"way": "time", "target": "1h"}, {"to": 6_400_000}, ["--to", "1h"]),
        ({"way": "shift", "target": "-100"}, {"shift": -100}, ["--shift", "-100"]),
        ({"way": "group", "target": "other"}, {"from_group": "other"}, ["--from-group", "other"]),
        (
            {"way": "offsets", "target": "orders/0=7\norders/1=8"},
            {"to": {("orders", 0): 7, ("orders", 1): 8}},
            ["--offset", "orders/0=7", "--offset", "orders/1=8"],
        ),
    ],
)
def test_a_reset_and_the_command_that_does_the_same(
    values: dict[str, str], arguments: dict[str, object], words: list[str]
) -> None:
    asked = form(group="billing", **values)
    assert reset_arguments(asked, 10_000_000) == {"topic": None, "queues": None, **arguments}
    assert list(reset_command(asked)) == ["group", "reset", "billing", *words, "--yes"]


def test_a_reset_of_some_queues() -> None:
    asked = form(group="g", way="last", topic="orders", queues="0,2-3")
    assert reset_arguments(asked, 0) == {"topic": "orders", "queues": [0, 2, 3], "to": "last"}
    assert reset_command(asked)[-5:] == ["--topic", "orders", "--queue", "0,2-3", "--yes"]
    for bad in ({"way": "shift", "target": "x"}, {"way": "time"}, {"way": "nonsense"}):
        with pytest.raises(InvalidRequest):
            reset_arguments(form(group="g", **bad), 0)


def test_only_what_was_changed_is_altered() -> None:
    config = GroupConfig(
        strategy="by_config", options=StrategyOptions(config={"m": [("orders", 0)]})
    )
    before = alter_form(config, {"orders": "", "refunds": "late"})
    assert before["assign"] == "m=orders/0"
    assert before["subscribe"] == "orders\nrefunds=late"
    was = msgspec.json.encode(before).decode()
    same = form(group="g", was=was, **before)
    assert list(alter_command(same)) == ["group", "alter", "g"]
    with pytest.raises(InvalidRequest, match="nothing is changed"):
        alter_settings(same, 0)
    after = {
        **before,
        "session": "30s",
        "max_attempts": "3",
        "rooms": "north, south",
        "subscribe": "orders=lost\r\nclicks",
    }
    changed = form(group="g", was=was, **after)
    assert alter_settings(changed, 0) == {
        "session_ms": 30_000,
        "max_attempts": 3,
        "options": {"rooms": ["north", "south"]},
        "subscription": {"orders": "lost", "clicks": ""},
    }
    words = list(alter_command(changed))
    assert words[:3] == ["group", "alter", "g"]
    assert words[3:7] == ["--subscribe", "orders=lost", "--subscribe", "clicks"]
    assert words[words.index("--session") :][:2] == ["--session", "30s"]
