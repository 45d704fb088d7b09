"""Commands that the Raft leader makes: users of its configuration, and the ends of keys."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from logboom.metadata.access.access_changes import admissible, room_for_key, show_keys
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.wire.access.access_commands import AdmitInitialUsers, EndUserKeys, InitialUser
from logboom.wire.access.access_rules import (
    ADMINISTRATOR,
    ADMINISTRATOR_RULES,
    CLUSTER,
    MAX_KEYS,
    RoleView,
    UserKey,
    UserView,
    public_key_fault,
    user_name_fault,
)

INITIAL_LABEL: Final = "initial"
"""Label of a key from a name server's configuration."""


def admit_initial_users(cluster: ClusterState, command: AdmitInitialUsers) -> CommandOutcome:
    """Admit users of the Raft leader's configuration whose keys were never admitted before.

    A key that belongs to another user stays there. This is also how an administrator is let in
    again after the last one was lost, so a user that exists is enabled, and has room made for its
    key.
    """
    table = cluster.access
    for each in command.users:
        fault = user_name_fault(each.name) or public_key_fault(each.public)
        if fault is not None:
            return refused("INVALID_ARGUMENT", fault)
    fresh = [each for each in command.users if each.public not in table.admitted]
    if not fresh:
        return DONE
    changed: dict[str, UserView] = {}
    keys = dict(table.owners)
    for each in fresh:
        table.admitted[each.public] = None
        if keys.setdefault(each.public, each.name) == each.name:
            before = changed.get(each.name) or table.users.get(each.name)
            changed[each.name] = _admit(cluster, each, before, command.time_ms)
    roles = [_administrators(cluster)] if any(each.administrator for each in fresh) else []
    known = {name: table.users.get(name) for name in changed}
    table.change(users=changed.values(), roles=roles)
    cluster.tell("initial_users_admitted", users=[*changed])
    for name, before in known.items():
        show_keys(cluster, before, table.users[name])
    return DONE


def _admit(
    cluster: ClusterState, each: InitialUser, before: UserView | None, time_ms: int
) -> UserView:
    user = before or UserView(each.name, [], created_ms=time_ms)
    keys = user.keys
    if all(key.public != each.public for key in keys):
        kept = room_for_key(keys)[-(MAX_KEYS - 1) :]
        labels = {key.label for key in kept}
        label = next(
            label
            for label in (INITIAL_LABEL, *(f"{INITIAL_LABEL}-{n}" for n in range(2, MAX_KEYS + 2)))
            if label not in labels
        )
        key = UserKey(label, each.public, time_ms)
        keys = [*kept, admissible(key, cluster.clock_ms)]
    roles = sorted({*user.roles, ADMINISTRATOR}) if each.administrator else user.roles
    return replace(user, keys=keys, roles=roles, disabled=False)


def _administrators(cluster: ClusterState) -> RoleView:
    """Return the role `administrator` with the rules that it is made with, and none against them."""
    known = cluster.access.roles.get(ADMINISTRATOR) or RoleView(ADMINISTRATOR)
    rules = {
        rule
        for rule in known.rules
        if rule.allow or rule.kind != "cluster" or rule.pattern not in (CLUSTER, "*")
    }
    in_force = cluster.access.book.subscriptions_at is not None
    own = (each for each in ADMINISTRATOR_RULES if in_force or each.kind != "subscription")
    return replace(known, rules=sorted(rules.union(own)))


def end_user_keys(cluster: ClusterState, _command: EndUserKeys) -> CommandOutcome:
    """End the keys whose time has come by the log's clock, which no node's clock can put forward."""
    table = cluster.access
    ended: list[tuple[UserView, UserView]] = []
    for user in table.users_with_ends(cluster.clock_ms):
        keys = [
            replace(key, ended=True) if 0 < key.log_end_ms <= cluster.clock_ms else key
            for key in user.keys
        ]
        ended.append((user, replace(user, keys=keys)))
    if ended:
        table.change(users=[after for _, after in ended])
        cluster.tell("keys_ended", users=[before.name for before, _ in ended])
        for before, after in ended:
            show_keys(cluster, before, after)
    return DONE
