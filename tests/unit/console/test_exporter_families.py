"""From a sample to families: lag, ages, dead letters, and what is dropped when there is too much."""

from __future__ import annotations

import random
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

from logboom.client.admin_flows.open_transactions import OpenTransaction, OpenTransactions
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.console.exporter.exporter_families import (
    KEPT_FIRST,
    OF_EXPORTER,
    OF_QUEUES,
    Series,
    cluster_families,
    dropped_text,
    exporter_families,
)
from logboom.console.exporter.exporter_sample import (
    BrokerAnswer,
    ExporterSample,
    KnownQueue,
    Place,
    QueueKey,
    merge_answers,
    places_to_ask,
)
from logboom.console.exporter.exporter_text import expose, join_expositions
from logboom.wire.group_view import GroupOffsets, GroupSummary
from logboom.wire.metric_table import METRICS, PREFIX, metrics_of
from logboom.wire.operation_messages import ClusterDescribed, PlannerStatus, QueueMoveState
from logboom.wire.survey_messages import CursorSurvey, GroupSurvey, QueueSurvey
from logboom.wire.transactions import HALF, TransactionId, UndecidedBatch

NOW_MS = 1_700_000_100_000
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def queue(
    topic_id: int,
    number: int = 0,
    start: int = 0,
    end: int = 0,
    *cursors: CursorSurvey,
    name: str = "",
) -> QueueSurvey:
    return QueueSurvey(topic_id, number, start, end, 100, list(cursors), name or f"t{topic_id}")


def known(*queues: QueueSurvey, broker: str = "b1") -> dict[QueueKey, KnownQueue]:
    return {(each.topic_id, each.queue): KnownQueue(broker, each) for each in queues}


def group(
    name: str, *offsets: GroupOffsets, members: int = 1, mode: str = "clustering"
) -> GroupSurvey:
    return GroupSurvey(GroupSummary(name, 1, mode, [], members, "b1", 7, 7, ""), list(offsets))


def committed(topic_id: int, *offsets: int, **more: Any) -> GroupOffsets:
    return GroupOffsets(
        topic_id, f"t{topic_id}", more.pop("subscribed", True), list(offsets), [], **more
    )


def sample(
    queues: dict[QueueKey, KnownQueue],
    groups: list[GroupSurvey] | None = None,
    times_ms: dict[Place, int] | None = None,
    **more: Any,
) -> ExporterSample:
    return ExporterSample(
        NOW_MS, 50.0, 45.0, 0.5, 3, queues, groups, times_ms=times_ms or {}, **more
    )


def families(shown: ExporterSample, **options: Any) -> dict[str, Series]:
    return cluster_families(shown, **options).families


def test_lag_is_counted_over_the_queues_of_a_topic() -> None:
    queues = known(queue(1, 0, 0, 10), queue(1, 1, 5, 8), queue(2, 0, 0, 4))
    groups = [group("g", committed(1, 7, 2), committed(2, 4))]
    shown = families(
        sample(queues, groups, {(1, 0, 7): NOW_MS - 9_000, (1, 1, 5): NOW_MS - 20_000})
    )
    # Retention removed what lies below the first offset: nobody has to handle it.
    assert shown["group_lag"] == {("g", "t1"): 6, ("g", "t2"): 0}
    assert shown["group_lag_seconds"] == {("g", "t1"): 20.0, ("g", "t2"): 0.0}
    assert shown["group_members"] == {("g",): 1}
    assert shown["group_epoch"] == {("g",): 7}


def test_what_is_finished_above_the_committed_offset_is_no_lag() -> None:
    tracker = OffsetTracker(3)
    tracker.finish(5, 8)
    ranges = [(0, tracker.encode())]
    queues = known(queue(1, 0, 0, 10))
    shown = families(sample(queues, [group("g", committed(1, 3, ranges=ranges))]))
    assert shown["group_lag"] == {("g", "t1"): 4}
    # Once retention has removed up to there, the first unfinished one is behind the range.
    queues = known(queue(1, 0, 5, 10))
    groups = [group("g", committed(1, 3, ranges=ranges))]
    assert families(sample(queues, groups))["group_lag"] == {("g", "t1"): 2}
    assert places_to_ask(groups, queues, {})[0] == {"b1": [(1, 0, 8)]}


def test_ranges_of_a_later_version_count_as_lag() -> None:
    groups = [group("g", committed(1, 3, ranges=[(0, b"\xff\xff")]))]
    assert families(sample(known(queue(1, 0, 0, 10)), groups))["group_lag"] == {("g", "t1"): 7}


