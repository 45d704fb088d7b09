"""Commands on users and their keys."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from logboom.metadata.access.access_changes import admissible, drop_user, put_user, room_for_key
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import (
    CommandOutcome,
    refused,
    unknown_role,
    unknown_user,
)
from logboom.wire.access.access_commands import (
    AddUserKey,
    AlterUser,
    CreateUser,
    DeleteUser,
    RemoveUserKey,
)
from logboom.wire.access.access_rules import (
    LONGEST_KEY_MS,
    MAX_KEYS,
    MAX_ROLES,
    UserKey,
    UserView,
    is_node_user,
    label_fault,
    public_key_fault,
    quota_fault,
    user_name_fault,
)


def create_user(cluster: ClusterState, command: CreateUser) -> CommandOutcome:
    """Create a user with 1 to 4 keys."""
    fault = user_name_fault(command.name)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    if command.name in cluster.access.users:
        text = f"user {command.name!r} exists already: alter it, or choose another name"
        return refused("USER_EXISTS", text, user=command.name)
    if not 1 <= len(command.keys) <= MAX_KEYS:
        text = f"{len(command.keys)} keys: a user has 1 to {MAX_KEYS}"
        return refused("INVALID_ARGUMENT", text)
    user = UserView(command.name, [], created_ms=command.time_ms)
    refusal = _refuse_roles(cluster, user, command.roles)
    if refusal is not None:
        return refusal
    for key in command.keys:
        refusal = _refuse_key(cluster, user, key)
        if refusal is not None:
            return refusal
        user = replace(user, keys=[*user.keys, admissible(key, cluster.clock_ms)])
    return put_user(cluster, replace(user, roles=sorted(set(command.roles))))


def alter_user(cluster: ClusterState, command: AlterUser) -> CommandOutcome:
    """Disable or enable a user, or replace its roles or its limits."""
    user = cluster.access.users.get(command.name)
    if user is None:
        return unknown_user(command.name)
    if command.seen_version not in (-1, user.version):
        text = f"user {user.name!r} was changed by somebody else meanwhile: look, and try again"
        return refused("CONFLICT", text, user=user.name)
    if command.disabled is not None:
        user = replace(user, disabled=command.disabled)
    if command.roles is not None:
        refusal = _refuse_roles(cluster, user, command.roles)
        if refusal is not None:
            return refusal
        user = replace(user, roles=sorted(set(command.roles)))
    if command.quota is not None:
        fault = quota_fault(command.quota)
        if fault is not None:
            return refused("INVALID_ARGUMENT", fault)
        user = replace(user, quota=command.quota)
    return put_user(cluster, user)


def delete_user(cluster: ClusterState, command: DeleteUser) -> CommandOutcome:
    """Delete a user with its keys and its own rules."""
    user = cluster.access.users.get(command.name)
    return unknown_user(command.name) if user is None else drop_user(cluster, user)


def add_user_key(cluster: ClusterState, command: AddUserKey) -> CommandOutcome:
    """Give a user one more key; where there are 4, one that has ended goes."""
    user = cluster.access.users.get(command.name)
    if user is None:
        return unknown_user(command.name)
    kept = room_for_key(user.keys)
    refusal = _refuse_key(cluster, replace(user, keys=kept), command.key)
    if refusal is not None:
        return refusal
    return put_user(cluster, replace(user, keys=[*kept, admissible(command.key, cluster.clock_ms)]))


def remove_user_key(cluster: ClusterState, command: RemoveUserKey) -> CommandOutcome:
    """Remove a user's key, unless it is the only one."""
    user = cluster.access.users.get(command.name)
    if user is None:
        return unknown_user(command.name)
    kept = [key for key in user.keys if key.label != command.label]
    if len(kept) == len(user.keys):
        labels = ", ".join(key.label for key in user.keys)
        text = f"user {user.name!r} has no key {command.label[:80]!r}: it has {labels}"
        return refused("INVALID_ARGUMENT", text, user=user.name)
    if not kept:
        text = (
            f"{command.label!r} is the only key of user {user.name!r}: add another first, or "
            "disable or delete the user"
        )
        return refused("INVALID_ARGUMENT", text, user=user.name)
    return put_user(cluster, replace(user, keys=kept))


def _refuse_key(cluster: ClusterState, user: UserView, key: UserKey) -> CommandOutcome | None:
    """Return why a user cannot get a key, or None."""
    fault = label_fault(key.label)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    fault = public_key_fault(key.public)
    owner = cluster.access.owners.get(key.public)
    if any(key.public == known.public for known in user.keys):
        owner = user.name
    if fault is None and owner is not None:
        fault = f"the key belongs to user {owner!r} already: make a key pair of its own"
    if fault is None and any(key.label == known.label for known in user.keys):
        fault = f"user {user.name!r} has a key {key.label!r} already: choose another label"
    if fault is None and len(user.keys) >= MAX_KEYS:
        fault = f"user {user.name!r} has {MAX_KEYS} keys, which is the most: remove one first"
    if fault is None and key.end_ms and not 0 < key.end_ms - key.created_ms <= LONGEST_KEY_MS:
        fault = (
            f"key {key.label!r} would end {key.end_ms - key.created_ms} ms after it was made: give "
            f"1 to {LONGEST_KEY_MS} ms, or no end"
        )
    return None if fault is None else refused("INVALID_ARGUMENT", fault, user=user.name)


def _refuse_roles(
    cluster: ClusterState, user: UserView, roles: Sequence[str]
) -> CommandOutcome | None:
    """Return why a user cannot have these roles, or None."""
    if roles and is_node_user(user.name):
        text = f"{user.name!r} is a node, which may do all that nodes do: it has no roles"
        return refused("INVALID_ARGUMENT", text)
    if len(set(roles)) > MAX_ROLES:
        text = f"{len(set(roles))} roles: a user has at most {MAX_ROLES}"
        return refused("INVALID_ARGUMENT", text)
    missing = [role for role in roles if role not in cluster.access.roles]
    return unknown_role(missing[0]) if missing else None
