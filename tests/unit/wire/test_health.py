"""Why a node is not ready, and why it should not be stopped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from logboom.wire.health import (
    BrokerReadiness,
    broker_restart_reasons,
    name_server_reasons,
    name_server_restart_reasons,
    report,
)
from logboom.wire.restart_check import RestartRisk

GOOD: Mapping[str, int] = {"registered": 1, "lease": 1, "unapplied": 0, "catching_up": 0}


def reasons(
    readiness: BrokerReadiness,
    figures: Mapping[str, int | str] = GOOD,
    *,
    stopping: bool = False,
    mode: str = "active",
) -> list[str]:
    """Return the reasons of a broker that is well but for these figures."""
    return readiness.reasons({**GOOD, **figures}, stopping=stopping, mode=mode)


def test_a_broker_that_is_well_is_ready() -> None:
    assert reasons(BrokerReadiness()) == []


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({"registered": 0}, "registered"),
        ({"lease": 0}, "lease"),
        ({"unapplied": 3}, "3 replicas"),
        ({"catching_up": 2}, "2 replicas"),
    ],
)
def test_what_a_broker_lacks_is_told(figures: dict[str, int], word: str) -> None:
    (told,) = reasons(BrokerReadiness(), figures)
    assert word in told


def test_a_refusal_is_told() -> None:
    figures: Mapping[str, int | str] = {"registered": 0, "refusal": "store is of another broker"}
    (told,) = reasons(BrokerReadiness(), figures)
    assert told.endswith("store is of another broker")


def test_drained_and_stopping_brokers_are_not_ready() -> None:
    readiness = BrokerReadiness()
    assert "draining" in reasons(readiness, mode="draining")[0]
    assert reasons(readiness, {"lease": 0}, stopping=True) == ["the node is stopping"]


def test_once_caught_up_a_broker_may_be_behind() -> None:
    readiness = BrokerReadiness()
    assert reasons(readiness, {"catching_up": 5})
    # Without a lease nothing is known of leaders, so nothing has caught up.
    assert reasons(readiness, {"lease": 0})
    assert reasons(readiness, {"catching_up": 5})
    assert reasons(readiness) == []
    assert reasons(readiness, {"catching_up": 5}) == []


def test_a_name_server_is_ready_while_it_hears_the_group() -> None:
    figures = {"in_touch": 1, "raft_commit_index": 9, "raft_applied_index": 9}
    assert name_server_reasons(figures, stopping=False) == []
    assert name_server_reasons({**figures, "in_touch": 0}, stopping=False)
    (told,) = name_server_reasons({**figures, "raft_applied_index": 7}, stopping=False)
    assert told.startswith("2 committed")
    assert name_server_reasons(figures, stopping=True) == ["the node is stopping"]


@pytest.mark.parametrize(
    ("members", "serving", "safe"),
    [
        ("abc", "abc", True),
        ("abc", "ab", False),
        ("abc", "", False),
        ("a", "a", False),
        ("abcde", "abcd", True),
    ],
)
def test_a_name_server_may_stop_while_a_majority_is_left(
    members: str, serving: str, *, safe: bool
) -> None:
    assert (name_server_restart_reasons("a", set(members), set(serving)) == []) is safe


def test_risks_are_told_with_their_remedy() -> None:
    risk = RestartRisk("orders", 3, "only-copy", lasting=False)
    (told,) = broker_restart_reasons([risk], registered=True)
    assert told == "orders/3: only-copy; wait until another replica is in sync"


def test_of_a_broker_that_is_not_registered_nobody_can_tell_what_its_queues_would_lose() -> None:
    assert broker_restart_reasons([], registered=True) == []
    (told,) = broker_restart_reasons([], registered=False)
    assert "not registered" in told


def test_many_reasons_are_counted() -> None:
    told = report("broker-1", [str(number) for number in range(1_000)])
    assert (told.status, len(told.reasons)) == ("failed", 21)
    assert told.reasons[-1] == "and 980 more"
    assert report("broker-1", []).status == "ok"
