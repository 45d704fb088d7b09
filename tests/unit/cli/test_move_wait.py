"""Waits for moves: when they end, what they tell meanwhile, and what goes on after them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from types import SimpleNamespace
from typing import cast

import pytest

from logboom.cli import move_wait
from logboom.cli.move_wait import agreed, report, wait_for
from logboom.client import Client
from logboom.client.move_plans import OperationPlan
from logboom.client.move_progress import moves_of
from logboom.wire.errors import InvalidRequest, Refused, TimedOut, Unavailable
from logboom.wire.operation_messages import ClusterDescribed, PlannerStatus
from tests.unit.cli.test_move_plans import MIB, a_move, broker, cluster

PLAN = OperationPlan({"broker": "a"}, ["it moves"], MIB)
STALLED = PlannerStatus("stalled", ["nowhere to go"], 1, "off", 0.0, 0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once."""
    monkeypatch.setattr(move_wait, "PAUSE_S", 0.0)


def asked(answers: Iterator[ClusterDescribed | Exception]) -> Client:
    """Return a client whose cluster is described by these, one after the other."""

    def describe() -> ClusterDescribed:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    return cast("Client", SimpleNamespace(admin=SimpleNamespace(describe_cluster=describe)))


def wait(
    answers: Iterable[ClusterDescribed | Exception],
    ended: Callable[[ClusterDescribed], bool] = lambda now: not now.brokers,
    timeout_s: float = 0.0,
) -> None:
    """Wait for a cluster without brokers."""
    wait_for(
        asked(iter(answers)),
        "draining a",
        ended,
        lambda now: moves_of(now.moves, broker="a"),
        timeout_s=timeout_s,
        goes_on="The draining goes on",
    )


def test_a_wait_ends_with_the_work_and_tells_each_reason_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stuck = cluster(broker("a"), moves=[a_move(stuck="c is dead")])
    moves = cluster(broker("a"), moves=[a_move()])
    wait([stuck, stuck, moves, stuck, cluster()])
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "draining a: flights/0: c is dead"
    assert len(told) == 2
    assert told[1].startswith("draining a: done after 0 s, 4.0 MiB copied")


def test_a_cluster_that_does_not_answer_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    wait([Unavailable("no raft leader"), cluster()])
    assert "draining a: no answer now: no raft leader" in capsys.readouterr().err
    with pytest.raises(Refused):
        wait([Refused("somebody ended it"), cluster()])


def test_the_planner_is_quoted_only_where_nothing_moves(capsys: pytest.CaptureFixture[str]) -> None:
    wait([cluster(broker("a"), moves=[a_move()], planner=STALLED), cluster()])
    assert "nowhere to go" not in capsys.readouterr().err
    wait([cluster(broker("a"), planner=STALLED), cluster()])
    assert "draining a: nowhere to go" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("described", "why"),
    [
        (cluster(broker("a"), planner=STALLED), "nowhere to go"),
        (cluster(broker("a"), moves=[a_move()]), "1 queue moves"),
    ],
)
def test_a_wait_that_takes_too_long_says_why_and_what_goes_on(
    described: ClusterDescribed, why: str
) -> None:
    with pytest.raises(TimedOut, match=rf"0\.05 s \({why}.*\)\. The draining goes on"):
        wait(repeat(described), timeout_s=0.05)


def test_ctrl_c_ends_the_wait_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: ClusterDescribed) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait([cluster()], ended=interrupted)
    assert capsys.readouterr().err == "The draining goes on\n"


def test_a_plan_is_shown_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert agreed(PLAN, "Drain a?", "nothing was changed", yes=True, output="table")
    with pytest.raises(InvalidRequest, match="say --yes"):
        agreed(PLAN, "Drain a?", "nothing was changed", yes=False, output="table")
    assert capsys.readouterr().out == "it moves\nit moves\n"
    assert agreed(PLAN, "Drain a?", "nothing was changed", yes=True, output="json")
    report(PLAN, "begun", "a is draining", "table")
    assert capsys.readouterr() == ("", "a is draining\n")
    report(PLAN, "begun", "a is draining", "json")
    assert '"state": "begun"' in capsys.readouterr().out
