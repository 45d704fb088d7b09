"""Tables of `logboom user`, `role`, `acl` and `quota`: users, keys, rules and limits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from logboom.client.written_values import bytes_text
from logboom.wire.access.access_book import AccessDecision
from logboom.wire.access.access_rules import AccessRule, Quota, RoleView, UserKey, UserView

RULE_COLUMNS = ["holder", "effect", "verb", "kind", "pattern"]
KEY_COLUMNS = ["label", "public_key", "created", "ends", "state"]
USER_COLUMNS = ["name", "state", "keys", "next_end", "roles", "own_rules"]
ROLE_COLUMNS = ["name", "rules", "users"]
QUOTA_COLUMNS = ["user", *Quota.__struct_fields__]


def user_row(user: UserView) -> dict[str, Any]:
    """Return one row of `user list`; `next_end` is when the first of its keys ends."""
    ends = [key.end_ms for key in user.keys if key.end_ms and not key.ended]
    return {
        "name": user.name,
        "state": state_of(user),
        "keys": sum(not key.ended for key in user.keys),
        "next_end": time_text(min(ends)) if ends else None,
        "roles": user.roles or None,
        "own_rules": len(user.rules),
    }


def state_of(user: UserView) -> str:
    """Return whether a user can connect: active, disabled, or with no key that counts."""
    if user.disabled:
        return "disabled"
    return "active" if any(not key.ended for key in user.keys) else "all keys ended"


def user_headline(user: UserView) -> str:
    """Return a user in one line."""
    roles = ", ".join(user.roles) or "none"
    return f"{user.name}: {state_of(user)}, created {time_text(user.created_ms)}, roles: {roles}"


def user_json(user: UserView, rules: Iterable[tuple[str, AccessRule]]) -> dict[str, Any]:
    """Return a user for JSON output, with the rules that count for it."""
    return {
        "name": user.name,
        "state": state_of(user),
        "disabled": user.disabled,
        "created_ms": user.created_ms,
        "roles": user.roles,
        "keys": [key_row(key) | {"end_ms": key.end_ms or None} for key in user.keys],
        "rules": [rule_row(holder, rule) for holder, rule in rules],
        "quota": msgspec.structs.asdict(user.quota),
    }


def key_row(key: UserKey) -> dict[str, Any]:
    """Return the row of a key."""
    return {
        "label": key.label,
        "public_key": key.public,
        "created": time_text(key.created_ms),
        "ends": time_text(key.end_ms) if key.end_ms else None,
        "state": "ended" if key.ended else "active",
    }


def time_text(milliseconds: int) -> str:
    """Return a time as 2026-11-21T10:00:00Z."""
    try:
        whole = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)  # it is what the creating client said
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ")


def role_row(role: RoleView, users: Iterable[UserView]) -> dict[str, Any]:
    """Return one row of `role list`."""
    return {
        "name": role.name,
        "rules": len(role.rules),
        "users": [user.name for user in users if role.name in user.roles] or None,
    }


def rule_row(holder: str, rule: AccessRule) -> dict[str, Any]:
    """Return the row of a rule with its holder."""
    return {
        "holder": holder,
        "effect": "allow" if rule.allow else "deny",
        "verb": rule.verb,
        "kind": rule.kind,
        "pattern": rule.pattern,
    }


def decision_json(decision: AccessDecision) -> dict[str, Any]:
    """Return a decision for JSON output."""
    rule = decision.rule
    return {
        "allowed": decision.allowed,
        "rule": None if rule is None else rule_row(decision.holder, rule),
        "why": decision.why,
    }


def quota_row(user: str, quota: Quota) -> dict[str, Any]:
    """Return the row of a user's limits, for people."""
    row: dict[str, Any] = {"user": user}
    for name, value in msgspec.structs.asdict(quota).items():
        row[name] = None if not value else (bytes_text(value) if "bytes" in name else f"{value:,}")
    return row
