"""What `logboom user`, `role`, `acl` and `quota` print."""

from __future__ import annotations

from msgspec.structs import replace

from logboom.cli.access_tables import (
    decision_json,
    key_row,
    quota_row,
    role_row,
    rule_row,
    time_text,
    user_headline,
    user_json,
    user_row,
)
from logboom.wire.access.access_book import AccessDecision
from logboom.wire.access.access_rules import AccessRule, Quota, RoleView, UserKey, UserView

READ = AccessRule(True, "read", "topic", "orders.*")
DENY = AccessRule(False, "read", "topic", "orders.salaries")
OLD = UserKey("first", "a" * 40, 0, 1_000, ended=True)
NEW = UserKey("2027", "b" * 40, 1_795_255_200_000)
ALICE = UserView("alice", [OLD, NEW], ["team"], [DENY], created_ms=1_795_255_200_000)


def test_a_user_in_a_row_and_in_a_line() -> None:
    assert user_row(ALICE) == {
        "name": "alice",
        "state": "active",
        "keys": 1,
        "next_end": None,
        "roles": ["team"],
        "own_rules": 1,
    }
    assert user_headline(ALICE) == ("alice: active, created 2026-11-21T10:00:00Z, roles: team")
    assert user_row(UserView("bob", [OLD]))["state"] == "all keys ended"
    ends = [replace(NEW, end_ms=each) for each in (0, 9_000, 5_000)]
    assert user_row(UserView("bob", [OLD, *ends]))["next_end"] == "1970-01-01T00:00:05Z"
    assert user_row(UserView("bob", [NEW], disabled=True))["state"] == "disabled"
    assert "roles: none" in user_headline(UserView("bob", [NEW]))


def test_keys_with_their_ends() -> None:
    assert time_text(0) == "1970-01-01T00:00:00Z"
    assert time_text(1 << 62) == str(1 << 62), "whoever created it may have said anything"
    assert key_row(OLD) == {
        "label": "first",
        "public_key": "a" * 40,
        "created": "1970-01-01T00:00:00Z",
        "ends": "1970-01-01T00:00:01Z",
        "state": "ended",
    }
    assert (key_row(NEW)["ends"], key_row(NEW)["state"]) == (None, "active")


def test_a_user_as_json_has_names_for_everything() -> None:
    shown = user_json(ALICE, [("role:team", READ)])
    assert shown["rules"] == [rule_row("role:team", READ)]
    assert shown["quota"]["produce_bytes_per_s"] == 0
    assert [key["end_ms"] for key in shown["keys"]] == [1_000, None]


def test_roles_with_those_who_have_them() -> None:
    rows = [role_row(role, [ALICE]) for role in (RoleView("team", [READ]), RoleView("spare"))]
    assert [(row["name"], row["rules"], row["users"]) for row in rows] == [
        ("team", 1, ["alice"]),
        ("spare", 0, None),
    ]


def test_a_decision_with_its_rule_or_without() -> None:
    found = decision_json(AccessDecision(False, DENY, "user:alice"))
    assert found["rule"] == {
        "holder": "user:alice",
        "effect": "deny",
        "verb": "read",
        "kind": "topic",
        "pattern": "orders.salaries",
    }
    none = decision_json(AccessDecision(False, None))
    assert none == {"allowed": False, "rule": None, "why": "no rule allows it"}


def test_limits_for_people() -> None:
    row = quota_row("alice", Quota(produce_bytes_per_s=10 << 20, requests_per_s=1_500))
    assert row["produce_bytes_per_s"] == "10.0 MiB"
    assert row["requests_per_s"] == "1,500"
    assert row["topics"] is None
