"""Who may do what, worked out from the accepted commands alone, as of every metadata version.

It shares no code with the nodes: whole names and prefixes are compared by regular expressions, rules
are sets, and nothing is remembered. So a decision of a node can be held against the version that
the node had at that moment.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from logboom.metadata.raft.log_commands import ForgetNameServer
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
)
from logboom.wire.access.access_rules import MAX_KEYS, AccessRule, UserKey
from logboom.wire.base import Command
from logboom.wire.commands import NewTerm, RemoveBroker
from logboom.wire.operation_commands import RaiseFeatures

Need: TypeAlias = tuple[str, str, str]
"""(verb, kind, name): what a request asks for."""
ADMINISTRATOR: Final = "administrator"
ADMINISTRATORS_MAY: Final = frozenset(
    {
        AccessRule(True, "admin", "cluster", "cluster"),
        AccessRule(True, "read", "topic", "*"),
        AccessRule(True, "write", "topic", "*"),
        AccessRule(True, "manage", "topic", "*"),
        AccessRule(True, "read", "group", "*"),
        AccessRule(True, "manage", "group", "*"),
        AccessRule(True, "read", "subscription", "*"),
        AccessRule(True, "manage", "subscription", "*"),
        AccessRule(True, "write", "transaction", "*"),
        AccessRule(True, "manage", "transaction", "*"),
    }
)
OWN_RIGHTS: Final = 3
"""The features level from which on subscriptions have rights of their own."""
_RETRIES: Final = re.compile(r"%(?:RETRY|DLQ)%(?P<owner>[^%]+)(?P<subscription>%.*)?")


@dataclass(frozen=True, slots=True)
class Key:
    """A public key of a user."""

    label: str
    public: str
    since: int
    """Metadata version at which the user got it."""
    ends_ms: int = 0
    """By the log's clock; 0: never."""
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Person:
    """A user."""

    keys: tuple[Key, ...]
    roles: frozenset[str] = frozenset()
    rules: frozenset[AccessRule] = frozenset()
    disabled: bool = False

    @property
    def live(self) -> tuple[Key, ...]:
        """The keys that open connections."""
        return () if self.disabled else tuple(key for key in self.keys if not key.ended)


@dataclass(frozen=True, slots=True)
class Standing:
    """All users and roles at one version."""

    people: Mapping[str, Person] = field(default_factory=dict)
    roles: Mapping[str, frozenset[AccessRule]] = field(default_factory=dict)
    level: int = 0
    """The features level."""

    def owner(self, public: str) -> tuple[str, Key] | None:
        """Who connects with a key."""
        found = [
            (name, key)
            for name, person in self.people.items()
            for key in person.live
            if key.public == public
        ]
        assert len(found) < 2, f"{public} belongs to {found}"
        return found[0] if found else None

    def may(self, user: str, need: Need) -> bool:
        """Whether a user may do something."""
        person = self.people.get(user)
        if person is None or person.disabled:
            return False
        if user.startswith("node:"):
            return True
        rules = set(person.rules).union(*(self.roles[role] for role in person.roles))
        return all(_allowed(rules, each) for each in _followed(need, self.level))


def _allowed(rules: set[AccessRule], need: Need) -> bool:
    verb, kind, name = need
    speaking = [rule for rule in rules if rule.kind == kind and _covers(rule.pattern, name)]
    if any(rule.verb == verb and not rule.allow for rule in speaking):
        return False
    allowed = {rule.verb for rule in speaking if rule.allow}
    return verb in allowed or (verb == "describe" and bool(allowed))


def _followed(need: Need, level: int) -> list[Need]:
    """What a topic of the system's own stands for: a group's follow it, those of a subscription that and
    its topic; who reads there also writes. Below level 3 subscriptions are their topic's."""
    verb, kind, name = need
    if kind == "subscription" and level < OWN_RIGHTS:
        return [("describe" if verb == "describe" else "read", "topic", name.split("/")[0])]
    found = _RETRIES.fullmatch(name) if kind == "topic" else None
    if found is None:
        return [need]
    verb = "read" if verb == "write" else verb
    if not found["subscription"]:
        return [(verb, "group", found["owner"])]
    if level < OWN_RIGHTS:
        return [(verb, "topic", found["owner"])]
    named = found["owner"] + "/" + found["subscription"][1:]
    of_topic = "read" if verb == "read" else "describe"
    return [(of_topic, "topic", found["owner"]), (verb, "subscription", named)]


def _covers(pattern: str, name: str) -> bool:
    any_end = ".*" if pattern.endswith("*") else ""
    return re.fullmatch(re.escape(pattern.removesuffix("*")) + any_end, name, re.DOTALL) is not None


class AccessModel:
    """What every accepted command made of the users and roles."""

    def __init__(self) -> None:
        self._versions = [0]
        self._standings = [Standing()]
        self._admitted: set[str] = set()
        """Keys of configurations that were ever admitted: none is twice."""

    @property
    def newest(self) -> Standing:
        """After the last command."""
        return self._standings[-1]

    @property
    def version(self) -> int:
        """Metadata version of the last change."""
        return self._versions[-1]

    def at(self, version: int) -> Standing:
        """As of a metadata version."""
        return self._standings[max(0, bisect_right(self._versions, version) - 1)]

    def between(self, first: int, last: int) -> list[Standing]:
        """All from one version to another."""
        start = max(0, bisect_right(self._versions, first) - 1)
        return self._standings[start : bisect_right(self._versions, last)]

    def changed_between(self, first: int, last: int) -> bool:
        """Whether anything changed after one version, up to another."""
        return bisect_right(self._versions, first) != bisect_right(self._versions, last)

    def take(self, command: Command, version: int, clock_ms: int) -> None:
        """A command was accepted at this time of the log, and led to this version."""
        now = self.newest
        people, roles = dict(now.people), dict(now.roles)
        change = _Change(version, clock_ms, self._admitted, people, roles, now.level)
        change.make(command)
        if (people, roles, change.level) == (now.people, now.roles, now.level):
            return
        assert version > self.version, f"{command} led to {version} after {self.version}"
        self._versions.append(version)
        self._standings.append(Standing(people, roles, change.level))


