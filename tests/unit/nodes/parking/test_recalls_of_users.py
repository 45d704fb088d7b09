"""Recalls: a user takes back what it has sent, and others' with the right to manage the topic (A6)."""

from __future__ import annotations

import pytest

from logboom.wire.features import IDS_OF_USERS
from logboom.wire.messages import Produced
from logboom.wire.parking import Recalled
from logboom.wire.user_marks import id_of_user
from tests.unit.nodes.replica.test_parked_queue import park, recall
from tests.unit.nodes.rig import Peer, Rig, batch
from tests.unit.nodes.test_users_at_brokers import Right, alice_and_bob, allow

WRITE: Right = ("write", "topic", "flights")
MANAGE: Right = ("manage", "topic", "flights")
HERS = id_of_user("alice", 1)


def sent(features: int = IDS_OF_USERS, *, producer: int = HERS) -> tuple[Rig, Peer, Peer, Produced]:
    """A delayed message of alice, and bob, who may write the topic, too."""
    rig = Rig()
    rig.broker.routes.features = features
    rig.lead()
    hers, his = alice_and_bob(rig, WRITE)
    who = (producer, 0, 0) if producer >= 0 else ()
    hers.ask(park(rig, 5_000), [batch(1, *who)])
    place = hers.answer()
    assert isinstance(place, Produced)
    return rig, hers, his, place


def code(peer: Peer, place: Produced) -> str:
    """Code of the answer to a recall; "" if it is done."""
    (reply,) = peer.ask(recall(place))
    peer.taken()
    if reply.error is not None:
        return reply.error.code
    assert isinstance(reply.message, Recalled)
    assert reply.message.done
    return ""


def test_a6_what_another_user_has_sent_is_not_recalled() -> None:
    rig, hers, his, place = sent()
    assert code(his, place) == "FORBIDDEN"
    assert rig.replica().parked.count == 1
    assert code(hers, place) == ""
    assert code(his, place) == "", "it is told that it was recalled"


@pytest.mark.parametrize("rights", [(MANAGE,), (WRITE, MANAGE)])
def test_who_manages_the_topic_recalls_what_anybody_has_sent(rights: tuple[Right, ...]) -> None:
    rig, hers, _, place = sent(producer=-1)
    assert code(hers, place) == "FORBIDDEN", "nothing says that it is hers"
    allow(rig, *rights)
    assert code(hers, place) == ""


def test_below_the_level_and_on_open_listeners_anybody_recalls() -> None:
    _, _, his, place = sent(IDS_OF_USERS - 1)
    assert code(his, place) == ""
    rig, _, _, place = sent()
    assert code(rig.client("anybody"), place) == ""
