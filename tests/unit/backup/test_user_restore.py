"""Users of a backup: nobody gets in before everything that denies it is there."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock, call

import msgspec

from logboom.backup.user_restore import restore_users
from logboom.client.admin_flows.access_flows import make_rule
from logboom.wire.access.access_commands import CreateRole
from logboom.wire.access.access_rules import AccessRule, Quota, RoleView, UserKey, UserView
from logboom.wire.backup_messages import ClusterSnapshot
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.operation_commands import RaiseFeatures
from tests.unit.metadata.access.access_states import AccessTables

EMPTY = ClusterSnapshot(5, "cluster", 9, 2, 1, 1, [], [], 1, [], [], [], [])

HOLDERS = ("user:ann", "role:readers")


def test_a_key_that_had_ended_at_the_cut_lets_nobody_in() -> None:
    keys = [
        UserKey("ended", "k1", 1, ended=True),
        UserKey("due", "k2", 1, end_ms=1_000),
        UserKey("counts", "k3", 1, end_ms=1_001),
    ]
    state = msgspec.structs.replace(
        EMPTY, clock_ms=1_000, users=[UserView("ann", keys), UserView("bob", keys[:2])]
    )
    client: Any = Mock()
    assert restore_users(client, state, EMPTY) == ["ann"]
    client.admin.create_user.assert_called_once_with("ann", "k3", label="counts", end_ms=1_001)
    client.admin.add_user_key.assert_not_called()


def test_a_user_is_disabled_until_all_of_it_is_restored() -> None:
    rules = [
        AccessRule(True, "read", "topic", "*"),
        AccessRule(False, "read", "topic", "secret"),
    ]
    quota = Quota(topics=5)
    keys = [UserKey("one", "k1", 1), UserKey("two", "k2", 1)]
    user = UserView("ann", keys, ["readers"], rules, quota=quota)
    client: Any = Mock()
    state = msgspec.structs.replace(EMPTY, users=[user])
    assert restore_users(client, state, EMPTY) == ["ann"]
    admin = client.admin
    assert admin.method_calls == [
        call.create_user("ann", "k1", label="one", end_ms=0),
        call.alter_user("ann", disabled=True, quota=quota),
        call.add_user_key("ann", "k2", label="two", end_ms=0),
        call.add_rule("user:ann", "deny", "read", "topic", "secret"),
        call.add_rule("user:ann", "allow", "read", "topic", "*"),
        call.alter_user("ann", disabled=False, roles=["readers"]),
    ]


def test_users_of_a_cluster_without_rights_on_subscriptions_go_on_using_them() -> None:
    read = AccessRule(True, "read", "topic", "orders")
    users = [UserView("ann", [UserKey("one", "k1", 1)], rules=[read])]
    before = msgspec.structs.replace(
        EMPTY, users=users, roles=[RoleView("readers", [read])], features=SUBSCRIPTION_RIGHTS - 1
    )
    now = msgspec.structs.replace(EMPTY, features=SUBSCRIPTION_RIGHTS)
    for state, target, count in ((before, now, 2), (before, before, 0)):
        client: Any = Mock()
        restore_users(client, state, msgspec.structs.replace(target, users=[], roles=[]))
        added = [each.args for each in client.admin.add_rule.call_args_list]
        wanted = {(who, "allow", "read", "subscription", "orders/*") for who in HOLDERS}
        assert len(wanted.intersection(added)) == count
        assert len(added) == 2 + count


def test_denials_on_topics_come_to_subscriptions_as_by_an_upgrade() -> None:
    rules = [
        AccessRule(True, "read", "topic", "*"),
        AccessRule(True, "manage", "topic", "orders.*"),
        AccessRule(False, "read", "topic", "secret"),
        AccessRule(False, "manage", "topic", "orders.eu*"),
        AccessRule(False, "write", "topic", "orders.us"),
    ]
    upgraded = AccessTables(features=SUBSCRIPTION_RIGHTS - 1)
    upgraded.done(CreateRole("readers"))
    for holder in ("user:alice", "role:readers"):
        for rule in rules:
            upgraded.grant(holder, rule)
    upgraded.done(RaiseFeatures(SUBSCRIPTION_RIGHTS, 0))
    users = [UserView("alice", [UserKey("one", "k1", 1)], rules=rules)]
    state = msgspec.structs.replace(
        EMPTY, users=users, roles=[RoleView("readers", rules)], features=SUBSCRIPTION_RIGHTS - 1
    )
    client: Any = Mock()
    restore_users(client, state, msgspec.structs.replace(EMPTY, features=SUBSCRIPTION_RIGHTS))
    added = [each.args for each in client.admin.add_rule.call_args_list]
    wanted = {
        "user:alice": upgraded.access.users["alice"].rules,
        "role:readers": upgraded.access.roles["readers"].rules,
    }
    for holder, after in wanted.items():
        restored = [make_rule(*words) for who, *words in added if who == holder]
        assert sorted(restored) == after
        assert [rule.allow for rule in restored] == sorted(rule.allow for rule in restored)
        assert AccessRule(False, "read", "subscription", "secret/*") in restored
        assert AccessRule(False, "manage", "subscription", "orders.eu*") in restored
