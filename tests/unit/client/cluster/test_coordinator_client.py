"""Who coordinates a group: the newest that any broker names, and not one that is of no use."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from logboom.client.cluster.coordinator_client import STUBBORN, CoordinatorClient
from logboom.wire.errors import LogboomError, TimedOut, Unavailable, error_for


class Brokers:
    """Three brokers, as the metadata shows them."""

    def __init__(self) -> None:
        self.routes = SimpleNamespace(
            brokers={
                name: SimpleNamespace(endpoint=f"{name}:1", alive=True) for name in ("a", "b", "c")
            }
        )


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def coordinator(brokers: Brokers) -> CoordinatorClient:
    nobody: Any = None
    watching: Any = brokers
    made = CoordinatorClient("g", nobody, watching, random.Random(1))
    assert made.refused("c:1", names("a", 5), 1) == "at once"
    assert made.endpoint() == "a:1"
    return made


def names(broker: str, epoch: int) -> LogboomError:
    return error_for("NOT_COORDINATOR", "another", {"coordinator": broker, "epoch": epoch})


def test_an_older_answer_does_not_lead_back(coordinator: CoordinatorClient) -> None:
    assert coordinator.refused("c:1", names("b", 4), 1) == "later"
    assert coordinator.endpoint() == "a:1"
    assert coordinator.refused("a:1", names("b", 6), 1) == "at once"
    assert coordinator.endpoint() == "b:1"


def test_one_that_names_itself_is_asked_again_later(coordinator: CoordinatorClient) -> None:
    assert coordinator.refused("a:1", names("a", 5), 1) == "later"


def test_a_silent_one_is_left_at_once_and_a_stubborn_one_after_a_while(
    coordinator: CoordinatorClient,
) -> None:
    for failures in range(1, STUBBORN):
        assert coordinator.refused("a:1", Unavailable("not now"), failures) == "later"
        assert coordinator.endpoint() == "a:1"
    assert coordinator.refused("a:1", Unavailable("not now"), STUBBORN) == "later"
    left = coordinator.endpoint()
    assert left is not None
    assert left != "a:1"
    assert coordinator.refused(left, TimedOut("no answer"), 1) == "later"
    assert coordinator.endpoint() != left


def test_a_dead_one_is_left(coordinator: CoordinatorClient, brokers: Brokers) -> None:
    assert not coordinator.has_left("a:1")
    brokers.routes.brokers["a"].alive = False
    assert coordinator.has_left("a:1")
    assert coordinator.endpoint() in ("b:1", "c:1")


def test_while_all_are_dead_there_is_nobody_to_ask(
    coordinator: CoordinatorClient, brokers: Brokers
) -> None:
    for broker in brokers.routes.brokers.values():
        broker.alive = False
    coordinator.rerouted()
    assert coordinator.endpoint() is None
