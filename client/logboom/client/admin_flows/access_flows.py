"""The admin's flows for users, keys, roles, rules and limits (see `logboom.client.flows`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from logboom.client.calls import AskRaftLeader, ProposeCommand
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow, changed_fields
from logboom.wire.access.access_book import AccessBook, AccessDecision
from logboom.wire.access.access_commands import AddRule, AlterUser, RemoveRule, SetDefaultQuota
from logboom.wire.access.access_rules import (
    CLUSTER,
    KINDS,
    VERBS,
    VERBS_OF,
    AccessRule,
    AccessView,
    Quota,
    ResourceKind,
    RoleView,
    UserView,
    Verb,
    rule_fault,
)
from logboom.wire.errors import InvalidRequest, LogboomError, UnknownResource
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.messages import AccessDescribed, DescribeAccess

Effect: TypeAlias = Literal["allow", "deny"]
MAX_TRIES: Final = 5
"""Tries of a change of a user or of the default limits, each of which somebody else may be faster
with."""
T = TypeVar("T")
C = TypeVar("C", AlterUser, SetDefaultQuota)


def described(user: str, timeout: float) -> Flow[AccessDescribed]:
    """Return all users and roles, or one user and its roles, as the name servers have them."""
    answer, _ = yield AskRaftLeader(lambda ms: DescribeAccess(0, ms, user), timeout)
    if not isinstance(answer, AccessDescribed):
        raise unexpected(answer)
    return answer


def users(timeout: float) -> Flow[list[UserView]]:
    """Return all users by name."""
    found = yield from described("", timeout)
    return sorted(found.users, key=lambda user: user.name)


def describe_user(name: str, timeout: float) -> Flow[UserView]:
    """Return one user."""
    _check_named(name)
    found = yield from described(name, timeout)
    return _user(found, name)


def roles(timeout: float) -> Flow[list[RoleView]]:
    """Return all roles by name."""
    found = yield from described("", timeout)
    return sorted(found.roles, key=lambda role: role.name)


def describe_role(name: str, timeout: float) -> Flow[RoleView]:
    """Return one role."""
    found = yield from described("", timeout)
    return _role(found, name)


def rules(user: str, holder: str, timeout: float) -> Flow[list[tuple[str, AccessRule]]]:
    """Return rules with their holders: all, those that count for a user, or those of a holder."""
    if holder:
        check_holder(holder)
    own = holder.removeprefix("user:") if holder.startswith("user:") else ""
    found = yield from described(user or own, timeout)
    if user or own:
        _user(found, user or own)
    held = [(f"user:{each.name}", rule) for each in found.users for rule in each.rules]
    held += [(f"role:{each.name}", rule) for each in found.roles for rule in each.rules]
    if holder.startswith("role:"):
        _role(found, holder.removeprefix("role:"))
    return sorted(pair for pair in held if holder in ("", pair[0]))


def default_quota(timeout: float) -> Flow[Quota]:
    """Return the limits of users without their own."""
    found = yield from described("", timeout)
    return found.default_quota


def explain(user: str, verb: str, kind: str, name: str, timeout: float) -> Flow[AccessDecision]:
    """Decide as a node would, by the users and roles of the name servers."""
    _check_named(user)
    verb, kind = check_verb(verb, kind)
    found = yield from described(user, timeout)
    _user(found, user)
    book = AccessBook()
    view = AccessView(True, found.users, found.roles, default_quota=found.default_quota)
    book.update(view, found.version)
    if found.features >= SUBSCRIPTION_RIGHTS:
        book.enforce_subscription_rules(found.version)
    return book.decide(user, verb, kind, name)


def change_roles(
    user: str, role: str, wall_ms: int, timeout: float, *, grant: bool
) -> Flow[list[str]]:
    """Give a user one more role, or take one away, and return those that it has then."""

    def change(known: UserView) -> AlterUser:
        kept = [each for each in known.roles if each != role]
        wanted = [*kept, role] if grant else kept
        return AlterUser(user, None, wanted, None, wall_ms, known.version)

    found = yield from _alter(user, change, timeout)
    return found.roles or []


def set_quota(user: str, changes: Mapping[str, Any], wall_ms: int, timeout: float) -> Flow[Quota]:
    """Change some limits of a user, and return all of its own."""

    def change(known: UserView) -> AlterUser:
        quota = changed_quota(known.quota, changes)
        return AlterUser(user, None, None, quota, wall_ms, known.version)

    found = yield from _alter(user, change, timeout)
    return found.quota or Quota()


def _alter(user: str, change: Callable[[UserView], AlterUser], timeout: float) -> Flow[AlterUser]:
    """Change a user from what it is now, and again if somebody else has changed it meanwhile."""
    return (yield from _changed(lambda: describe_user(user, timeout), change, timeout))


def set_default_quota(changes: Mapping[str, Any], timeout: float) -> Flow[Quota]:
    """Change some limits of users without their own, and return all of them."""

    def change(known: Quota) -> SetDefaultQuota:
        return SetDefaultQuota(changed_quota(known, changes), known)

    found = yield from _changed(lambda: default_quota(timeout), change, timeout)
    return found.quota


def _changed(look: Callable[[], Flow[T]], change: Callable[[T], C], timeout: float) -> Flow[C]:
    """Change something from what it is now, and again if somebody else was faster."""
    for left in reversed(range(MAX_TRIES)):
        known = yield from look()
        command = change(known)
        try:
            yield ProposeCommand(command, timeout)
        except LogboomError as error:
            if error.code != "CONFLICT" or not left:
                raise
        else:
            return command
    raise AssertionError("the last try returns or raises")


def change_rule(holder: str, rule: AccessRule, timeout: float, *, add: bool) -> Flow[None]:
    """Add or remove a rule of a user or role."""
    check_holder(holder)
    yield ProposeCommand(AddRule(holder, rule) if add else RemoveRule(holder, rule), timeout)


def changed_quota(quota: Quota, changes: Mapping[str, Any]) -> Quota:
    """Return limits with changes.

    Raises:
        InvalidRequest: there is no such limit, or its value is not a number from 0.
    """
    fields = changed_fields(quota, changes, "limit")
    for name, value in fields.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidRequest(f"{name} is a number from 0 (no limit of its own), not {value!r}")
    return msgspec.convert([*fields.values()], Quota)


def make_rule(effect: str, verb: str, kind: str, pattern: str) -> AccessRule:
    """Return a rule from its words. `pattern` may be empty for the cluster, of which there is one.

    Raises:
        InvalidRequest: a word is unknown or the pattern invalid; the text states what is valid.
    """
    if effect not in ("allow", "deny"):
        raise InvalidRequest(f"a rule begins with allow or deny, not {effect[:80]!r}")
    verb, kind = check_verb(verb, kind)
    if kind == "cluster" and not pattern:
        pattern = CLUSTER
    rule = AccessRule(effect == "allow", verb, kind, pattern)
    fault = rule_fault(rule)
    if fault is not None:
        raise InvalidRequest(fault)
    return rule


def check_verb(verb: str, kind: str) -> tuple[Verb, ResourceKind]:
    """Return a verb and a kind of resource if they belong together.

    Raises:
        InvalidRequest: one of them is unknown, or the verb means nothing for the kind.
    """
    if verb not in VERBS:
        raise InvalidRequest(f"{verb[:80]!r} is not a verb: use one of {', '.join(VERBS)}")
    if kind not in KINDS:
        raise InvalidRequest(f"{kind[:80]!r} is not a kind: use one of {', '.join(KINDS)}")
    if verb not in VERBS_OF[kind]:
        verbs = ", ".join(VERBS_OF[kind])
        raise InvalidRequest(f"{verb!r} is not a verb of a {kind}: use one of {verbs}")
    return verb, kind


def check_holder(holder: str) -> None:
    """Check the holder of a rule.

    Raises:
        InvalidRequest: it is neither "user:NAME" nor "role:NAME".
    """
    kind, _, name = holder.partition(":")
    if kind not in ("user", "role") or not name:
        named = holder[:80] or "NAME"
        text = f"{holder[:80]!r} holds no rules"
        raise InvalidRequest(f"{text}: write role:{named} or user:{named}")


def _check_named(user: str) -> None:
    """Refuse an empty name, which the name servers would take for all users."""
    if not user:
        raise InvalidRequest("give the name of a user")


def _user(found: AccessDescribed, name: str) -> UserView:
    for user in found.users:
        if user.name == name:
            return user
    text = f"user {name!r} does not exist: see `logboom user list` for those that do"
    raise UnknownResource(text, "UNKNOWN_USER")


def _role(found: AccessDescribed, name: str) -> RoleView:
    for role in found.roles:
        if role.name == name:
            return role
    text = f"role {name!r} does not exist: see `logboom role list` for those that do"
    raise UnknownResource(text, "UNKNOWN_ROLE")
