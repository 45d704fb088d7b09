"""Changes of users and roles: what no command may do, and what else follows a change."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from logboom.metadata.tables.access_table import may_administer, size_of
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.wire.access.access_rules import (
    MAX_ACCESS_BYTES,
    MAX_KEYS,
    NODE_PREFIX,
    RoleView,
    UserKey,
    UserView,
    is_node_user,
    node_user,
    with_subscription_rules,
)

UserOrRole = TypeVar("UserOrRole", UserView, RoleView)


def put_user(cluster: ClusterState, user: UserView) -> CommandOutcome:
    """Create or change a user, unless it was the last administrator or everything gets too large."""
    known = cluster.access.users.get(user.name)
    if known == user:
        return DONE
    refusal = _refuse_size(cluster, known, user)
    last = list(cluster.access.administrators) == [user.name]
    if refusal is None and last and not may_administer(user, cluster.access.roles):
        refusal = _last_administrator(user.name)
    if refusal is not None:
        return refusal
    cluster.access.change(users=[user])
    show_keys(cluster, known, user)
    return DONE


def drop_user(cluster: ClusterState, user: UserView) -> CommandOutcome:
    """Delete a user, unless it is the last administrator."""
    if list(cluster.access.administrators) == [user.name]:
        return _last_administrator(user.name)
    cluster.access.change(gone_users=[user.name])
    show_keys(cluster, user, None)
    return DONE


def drop_node_user(cluster: ClusterState, node_id: str) -> None:
    """Delete the user of a node that was removed, so that its keys open nothing any more."""
    user = cluster.access.users.get(node_user(node_id))
    if user is not None and node_id not in cluster.brokers and node_id not in cluster.name_servers:
        drop_user(cluster, user)


def put_role(cluster: ClusterState, role: RoleView) -> CommandOutcome:
    """Create or change a role, unless that leaves no administrator or everything gets too large."""
    table = cluster.access
    known = table.roles.get(role.name)
    refusal = _refuse_size(cluster, known, role)
    if refusal is not None:
        return refusal
    if table.administrators and known is not None:
        roles = {**table.roles, role.name: role}
        if not any(may_administer(table.users[name], roles) for name in table.administrators):
            return _last_administrator(f"role {role.name}")
    table.change(roles=[role])
    return DONE


def begin_subscription_rules(cluster: ClusterState) -> None:
    """Bring rules on subscriptions into force, and give them to whoever goes by those of topics yet.

    Nobody loses the use of a subscription by an upgrade, also if all rules together get more bytes
    than `MAX_ACCESS_BYTES`.
    """
    table = cluster.access
    users = [_with_rules(user) for user in table.users.values()]
    roles = [_with_rules(role) for role in table.roles.values()]
    table.enforce_subscription_rules(
        [user for user in users if user != table.users[user.name]],
        [role for role in roles if role != table.roles[role.name]],
    )


def _with_rules(holder: UserOrRole) -> UserOrRole:
    return msgspec.structs.replace(holder, rules=with_subscription_rules(holder.rules))


def show_keys(cluster: ClusterState, before: UserView | None, after: UserView | None) -> None:
    """Let WATCH tell the public keys of a broker that has others now."""
    user = before or after
    if user is None or not is_node_user(user.name):
        return
    broker = cluster.brokers.get(user.name.removeprefix(NODE_PREFIX))
    if broker is not None and (before is None or after is None or before.keys != after.keys):
        cluster.touch_broker(broker)


def _refuse_size(
    cluster: ClusterState, known: UserView | RoleView | None, after: UserView | RoleView
) -> CommandOutcome | None:
    more = size_of(after) - (size_of(known) if known is not None else 0)
    if more <= 0 or cluster.access.size_bytes + more <= MAX_ACCESS_BYTES:
        return None
    text = (
        f"all users, roles and rules have {cluster.access.size_bytes + more} bytes, at most "
        f"{MAX_ACCESS_BYTES}: remove some, or give rules to roles instead of many users"
    )
    return refused("INVALID_ARGUMENT", text)


def _last_administrator(what: str) -> CommandOutcome:
    text = (
        f"{what} makes the last administrator: first let another user `admin cluster`, with "
        "`logboom user create NAME --role administrator`"
    )
    return refused("INVALID_ARGUMENT", text)


def admissible(key: UserKey, clock_ms: int) -> UserKey:
    """Return a key as the tables keep it: what the name servers set is not taken from elsewhere."""
    log_end_ms = clock_ms + key.end_ms - key.created_ms if key.end_ms else 0
    return msgspec.structs.replace(key, ended=False, log_end_ms=log_end_ms)


def room_for_key(keys: list[UserKey]) -> list[UserKey]:
    """Return a user's keys without as many ended ones, oldest first, as a further key needs."""
    kept = list(keys)
    for key in keys:
        if len(kept) >= MAX_KEYS and key.ended:
            kept.remove(key)
    return kept