def test_what_is_not_known_is_not_told() -> None:
    queues = known(queue(1, 0, 0, 10))
    groups = [
        group("broad", committed(1, 0), mode="broadcasting"),
        group("former", committed(1, 0, subscribed=False)),
        group("new", committed(1, -1)),
        group("part", committed(1, 4, 0)),  # nobody told of queue 1
        group("other", committed(9, 4)),
    ]
    shown = families(sample(queues, groups))
    assert shown["group_lag"] == {("part", "t1"): 6}
    assert shown["group_lag_seconds"] == {}  # its time is not known yet
    assert set(shown["group_members"]) == {(each.summary.name,) for each in groups}
    nothing = families(sample({}))
    assert nothing == {}


def test_a_time_is_asked_for_once_and_only_while_it_is_needed() -> None:
    queues = known(
        queue(1, 0, 0, 10, CursorSurvey("s", 2, 5, 1)), queue(2, 0, 0, 5), broker="b1"
    ) | known(queue(3, 0, 0, 5), broker="b2")
    groups = [
        group("g", committed(1, 2), committed(2, 5), committed(3, 1)),
        group("h", committed(1, 2)),
    ]
    wanted, kept = places_to_ask(groups, queues, {(8, 0, 8): 5})
    assert wanted == {"b1": [(1, 0, 2)], "b2": [(3, 0, 1)]}
    assert kept == {}
    wanted, kept = places_to_ask(groups, queues, {(1, 0, 2): 5, (3, 0, 0): 4})
    assert wanted == {"b2": [(3, 0, 1)]}
    assert kept == {(1, 0, 2): 5}


def test_the_newest_answer_about_a_queue_counts() -> None:
    old, new = queue(1, 0, 0, 10), queue(1, 0, 0, 12)
    answers = {"b1": BrokerAnswer(9.0, [new]), "b2": BrokerAnswer(5.0, [old, queue(2)])}
    found = merge_answers(answers)
    assert found[1, 0] == KnownQueue("b1", new)
    assert found[2, 0].broker == "b2"


def test_subscriptions_are_told_over_their_queues() -> None:
    queues = known(
        queue(1, 0, 0, 9, CursorSurvey("s", 2, 5, 3, ["a", "b"]), CursorSurvey("r", 9, 0, 0)),
        queue(1, 1, 0, 9, CursorSurvey("s", 8, 1, 1, ["b"])),
        queue(2, 0, 0, 9, CursorSurvey("redrive", 0, 9, 0), name="%DLQ%t1%s"),
        queue(3, 0, 0, 9, CursorSurvey("redrive", 0, 9, 0)),
    )
    shown = families(sample(queues, times_ms={(1, 0, 2): NOW_MS - 4_000}))
    assert shown["subscription_lag"] == {
        ("s", "t1"): 6,
        ("r", "t1"): 0,
        ("redrive", "t3"): 9,  # a subscription of somebody who calls it so
    }
    assert shown["subscription_lag_seconds"] == {("s", "t1"): 4.0, ("r", "t1"): 0.0}
    assert shown["subscription_pending"][("s", "t1")] == 4
    assert shown["subscription_members"] == {("s", "t1"): 2, ("r", "t1"): 0, ("redrive", "t3"): 0}


def test_dead_letters_and_sizes_are_those_of_topics() -> None:
    queues = known(
        queue(1, 0, 2, 9, name="%DLQ%g"), queue(1, 1, 0, 3, name="%DLQ%g"), queue(2, 0, 0, 3)
    )
    shown = families(sample(queues))
    assert shown["dead_letters_stored"] == {("g",): 10}
    assert shown["dead_letters_total"] == {("g",): 12}
    assert shown["topic_bytes"] == {("%DLQ%g",): 200, ("t2",): 100}


def test_transactions_and_half_messages_are_told_apart() -> None:
    def undecided(app_id: str, sequence: int, parked_ms: int) -> OpenTransaction:
        whose = TransactionId(app_id, sequence, 0)
        batch = UndecidedBatch("t", 1, 0, 0, 0, whose, parked_ms, 0, 1, 1)
        return OpenTransaction(app_id, sequence, 0, [batch])

    found = [
        undecided("app", 1, NOW_MS - 9_000),
        undecided("app", 2, NOW_MS - 3_000),
        undecided("shop", HALF, NOW_MS - 60_000),
    ]
    shown = families(sample({}, transactions=OpenTransactions(found, False)))
    assert shown["transactions_open"] == {(): 2}
    assert shown["transaction_oldest_seconds"] == {(): 9.0}
    assert shown["half_messages"] == {(): 1}
    empty = families(sample({}, transactions=OpenTransactions([], False)))
    assert empty["transaction_oldest_seconds"] == {(): 0.0}


