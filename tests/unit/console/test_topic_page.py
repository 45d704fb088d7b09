"""A topic's queues, settings and groups."""

from __future__ import annotations

from logboom.console.consumer_survey import TopicStock
from logboom.console.pages.topic_page import (
    build_queues,
    build_settings,
    build_topic_groups,
    topic_state,
)
from logboom.console.pages.topics_page import build_topics, topic_rows
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.group_view import GroupOffsets, GroupSummary
from logboom.wire.survey_messages import GroupSurvey
from logboom.wire.view import QueueView, TopicConfig, TopicView

WHOLE = QueueView(["b1", "b2"], "b1", 3, 1, ["b1", "b2"], [])
BEHIND = QueueView(["b1", "b2"], "b1", 3, 1, ["b1"], [])
LEADERLESS = QueueView(["b1", "b2"], None, 3, 1, ["b1"], [])
MOVING = QueueView(["b1", "b2", "b3"], "b1", 3, 1, ["b1", "b2"], [], ["b3"], ["b2"])
QUERY = PageQuery("/topics/t", "")


def topic(*queues: QueueView, name: str = "t", config: TopicConfig | None = None) -> TopicView:
    return TopicView(name, 5, config or TopicConfig(), list(queues), 9, "ada", 2)


def test_the_state_says_the_worst() -> None:
    assert topic_state(topic(WHOLE, MOVING)) == ("in sync", "ok")
    assert topic_state(topic(WHOLE, BEHIND)) == ("1 queue out of sync", "warning")
    assert topic_state(topic(BEHIND, LEADERLESS)) == ("1 queue without a leader", "failed")


def test_queues_have_offsets_sizes_and_moves_as_far_as_told() -> None:
    model = build_queues(topic(WHOLE, MOVING, LEADERLESS), {0: (5, 25), 1: (0, 7)}, [100, 0], QUERY)
    first, second, third = (row.source for row in model.table.rows)
    assert (first["messages"], first["size_bytes"]) == (20, 100)
    assert second["move"] == "+b3 -b2"
    assert (third["leader"], third["messages"], third["size_bytes"]) == (None, None, None)
    assert dict(model.facts)["Messages"] == "27"
    assert dict(model.facts)["Leaders"] == "b1 2, nobody 1"
    assert model.table.rows[2].cells[1].tone == "failed"


def test_settings_show_their_defaults_and_what_differs() -> None:
    config = TopicConfig(retention_ms=3_600_000, compaction=True)
    model = build_settings(topic(WHOLE, config=config), QUERY)
    lines = {line.name: (line.value, line.default, line.changed) for line in model.lines}
    assert lines["retention_ms"] == ("1h", "7d", True)
    assert lines["compaction"] == ("on", "off", True)
    assert lines["min_in_sync"] == ("majority", "majority", False)
    assert set(lines) == set(TopicConfig.__struct_fields__)


def test_groups_of_a_topic_have_their_lag_there() -> None:
    def survey(name: str, committed: list[int], topic_id: int = 5, members: int = 1) -> GroupSurvey:
        summary = GroupSummary(name, 1, "clustering", [], members, "b1", 1, 1, "")
        return GroupSurvey(summary, [GroupOffsets(topic_id, "t", True, committed, committed)])

    groups = [
        survey("near", [24, 7]),
        survey("far", [0, 0], members=0),
        survey("other", [0, 0], topic_id=6),
        survey("new", [-1, -1]),
    ]
    model = build_topic_groups(topic(WHOLE, WHOLE), groups, {0: (5, 25), 1: (0, 7)}, QUERY)
    rows = {row.source["group"]: row.source for row in model.table.rows}
    assert [row.source["group"] for row in model.table.rows] == ["far", "near", "new"]
    # What retention has removed is no lag.
    assert (rows["far"]["lag"], rows["far"]["most_lag"]) == (27, 20)
    assert rows["far"]["state"] == "no member"
    assert rows["near"]["lag"] == 1
    assert rows["new"]["lag"] is None


def test_the_list_tells_what_is_stored_as_far_as_it_is_known() -> None:
    topics = [topic(WHOLE, name="a"), topic(LEADERLESS, name="b"), topic(WHOLE, name="c")]
    stocks = {"a": TopicStock(1_200, 5 * 1024 * 1024), "c": TopicStock(7, 2_048)}
    model = build_topics(topic_rows(topics, stocks), PageQuery("/topics", "sort=-size_bytes"))
    assert [row.source["name"] for row in model.table.rows] == ["a", "c", "b"]
    assert [cell.text for cell in model.table.rows[0].cells[1:3]] == ["1,200", "5.0 MiB"]
    assert [cell.text for cell in model.table.rows[2].cells[1:3]] == ["\N{EN DASH}"] * 2


def test_the_list_hides_topics_of_the_system_until_asked() -> None:
    topics = [topic(WHOLE, name="a"), topic(BEHIND, name="%RETRY%g"), topic(LEADERLESS, name="b")]
    model = build_topics(topic_rows(topics, {}), PageQuery("/topics", "sort=-leaderless"))
    assert [row.source["name"] for row in model.table.rows] == ["b", "a"]
    assert (model.hidden, model.toggle_url) == (1, "/topics?sort=-leaderless&hidden=1")
    shown = build_topics(topic_rows(topics, {}), PageQuery("/topics", "hidden=1"))
    assert shown.table.total == 3
    assert shown.table.rows[0].cells[0].href == "/topics/%25RETRY%25g"
