"""What every user may do: the copy of users, roles and rules that a node decides by, pure.

The copy never goes back to an older version. A decision depends on nothing but the copy: no clock,
no order of the rules, no pattern but whole names and prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    Quota,
    ResourceKind,
    RoleView,
    UserView,
    Verb,
    is_node_user,
    principal_of,
    resource_of_subscription,
)
from logboom.wire.names import group_of

MAX_CACHED: Final = 30_000
"""Decisions that are remembered; beyond it half are forgotten, of the users with most of them."""
_UNITS: Final = 12
"""Units of a decision, …"""
_RIGHT_UNITS: Final = 8
"""… of each right behind it, …"""
_PREFIX_UNITS: Final = 2
"""… of each length of prefixes, …"""
_RULE_UNITS: Final = 4
"""… and of each rule that matches."""
MAX_CACHED_NAME: Final = 256
"""Length of a name beyond which no decision on it is remembered: nothing has such a name."""


class AccessDecision(NamedTuple):
    """Whether a request is allowed, and why."""

    allowed: bool
    rule: AccessRule | None
    """The rule that decided, or None: no rule matched, or the user is unknown, disabled or a node."""
    holder: str = ""
    """Where the rule stands: "user:NAME" or "role:NAME"."""
    text: str = "no rule allows it"
    """The reason, if it is none of the rules."""

    @property
    def why(self) -> str:
        """The reason in words, for `acl explain` and the audit log."""
        return self.text if self.rule is None else f"{self.holder} has: {self.rule}"


NO_RULE: Final = AccessDecision(False, None)
HeldRule: TypeAlias = tuple[str, AccessRule]
"""A rule and its holder, "user:NAME" or "role:NAME"."""


def matches(rule: AccessRule, verb: Verb, kind: ResourceKind, name: str) -> bool:
    """Return True if a rule speaks of this verb and resource.

    To allow any verb implies `describe`; to deny one does not deny `describe`.
    """
    if rule.kind != kind:
        return False
    if rule.verb != verb and not (rule.allow and verb == "describe"):
        return False
    if rule.pattern.endswith("*"):
        return name.startswith(rule.pattern[:-1])
    return name == rule.pattern


def decide(rules: Iterable[HeldRule], verb: Verb, kind: ResourceKind, name: str) -> AccessDecision:
    """Decide by (holder, rule) pairs: any matching deny wins, else any matching allow, else no."""
    allowing: HeldRule | None = None
    denying: HeldRule | None = None
    for found in rules:
        if matches(found[1], verb, kind, name):
            # The smallest, so that the order of the rules does not even matter for the reason.
            if found[1].allow:
                allowing = found if allowing is None else min(allowing, found)
            else:
                denying = found if denying is None else min(denying, found)
    if denying is not None:
        return AccessDecision(False, denying[1], denying[0])
    if allowing is not None:
        return AccessDecision(True, allowing[1], allowing[0])
    return NO_RULE


Right: TypeAlias = tuple[Verb, ResourceKind, str]
"""A verb on a resource of a kind, by its name."""


def rights_behind(
    verb: Verb, kind: ResourceKind, name: str, *, subscriptions: bool
) -> Sequence[Right]:
    """Return the rights that a right on a resource stands for; all of them are needed.

    A group's own topics follow the group: whoever may read it may also write its retry and
    dead-letter topics, as its members do. The topics of a subscription (`%RETRY%topic%name`) follow
    the subscription and its topic, and so do subscriptions of such topics. `subscriptions` is False
    as long as subscriptions have no rights of their own: they follow their topic then.
    """
    topic = name
    if kind == "subscription":
        topic = name.partition("/")[0]
        if not subscriptions:
            verb, kind = "describe" if verb == "describe" else "read", "topic"
    if kind not in ("topic", "subscription"):
        return ((verb, kind, name),)
    group = group_of(topic)
    if group is None:
        return ((verb, kind, topic if kind == "topic" else name),)
    verb = "read" if verb == "write" else verb
    if "%" not in group:
        return ((verb, "group", group),)
    topic, _, owner = group.partition("%")
    if not subscriptions:
        return ((verb, "topic", topic),)
    return (
        ("read" if verb == "read" else "describe", "topic", topic),
        (verb, "subscription", resource_of_subscription(topic, owner)),
    )


class RuleIndex:
    """The rules of one user or role, found by the name that they are to match."""

    __slots__ = ("_exact", "_prefixes")

    def __init__(self, holder: str, rules: Iterable[AccessRule]) -> None:
        self._exact: dict[tuple[ResourceKind, str], list[HeldRule]] = {}
        self._prefixes: dict[ResourceKind, dict[int, dict[str, list[HeldRule]]]] = {}
        """Kind → length of the prefix → prefix → rules."""
        for rule in rules:
            if rule.pattern.endswith("*"):
                prefix = rule.pattern[:-1]
                of_kind = self._prefixes.setdefault(rule.kind, {})
                of_kind.setdefault(len(prefix), {}).setdefault(prefix, []).append((holder, rule))
            else:
                self._exact.setdefault((rule.kind, rule.pattern), []).append((holder, rule))

    def speaking_of(self, kind: ResourceKind, name: str) -> tuple[list[HeldRule], int]:
        """Return the rules whose pattern matches a name, whatever their verb, and the lookups made."""
        found = list(self._exact.get((kind, name), ()))
        of_kind = self._prefixes.get(kind, _NO_PREFIXES)
        for length, prefixes in of_kind.items():
            matching = prefixes.get(name[:length])
            if matching is not None:
                found += matching
        return found, len(of_kind)


_NO_PREFIXES: Final[dict[int, dict[str, list[HeldRule]]]] = {}
_NO_USERS: Final[dict[str, None]] = {}


class AccessBook:
    """A node's copy of all users and roles, and the decisions made by it.

    A change costs what it names: decisions on users that it does not concern stay.
    """

    def __init__(self) -> None:
        self.version = -1
        """Metadata version of the copy; -1 while nothing is known, and then nobody is let in."""
        self.users: dict[str, UserView] = {}
        self.roles: dict[str, RoleView] = {}
        self.default_quota = Quota()
        self.changes = 0
        """Grows with every change of a user or role."""
        self.subscriptions_at: int | None = None
        """Metadata version as of which rules on subscriptions are in force here; None: they are not."""
        self._members: dict[str, dict[str, None]] = {}
        """Role → its users."""
        self._principals: dict[str, str] = {}
        """Public key → principal, of all keys that may connect now."""
        self._current: set[str] = set()
        """The same principals."""
        self._indexes: dict[str, RuleIndex] = {}
        """Holder → its rules, built when they are needed first."""
        self._decisions: dict[str, dict[tuple[Verb, ResourceKind, str], AccessDecision]] = {}
        """User → decisions."""
        self._cached = 0
        self.units = 0
        """Grows with the work that decisions cost: some 0.2 µs each."""

    @property
    def known(self) -> bool:
        """True once this node has a copy."""
        return self.version >= 0

    def update(self, view: AccessView, version: int) -> None:
        """Take over all users and roles, or those that changed, as of a metadata version.

        An older version is ignored, and so are changes of a copy that is not here.
        """
        if not view.full and (version <= self.version or not self.known):
            return
        if version < self.version:
            return
        if view.full:
            gone = self.users.keys() - {user.name for user in view.users}
            gone_roles = self.roles.keys() - {role.name for role in view.roles}
        else:
            gone, gone_roles = set(view.deleted_users), set(view.deleted_roles)
        for name in gone_roles:
            if self.roles.pop(name, None) is not None:
                self._role_changed(name)
        for role in view.roles:
            if self.roles.get(role.name) != role:
                self.roles[role.name] = role
                self._role_changed(role.name)
        changed = [user for user in view.users if self.users.get(user.name) != user]
        # A key may move from one user to another within one update.
        for name in [*gone, *(user.name for user in changed)]:
            self._forget(name)
        for user in changed:
            self._learn(user)
        self.default_quota = view.default_quota
        self.version = version

    def enforce_subscription_rules(self, version: int) -> None:
        """Decide on subscriptions by rules of their own, from this metadata version on."""
        if self.subscriptions_at is None:
            self.subscriptions_at = version
            self.changes += 1
            self._decisions.clear()
            self._cached = 0

    def _learn(self, user: UserView) -> None:
        self.changes += 1
        self.users[user.name] = user
        for role in user.roles:
            self._members.setdefault(role, {})[user.name] = None
        if not user.disabled:
            for key in user.keys:
                if not key.ended:
                    principal = principal_of(user.name, key)
                    self._principals[key.public] = principal
                    self._current.add(principal)

    def _forget(self, name: str) -> None:
        user = self.users.pop(name, None)
        if user is None:
            return
        self.changes += 1
        for key in user.keys:
            principal = principal_of(name, key)
            self._current.discard(principal)
            if self._principals.get(key.public) == principal:
                del self._principals[key.public]
        for role in user.roles:
            members = self._members.get(role, {})
            members.pop(name, None)
            if not members:
                self._members.pop(role, None)
        self._indexes.pop(f"user:{name}", None)
        self._drop_decisions(name)

    def _role_changed(self, name: str) -> None:
        self.changes += 1
        self._indexes.pop(f"role:{name}", None)
        for user in self._members.get(name, _NO_USERS):
            self._drop_decisions(user)

    def _drop_decisions(self, user: str) -> None:
        self._cached -= len(self._decisions.pop(user, ()))

    def _make_room(self) -> None:
        """Forget decisions of the users with most, so that others' requests of many rights get on."""
        for user in sorted(self._decisions, key=lambda each: -len(self._decisions[each])):
            if self._cached <= MAX_CACHED // 2:
                break
            self._drop_decisions(user)

    def principal_of(self, public_key: str) -> str | None:
        """Return the principal ("user/label#mark") of a key that may connect, or None."""
        return self._principals.get(public_key)

    def is_current(self, principal: str) -> bool:
        """Return True if the key that a connection was opened with still may connect."""
        return principal in self._current

    def public_keys_of(self, user: str) -> list[str]:
        """Return the keys of a user that have not ended, in the order of the user's keys."""
        known = self.users.get(user)
        return [key.public for key in known.keys if not key.ended] if known is not None else []

    def users_of(self, role: str) -> Sequence[str]:
        """Return the users that have a role."""
        return list(self._members.get(role, _NO_USERS))

    def decide(self, user: str, verb: Verb, kind: ResourceKind, name: str) -> AccessDecision:
        """Return whether a user may do something, and why."""
        decisions = self._decisions.get(user)
        found = None if decisions is None else decisions.get((verb, kind, name))
        return self._decide(user, verb, kind, name) if found is None else found

    def _decide(self, user: str, verb: Verb, kind: ResourceKind, name: str) -> AccessDecision:
        known = self.users.get(user)
        if known is None:
            return AccessDecision(False, None, "", f"there is no user {user!r}")
        if known.disabled:
            return AccessDecision(False, None, "", f"user {user!r} is disabled")
        if is_node_user(user):
            return AccessDecision(True, None, "", f"{user!r} is a node of this cluster")
        self.units += _UNITS
        asked = (verb, kind, name)
        found = NO_RULE
        for right in self.rights_behind(*asked):
            found = decide(self._rules_for(known, *right[1:]), *right)
            if not found.allowed:
                break
        if len(asked[2]) <= MAX_CACHED_NAME:
            if self._cached >= MAX_CACHED:
                self._make_room()
            self._decisions.setdefault(user, {})[asked] = found
            self._cached += 1
        return found

    def rights_behind(self, verb: Verb, kind: ResourceKind, name: str) -> Sequence[Right]:
        """Return the rights that a right stands for here; all of them are needed."""
        in_force = self.subscriptions_at is not None
        return rights_behind(verb, kind, name, subscriptions=in_force)

    def _rules_for(self, user: UserView, kind: ResourceKind, name: str) -> list[HeldRule]:
        """Return the rules that a user has, of its own and by its roles, on a resource."""
        self.units += _RIGHT_UNITS
        found: list[HeldRule] = []
        indexes = [self._index(f"user:{user.name}", user.rules)] if user.rules else []
        for name_of_role in user.roles:
            role = self.roles.get(name_of_role)
            if role is not None and role.rules:
                indexes.append(self._index(f"role:{role.name}", role.rules))
        for index in indexes:
            rules, looked = index.speaking_of(kind, name)
            found += rules
            self.units += _PREFIX_UNITS * looked + _RULE_UNITS * len(rules)
        return found

    def _index(self, holder: str, rules: Sequence[AccessRule]) -> RuleIndex:
        found = self._indexes.get(holder)
        if found is None:
            found = self._indexes[holder] = RuleIndex(holder, rules)
        return found

    def changed_at(self, user: str) -> int:
        """Return the metadata version of the last change of what a user may do.

        It grows also if a role of the user is deleted, because deletion changes the user.
        """
        known = self.users.get(user)
        if known is None:
            return self.version
        roles = (self.roles.get(name) for name in known.roles)
        versions = [known.version, *(role.version for role in roles if role is not None)]
        return max([*versions, self.subscriptions_at or 0])

    def quota_of(self, user: str) -> Quota:
        """Return a user's limits, with the default's in place of zeros."""
        known = self.users.get(user)
        own = known.quota if known is not None else Quota()
        return Quota(
            *(
                getattr(own, field) or getattr(self.default_quota, field)
                for field in Quota.__struct_fields__
            )
        )
