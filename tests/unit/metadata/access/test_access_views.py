"""Users and rules as WATCH and DESCRIBEACCESS tell them."""

from __future__ import annotations

import pytest

from logboom.metadata.access.access_reads import AccessReads
from logboom.metadata.tables.change_index import MAX_TOMBSTONES
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_commands import (
    AddRule,
    AddUserKey,
    AdmitInitialUsers,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteRole,
    DeleteUser,
    EndUserKeys,
    InitialUser,
    RemoveUserKey,
    SetDefaultQuota,
)
from logboom.wire.access.access_rules import Quota
from logboom.wire.actor import PeerAddress
from logboom.wire.commands import Barrier, RemoveBroker
from logboom.wire.errors import LogboomError
from logboom.wire.messages import AccessDescribed, DescribeAccess, Watch, WatchResult
from logboom.wire.routes import Routes
from logboom.wire.view import View
from tests.unit.metadata.access.access_states import READ, AccessTables, key, public_key
from tests.unit.metadata.name_servers import Group, Who


def told(tables: AccessTables, version: int) -> View:
    """What a broker that is at this version is told."""
    return view_since(tables.state.cluster, version, None, [], None, access=True)


def same(book: AccessBook, tables: AccessTables) -> bool:
    """Whether a broker's copy is that of the name servers."""
    own = tables.access.book
    return (book.users, book.roles, book.default_quota) == (
        own.users,
        own.roles,
        own.default_quota,
    )


def test_a_change_is_told_as_a_change_and_everything_to_who_is_new() -> None:
    tables, routes = AccessTables(), Routes()
    routes.update(told(tables, -1))
    assert same(routes.access, tables)
    version = routes.version
    tables.grant("user:alice")
    tables.done(SetDefaultQuota(Quota(topics=3)))
    tables.done(CreateRole("gone"))
    tables.done(DeleteRole("gone"))
    tables.done(CreateUser("bob", [key("first", 3)], [], 0))
    tables.done(DeleteUser("bob"))
    view = told(tables, version)
    assert view.access is not None
    assert (view.full, view.access.full) == (False, False)
    assert [user.name for user in view.access.users] == ["alice"]
    assert (view.access.deleted_users, view.access.deleted_roles) == (["bob"], ["gone"])
    routes.update(view)
    assert same(routes.access, tables)
    assert routes.access.version == routes.version == tables.state.version
    assert view_since(tables.state.cluster, version, None, [], None).access is None


def test_after_a_restore_older_copies_get_everything() -> None:
    tables = AccessTables()
    version = tables.state.version
    tables.done(DeleteUser("alice"))
    tables.state.restore(tables.state.snapshot())
    view = told(tables, version)
    assert view.full
    assert view.access is not None
    assert view.access.full


