"""Users, roles and rules of a backup, created where they do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from logboom.client import Client
from logboom.wire.access.access_rules import AccessRule, UserView, with_subscription_rules
from logboom.wire.backup_messages import ClusterSnapshot
from logboom.wire.features import SUBSCRIPTION_RIGHTS


def restore_users(client: Client, state: ClusterSnapshot, target: ClusterSnapshot) -> list[str]:
    """Create the users and roles that are not there, and return the names of the users.

    Those that exist keep what they have. Nobody has a right before what denies it: a user is
    disabled, limited and denied first.
    """
    admin = client.admin
    if state.features < SUBSCRIPTION_RIGHTS <= target.features:
        # As an upgrade would have done: the rules of then say nothing of subscriptions.
        users = [replace(user, rules=with_subscription_rules(user.rules)) for user in state.users]
        roles = [replace(role, rules=with_subscription_rules(role.rules)) for role in state.roles]
        state = replace(state, users=users, roles=roles)
    for role in state.roles:
        if role.name not in {each.name for each in target.roles}:
            admin.create_role(role.name)
            for rule in _denials_first(role.rules):
                _add_rule(client, f"role:{role.name}", rule)
    known = {user.name for user in target.users}
    return [
        user.name
        for user in state.users
        if user.name not in known and _create(client, user, state.clock_ms)
    ]


def _create(client: Client, user: UserView, clock_ms: int) -> bool:
    """Create a user; False if none of its keys counts any more."""
    admin = client.admin
    keys = [key for key in user.keys if not key.ended and not 0 < key.end_ms <= clock_ms]
    if not keys:
        return False
    first, *others = keys
    admin.create_user(user.name, first.public, label=first.label, end_ms=first.end_ms)
    # Nobody gets in with half of the rules. If the restore ends early, the user stays disabled.
    admin.alter_user(user.name, disabled=True, quota=user.quota)
    for key in others:
        admin.add_user_key(user.name, key.public, label=key.label, end_ms=key.end_ms)
    for rule in _denials_first(user.rules):
        _add_rule(client, f"user:{user.name}", rule)
    admin.alter_user(user.name, disabled=user.disabled, roles=user.roles)
    return True


def _add_rule(client: Client, holder: str, rule: AccessRule) -> None:
    effect: Literal["allow", "deny"] = "allow" if rule.allow else "deny"
    client.admin.add_rule(holder, effect, rule.verb, rule.kind, rule.pattern)


def _denials_first(rules: Iterable[AccessRule]) -> list[AccessRule]:
    return sorted(rules, key=lambda rule: rule.allow)
