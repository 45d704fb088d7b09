"""A user may have so many producers at a broker; beyond that its own idle ones go, and no others."""

from __future__ import annotations

import pytest

from logboom.nodes.requests import producer_shares
from logboom.nodes.requests.producer_shares import COUNT_EVERY_S, IDLE_S
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.errors import Unavailable
from tests.unit.nodes.rig import Peer, Rig, batch, produce

MAX_PRODUCERS = 8


def key_of(user: str) -> UserKey:
    return UserKey("laptop", f"{user:k<40}", 0)


def rig_with_users() -> tuple[Rig, Peer, Peer]:
    """A broker that leads a queue, and clients of ann and bob, who may write it."""
    rig = Rig()
    rig.lead()
    users = [
        UserView(name, [key_of(name)], rules=[AccessRule(True, "write", "topic", "*")])
        for name in ("ann", "bob")
    ]
    rig.broker.routes.access.update(AccessView(True, users), 1_000)
    ann, bob = (rig.client(name, principal_of(name, key_of(name))) for name in ("ann", "bob"))
    return rig, ann, bob


def sends(client: Peer, producer: int, sequence: int = 0) -> bool:
    """Send a batch of a producer; True if it is stored."""
    client.ask(produce(), [batch(1, producer, 0, sequence)])
    (reply,) = client.taken()
    assert reply.error is None or isinstance(reply.error, Unavailable)
    return reply.error is None


@pytest.fixture(params=["MAX_IN_QUEUE", "MAX_OF_USER"])
def _bound(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_shares, request.param, MAX_PRODUCERS)


@pytest.mark.usefixtures("_bound")
def test_a_user_with_too_many_producers_gets_no_new_one_and_keeps_those_it_has() -> None:
    rig, ann, bob = rig_with_users()
    assert sends(bob, 1_000)
    stored = [producer for producer in range(1, 4 * MAX_PRODUCERS) if sends(ann, producer)]
    assert stored == [*range(1, MAX_PRODUCERS + 1)]
    assert len(rig.replica().windows) == MAX_PRODUCERS + 1
    assert sends(ann, 1, 1)
    assert sends(bob, 1_001), "others have a bound of their own"
    assert sends(bob, 1_000, 1)


@pytest.mark.usefixtures("_bound")
def test_those_that_were_idle_for_long_make_room() -> None:
    rig, ann, bob = rig_with_users()
    assert sends(bob, 1_000)
    assert all(sends(ann, producer) for producer in range(1, MAX_PRODUCERS + 1))
    rig.settle(IDLE_S / 2)
    assert sends(ann, 1, 1)
    assert not sends(ann, 100)
    rig.settle(IDLE_S / 2)
    assert sends(ann, 100)
    assert len(rig.replica().windows) == 3, "two of ann, and bob's, which is as old"
    assert sends(ann, 1, 2)
    again = Rig(rig.storage, incarnation="two")
    assert len(again.replica().windows) == 3, "by an entry of the log"


def test_producers_of_ended_leaderships_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_shares, "MAX_OF_USER", MAX_PRODUCERS)
    rig, ann, _ = rig_with_users()
    assert all(sends(ann, producer) for producer in range(1, MAX_PRODUCERS + 1))
    assert not sends(ann, 100)
    leading = rig.replica().leading
    assert leading is not None
    leading.producers.clear()
    assert not sends(ann, 100), "all queues are counted once a second"
    rig.settle(COUNT_EVERY_S)
    assert sends(ann, 100)


def test_clients_without_a_key_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_shares, "MAX_OF_USER", MAX_PRODUCERS)
    rig, _, _ = rig_with_users()
    client = rig.client("open")
    assert all(sends(client, producer) for producer in range(1, 3 * MAX_PRODUCERS))
