"""Consumers of users: nobody receives, settles or ends in the name of another user's (A6)."""

from __future__ import annotations

import pytest

from logboom.wire.errors import GroupError
from logboom.wire.messages import Ok
from logboom.wire.subscription_messages import Detach, Receive, SettleMessages
from tests.unit.nodes.rig import Rig
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, alone, refused, send
from tests.unit.nodes.test_users_at_brokers import alice_and_bob


def consumers() -> tuple[Rig, Reader, Reader]:
    """Alice's consumer, and bob as whoever says that he is it."""
    rig = alone()
    hers, his = Reader(rig, "one"), Reader(rig, "one")
    hers.peer, his.peer = alice_and_bob(rig, ("read", "topic", "flights"))
    return rig, hers, his


def test_a6_another_users_consumer_cannot_be_spoken_for() -> None:
    rig, hers, his = consumers()
    hers.subscribe(owner=5)
    send(rig, b"a", b"b")
    assert hers.receive() == [b"a", b"b"]
    who = ("flights", 0, "s", "one", hers.session)
    for forged in (
        Receive(0, 5_000, *who, hers.number + 1, 10, 1 << 20, 0),
        Receive(0, 5_000, *who, hers.number + 7, 10, 1 << 20, 0),
        SettleMessages(0, 5_000, *who, [(0, 2)]),
        SettleMessages(0, 5_000, *who, [], again=[(0, 2, 0)]),
    ):
        his.peer.ask(forged)
        with pytest.raises(GroupError, match="is not attached in this session"):
            his.peer.answer()
    his.peer.ask(Detach(0, 5_000, *who))
    assert isinstance(his.peer.answer(), Ok), "as where it is not attached"
    assert hers.settle((0, 2)) == []


@pytest.mark.parametrize("owner", [0, 5, 1 << 62])
@pytest.mark.parametrize("again", [False, True])
def test_a6_a_name_is_not_taken_from_another_user(owner: int, again: bool) -> None:
    rig, hers, his = consumers()
    hers.subscribe(owner=5)
    send(rig, b"a")
    his.session = 100
    assert refused(his, owner=owner, again=again) == "INSTANCE_TAKEN"
    assert hers.receive() == [b"a"]
    hers.peer.ask(Detach(0, 5_000, "flights", 0, "s", "one", hers.session))
    his.subscribe(owner=owner, again=again)
    assert his.receive() == [b"a"]
