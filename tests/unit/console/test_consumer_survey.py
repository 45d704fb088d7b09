"""Surveys of groups and subscriptions: lags, ages, and how they were before."""

from __future__ import annotations

from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.console.consumer_survey import (
    MAX_SURVEYS,
    ConsumerHistory,
    ConsumerSurvey,
    TopicStock,
    build_survey,
    oldest_places,
)
from logboom.wire.group_view import UNKNOWN_START, GroupOffsets, GroupSummary
from logboom.wire.survey_messages import CursorSurvey, GroupSurvey, QueueSurvey

TOPICS = {1: "orders", 2: "%DLQ%billing"}


def group(
    committed: list[int],
    name: str = "billing",
    mode: str = "clustering",
    ranges: list[tuple[int, bytes]] | None = None,
    members: int = 1,
) -> GroupSurvey:
    summary = GroupSummary(name, 1, mode, ["orders"], members, "broker-1", 3, 3, "")
    offsets = GroupOffsets(1, "orders", True, committed, committed, ranges or [])
    former = GroupOffsets(2, "%DLQ%billing", False, [0], [0])
    return GroupSurvey(summary, [offsets, former])


def queues(*bounds: tuple[int, int]) -> dict[tuple[int, int], QueueSurvey]:
    return {
        (1, queue): QueueSurvey(1, queue, start, end, 100)
        for queue, (start, end) in enumerate(bounds)
    }


def survey(at_s: float, committed: list[int], end: int = 100) -> ConsumerSurvey:
    told = queues(*[(0, end)] * len(committed))
    return build_survey(at_s, [group(committed)], told, {}, TOPICS)


def test_a_lag_counts_what_is_neither_finished_nor_removed() -> None:
    progress = OffsetTracker(10)
    progress.finish(20, 30)
    told = queues((0, 100), (40, 100), (0, 7), (0, 5))
    surveyed = group([10, 0, UNKNOWN_START, 9], ranges=[(0, progress.encode())])
    made = build_survey(1_000.0, [surveyed], told, {}, TOPICS)
    lags = [(each.queue, each.committed, each.lag) for each in made.groups["billing"].queues]
    # Of queue 2 the start is not known; queue 3 was cut, and the group is beyond its end.
    assert lags == [(0, 10, 80), (1, 0, 60), (2, None, None), (3, 9, 0)]
    assert made.groups["billing"].lag == 140


def test_what_a_topic_stores_is_that_of_the_queues_that_were_told() -> None:
    told = queues((10, 100), (40, 100)) | {(9, 0): QueueSurvey(9, 0, 0, 5, 7)}
    made = build_survey(1_000.0, [], told, {}, TOPICS)
    assert made.stocks == {"orders": TopicStock(150, 200)}, "and nothing of a topic just deleted"


def test_a_queue_that_no_leader_told_has_no_lag() -> None:
    made = build_survey(1_000.0, [group([1, 2])], queues((0, 5)), {}, TOPICS, ["broker-2"])
    assert [each.lag for each in made.groups["billing"].queues] == [4, None]
    assert (made.groups["billing"].lag, made.silent) == (4, ("broker-2",))


def test_a_broadcasting_group_has_no_lag() -> None:
    made = build_survey(1_000.0, [group([3], mode="broadcasting")], queues((0, 9)), {}, TOPICS)
    assert made.groups["billing"].lag is None


def test_the_age_is_that_of_the_first_unfinished_message() -> None:
    told = queues((0, 100), (40, 100), (0, 7))
    groups = [group([10, 0, 7])]
    assert oldest_places(groups, told) == {(1, 0, 10), (1, 1, 40)}
    times = {(1, 0, 10): 990_000, (1, 1, 40): 400_000}
    assert build_survey(1_000.0, groups, told, times, TOPICS).groups["billing"].age_ms == 600_000
    assert build_survey(1_000.0, groups, told, {}, TOPICS).groups["billing"].age_ms is None


def test_subscriptions_are_summed_over_queues() -> None:
    told = {
        (1, 0): QueueSurvey(1, 0, 0, 9, 1, [CursorSurvey("mail", 2, 5, 3, ["a", "b"])]),
        (1, 1): QueueSurvey(1, 1, 0, 9, 1, [CursorSurvey("mail", 2, 7, 1, ["b"])]),
        (7, 0): QueueSurvey(7, 0, 0, 9, 1, [CursorSurvey("of a topic that is gone", 0, 1, 0)]),
    }
    made = build_survey(1.0, [], told, {}, TOPICS)
    (found,) = made.subscriptions.values()
    assert (found.topic, found.name, found.queues) == ("orders", "mail", 2)
    assert (found.unacked, found.held, found.consumers) == (12, 4, ("a", "b"))
    assert made.ends == {("orders", 0): (0, 9), ("orders", 1): (0, 9)}


def test_history_tells_lags_by_queue_and_in_all() -> None:
    history = ConsumerHistory()
    history.add(survey(10.0, [50]))
    history.add(survey(20.0, [40, 90]))
    assert history.times_s() == [10.0, 20.0]
    assert history.queue_lags("billing") == {("orders", 0): [50, 60], ("orders", 1): [None, 10]}
    assert history.group_lags("billing") == [50, 70]
    assert history.trend_per_s("billing") == 2.0
    assert (history.queue_lags("nobody"), history.trend_per_s("nobody")) == ({}, None)
    # The clock was set back.
    history.add(survey(5.0, [99]))
    assert history.times_s() == [5.0]
    assert history.trend_per_s("billing") is None


def test_history_is_bounded() -> None:
    history = ConsumerHistory()
    for number in range(MAX_SURVEYS + 20):
        history.add(survey(float(number + 1), [0, number]))
    assert len(history.times_s()) == MAX_SURVEYS
    assert len(history.group_lags("billing")) == MAX_SURVEYS
    assert history.times_s()[-1] == MAX_SURVEYS + 20
