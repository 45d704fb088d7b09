"""Users, roles and rules as plain data, and the rules for their names.

A **user** has 1 to `MAX_KEYS` public keys, roles, and rules of its own. A **role** has rules. A
**rule** allows or denies a verb on resources of one kind. Nodes are users, too: broker `broker-1`
is the user `node:broker-1`.

`gc=False`: none of these can be part of a cycle, and there may be tens of thousands of rules.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

Verb: TypeAlias = Literal["read", "write", "manage", "describe", "admin"]
"""read: consume, join a group. write: produce. manage: create, alter, delete, reset. describe: see
that it exists, and its state. admin: of the cluster, its nodes, users and rules."""
ResourceKind: TypeAlias = Literal["topic", "group", "subscription", "transaction", "cluster"]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
KINDS: Final[tuple[ResourceKind, ...]] = get_args(ResourceKind)
VERBS_OF: Final[dict[ResourceKind, tuple[Verb, ...]]] = {
    "topic": ("read", "write", "manage", "describe"),
    "group": ("read", "manage", "describe"),
    "subscription": ("read", "manage", "describe"),
    "transaction": ("write", "manage", "describe"),
    "cluster": ("describe", "admin"),
}
"""Kind → the verbs that mean something for it."""
CLUSTER: Final = "cluster"
"""Name of the one resource of the kind `cluster`."""

MAX_KEYS: Final = 4
MAX_ROLES: Final = 32
"""Maximum number of roles of a user."""
MAX_RULES: Final = 1_000
"""Maximum number of rules of one user or role; twice as many once there are rules on subscriptions."""
MAX_SUBSCRIPTION_PATTERN: Final = 257
"""Maximum length of a rule's pattern for subscriptions: `with_subscription_rules` puts two characters,
/ and *, behind a topic's pattern of up to 255. Names (TOPIC/NAME) are shorter: at most 248."""
MAX_ACCESS_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of all users and roles together, as they are encoded: some 60,000 rules. A view of
all of them is one message, and every node holds them in memory."""
LONGEST_KEY_MS: Final = 100 * 365 * 86_400_000
"""Longest life of a key that ends."""
MAX_LIMIT: Final = 2**53
"""Greatest value of a limit in a quota."""
ADMINISTRATOR: Final = "administrator"
"""The role of the administrators that name servers admit from their configuration."""
NODE_PREFIX: Final = "node:"
"""Prefix of a node's id in the name of its user."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_NODE_ID: Final = re.compile(r"[a-z0-9-]{1,64}")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9._%|:@-]{0,255}\*?")
_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
"""The digits of Z85 (ZeroMQ RFC 32): five of them are four bytes."""


class AccessRule(Struct, frozen=True, array_like=True, gc=False, order=True):
    """One rule; `pattern` is a whole name, or a prefix that ends with `*`."""

    allow: bool
    verb: Verb
    kind: ResourceKind
    pattern: str

    def __str__(self) -> str:
        return f"{'allow' if self.allow else 'deny'} {self.verb} {self.kind} {self.pattern}"


class UserKey(Struct, frozen=True, array_like=True, gc=False):
    """One public key of a user, as 40 characters of Z85 (ZeroMQ RFC 32)."""

    label: str
    public: str
    created_ms: int
    """In ms since 1970 by the clock of whoever added the key, like `end_ms`."""
    end_ms: int = 0
    """Time at which the key ends; 0: never. What counts is how long that is after `created_ms`."""
    ended: bool = False
    """True from the moment at which the name servers have seen that end pass."""
    log_end_ms: int = 0
    """The end by the clock of the Raft log, which the name servers set; 0: never."""


class Quota(Struct, frozen=True, array_like=True, gc=False):
    """Limits of one user. 0: the default's value, and without one no limit."""

    produce_bytes_per_s: int = 0
    """Per broker, like the next two."""
    fetch_bytes_per_s: int = 0
    requests_per_s: int = 0
    connections: int = 0
    """Per node."""
    topics: int = 0
    """Topics that this user has created and that still exist, like the next."""
    queues: int = 0
    stored_bytes: int = 0
    """Bytes of these topics, per broker."""


class UserView(Struct, frozen=True, array_like=True, gc=False):
    """A user, as the name servers keep it and as nodes and administrators see it."""

    name: str
    keys: list[UserKey]
    roles: list[str] = []
    rules: list[AccessRule] = []
    disabled: bool = False
    quota: Quota = Quota()
    created_ms: int = 0
    version: int = 0
    """Metadata version of the last change."""


class RoleView(Struct, frozen=True, array_like=True, gc=False):
    """A role and its rules."""

    name: str
    rules: list[AccessRule] = []
    version: int = 0
    """Metadata version of the last change."""


class AccessView(Struct, frozen=True, array_like=True, gc=False):
    """All users and roles (`full`), or those that changed."""

    full: bool
    users: list[UserView] = []
    roles: list[RoleView] = []
    deleted_users: list[str] = []
    deleted_roles: list[str] = []
    default_quota: Quota = Quota()


ADMINISTRATOR_RULES: Final = tuple(
    sorted(
        [
            AccessRule(True, "admin", "cluster", CLUSTER),
            *(
                AccessRule(True, verb, kind, "*")
                for kind in ("topic", "group", "subscription", "transaction")
                for verb in ("read", "write", "manage")
                if verb in VERBS_OF[kind]
            ),
        ]
    )
)
"""The rules of the role `administrator`, as it is made."""


