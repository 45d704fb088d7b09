"""A broker follows users and access rules with its copy of the metadata."""

from __future__ import annotations

import msgspec

from logboom.wire.access.access_rules import AccessView, UserView
from logboom.wire.messages import Watch, WatchResult
from tests.unit.nodes.rig import Rig


def tell(rig: Rig, access: AccessView | None, *, full: bool = False) -> Watch:
    """Answer the broker's WATCH with this at a new version; the WATCH that follows."""
    assert rig.view is not None
    rig.version += 1
    view = msgspec.structs.replace(rig.view, version=rig.version, full=full, access=access)
    rig.reply(rig.ns.take(Watch), WatchResult(0, view))
    rig.settle()
    following = rig.ns.take(Watch)
    rig.ns.asked.append((following, ()))
    return following


def following_rig() -> Rig:
    """A broker that has followed some metadata, without users."""
    rig = Rig()
    rig.publish()
    return rig


def test_a_broker_asks_for_users_and_rules_and_takes_them_over() -> None:
    rig = following_rig()
    book = rig.broker.routes.access
    users = [UserView("alice", []), UserView("bob", [])]
    following = tell(rig, AccessView(True, users), full=True)
    assert following.access
    assert set(book.users) == {"alice", "bob"}
    following = tell(rig, AccessView(False, deleted_users=["bob"]))
    assert set(book.users) == {"alice"}
    assert following.version == book.version == rig.version


def test_after_an_older_name_server_a_broker_asks_for_everything_once() -> None:
    rig = following_rig()
    book = rig.broker.routes.access
    assert tell(rig, None).version == rig.version
    assert not book.known
    # A newer name server tells a change of what this broker does not have.
    users = [UserView("alice", [])]
    assert tell(rig, AccessView(False, users)).version == -1
    assert not book.known
    assert tell(rig, AccessView(True, users), full=True).version == rig.version
    assert set(book.users) == {"alice"}
    assert tell(rig, AccessView(False)).version == rig.version
