"""How far a node has come: never 100 while anything is missing."""

from __future__ import annotations

import pytest

from logboom.cli.catch_up_bar import bar, commit_index, percent
from logboom.wire.messages import StatsResult


def broker(catching_up: int, behind: int, followed: int) -> dict[str, int]:
    """A broker's counters."""
    return {"catching_up": catching_up, "behind_messages": behind, "followed_messages": followed}


@pytest.mark.parametrize(
    ("counters", "share"),
    [
        (broker(0, 0, 0), 100.0),
        (broker(0, 0, 700), 100.0),
        (broker(1, 350, 700), 50.0),
        (broker(1, 1, 1_000_000), 99.9),
        # Its leader was not heard yet.
        (broker(1, 0, 0), 99.0),
        (broker(1, 0, 10), 90.0),
        ({"raft_applied_index": 30}, 75.0),
        ({"raft_applied_index": 41}, 100.0),
        ({"holds": 1}, None),
    ],
)
def test_the_share_that_a_node_holds(counters: dict[str, int], share: float | None) -> None:
    assert percent(counters, 40) == share


def test_the_goal_of_name_servers_is_the_greatest_commit() -> None:
    stats = [StatsResult(0, "name-1", "", {"raft_commit_index": n}) for n in (4, 9, 7)]
    assert commit_index([*stats, None]) == 9
    assert commit_index([]) == 0


@pytest.mark.parametrize(
    ("share", "shown"),
    [(None, None), (100.0, "100 %"), (99.9, "█████████░ 99 %"), (42.0, "████░░░░░░ 42 %")],
)
def test_bars(share: float | None, shown: str | None) -> None:
    assert bar(share) == shown