def resource_of_subscription(topic: str, name: str) -> str:
    """Return the name of a subscription in rules; no topic has a / in its name."""
    return f"{topic}/{name}"


def with_subscription_rules(rules: Iterable[AccessRule]) -> list[AccessRule]:
    """Return rules, and those on subscriptions by which their holder goes on as before there were any.

    Who may read a topic may use its subscriptions, who may manage it alter them, who may describe it
    see them. What is denied stays so: to alter a subscription, its topic need only be described.
    """
    found = set(rules)
    for rule in rules:
        if rule.kind == "topic" and rule.verb in VERBS_OF["subscription"]:
            pattern = rule.pattern if rule.pattern.endswith("*") else f"{rule.pattern}/*"
            found.add(AccessRule(rule.allow, rule.verb, "subscription", pattern))
    return sorted(found)


def principal_of(user: str, key: UserKey) -> str:
    """Return the name of a user's key: "user/label#mark".

    The mark is part of the key's hash. A label may be given to another key later, and then the
    connections of the old one must not count as those of the new one.
    """
    mark = hashlib.sha256(key.public.encode()).hexdigest()[:16]
    return f"{user}/{key.label}#{mark}"


def user_of(principal: str) -> str:
    """Return the user of a principal."""
    return principal.partition("/")[0]


def label_of(principal: str) -> str:
    """Return the label of a principal's key."""
    return principal.partition("/")[2].partition("#")[0]


def node_user(node_id: str) -> str:
    """Return the name of a node's user."""
    return NODE_PREFIX + node_id


def is_node_user(user: str) -> bool:
    """Return True if a user is a node."""
    return user.startswith(NODE_PREFIX)


def user_name_fault(name: str) -> str | None:
    """Return why a name is not valid for a user, in one line, or None."""
    if is_node_user(name):
        if _NODE_ID.fullmatch(name.removeprefix(NODE_PREFIX)):
            return None
        return (
            f"user name {name[:80]!r} is not allowed: after {NODE_PREFIX!r} give the id of a node, "
            "1 to 64 of the characters a-z 0-9 -"
        )
    if _NAME.fullmatch(name):
        return None
    return (
        f"user name {name[:80]!r} is not allowed: use 1 to 64 of the characters A-Z a-z 0-9 . _ @ -, "
        "beginning with a letter or a digit"
    )


def role_name_fault(name: str) -> str | None:
    """Return why a name is not valid for a role, in one line, or None."""
    if _NAME.fullmatch(name):
        return None
    return (
        f"role name {name[:80]!r} is not allowed: use 1 to 64 of the characters A-Z a-z 0-9 . _ @ -, "
        "beginning with a letter or a digit"
    )


def label_fault(label: str) -> str | None:
    """Return why a label is not valid for a key, in one line, or None."""
    if _LABEL.fullmatch(label):
        return None
    return (
        f"key label {label[:80]!r} is not allowed: use 1 to 32 of the characters A-Z a-z 0-9 . _ -, "
        "beginning with a letter or a digit"
    )


def public_key_fault(key: str) -> str | None:
    """Return why a text is not a public key, in one line, or None."""
    if len(key) == 40 and all(_is_z85(key[at : at + 5]) for at in range(0, 40, 5)):
        return None
    return (
        f"public key of {len(key)} characters is not valid: give the 40 characters of Z85 that "
        "`logboom user create` or `python -m zmq.curve_keygen` prints"
    )


def _is_z85(digits: str) -> bool:
    """Return True if five characters are the Z85 of four bytes."""
    value = 0
    for digit in digits:
        found = _Z85.find(digit)
        if found < 0:
            return False
        value = 85 * value + found
    return value < 2**32


def quota_fault(quota: Quota) -> str | None:
    """Return why limits are not valid, in one line, or None."""
    for name in Quota.__struct_fields__:
        if not 0 <= getattr(quota, name) <= MAX_LIMIT:
            return f"{name} {getattr(quota, name)}: give 1 or more, or 0 for the default's value"
    return None


def rule_fault(rule: AccessRule) -> str | None:
    """Return why a rule is not valid, in one line, or None."""
    if rule.verb not in VERBS_OF[rule.kind]:
        verbs = ", ".join(VERBS_OF[rule.kind])
        return f"{rule.verb!r} is not a verb of a {rule.kind}: use one of {verbs}"
    if rule.kind == "cluster" and rule.pattern not in (CLUSTER, "*"):
        return f"there is one cluster: give {CLUSTER!r} instead of {rule.pattern[:80]!r}"
    if rule.kind == "subscription":
        return _subscription_pattern_fault(rule.pattern)
    if not rule.pattern or not _PATTERN.fullmatch(rule.pattern):
        return (
            f"pattern {rule.pattern[:80]!r} is not allowed: give a whole name, or a prefix that "
            "ends with *, e.g. orders.*"
        )
    return None


def _subscription_pattern_fault(pattern: str) -> str | None:
    named = "/" in pattern or pattern.endswith("*")
    if named and len(pattern) <= MAX_SUBSCRIPTION_PATTERN and pattern.isprintable():
        return None
    return (
        f"pattern {pattern[:80]!r} is not allowed: give a subscription as TOPIC/NAME, or a prefix "
        "that ends with *, e.g. orders.eu/* or orders.*"
    )