def test_moves_are_told_by_state() -> None:
    def move(done: int, total: int, stuck: str = "") -> QueueMoveState:
        return QueueMoveState("t", 0, [], [], [], "drain", done, total, 1, 0, 1, stuck)

    planner = PlannerStatus("moving", [], 4, "off", 1.0, 1)
    cluster = ClusterDescribed(
        0, [], [move(10, 50), move(0, -1), move(3, 4, "its disk is full")], planner, 1
    )
    shown = families(sample({}, cluster=cluster))
    assert shown["moves"] == {("running",): 2, ("stuck",): 1, ("waiting",): 4}
    assert shown["move_left_bytes"] == {(): 41}


def crowd(topics: int, groups: int) -> ExporterSample:
    rng = random.Random(1)
    queues = known(*(queue(n, q, 0, rng.randrange(99)) for n in range(topics) for q in range(2)))
    listed = [group(f"g{n}", committed(n, 0, 0)) for n in range(groups)]
    return sample(queues, listed)


def test_what_does_not_fit_is_dropped_by_whole_families_those_of_queues_first() -> None:
    shown = crowd(100, 50)
    everything = cluster_families(shown, queues=True)
    assert everything.dropped == {}
    total = sum(map(len, everything.families.values())) + len(OF_EXPORTER)
    seen = []
    for most in range(total, len(OF_EXPORTER), -1):
        found = cluster_families(shown, queues=True, max_series=most)
        assert sum(map(len, found.families.values())) + len(OF_EXPORTER) <= most
        for name, series in found.families.items():
            assert series == everything.families[name]
        assert found.dropped == {name: len(everything.families[name]) for name in found.dropped}
        assert {*found.families, *found.dropped} == set(everything.families)
        if most == total - 1:
            assert set(found.dropped) <= set(OF_QUEUES)
        seen.append(found.dropped)
    # One series less at a time: what is the most important goes last.
    assert list(seen[-1]) == [name for name in KEPT_FIRST if everything.families.get(name)]
    assert cluster_families(shown, queues=True, max_series=300) == cluster_families(
        shown, queues=True, max_series=300
    )


def test_what_was_dropped_is_said() -> None:
    text = dropped_text({"queue_end_offset": 40_000, "queue_start_offset": 40_000}, 50_000)
    assert "50,000" in text
    assert "queue_end_offset (40,000)" in text
    assert "--max-series" in text
    own = exporter_families(crowd(1, 1), {"topic_bytes": 5, "moves": 3}, 52.0).families
    assert own == {
        "exporter_sample_age_seconds": {(): 7.0},
        "exporter_sample_seconds": {(): 0.5},
        "exporter_errors_total": {(): 3},
        "series_dropped": {(): 8},
    }


def test_every_metric_of_the_table_has_its_place() -> None:
    assert {each.name for each in metrics_of("cluster")} == {*KEPT_FIRST, *OF_EXPORTER}


@pytest.mark.parametrize("accept", ["", OPEN_METRICS, "text/plain;version=x", "*/*"])
def test_texts_can_be_parsed_and_are_those_of_the_table(accept: str) -> None:
    strange = 'a"b\\c\nd'
    queues = known(queue(1, 0, 0, 9, CursorSurvey("s", 0, 9, 0)), queue(2, name=strange))
    shown = sample(queues, [group("g", committed(1, 0))], {(1, 0, 0): NOW_MS})
    first = expose(cluster_families(shown, queues=True).families, accept)
    text, content_type = join_expositions(
        first, expose(exporter_families(shown, {}, 60.0).families, accept)
    )
    is_open = accept == OPEN_METRICS
    assert content_type.startswith("application/openmetrics" if is_open else "text/plain")
    parse = open_metrics if is_open else plain_text
    found = {
        each.name: (each, {sample.name for sample in each.samples}) for each in parse(text.decode())
    }
    assert text.decode().count("# EOF") == int(is_open)
    for family, names in found.values():
        for name in names:
            described = METRICS[name.removeprefix(PREFIX)]
            assert family.type == described.kind
            assert family.documentation == described.help
            assert all(set(each.labels) == set(described.labels) for each in family.samples)
            if is_open:
                assert family.unit == described.unit
    topics = {each.labels["topic"] for each in found["logboom_topic_bytes"][0].samples}
    assert topics == {"t1", strange}
