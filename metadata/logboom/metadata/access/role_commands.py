"""Commands on roles, on the rules of roles and users, and on the limits of everybody."""

from __future__ import annotations

from bisect import insort

from msgspec.structs import replace

from logboom.metadata.access.access_changes import put_role, put_user
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import (
    DONE,
    CommandOutcome,
    refused,
    unknown_role,
    unknown_user,
)
from logboom.wire.access.access_commands import (
    AddRule,
    CreateRole,
    DeleteRole,
    RemoveRule,
    SetDefaultQuota,
)
from logboom.wire.access.access_rules import (
    MAX_RULES,
    AccessRule,
    RoleView,
    UserView,
    is_node_user,
    quota_fault,
    role_name_fault,
    rule_fault,
)
from logboom.wire.features import SUBSCRIPTION_RIGHTS


def create_role(cluster: ClusterState, command: CreateRole) -> CommandOutcome:
    """Create a role without rules."""
    fault = role_name_fault(command.name)
    if fault is not None:
        return refused("INVALID_NAME", fault)
    if command.name in cluster.access.roles:
        text = (
            f"role {command.name!r} exists already: give it rules with `logboom acl add "
            f"role:{command.name}`, and give it to users with `logboom role grant {command.name}`"
        )
        return refused("ROLE_EXISTS", text, role=command.name)
    return put_role(cluster, RoleView(command.name))


def delete_role(cluster: ClusterState, command: DeleteRole) -> CommandOutcome:
    """Delete a role that no user has."""
    if command.name not in cluster.access.roles:
        return unknown_role(command.name)
    users = sorted(cluster.access.book.users_of(command.name))
    if users:
        shown = ", ".join(users[:3]) + (" and others" if len(users) > 3 else "")
        text = f"role {command.name!r} is that of {shown}: revoke it there first"
        return refused("INVALID_ARGUMENT", text, role=command.name)
    cluster.access.change(gone_roles=[command.name])
    return DONE


def add_rule(cluster: ClusterState, command: AddRule) -> CommandOutcome:
    """Add a rule to a user or a role; one that is there already is left alone."""
    holder = _find_holder(cluster, command.holder)
    if isinstance(holder, CommandOutcome):
        return holder
    fault = rule_fault(command.rule)
    if fault is None and isinstance(holder, UserView) and is_node_user(holder.name):
        fault = f"{holder.name!r} is a node, which may do all that nodes do: it has no rules"
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    if command.rule in holder.rules:
        return DONE
    # The level that brought rules on subscriptions gave as many as there were on topics.
    most = MAX_RULES * (2 if cluster.features >= SUBSCRIPTION_RIGHTS else 1)
    if len(holder.rules) >= most:
        text = f"{command.holder} has {most} rules, which is the most: use prefixes, or roles"
        return refused("INVALID_ARGUMENT", text)
    # Sorted, so that the order of the commands does not matter.
    rules = list(holder.rules)
    insort(rules, command.rule)
    return _put(cluster, holder, rules)


def remove_rule(cluster: ClusterState, command: RemoveRule) -> CommandOutcome:
    """Remove a rule from a user or a role."""
    holder = _find_holder(cluster, command.holder)
    if isinstance(holder, CommandOutcome):
        return holder
    if command.rule not in holder.rules:
        text = f"{command.holder} has no rule {str(command.rule)[:320]!r}: see `logboom acl list`"
        return refused("INVALID_ARGUMENT", text)
    return _put(cluster, holder, [rule for rule in holder.rules if rule != command.rule])


def set_default_quota(cluster: ClusterState, command: SetDefaultQuota) -> CommandOutcome:
    """Set the limits of users without their own."""
    fault = quota_fault(command.quota)
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    if command.seen not in (None, cluster.access.default_quota):
        text = "the default limits were changed by somebody else meanwhile: look, and try again"
        return refused("CONFLICT", text)
    if command.quota != cluster.access.default_quota:
        cluster.access.change(default_quota=command.quota)
    return DONE


def _find_holder(cluster: ClusterState, holder: str) -> UserView | RoleView | CommandOutcome:
    kind, _, name = holder.partition(":")
    if kind == "user":
        return cluster.access.users.get(name) or unknown_user(name)
    if kind == "role":
        return cluster.access.roles.get(name) or unknown_role(name)
    text = f"{holder[:80]!r} can have no rules: write user:NAME or role:NAME"
    return refused("INVALID_ARGUMENT", text)


def _put(
    cluster: ClusterState, holder: UserView | RoleView, rules: list[AccessRule]
) -> CommandOutcome:
    if isinstance(holder, UserView):
        return put_user(cluster, replace(holder, rules=rules))
    return put_role(cluster, replace(holder, rules=rules))
