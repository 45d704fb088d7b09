"""Users, keys, roles and rules in the replicated state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.cli.access_tables import rule_row
from logboom.client.admin_flows.access_flows import make_rule
from logboom.metadata.access.access_changes import drop_node_user
from logboom.metadata.access.access_rows import access_row
from logboom.metadata.raft.log_commands import entry_of
from logboom.metadata.state.state_machine import StateMachine
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
    RemoveRule,
    RemoveUserKey,
    SetDefaultQuota,
)
from logboom.wire.access.access_rules import (
    ADMINISTRATOR,
    ADMINISTRATOR_RULES,
    LONGEST_KEY_MS,
    MAX_ACCESS_BYTES,
    MAX_KEYS,
    MAX_ROLES,
    MAX_RULES,
    AccessRule,
    Quota,
    ResourceKind,
    RoleView,
    UserKey,
    Verb,
)
from logboom.wire.commands import RemoveBroker
from logboom.wire.features import EARLIEST, SUBSCRIPTION_RIGHTS
from logboom.wire.operation_commands import RaiseFeatures
from tests.unit.metadata.access.access_states import (
    ADMIN,
    READ,
    AccessTables,
    key,
    public_key,
)
from tests.unit.metadata.state.states import Tables

DENY_ADMIN = AccessRule(False, "admin", "cluster", "*")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (CreateUser("a b", [key("k", 9)], [], 0), "INVALID_NAME", "1 to 64"),
        (CreateUser("node:A", [key("k", 9)], [], 0), "INVALID_NAME", "id of a node"),
        (CreateUser("alice", [key("k", 9)], [], 0), "USER_EXISTS", "exists already"),
        (CreateUser("bob", [], [], 0), "INVALID_ARGUMENT", "1 to 4"),
        (
            CreateUser("bob", [key(f"k{n}", 10 + n) for n in range(5)], [], 0),
            "INVALID_ARGUMENT",
            "1 to 4",
        ),
        (CreateUser("bob", [key("k", 2)], [], 0), "INVALID_ARGUMENT", "'alice'"),
        (CreateUser("bob", [key("k", 9), key("l", 9)], [], 0), "INVALID_ARGUMENT", "'bob'"),
        (CreateUser("bob", [key("k", 9), key("k", 8)], [], 0), "INVALID_ARGUMENT", "label"),
        (CreateUser("bob", [key("", 9)], [], 0), "INVALID_NAME", "label"),
        (CreateUser("bob", [key("k", 9, 5, 5)], [], 0), "INVALID_ARGUMENT", "end 0 ms after"),
        (
            CreateUser("bob", [key("k", 9, 5, LONGEST_KEY_MS + 6)], [], 0),
            "INVALID_ARGUMENT",
            "no end",
        ),
        (CreateUser("bob", [key("k", 9)], ["none"], 0), "UNKNOWN_ROLE", "role create"),
        (CreateUser("node:b", [key("k", 9)], ["admins"], 0), "INVALID_ARGUMENT", "no roles"),
        (AlterUser("bob", True, None, None, 0), "UNKNOWN_USER", "user list"),
        (AlterUser("alice", None, ["none"], None, 0), "UNKNOWN_ROLE", "role create"),
        (AlterUser("alice", None, [f"r{n}" for n in range(33)], None, 0), "INVALID_ARGUMENT", "32"),
        (AlterUser("alice", None, None, Quota(topics=-1), 0), "INVALID_ARGUMENT", "topics -1"),
        (DeleteUser("bob"), "UNKNOWN_USER", "user list"),
        (AddUserKey("bob", key("k", 9)), "UNKNOWN_USER", "user list"),
        (CreateUser("bob", [UserKey("k", "short", 0)], [], 0), "INVALID_ARGUMENT", "Z85"),
        (AddUserKey("alice", UserKey("k", "short", 0)), "INVALID_ARGUMENT", "Z85"),
        (AddUserKey("alice", key("first", 9)), "INVALID_ARGUMENT", "another label"),
        (AddUserKey("alice", key("k", 1)), "INVALID_ARGUMENT", "'root'"),
        (RemoveUserKey("alice", "first"), "INVALID_ARGUMENT", "only key"),
        (RemoveUserKey("alice", "none"), "INVALID_ARGUMENT", "it has first"),
        (RemoveUserKey("bob", "first"), "UNKNOWN_USER", "user list"),
        (CreateRole("a b"), "INVALID_NAME", "1 to 64"),
        (CreateRole("node:b"), "INVALID_NAME", "1 to 64"),
        (CreateRole("admins"), "ROLE_EXISTS", "acl add role:admins"),
        (DeleteRole("none"), "UNKNOWN_ROLE", "role create"),
        (DeleteRole("admins"), "INVALID_ARGUMENT", "that of root"),
        (AddRule("user:bob", READ), "UNKNOWN_USER", "user list"),
        (AddRule("role:none", READ), "UNKNOWN_ROLE", "role create"),
        (AddRule("alice", READ), "INVALID_ARGUMENT", "user:NAME"),
        (
            AddRule("user:alice", AccessRule(True, "admin", "topic", "a")),
            "INVALID_ARGUMENT",
            "verb",
        ),
        (AddRule("user:alice", AccessRule(True, "read", "topic", "a*b")), "INVALID_ARGUMENT", "*"),
        (AddRule("user:alice", AccessRule(True, "read", "topic", "")), "INVALID_ARGUMENT", "whole"),
        (
            AddRule("user:alice", AccessRule(True, "admin", "cluster", "x")),
            "INVALID_ARGUMENT",
            "one",
        ),
        (AddRule("user:node:b", READ), "UNKNOWN_USER", "user list"),
        (RemoveRule("user:alice", READ), "INVALID_ARGUMENT", "acl list"),
        (RemoveRule("user:bob", READ), "UNKNOWN_USER", "user list"),
        (SetDefaultQuota(Quota(queues=2**60)), "INVALID_ARGUMENT", "queues"),
        (AdmitInitialUsers([InitialUser("a b", public_key(9))], 0), "INVALID_ARGUMENT", "1 to 64"),
        (AdmitInitialUsers([InitialUser("bob", "short")], 0), "INVALID_ARGUMENT", "key"),
        # Nobody could administer the cluster any more.
        (DeleteUser("root"), "INVALID_ARGUMENT", "last administrator"),
        (AlterUser("root", True, None, None, 0), "INVALID_ARGUMENT", "last administrator"),
        (AlterUser("root", None, [], None, 0), "INVALID_ARGUMENT", "last administrator"),
        (RemoveRule("role:admins", ADMIN), "INVALID_ARGUMENT", "last administrator"),
        (AddRule("role:admins", DENY_ADMIN), "INVALID_ARGUMENT", "last administrator"),
        (AddRule("user:root", DENY_ADMIN), "INVALID_ARGUMENT", "last administrator"),
    ],
)
def test_a_refused_command_says_why_in_one_line_and_changes_nothing(
    command: Any, code: str, says: str
) -> None:
    tables = AccessTables()
    before = tables.state.snapshot()
    result = tables.apply(command)
    assert (result.code, "\n" in result.text) == (code, False)
    assert says in result.text
    assert tables.state.snapshot() == before


def test_every_change_has_a_version_and_counts_at_once() -> None:
    tables = AccessTables()
    version = tables.state.version
    tables.grant("user:alice")
    assert tables.allows("alice")
    assert not tables.allows("alice", topic="other")
    assert tables.access.users["alice"].version == tables.access.version == version + 1
    tables.grant("user:alice")
    assert tables.state.version == version + 1, "the rule was there"
    tables.revoke("user:alice")
    assert not tables.allows("alice")
    tables.done(CreateRole("readers"))
    tables.grant("role:readers")
    tables.give_roles("alice", "readers")
    assert tables.allows("alice")
    tables.done(AlterUser("alice", True, None, None, 0))
    assert not tables.allows("alice")
    tables.done(AlterUser("alice", False, None, Quota(connections=3), 0))
    assert tables.allows("alice")
    assert tables.access.book.quota_of("alice").connections == 3
    tables.done(DeleteUser("alice"))
    assert not tables.allows("alice")
    tables.done(DeleteRole("readers"))
    assert "readers" not in tables.access.roles
    tables.done(SetDefaultQuota(Quota(topics=7)))
    assert tables.access.book.quota_of("root").topics == 7


def test_what_is_so_already_is_no_change() -> None:
    tables = AccessTables()
    tables.give_roles("alice", "admins")
    before = tables.state.version, tables.access.users["alice"]
    tables.give_roles("alice", "admins")
    tables.done(AlterUser("alice", False, None, Quota(), 0))
    tables.done(SetDefaultQuota(Quota()))
    assert (tables.state.version, tables.access.users["alice"]) == before


def test_of_several_rules_one_is_removed() -> None:
    tables = AccessTables()
    other = AccessRule(True, "write", "topic", "orders*")
    for rule in (READ, DENY_ADMIN, other):
        tables.grant("user:alice", rule)
    tables.revoke("user:alice", READ)
    assert tables.access.users["alice"].rules == sorted([DENY_ADMIN, other])


def test_nodes_have_no_rules() -> None:
    tables = AccessTables()
    tables.create_user("node:b", 3)
    before = tables.state.snapshot()
    for rule in (READ, DENY_ADMIN):
        refused = tables.apply(AddRule("user:node:b", rule))
        assert refused.code == "INVALID_ARGUMENT"
        assert "'node:b' is a node" in refused.text
    assert tables.state.snapshot() == before


@pytest.mark.parametrize(
    ("users", "shown"),
    [(2, "u0, u1:"), (3, "u0, u1, u2:"), (4, "u0, u1, u2 and others:")],
)
def test_a_role_that_users_have_is_not_deleted_and_three_of_them_are_named(
    users: int, shown: str
) -> None:
    tables = AccessTables()
    tables.done(CreateRole("readers"))
    for number in reversed(range(users)):
        tables.create_user(f"u{number}", 10 + number, "readers")
    refused = tables.apply(DeleteRole("readers"))
    assert refused.code == "INVALID_ARGUMENT"
    assert f"is that of {shown} revoke" in refused.text
    assert "readers" in tables.access.roles


@pytest.mark.parametrize(
    ("command", "length"),
    [
        (AddRule("z" * 400, READ), 80),
        (RemoveUserKey("alice", "z" * 400), 80),
        (
            RemoveRule("user:alice", AccessRule(True, "read", "topic", "z" * 400)),
            320 - len("allow read topic "),
        ),
    ],
)
def test_a_refusal_repeats_only_the_beginning_of_what_was_asked(command: Any, length: int) -> None:
    refused = AccessTables().apply(command)
    assert refused.code == "INVALID_ARGUMENT"
    assert refused.text.count("z") == length


def test_the_most_keys_and_roles_and_the_longest_and_shortest_key_are_accepted() -> None:
    tables = AccessTables()
    roles = [f"r{number}" for number in range(MAX_ROLES)]
    for role in roles:
        tables.done(CreateRole(role))
    ends = [0, 0, 5 + LONGEST_KEY_MS, 6]
    keys = [key(f"k{n}", 10 + n, 5, end_ms) for n, end_ms in enumerate(ends)]
    assert len(keys) == MAX_KEYS
    tables.done(CreateUser("bob", keys, roles, 0))
    bob = tables.access.users["bob"]
    assert [each.log_end_ms for each in bob.keys] == [0, 0, LONGEST_KEY_MS, 1]
    assert bob.roles == sorted(roles)
    # The log's clock is still at 0.
    tables.pass_time(EndUserKeys(0), 1)
    assert [each.ended for each in tables.access.users["bob"].keys] == [False, False, False, True]


def test_a_change_from_what_is_no_longer_so_is_refused() -> None:
    tables = AccessTables()
    seen = tables.access.users["alice"].version
    tables.give_roles("alice", "admins")
    stale = tables.apply(AlterUser("alice", None, [], None, 0, seen))
    assert (stale.code, tables.access.users["alice"].roles) == ("CONFLICT", ["admins"])


def test_default_limits_that_are_no_longer_so_are_not_changed() -> None:
    tables = AccessTables()
    seen = tables.access.default_quota
    tables.done(SetDefaultQuota(Quota(topics=7), seen))
    stale = tables.apply(SetDefaultQuota(Quota(queues=3), seen))
    assert (stale.code, tables.access.default_quota) == ("CONFLICT", Quota(topics=7))
    tables.done(SetDefaultQuota(Quota(topics=7, queues=3), Quota(topics=7)))
    tables.done(SetDefaultQuota(Quota()))
    assert tables.access.default_quota == Quota()
    now = tables.access.users["alice"].version
    tables.done(AlterUser("alice", None, [], None, 0, now))
    assert tables.access.users["alice"].roles == []


def test_the_last_administrator_may_go_once_there_is_another() -> None:
    tables = AccessTables()
    tables.grant("user:alice", ADMIN)
    tables.done(AlterUser("root", True, None, None, 0))
    assert tables.apply(RemoveRule("user:alice", ADMIN)).code == "INVALID_ARGUMENT"
    tables.done(AlterUser("root", False, None, None, 0))
    tables.done(RemoveRule("user:alice", ADMIN))
    tables.done(CreateRole("others"))
    tables.grant("role:others", DENY_ADMIN)
    tables.give_roles("alice", "admins", "others")
    assert list(tables.access.administrators) == ["root"], "any deny wins"
    # What denied goes, and what allowed after it.
    tables.revoke("role:others", DENY_ADMIN)
    tables.done(DeleteUser("root"))
    assert list(tables.access.administrators) == ["alice"]
    assert tables.apply(DeleteUser("alice")).code == "INVALID_ARGUMENT"


def test_without_any_administrator_users_can_be_made() -> None:
    tables = Tables()
    tables.begin()
    tables.done(CreateUser("node:broker-1", [key("first", 1)], [], 0))
    tables.done(CreateUser("bob", [key("first", 2)], [], 0))
    tables.done(DeleteUser("bob"))
    assert tables.state.cluster.access.administrators == {}


def test_keys_are_rotated_by_adding_and_removing() -> None:
    tables = AccessTables()
    book = tables.access.book
    tables.done(AddUserKey("alice", key("second", 3)))
    old, new = book.principal_of(public_key(2)), book.principal_of(public_key(3))
    assert old is not None
    assert new is not None
    assert book.public_keys_of("alice") == [public_key(2), public_key(3)]
    tables.done(RemoveUserKey("alice", "first"))
    assert book.principal_of(public_key(2)) is None
    assert (book.is_current(old), book.is_current(new)) == (False, True)
    # A key is not current again because another has its label now.
    tables.done(AddUserKey("alice", key("first", 4)))
    assert not book.is_current(old)
    # A key that was removed may be another user's.
    tables.create_user("bob", 2)
    assert (book.principal_of(public_key(2)) or "").startswith("bob/first")


def test_a_fifth_key_takes_the_place_of_one_that_has_ended() -> None:
    tables = AccessTables()
    for number in (3, 4):
        tables.done(AddUserKey("alice", key(f"k{number}", number)))
    tables.done(AddUserKey("alice", key("short", 5, 1_000, 1_500)))
    assert tables.apply(AddUserKey("alice", key("k6", 6))).code == "INVALID_ARGUMENT"
    tables.pass_time(EndUserKeys(0), 10_000)
    tables.done(AddUserKey("alice", key("k6", 6)))
    assert [each.label for each in tables.access.users["alice"].keys] == ["first", "k3", "k4", "k6"]
    assert public_key(5) not in tables.access.owners


def test_an_ended_key_stays_while_there_is_room() -> None:
    tables = AccessTables()
    tables.done(AddUserKey("alice", key("short", 5, 1_000, 1_500)))
    tables.pass_time(EndUserKeys(0), 10_000)
    tables.done(AddUserKey("alice", key("k6", 6)))
    assert [each.label for each in tables.access.users["alice"].keys] == ["first", "short", "k6"]


def test_keys_end_by_the_logs_clock_only() -> None:
    tables = AccessTables()
    tables.pass_time(CreateRole("clock"), 50_000)
    # Whoever made it has a clock that is years ahead: what counts is how long the key is to live.
    begin = 10**15
    tables.done(AddUserKey("alice", key("short", 3, begin, begin + 7_000)))
    book = tables.access.book
    assert tables.access.next_end_ms() == 57_000
    # The time in the command does not count, only that of its entry.
    tables.pass_time(EndUserKeys(10**16), 56_999)
    assert book.principal_of(public_key(3)) is not None
    principal = book.principal_of(public_key(3))
    tables.pass_time(EndUserKeys(0), 57_000)
    assert book.principal_of(public_key(3)) is None
    assert not book.is_current(principal or "")
    assert book.principal_of(public_key(2)) is not None
    assert tables.access.next_end_ms() is None
    version = tables.state.version
    tables.pass_time(EndUserKeys(0), 99_000)
    assert tables.state.version == version, "nothing ends twice"


def test_what_the_name_servers_set_is_not_taken_from_a_client() -> None:
    tables = AccessTables()
    forged = msgspec.structs.replace(key("k", 3), ended=True, log_end_ms=1)
    tables.done(AddUserKey("alice", forged))
    kept = tables.access.users["alice"].keys[-1]
    assert (kept.ended, kept.log_end_ms) == (False, 0)


def test_a_key_of_the_configuration_is_admitted_once() -> None:
    tables = Tables()
    tables.begin()
    listed = [
        InitialUser("admin", public_key(1), administrator=True),
        InitialUser("node:broker-1", public_key(2)),
    ]
    tables.done(AdmitInitialUsers(listed, 5))
    access = tables.state.cluster.access
    assert list(access.administrators) == ["admin"]
    assert access.roles[ADMINISTRATOR].rules == sorted(ADMINISTRATOR_RULES)
    assert access.book.decide("admin", "manage", "topic", "x").allowed
    assert access.book.public_keys_of("node:broker-1") == [public_key(2)]
    version = tables.state.version
    tables.done(AdmitInitialUsers(listed, 6))
    assert tables.state.version == version
    # Removed keys stay away, users included.
    tables.done(CreateUser("boss", [key("k", 9)], [ADMINISTRATOR], 0))
    tables.done(DeleteUser("admin"))
    tables.done(DeleteUser("node:broker-1"))
    tables.done(AdmitInitialUsers(listed, 7))
    assert set(access.users) == {"boss"}


def test_a_lost_administrator_is_let_in_again_by_a_new_key() -> None:
    tables = AccessTables()
    tables.done(CreateRole(ADMINISTRATOR))
    tables.grant(f"role:{ADMINISTRATOR}", DENY_ADMIN)
    for number in (11, 12, 13):
        tables.done(AddUserKey("alice", key(f"k{number}", number)))
    tables.done(AlterUser("alice", True, None, None, 0))
    tables.done(AdmitInitialUsers([InitialUser("alice", public_key(20), administrator=True)], 0))
    user = tables.access.users["alice"]
    assert "alice" in tables.access.administrators
    assert not user.disabled
    # Of four keys the oldest made room.
    assert [each.label for each in user.keys] == ["k11", "k12", "k13", "initial"]
    tables.done(AdmitInitialUsers([InitialUser("alice", public_key(21), administrator=True)], 0))
    assert [each.label for each in tables.access.users["alice"].keys][2:] == [
        "initial",
        "initial-2",
    ]


def test_two_keys_of_one_user_are_admitted_together() -> None:
    tables = AccessTables()
    twice = [InitialUser("boss", public_key(number), administrator=True) for number in (20, 21)]
    tables.done(AdmitInitialUsers(twice, 0))
    keys = tables.access.users["boss"].keys
    assert [each.public for each in keys] == [public_key(20), public_key(21)]
    assert [each.label for each in keys] == ["initial", "initial-2"]


def test_a_key_of_somebody_else_is_not_admitted_and_not_tried_again() -> None:
    tables = AccessTables()
    tables.done(AdmitInitialUsers([InitialUser("mallory", public_key(2), administrator=True)], 0))
    assert "mallory" not in tables.access.users
    assert tables.access.owners[public_key(2)] == "alice"
    assert public_key(2) in tables.access.admitted
    # Two of one configuration neither.
    twice = [InitialUser("a", public_key(30)), InitialUser("b", public_key(30))]
    tables.done(AdmitInitialUsers(twice, 0))
    assert tables.access.owners[public_key(30)] == "a"
    assert "b" not in tables.access.users


def test_a_key_that_the_user_has_already_is_not_added_again() -> None:
    tables = AccessTables()
    tables.done(AdmitInitialUsers([InitialUser("alice", public_key(2), administrator=True)], 0))
    assert tables.access.users["alice"].keys == [key("first", 2)]
    assert "alice" in tables.access.administrators
    assert public_key(2) in tables.access.admitted


def test_a_removed_node_loses_its_user() -> None:
    tables = AccessTables()
    tables.register("broker-1")
    tables.done(CreateUser("node:broker-1", [key("first", 3)], [], 0))
    tables.fence("broker-1")
    tables.done(RemoveBroker("broker-1"))
    assert "node:broker-1" not in tables.access.users


def test_a_node_that_is_still_there_keeps_its_user() -> None:
    tables = AccessTables()
    cluster = tables.state.cluster
    drop_node_user(cluster, "broker-1")  # it has none
    for number, node in enumerate(("broker-1", "name-1"), 3):
        tables.done(CreateUser(f"node:{node}", [key("first", number)], [], 0))
    tables.register("broker-1")
    cluster.name_servers["name-1"] = ("n1:1", "n1:2")
    for node in ("broker-1", "name-1"):
        drop_node_user(cluster, node)
        assert f"node:{node}" in tables.access.users
    del cluster.name_servers["name-1"]
    drop_node_user(cluster, "name-1")
    assert "node:name-1" not in tables.access.users


def test_nodes_of_the_configuration_do_not_administer() -> None:
    tables = AccessTables()
    tables.done(AdmitInitialUsers([InitialUser("node:broker-1", public_key(9))], 0))
    assert tables.access.users["node:broker-1"].roles == []
    assert ADMINISTRATOR not in tables.access.roles


def test_the_role_of_administrators_keeps_its_other_rules() -> None:
    tables = AccessTables()
    tables.done(CreateRole(ADMINISTRATOR))
    deny = AccessRule(False, "read", "topic", "*")
    whole_name = AccessRule(False, "admin", "cluster", "cluster")
    for rule in (DENY_ADMIN, whole_name, deny, READ):
        tables.grant(f"role:{ADMINISTRATOR}", rule)
    tables.done(AdmitInitialUsers([InitialUser("boss", public_key(9), administrator=True)], 0))
    kept = tables.access.roles[ADMINISTRATOR].rules
    assert kept == sorted({*ADMINISTRATOR_RULES, deny, READ})


def test_everything_together_has_at_most_its_bytes() -> None:
    tables = AccessTables()
    more = len(msgspec.msgpack.encode(RoleView("x")))
    tables.access.size_bytes = MAX_ACCESS_BYTES - more + 1
    refused = tables.apply(CreateRole("x"))
    assert refused.code == "INVALID_ARGUMENT"
    assert f"have {MAX_ACCESS_BYTES + 1} bytes" in refused.text
    tables.access.size_bytes = MAX_ACCESS_BYTES - more
    tables.done(CreateRole("x"))
    # What is too large already can be changed, but not grow.
    tables.done(AlterUser("alice", None, None, Quota(topics=1), 0))
    tables.access.size_bytes = MAX_ACCESS_BYTES + 5
    tables.done(AlterUser("alice", None, None, Quota(topics=127), 0))
    refused = tables.apply(AlterUser("alice", None, None, Quota(topics=128), 0))
    assert refused.code == "INVALID_ARGUMENT"


def test_limits_of_everything_together() -> None:
    tables = AccessTables()
    tables.done(CreateRole("many"))
    for number in range(2 * MAX_RULES):
        tables.grant("role:many", AccessRule(True, "read", "topic", f"{number:0255}"))
    assert tables.apply(AddRule("role:many", READ)).code == "INVALID_ARGUMENT"
    size = sum(
        len(msgspec.msgpack.encode(each))
        for each in (*tables.access.users.values(), *tables.access.roles.values())
    )
    assert tables.access.size_bytes == size
    tables.access.size_bytes = MAX_ACCESS_BYTES - 10
    refused = tables.apply(CreateUser("bob", [key("k", 9)], [], 0))
    assert (refused.code, "roles instead" in refused.text) == ("INVALID_ARGUMENT", True)
    refused = tables.apply(AddRule("role:admins", READ))
    assert (refused.code, "roles instead" in refused.text) == ("INVALID_ARGUMENT", True)
    assert READ not in tables.access.roles["admins"].rules
    tables.revoke("role:many", AccessRule(True, "read", "topic", f"{0:0255}"))


# ── snapshots and entries ───────────────────────────────────────────────────────────────────────


def busy() -> AccessTables:
    tables = AccessTables()
    tables.grant("user:alice")
    tables.done(AddUserKey("alice", key("short", 3, 0, 9_000)))
    tables.done(CreateRole("gone"))
    tables.done(DeleteRole("gone"))
    tables.done(SetDefaultQuota(Quota(requests_per_s=100)))
    tables.done(AdmitInitialUsers([InitialUser("node:broker-1", public_key(7))], 1))
    return tables


def test_a_restored_state_is_the_same_and_goes_on_alike() -> None:
    tables, twin = busy(), AccessTables()
    tables.be_older()
    snapshot = tables.state.snapshot()
    assert msgspec.msgpack.decode(snapshot)[0] == 6
    twin.state.restore(snapshot)
    assert twin.state.snapshot() == snapshot
    for name in ("administrators", "owners", "size_bytes", "default_quota"):
        assert getattr(twin.access, name) == getattr(tables.access, name)
    assert twin.access.next_end_ms() == tables.access.next_end_ms() == 9_000
    assert twin.access.book.users == tables.access.book.users
    for each in (tables, twin):
        each.pass_time(EndUserKeys(0), 9_000)
        each.done(DeleteUser("alice"))
        each.done(AdmitInitialUsers([InitialUser("node:broker-1", public_key(7))], 1))
    assert twin.state.snapshot() == tables.state.snapshot()


def test_the_row_of_users_in_a_snapshot_keeps_its_shape() -> None:
    tables = Tables()
    tables.begin()
    tables.done(CreateRole("readers"))
    tables.done(AddRule("role:readers", READ))
    tables.done(AdmitInitialUsers([InitialUser("node:b", public_key(7))], 1))
    tables.done(CreateUser("alice", [key("first", 2)], ["readers"], 5))
    tables.done(SetDefaultQuota(Quota(topics=3)))
    row = access_row(tables.state.cluster.access)
    no_limits = [0] * 7
    alice = ["alice", [["first", public_key(2), 1_000, 0, False, 0]], ["readers"], [], False]
    node = ["node:b", [["initial", public_key(7), 1, 0, False, 0]], [], [], False]
    versions = [*(user.version for user in row.users), *(role.version for role in row.roles)]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(row)) == [
        [[*alice, no_limits, 5, versions[0]], [*node, no_limits, 1, versions[1]]],
        [["readers", [[True, "read", "topic", "orders*"]], versions[2]]],
        [0, 0, 0, 0, 3, 0, 0],
        [public_key(7)],
    ]


def test_decisions_are_made_by_the_same_book_after_a_restore() -> None:
    tables, newer = AccessTables(), AccessTables()
    book = tables.access.book
    newer.grant("user:alice")
    tables.state.restore(newer.state.snapshot())
    assert tables.access.book is book
    assert tables.allows("alice")
    tables.revoke("user:alice")
    assert not book.decide("alice", "read", "topic", "orders").allowed
    # A book never goes back, whatever is restored.
    tables.state.restore(AccessTables().state.snapshot())
    assert tables.access.book is not book
    assert book.version > tables.access.book.version


def test_the_order_of_rules_and_users_is_not_part_of_the_state() -> None:
    one, two = AccessTables(), AccessTables()
    rules = [AccessRule(True, "read", "topic", f"t{n}") for n in range(4)]
    for rule in rules:
        one.grant("user:alice", rule)
    for rule in reversed(rules):
        two.grant("user:alice", rule)
    assert one.state.snapshot() == two.state.snapshot()


def test_without_users_snapshots_and_entries_are_as_before() -> None:
    tables = Tables()
    tables.begin(features=EARLIEST)
    tables.register("a")
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 1
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    assert not twin.cluster.access.used
    assert entry_of("", 0, 0, DeleteUser("x")).format == 6


def of_before() -> AccessTables:
    """A cluster of two roles whose upgrade to rights on subscriptions is not finalized."""
    tables = AccessTables(features=SUBSCRIPTION_RIGHTS - 1)
    tables.grant("user:alice", AccessRule(True, "read", "topic", "orders.*"))
    tables.done(AdmitInitialUsers([InitialUser("boss", public_key(7), administrator=True)], 5))
    return tables


def subscription_rules(tables: AccessTables) -> dict[str, list[str]]:
    """Holder → its rules on subscriptions."""
    held = {user.name: user.rules for user in tables.access.users.values()}
    held |= {role.name: role.rules for role in tables.access.roles.values()}
    found = {
        name: [str(r) for r in rules if r.kind == "subscription"] for name, rules in held.items()
    }
    return {name: rules for name, rules in found.items() if rules}


def test_below_their_level_nothing_is_written_of_rights_on_subscriptions() -> None:
    tables = of_before()
    assert subscription_rules(tables) == {}
    assert tables.access.book.decide("alice", "manage", "subscription", "orders.eu/s").allowed


def test_nobody_loses_the_use_of_subscriptions_when_their_rights_come_into_force() -> None:
    tables = of_before()
    tables.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))
    assert subscription_rules(tables) == {
        "alice": ["allow read subscription orders.*"],
        ADMINISTRATOR: ["allow manage subscription *", "allow read subscription *"],
    }
    decide = tables.access.book.decide
    assert decide("alice", "read", "subscription", "orders.eu/s").allowed
    assert not decide("alice", "read", "subscription", "orders/s").allowed
    assert not decide("alice", "manage", "subscription", "orders.eu/s").allowed
    assert decide("boss", "manage", "subscription", "orders.eu/s").allowed
    # It is done once, and a copy by a snapshot decides alike.
    tables.revoke("user:alice", AccessRule(True, "read", "subscription", "orders.*"))
    version = tables.state.version
    tables.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))
    assert tables.state.version == version
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    assert not twin.cluster.access.book.decide(
        "alice", "read", "subscription", "orders.eu/s"
    ).allowed
    assert twin.snapshot() == tables.state.snapshot()


def test_what_is_denied_on_topics_is_denied_on_their_subscriptions_when_their_rights_come() -> None:
    tables = of_before()
    verbs: tuple[Verb, ...] = ("read", "manage")
    for verb in verbs:
        tables.grant("user:alice", AccessRule(True, verb, "topic", "*"))
        tables.grant("user:alice", AccessRule(False, verb, "topic", "secret"))
    of: list[tuple[ResourceKind, str]] = [
        ("subscription", "secret/billing"),
        ("topic", "%DLQ%secret%billing"),
    ]
    decide = tables.access.book.decide
    assert not [each for each in of if decide("alice", "manage", *each).allowed]
    tables.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))
    assert not [each for each in of if decide("alice", "manage", *each).allowed]
    assert decide("alice", "manage", "subscription", "orders/billing").allowed


@pytest.mark.parametrize("holder", ["user:alice", "role:many"])
def test_a_holder_of_as_many_rules_as_there_may_be_can_be_made_anew_after_the_upgrade(
    holder: str,
) -> None:
    tables = AccessTables(features=SUBSCRIPTION_RIGHTS - 1)
    tables.done(CreateRole("many"))
    for number in range(MAX_RULES):
        tables.grant(holder, AccessRule(number % 2 == 0, "read", "topic", f"{number:0255}"))
    assert tables.apply(AddRule(holder, READ)).code == "INVALID_ARGUMENT"
    tables.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))

    def rules() -> list[AccessRule]:
        if holder == "role:many":
            return tables.access.roles["many"].rules
        return tables.access.users["alice"].rules

    before = rules()
    assert len(before) == 2 * MAX_RULES
    if holder == "role:many":
        tables.apply(DeleteRole("many"))
        tables.done(CreateRole("many"))
    else:
        tables.done(DeleteUser("alice"))
        tables.create_user("alice", 9)
    assert rules() == []
    for row in [rule_row(holder, rule) for rule in before]:
        # As `logboom acl list` shows them, and `logboom acl add` takes them.
        tables.grant(row.pop("holder"), make_rule(**row))
    assert rules() == before
    assert tables.apply(AddRule(holder, READ)).code == "INVALID_ARGUMENT"


def test_a_book_that_outlives_a_snapshot_learns_of_the_rights_on_subscriptions() -> None:
    tables, behind = of_before(), of_before()
    tables.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))
    book = behind.access.book
    behind.state.restore(tables.state.snapshot())
    assert behind.access.book is book
    assert not book.decide("alice", "manage", "subscription", "orders.eu/s").allowed


def test_an_open_cluster_gets_no_users_by_an_upgrade() -> None:
    tables = Tables()
    tables.begin(features=EARLIEST)
    tables.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))
    assert not tables.state.cluster.access.used
    tables.done(AdmitInitialUsers([InitialUser("boss", public_key(7), administrator=True)], 5))
    assert tables.state.cluster.access.roles[ADMINISTRATOR].rules == sorted(ADMINISTRATOR_RULES)
