"""Members of users: nobody commits, releases, leaves or joins in the name of another user's (A6)."""

from __future__ import annotations

import pytest

from logboom.wire.access_requirements import Requirement
from logboom.wire.authorizer import Authorizer, Caller
from logboom.wire.base import WireMessage
from logboom.wire.errors import Forbidden, LogboomError
from logboom.wire.features import IDS_OF_USERS
from logboom.wire.group_messages import GroupCommit, GroupHeartbeat, GroupLeave, GroupRelease
from logboom.wire.user_marks import mark_of
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig, Member
from tests.unit.nodes.rig import Peer
from tests.unit.nodes.test_users_at_brokers import Right, alice_and_bob, allow

RIGHTS: list[Right] = [("read", "group", GROUP), ("read", "topic", "flights")]


def joined(features: int = IDS_OF_USERS) -> tuple[GroupRig, Member, Peer]:
    """Alice's member, which has all queues, and bob, who may read the same group."""
    rig = GroupRig(brokers=1)
    rig.state.cluster.features = features
    rig.coordinate_or_create()
    her, his = alice_and_bob(rig, *RIGHTS)
    member = rig.member("m")
    member.peer = member.held = her
    member.join()
    member.beat()
    rig.settle(0.1)
    member.beat()
    assert member.kept == [0, 1, 2, 3]
    return rig, member, his


def code(rig: GroupRig, peer: Peer, message: WireMessage) -> str:
    peer.ask(message)
    rig.settle()
    (reply,) = peer.taken()
    return "" if reply.error is None else reply.error.code


def test_a6_nobody_speaks_for_another_users_member() -> None:
    rig, member, his = joined()
    who = (0, 5_000, GROUP, member.name, member.epoch)
    last = member.last(0, 9)
    for forged in (
        GroupHeartbeat(*who, -1, 0),
        GroupHeartbeat(*who, member.seen, 4_000),
        GroupCommit(*who, [last]),
        GroupRelease(*who, [last]),
        GroupLeave(*who, [last]),
        GroupLeave(*who, [last], True),
    ):
        assert code(rig, his, forged) == "UNKNOWN_MEMBER"
    assert rig.committed(0) == 0
    assert not rig.broker.parts.coordinator.sessions.groups[GROUP].sessions["m"].leaving
    assert member.commit(member.last(0, 3)) == [""]


def test_a6_another_user_keeps_no_silent_member_alive() -> None:
    rig, member, his = joined()
    for _ in range(8):
        rig.settle(rig.group.config.session_ms / 4_000)
        code(rig, his, GroupHeartbeat(0, 5_000, GROUP, member.name, member.epoch, -1, 0))
    assert "m" not in rig.group.members


@pytest.mark.parametrize("instance", ["", "shop"])
def test_a6_another_user_does_not_take_the_name(instance: str) -> None:
    rig, member, his = joined()
    static = rig.member("m-2" if instance else "m")
    static.peer = static.held = member.peer
    static.join(instance=instance)
    taker = rig.member("m-3" if instance else "m")
    taker.peer = his
    with pytest.raises(LogboomError, match="is a member of another user") as caught:
        taker.join(instance=instance)
    assert caught.value.code == "INSTANCE_TAKEN"
    static.beat()
    static.leave()
    taker.join(instance=instance)
    assert rig.group.members[taker.name].user == mark_of("bob")


def test_members_belong_to_nobody_below_the_level_and_on_open_listeners() -> None:
    rig, member, his = joined(IDS_OF_USERS - 1)
    assert rig.group.members["m"].user == 0
    who = (0, 5_000, GROUP, member.name, member.epoch)
    assert code(rig, his, GroupCommit(*who, [member.last(0, 5)])) == ""
    rig, member, _ = joined()
    anybody = rig.client("anybody")
    who = (0, 5_000, GROUP, member.name, member.epoch)
    assert code(rig, anybody, GroupCommit(*who, [member.last(0, 5)])) == ""


def test_the_rights_of_a_member_are_looked_up_again_only_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, member, his = joined()
    looked: list[str] = []

    def lack(caller: Caller, asked: object, needed: Requirement) -> LogboomError | None:
        looked.append(needed.name)
        return Authorizer.lack(rig.broker.acceptor.authorizer, caller, asked, needed)

    monkeypatch.setattr(rig.broker.acceptor.authorizer, "lack", lack)
    for _ in range(20):
        member.beat()
    assert not looked
    rig.create("hotels", 1)
    rig.tell()
    allow(rig, *RIGHTS, ("read", "topic", "hotels"))
    member.beat()
    assert looked == ["flights"]
    member.join(subscription={"flights": "*", "hotels": "*"}, replace=True)
    for _ in range(20):
        member.beat()
    assert looked == ["flights", "flights", "hotels"]
    # Of another user.
    his.ask(GroupHeartbeat(0, 5_000, GROUP, "m-2", 1, -1, 0))
    with pytest.raises(Forbidden, match="a topic that user 'bob' may not read"):
        his.answer()
    allow(rig, *RIGHTS)
    member.held.ask(GroupHeartbeat(0, 5_000, GROUP, member.name, member.epoch, -1, 0))
    with pytest.raises(Forbidden, match="a topic that user 'alice' may not read"):
        member.held.answer()
