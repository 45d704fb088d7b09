"""Names, keys and rules of access are checked, with one line that says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from logboom.wire.access.access_rules import (
    ADMINISTRATOR_RULES,
    KINDS,
    MAX_ACCESS_BYTES,
    MAX_ROLES,
    MAX_RULES,
    MAX_SUBSCRIPTION_PATTERN,
    VERBS,
    VERBS_OF,
    AccessRule,
    Quota,
    ResourceKind,
    Verb,
    label_fault,
    public_key_fault,
    quota_fault,
    role_name_fault,
    rule_fault,
    user_name_fault,
    with_subscription_rules,
)


@pytest.mark.parametrize("name", ["a", "A.b_c@d-9", "x" * 64, "9", "node:broker-1"])
def test_good_names_of_users(name: str) -> None:
    assert user_name_fault(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "x" * 65, "a b", ".a", "-a", "a/b", "a:b", "a\n", "é", "node:", "node:A", "node:node:a"],
)
def test_bad_names_of_users(name: str) -> None:
    fault = user_name_fault(name)
    assert fault is not None
    assert "\n" not in fault


def test_names_of_roles_and_labels() -> None:
    assert role_name_fault("team.readers") is None
    assert role_name_fault("node:a") is not None
    assert role_name_fault("a/b") is not None
    assert label_fault("laptop-2026") is None
    for label in ("", "a/b", "a#b", "a b", "x" * 33, "a\n"):
        assert label_fault(label) is not None, label


def test_public_keys_are_z85_of_32_bytes() -> None:
    assert public_key_fault("0" * 40) is None
    assert public_key_fault("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7") is None
    assert public_key_fault("%nSc0" * 8) is None, "the greatest value of five digits"
    for key in ("", "0" * 39, "0" * 41, "0" * 39 + " ", "0" * 39 + '"', "%nSc1" * 8, "#" * 40):
        fault = public_key_fault(key)
        assert fault is not None, key
        assert key not in fault or not key, "a key is not repeated: it might be the secret one"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_each_kind_has_its_verbs(kind: ResourceKind, verb: Verb) -> None:
    pattern = {"cluster": "cluster", "subscription": "a/b"}.get(kind, "a")
    fault = rule_fault(AccessRule(True, verb, kind, pattern))
    assert (fault is None) == (verb in VERBS_OF[kind])
    assert fault is None or all(each in fault for each in VERBS_OF[kind])


@pytest.mark.parametrize(
    ("pattern", "good"),
    [
        ("*", True),
        ("orders", True),
        ("orders.*", True),
        ("a.b_c%d|e-9:f@g", True),
        ("x" * 255 + "*", True),
        ("", False),
        ("**", False),
        ("*a", False),
        ("a*b", False),
        ("a?", False),
        ("a b", False),
        ("[ab]", False),
        ("a\n", False),
        ("x" * 256, False),
    ],
)
def test_patterns_are_names_and_prefixes_alone(pattern: str, good: bool) -> None:
    assert (rule_fault(AccessRule(False, "read", "topic", pattern)) is None) == good


@pytest.mark.parametrize(
    ("pattern", "good"),
    [
        ("*", True),
        ("orders.*", True),
        ("orders.eu/*", True),
        ("orders.eu/our bills: à la carte", True),
        ("%DLQ%g/x", True),
        ("t" * 127 + "/" + "n" * 120 + "*", True),
        ("orders.eu", False),
        ("", False),
        ("orders.eu/a\n", False),
        ("t" * 255 + "/*", True),
        ("t" * 256 + "/*", False),
    ],
)
def test_patterns_of_subscriptions_have_a_topic(pattern: str, good: bool) -> None:
    fault = rule_fault(AccessRule(True, "read", "subscription", pattern))
    assert (fault is None) == good
    assert good or "TOPIC/NAME" in (fault or "")


def test_whoever_goes_by_rules_of_topics_gets_those_of_their_subscriptions() -> None:
    before = [
        AccessRule(True, "manage", "topic", "orders.*"),
        AccessRule(True, "read", "topic", "orders.eu"),
        AccessRule(True, "describe", "topic", "*"),
        AccessRule(True, "write", "topic", "*"),
        AccessRule(True, "read", "group", "*"),
        AccessRule(False, "read", "topic", "orders.us"),
    ]
    after = with_subscription_rules(before)
    assert after == sorted(after)
    assert {str(rule) for rule in after} - {str(rule) for rule in before} == {
        "allow manage subscription orders.*",
        "allow read subscription orders.eu/*",
        "allow describe subscription *",
        "deny read subscription orders.us/*",
    }
    assert not [rule for rule in after if rule_fault(rule)]
    assert with_subscription_rules(after) == after


def test_the_longest_pattern_of_topics_has_one_of_their_subscriptions_of_the_greatest_length() -> (
    None
):
    longest = AccessRule(True, "read", "topic", "t" * 255)
    assert rule_fault(longest) is None
    (added,) = {*with_subscription_rules([longest])} - {longest}
    assert rule_fault(added) is None
    assert len(added.pattern) == MAX_SUBSCRIPTION_PATTERN


def test_the_page_of_the_protocol_says_these_limits() -> None:
    page = (Path(__file__).parents[4] / "docs" / "PROTOCOL.md").read_text("utf-8")
    words = " ".join(page.partition("### 6.5 ")[2].partition("\n### ")[0].split())
    assert f"of a subscription `topic/name`, at most {MAX_SUBSCRIPTION_PATTERN} printable" in words
    assert f"at most {MAX_ACCESS_BYTES // 2**20} MiB as they are encoded" in words
    assert f"at most {MAX_RULES:,} rules and from features level 3 on {2 * MAX_RULES:,}" in words
    assert f"a user at most {MAX_ROLES} roles" in words


def test_there_is_one_cluster() -> None:
    for pattern, good in (("cluster", True), ("*", True), ("clust*", False), ("mine", False)):
        assert (rule_fault(AccessRule(True, "admin", "cluster", pattern)) is None) == good


def test_limits_are_not_negative() -> None:
    assert quota_fault(Quota()) is None
    for field in Quota.__struct_fields__:
        assert quota_fault(Quota(**{field: 1})) is None
        assert quota_fault(Quota(**{field: 2**53})) is None
        assert field in (quota_fault(Quota(**{field: -1})) or "")
        assert field in (quota_fault(Quota(**{field: 2**53 + 1})) or "")


def test_the_rules_of_administrators_are_good() -> None:
    assert [rule_fault(rule) for rule in ADMINISTRATOR_RULES if rule_fault(rule)] == []
    assert len(ADMINISTRATOR_RULES) == 1 + 3 + 2 + 2 + 2
