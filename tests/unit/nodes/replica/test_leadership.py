"""The HW over followers' positions, and who may join or must leave the ISR (Q1, Q6, Q7)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.log.keys import Position
from logboom.nodes.replica.leadership import (
    MOST_MARKS,
    Leadership,
    PendingIsrChange,
    required_in_sync,
)
from logboom.wire.view import QueueView, TopicConfig
from tests.thorough import examples

NAMES = ["a", "b", "c"]
PERIOD_S = 3.0
"""Seconds without being caught up after which a member leaves."""


def leadership(isr: list[str], version: int = 1, min_in_sync: int = 0) -> Leadership:
    """ "a" leads epoch 4, whose first position is 10."""
    leading = Leadership("a", 4, Position(10), now=0.0)
    take(leading, isr, version, min_in_sync)
    return leading


def take(leading: Leadership, isr: list[str], version: int, min_in_sync: int = 0) -> None:
    """Metadata says this of the queue."""
    view = QueueView(NAMES, "a", 4, version, isr, [])
    leading.take_view(view, TopicConfig(min_in_sync=min_in_sync), version, 0.0)


def test_a_majority_is_required_unless_the_topic_says_more_or_less() -> None:
    assert [required_in_sync(TopicConfig(), n) for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert required_in_sync(TopicConfig(min_in_sync=1), 3) == 1
    assert required_in_sync(TopicConfig(min_in_sync=9), 3) == 3


def test_the_hw_is_unknown_until_every_member_was_heard_in_this_epoch() -> None:
    leading = leadership(["a", "b"])
    assert leading.high_watermark(Position(50)) is None
    leading.report("b", 1, Position(30), Position(50), 1.0)
    assert leading.high_watermark(Position(50)) == Position(30)
    leading.forget_position("b")
    assert leading.high_watermark(Position(50)) is None


def test_a_member_that_is_no_replica_any_more_counts_for_nothing() -> None:
    leading = leadership(["a", "b"])
    leading.report("b", 1, Position(30), Position(50), 1.0)
    leading.take_view(QueueView(["a", "c"], "a", 4, 2, ["a", "c"], []), TopicConfig(), 2, 0.0)
    assert set(leading.followers) == {"c"}
    assert leading.high_watermark(Position(50)) is None


def test_m3_what_a_move_adds_or_removes_changes_no_number_before_it_is_done() -> None:
    def required(replicas: list[str], adding: list[str], removing: list[str]) -> int:
        leading = leadership(["a"])
        view = QueueView(replicas, "a", 4, 9, ["a"], [], adding, removing)
        leading.take_view(view, TopicConfig(), 9, 0.0)
        assert leading.under_replicated == bool(removing)
        return leading.required

    assert required(["a", "b", "c"], ["b", "c"], []) == 1
    assert required(["a", "b", "c"], [], ["b", "c"]) == 2
    assert required(["a", "d", "b", "c"], ["d"], ["b"]) == 2


def test_m1_a_replica_that_is_being_added_holds_up_nothing_before_it_is_asked_for() -> None:
    leading = leadership(["a"], min_in_sync=1)
    view = QueueView(["a", "b"], "a", 4, 9, ["a"], [], ["b"], [])
    leading.take_view(view, TopicConfig(min_in_sync=1), 9, 0.0)
    leading.report("b", 1, Position(3), Position(50), 1.0)
    assert leading.high_watermark(Position(50)) == Position(50)


def test_a_change_is_settled_by_a_newer_queue_version_or_by_metadata_as_new_as_its_answer() -> None:
    leading = leadership(["a", "b"], version=7)
    leading.pending = PendingIsrChange(("c",), 7)
    assert not leading.settle(99)
    leading.pending.resolved_at = 30
    assert not leading.settle(29)
    assert leading.settle(30)
    leading.pending = PendingIsrChange(("c",), 7)
    take(leading, ["a", "b", "c"], 8)
    assert leading.pending is None


def test_who_keeps_up_with_a_busy_producer_is_not_out_of_sync() -> None:
    leading = leadership(["a", "b", "c"])
    end = 100
    for second in range(1, 20):
        # "b" always has what there was when it asked last; "c" stands still.
        leading.report("b", 1, Position(end), Position(end + 100), float(second))
        leading.report("c", 1, Position(40), Position(end + 100), float(second))
        end += 100
    heard = {"b": 19.0, "c": 19.0}
    assert leading.laggards(Position(end), 19.0, 3.0, heard) == ["c"]


def test_an_idle_member_need_only_be_alive() -> None:
    leading = leadership(["a", "b"])
    leading.report("b", 1, Position(10), Position(10), 1.0)
    assert leading.laggards(Position(10), 60.0, 3.0, {"b": 58.0}) == []
    assert leading.laggards(Position(10), 62.0, 3.0, {"b": 58.0}) == ["b"]


def test_an_append_after_idleness_finds_nobody_long_behind() -> None:
    leading = leadership(["a", "b"])
    leading.report("b", 1, Position(10), Position(10), 1.0)
    for second in range(2, 60):
        assert leading.laggards(Position(10), second, PERIOD_S, {"b": second - 0.3}) == []
    # It was told of the append and has had no time to answer.
    assert leading.laggards(Position(11), 59.5, PERIOD_S, {"b": 59.3}) == []
    assert leading.laggards(Position(11), 62.0, PERIOD_S, {"b": 62.0}) == ["b"]


def joins(leading: Leadership, broker: str, hw: int, end: int, now: float) -> bool:
    """Whether a follower that was heard just now may join."""
    return leading.may_join(broker, Position(hw), Position(end), now, PERIOD_S, {broker: now})


def test_a_refused_follower_is_asked_for_again_after_a_pause() -> None:
    leading = leadership(["a", "b"])
    leading.report("c", 1, Position(10), Position(10), 1.0)
    assert joins(leading, "c", 0, 10, 1.0)
    leading.followers["c"].pause_until = 2.0
    assert not joins(leading, "c", 0, 10, 1.9)
    assert joins(leading, "c", 0, 10, 2.0)


def test_who_left_as_slow_does_not_join_for_a_high_watermark_that_stands_still() -> None:
    """Two copies are required and it was the second: without it the HW stays where it left."""
    leading = leadership(["a", "b"])
    end = 20
    for tenth in range(1, 50):
        # Ten messages each tenth of a second, of which it takes one.
        end += 10
        leading.report("b", 1, Position(10 + tenth), Position(end), tenth / 10)
    assert leading.laggards(Position(end), 5.0, PERIOD_S, {"b": 5.0}) == ["b"]
    take(leading, ["a"], 2)
    for tenth in range(50, 200):
        # Whoever waits for all copies is refused meanwhile: our log grows no more.
        leading.report("b", 1, Position(10 + tenth), Position(end), tenth / 10)
        assert not joins(leading, "b", 50, end, tenth / 10)
    leading.report("b", 1, Position(end), Position(end), 20.0)
    assert joins(leading, "b", 50, end, 20.0)


def test_who_is_a_little_behind_a_busy_producer_joins() -> None:
    """It needs several answers for what there was when it asked, and is a second behind."""
    leading = leadership(["a"])
    for hundredth in range(100, 500):
        now = hundredth / 100
        leading.report("b", 1, Position(10 * (hundredth - 100)), Position(10 * hundredth), now)
    assert joins(leading, "b", 50, 5_000, 5.0)
    for hundredth in range(500, 1_000):
        now = hundredth / 100
        leading.report("b", 1, Position(10 * (hundredth - 200)), Position(10 * hundredth), now)
    # Two seconds are too much to join, and not enough to leave.
    assert not joins(leading, "b", 50, 10_000, 10.0)
    take(leading, ["a", "b"], 2)
    assert leading.laggards(Position(10_000), 10.0, PERIOD_S, {"b": 10.0}) == []


def test_who_is_far_behind_for_long_costs_no_memory() -> None:
    leading = leadership(["a"])
    for second in range(10_000):
        leading.report("b", 1, Position(second), Position(100 * second + 100), float(second))
    assert len(leading.followers["b"].marks) <= MOST_MARKS
    leading.report("b", 1, Position(1_000_000), Position(1_000_000), 10_001.0)
    assert leading.followers["b"].marks == []


def test_who_becomes_a_replica_later_has_nothing_yet() -> None:
    leading = leadership(["a", "b"])
    view = QueueView([*NAMES, "d"], "a", 4, 2, ["a", "b"], [])
    leading.take_view(view, TopicConfig(), 2, 60.0)
    leading.report("d", 1, Position(10), Position(500), 60.0)
    assert not joins(leading, "d", 10, 500, 60.0)
    leading.report("d", 1, Position(500), Position(520), 60.2)
    assert joins(leading, "d", 10, 520, 60.2)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("report"), st.sampled_from("bc"), st.integers(0, 30)),
            st.tuples(st.just("forget"), st.sampled_from("bc"), st.just(0)),
            st.tuples(st.just("ask"), st.sampled_from("bc"), st.just(0)),
            st.tuples(st.just("view"), st.sampled_from(["a", "ab", "abc", "ac"]), st.just(0)),
            st.tuples(st.just("sync"), st.just(""), st.integers(0, 30)),
        ),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_the_hw_never_exceeds_what_any_counted_member_has_on_disk(
    steps: list[tuple[str, str, int]], min_in_sync: int
) -> None:
    leading = leadership(["a", "b", "c"], min_in_sync=min_in_sync)
    disk: dict[str, int | None] = {"a": 0, "b": None, "c": None}
    counted, asked, version = {"a", "b", "c"}, set[str](), 1
    for kind, what, number in steps:
        if kind == "report":
            leading.report(what, 1, Position(number), Position(30), 1.0)
            disk[what] = number
        elif kind == "forget":
            leading.forget_position(what)
            disk[what] = None
        elif kind == "ask" and what not in counted and leading.pending is None:
            leading.pending = PendingIsrChange((what,), version)
            asked = {what}
        elif kind == "view":
            version += 1
            take(leading, list(what), version, min_in_sync)
            counted, asked = set(what), set()
        elif kind == "sync":
            disk["a"] = number
        hw = leading.high_watermark(Position(disk["a"] or 0))
        places = [disk[broker] for broker in counted | asked]
        if hw is None:
            assert None in places or len(counted) < leading.required
        else:
            assert len(counted) >= leading.required
            assert hw.offset == min(place for place in places if place is not None)
            assert None not in places
