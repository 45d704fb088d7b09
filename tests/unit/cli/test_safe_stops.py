"""`logboom cluster restart-check`: its rows and its exit code, by what the nodes report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from logboom.cli import restart_commands
from logboom.cli.cluster_address import Destination
from logboom.cli.restart_commands import restart_check
from logboom.client.checks.cluster_health import RAFT_LEADER, ClusterStatus
from logboom.wire.errors import InvalidRequest, Unavailable
from logboom.wire.messages import StatsResult
from logboom.wire.view import BrokerView, NameServerView, TopicView, View
from tests.unit.cli.test_move_plans import queue, topic

Checks = Callable[..., tuple[int, list[str]]]


def stats(role: str, **counters: int) -> StatsResult:
    return StatsResult(0, "", role, {**counters})


NAMES: Mapping[str, StatsResult] = {
    "name-1": stats(RAFT_LEADER, in_touch=1),
    "name-2": stats("raft follower", in_touch=1),
    "name-3": stats("raft follower", in_touch=1),
}
BROKERS: Mapping[str, StatsResult] = {each: stats("broker", registered=1) for each in "abc"}


@pytest.fixture(name="check")
def _check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Checks:
    """Check a node of a cluster; return the exit code and the risks."""

    def check(
        node: str, answers: Mapping[str, StatsResult], *topics: TopicView
    ) -> tuple[int, list[str]]:
        view = View(
            1, True, "id",
            [BrokerView(each, "a:1", "", 1, True, 1) for each in BROKERS],
            list(topics), [], [], [NameServerView(each, "a:1") for each in NAMES], None,
        )  # fmt: skip
        found: Any = (ClusterStatus(view, answers), []) if answers else (None, [])
        monkeypatch.setattr(restart_commands, "destination_of", lambda _: Destination(("a:1",)))
        monkeypatch.setattr(restart_commands, "open_node_client", lambda _: nullcontext())
        monkeypatch.setattr(restart_commands, "read_cluster_status", lambda *_: found)
        code = restart_check(node)
        (_, *rows) = capsys.readouterr().out.splitlines()
        return code, [row.split()[2] for row in rows]

    return check


def test_a_name_server_may_be_stopped_while_a_majority_is_in_touch(check: Checks) -> None:
    assert check("name-2", NAMES) == (0, [])
    assert check("name-1", NAMES) == (0, [])
    out_of_touch = {**NAMES, "name-3": stats("raft follower", in_touch=0)}
    assert check("name-2", out_of_touch) == (1, ["no-majority"])
    assert check("name-3", out_of_touch) == (0, [])
    leaderless = {name: stats("raft follower", in_touch=1) for name in NAMES}
    assert check("name-2", leaderless) == (1, ["no-majority"])


def test_a_broker_may_be_stopped_while_others_have_its_queues(check: Checks) -> None:
    answers = {**NAMES, **BROKERS}
    assert check("a", answers, topic(queue("abc"))) == (0, [])
    assert check("a", answers, topic(queue("abc", "a"))) == (1, ["only-copy"])
    # The metadata has not heard yet that c is gone.
    gone = {name: each for name, each in answers.items() if name != "c"}
    assert check("a", gone, topic(queue("abc")))[0] == 1
    leaderless = {**answers, **dict.fromkeys(NAMES, stats("raft follower"))}
    assert check("a", leaderless, topic(queue("abc"))) == (1, ["no-raft-leader"])


def test_a_broker_that_has_just_started_may_not_be_stopped_before_it_is_registered(
    check: Checks,
) -> None:
    """The metadata tells what was, not what this process is about to lead."""
    answers = {**NAMES, **BROKERS, "a": stats("broker", registered=0)}
    assert check("a", answers, topic(queue("abc"))) == (1, ["not-registered"])
    assert check("a", answers, topic(queue("abc", "bc"))) == (1, ["not-registered"])
    # That of another is no copy.
    assert check("b", answers, topic(queue("abc", "ab"))) == (1, ["no-leader"])


def test_what_cannot_be_checked_is_an_error(check: Checks) -> None:
    with pytest.raises(InvalidRequest, match="there are name-1, name-2, name-3, a, b, c"):
        check("broker-9", NAMES)
    with pytest.raises(Unavailable, match="is a majority up"):
        check("a", {})
