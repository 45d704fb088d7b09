"""Progress of moves, from what the Raft leader tells again and again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.client.move_progress import MoveProgress, left_text, moves_of, progress_text
from logboom.wire.operation_messages import QueueMoveState


def move(queue: int = 0, done: int = 0, total: int = 100, **fields: Any) -> QueueMoveState:
    usual = QueueMoveState(
        "flights", queue, ["b", "c", "a"], ["c"], ["a"], "drain", done, total, 0, 0, -1, ""
    )
    return msgspec.structs.replace(usual, **fields)


def test_what_has_ended_counts_as_copied() -> None:
    progress = MoveProgress()
    progress.follow([move(0, 10), move(1, 0, bytes_per_s=5)])
    assert (progress.done_bytes, progress.total_bytes, progress.bytes_per_s) == (10, 200, 5)
    progress.follow([move(1, 50)])
    assert (progress.done_bytes, progress.total_bytes) == (150, 200)
    progress.follow([])
    assert progress.done_bytes == 200
    assert progress.text() == "no queue moves"


def test_moves_that_have_not_begun_count_as_planned() -> None:
    progress = MoveProgress(1000)
    progress.follow([move(0, 10)])
    assert (progress.done_bytes, progress.total_bytes) == (10, 1000)


def test_what_is_not_known_counts_as_nothing() -> None:
    progress = MoveProgress()
    progress.follow([move(0, -1, -1)])
    assert (progress.done_bytes, progress.total_bytes) == (0, 0)
    progress.follow([])
    assert progress.done_bytes == 0


def test_each_reason_is_told_once() -> None:
    progress = MoveProgress()
    progress.follow([move(0, stuck="c is dead"), move(1), move(2, stuck="c is dead")])
    assert progress.stuck == ["flights/0 and 1 other queue: c is dead"]
    progress.follow([move(number, stuck=f"reason {number}") for number in range(9)])
    assert len(progress.stuck) == 3


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"done": 42}, "42 %"),
        ({"done": 42, "bytes_per_s": 2048, "left_s": 300}, "42 %, 2.0 KiB/s, 5 min left"),
        (
            {"done": 42, "bytes_per_s": 2048, "produced_bytes_per_s": 1024},
            "42 %, 2.0 KiB/s (produced: 1.0 KiB/s)",
        ),
        ({"done": 42, "stuck": "c is dead"}, "stuck: c is dead"),
        ({"done": -1, "total": -1}, None),
        ({"total": 0}, None),
    ],
)
def test_one_move_in_words(fields: dict[str, Any], text: str | None) -> None:
    assert progress_text(move(**fields)) == text


def test_times_in_words() -> None:
    assert [left_text(each) for each in (5, 119, 120, 7199, 7200)] == [
        "5 s",
        "119 s",
        "2 min",
        "119 min",
        "2 h",
    ]


def test_moves_are_chosen() -> None:
    moves = [move(0), move(1, adding=["d"]), move(0, topic="orders")]
    assert moves_of(moves, topic="flights", queue=1) == [moves[1]]
    assert moves_of(moves, broker="d") == [moves[1]]
    assert len(moves_of(moves, broker="a")) == 3
    assert moves_of(moves, topic="orders") == [moves[2]]