@dataclass(slots=True)
class _Change:
    """What one command does."""

    version: int
    clock_ms: int
    admitted: set[str]
    people: dict[str, Person]
    roles: dict[str, frozenset[AccessRule]]
    level: int

    def make(self, command: Command) -> None:
        """Change people and roles as the command says."""
        people, roles = self.people, self.roles
        match command:
            case AdmitInitialUsers():
                for user in command.users:
                    if user.public not in self.admitted:
                        self._admit(user)
            case CreateUser(name=name):
                keys = tuple(map(self._key, command.keys))
                people[name] = Person(keys, frozenset(command.roles))
            case AlterUser(name=name):
                if command.disabled is not None:
                    people[name] = replace(people[name], disabled=command.disabled)
                if command.roles is not None:
                    people[name] = replace(people[name], roles=frozenset(command.roles))
            case DeleteUser(name=name):
                del people[name]
            case AddUserKey(name=name):
                kept = _with_room(people[name].keys)
                people[name] = replace(people[name], keys=(*kept, self._key(command.key)))
            case RemoveUserKey(name=name):
                keys = tuple(key for key in people[name].keys if key.label != command.label)
                people[name] = replace(people[name], keys=keys)
            case EndUserKeys():
                for name, person in people.items():
                    people[name] = replace(person, keys=tuple(map(self._ended, person.keys)))
            case CreateRole(name=name):
                roles[name] = frozenset()
            case DeleteRole(name=name):
                del roles[name]
            case AddRule():
                self._set_rules(command.holder, lambda rules: rules | {command.rule})
            case RemoveRule():
                self._set_rules(command.holder, lambda rules: rules - {command.rule})
            case NewTerm(features=level) | RaiseFeatures(level=level):
                self._raise(level)
            case RemoveBroker(broker=node) | ForgetNameServer(name_server=node):
                people.pop(f"node:{node}", None)
            case _:
                pass

    def _key(self, given: UserKey) -> Key:
        ends_ms = self.clock_ms + given.end_ms - given.created_ms if given.end_ms else 0
        return Key(given.label, given.public, self.version, ends_ms)

    def _ended(self, key: Key) -> Key:
        return replace(key, ended=True) if 0 < key.ends_ms <= self.clock_ms else key

    def _admit(self, user: InitialUser) -> None:
        self.admitted.add(user.public)
        owners = {k.public: name for name, person in self.people.items() for k in person.keys}
        if owners.get(user.public, user.name) != user.name:
            return
        known = replace(self.people.get(user.name, Person(())), disabled=False)
        if user.public not in owners:
            kept = _with_room(known.keys)[1 - MAX_KEYS :]
            taken = {key.label for key in kept}
            labels = ("initial", *(f"initial-{number}" for number in range(2, 9)))
            label = next(label for label in labels if label not in taken)
            known = replace(known, keys=(*kept, Key(label, user.public, self.version)))
        if user.administrator:
            before = self.roles.get(ADMINISTRATOR, frozenset())
            barring = {r for r in before if not r.allow and r.kind == "cluster"}
            may = {
                r
                for r in ADMINISTRATORS_MAY
                if self.level >= OWN_RIGHTS or r.kind != "subscription"
            }
            self.roles[ADMINISTRATOR] = (before - barring) | may
            known = replace(known, roles=known.roles | {ADMINISTRATOR})
        self.people[user.name] = known

    def _raise(self, level: int) -> None:
        """Whoever has rules on topics gets them for the subscriptions of these, once."""
        if self.level < OWN_RIGHTS <= level:
            for name, person in self.people.items():
                self.people[name] = replace(person, rules=_with_subscriptions(person.rules))
            for name, rules in self.roles.items():
                self.roles[name] = _with_subscriptions(rules)
        self.level = max(self.level, level)

    def _set_rules(
        self, holder: str, change: Callable[[frozenset[AccessRule]], frozenset[AccessRule]]
    ) -> None:
        kind, _, name = holder.partition(":")
        if kind == "role":
            self.roles[name] = change(self.roles[name])
        else:
            person = self.people[name]
            self.people[name] = replace(person, rules=change(person.rules))


def _with_subscriptions(rules: frozenset[AccessRule]) -> frozenset[AccessRule]:
    return rules | {
        AccessRule(rule.allow, rule.verb, "subscription", re.sub(r"([^*])$", r"\1/*", rule.pattern))
        for rule in rules
        if rule.kind == "topic" and rule.verb != "write"
    }


def _with_room(keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """Without ended keys, the oldest first, where there are as many keys as can be."""
    kept = list(keys)
    for key in keys:
        if len(kept) >= MAX_KEYS and key.ended:
            kept.remove(key)
    return tuple(kept)