def test_who_is_far_behind_gets_everything() -> None:
    tables = AccessTables()
    version = tables.state.version
    for _ in range(MAX_TOMBSTONES // 2):
        tables.done(CreateRole("a"))
        tables.done(DeleteRole("a"))
    assert not told(tables, version).full, "one name is one entry"
    for number in range(MAX_TOMBSTONES + 1):
        tables.done(CreateRole(f"r{number}"))
        tables.done(DeleteRole(f"r{number}"))
    assert told(tables, version).full
    assert not view_since(tables.state.cluster, version, None, [], None).full


def test_brokers_are_shown_with_their_keys() -> None:
    tables, routes = AccessTables(), Routes()
    tables.register("b-1")
    routes.update(told(tables, -1))
    assert routes.brokers["b-1"].keys == []
    tables.done(CreateUser("node:b-1", [key("first", 11)], [], 0))
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == [public_key(11)]
    tables.done(AddUserKey("node:b-1", key("next", 12)))
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == [public_key(11), public_key(12)]
    tables.done(RemoveUserKey("node:b-1", "first"))
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == [public_key(12)]
    tables.done(DeleteUser("node:b-1"))
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == []
    tables.done(CreateUser("node:b-1", [key("first", 13)], [], 0))
    tables.fence("b-1")
    tables.done(RemoveBroker("b-1"))
    routes.update(told(tables, routes.version))
    assert routes.brokers == {}
    assert "node:b-1" not in routes.access.users


def test_a_broker_is_told_anew_if_its_keys_have_changed() -> None:
    tables, routes = AccessTables(), Routes()
    tables.register("b-1")
    routes.update(told(tables, -1))
    tables.done(AdmitInitialUsers([InitialUser("node:b-1", public_key(11))], 0))
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == [public_key(11)]
    tables.done(AddUserKey("node:b-1", key("short", 12, 1_000, 1_500)))
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == [public_key(11), public_key(12)]
    tables.pass_time(EndUserKeys(0), 10_000)
    routes.update(told(tables, routes.version))
    assert routes.brokers["b-1"].keys == [public_key(11)]
    tables.done(AlterUser("node:b-1", None, None, Quota(connections=3), 0))
    assert told(tables, routes.version).brokers == []


def test_a_broker_with_the_name_of_a_user_is_not_told_anew() -> None:
    tables = AccessTables()
    tables.register("alice")
    version = tables.state.version
    tables.done(AddUserKey("alice", key("next", 12)))
    tables.done(DeleteUser("alice"))
    assert told(tables, version).brokers == []


def test_name_servers_are_shown_with_their_keys() -> None:
    group = Group(size=1)
    held = group.begin("name-1", Watch(0, 9_000, group.view(group.leader()).version, [], 8_000))
    group.propose(CreateUser("node:name-1", [key("first", 11)], [], 0), "operator")
    answer = group.wait(held)
    assert isinstance(answer, WatchResult)
    assert [each.keys for each in answer.view.name_servers] == [[public_key(11)]]


def test_a_held_watch_of_a_broker_is_woken_by_a_change_at_every_name_server() -> None:
    group = Group()
    group.propose(CreateUser("alice", [key("first", 2)], [], 0), "operator")
    group.run(0.5)
    version = group.view(group.leader()).version
    ask = Watch(0, 9_000, version, [], 8_000, access=True)
    held = {name: group.begin(name, ask, "broker", 9.0) for name in group.disks}
    client = group.begin(group.leader(), Watch(0, 9_000, version, [], 8_000))
    group.run(0.3)
    assert all(each.reply is None for each in held.values())
    group.propose(AddRule("user:alice", READ), "operator")
    for asked in held.values():
        answer = group.wait(asked)
        assert isinstance(answer, WatchResult)
        assert answer.view.access is not None
        assert [user.rules for user in answer.view.access.users] == [[READ]]
    group.run(0.3)
    assert client.reply is None, "rules are no news for clients"


@pytest.mark.parametrize(
    "message", [Watch(0, 1_000, -1, [], 0, access=True), DescribeAccess(0, 1_000)]
)
def test_users_and_rules_are_not_told_to_anybody(message: Watch | DescribeAccess) -> None:
    group = Group(size=1)
    answer = group.ask(group.leader(), message)
    assert isinstance(answer, LogboomError)
    assert answer.code == "UNAUTHENTICATED"


@pytest.mark.parametrize("who", ["operator", "broker"])
def test_users_and_rules_are_described_with_everything_committed_before(who: Who) -> None:
    group = Group()
    group.propose(CreateRole("readers"), "operator")
    group.propose(AddRule("role:readers", READ), "operator")
    group.propose(CreateUser("bob", [key("first", 3)], ["readers"], 0), "operator")
    version = group.propose(CreateUser("alice", [key("first", 2)], [], 0), "operator").version
    answer = group.ask(group.leader(), DescribeAccess(0, 2_000), who)
    assert isinstance(answer, AccessDescribed)
    assert [user.name for user in answer.users] == ["alice", "bob"]
    assert [role.rules for role in answer.roles] == [[READ]]
    assert answer.version == version
    answer = group.ask(group.leader(), DescribeAccess(0, 2_000, "alice"), who)
    assert isinstance(answer, AccessDescribed)
    assert ([user.name for user in answer.users], answer.roles) == (["alice"], [])
    unknown = group.ask(group.leader(), DescribeAccess(0, 2_000, "nobody"), who)
    assert isinstance(unknown, LogboomError)
    assert unknown.code == "UNKNOWN_USER"
    follower = group.ask(group.followers()[0], DescribeAccess(0, 2_000), who)
    assert isinstance(follower, LogboomError)
    assert follower.code == "NOT_LEADER"


def test_users_are_changed_by_operators_and_nodes_alone() -> None:
    group = Group(size=1)
    command = CreateUser("alice", [key("first", 2)], [], 0)
    with pytest.raises(AssertionError, match="cluster key"):
        group.propose(command, "client")
    assert group.propose(Barrier(), "client").code == ""
    assert group.propose(command, "broker").code == ""


def test_a_read_that_fails_is_answered_once() -> None:
    group = Group()
    name = group.followers()[0]
    answers: list[object] = []
    peer = PeerSession(PeerAddress("main", b"1"), "tester", "client", 0, 1, 0.0, proven=True)
    AccessReads(group.core(name)).take(peer, DescribeAccess(0, 2_000), answers.append)
    group.run(3.0)
    (answer,) = answers
    assert isinstance(answer, LogboomError)
    assert answer.code == "NOT_LEADER"
