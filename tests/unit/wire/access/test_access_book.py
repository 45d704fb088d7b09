"""The decision on access: denies win, no order matters, and a copy never goes back."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.wire.access.access_book import (
    MAX_CACHED,
    MAX_CACHED_NAME,
    AccessBook,
    RuleIndex,
    decide,
    matches,
    rights_behind,
)
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    Quota,
    ResourceKind,
    RoleView,
    UserKey,
    UserView,
    Verb,
    is_node_user,
    principal_of,
)
from tests.thorough import examples
from tests.unit.wire.access.rule_strategies import (
    NAMES,
    ROLES,
    USERS,
    changes,
    questions,
    rule_lists,
    rules,
)

READ = AccessRule(True, "read", "topic", "orders")
ASKED: list[tuple[Verb, ResourceKind]] = [
    ("read", "topic"),
    ("describe", "topic"),
    ("read", "group"),
]
Question = tuple[Verb, ResourceKind, str]


def held(found: list[AccessRule], holder: str = "user:x") -> list[tuple[str, AccessRule]]:
    return [(holder, rule) for rule in found]


def book_of(*users: UserView, roles: tuple[RoleView, ...] = ()) -> AccessBook:
    book = AccessBook()
    book.update(AccessView(True, list(users), list(roles)), 1)
    return book


def everything(book: AccessBook) -> list[Any]:
    """All that a book can say, with names that rules speak of."""
    asked = [
        book.decide(user, verb, kind, name)
        for user in (*USERS, "nobody")
        for verb, kind in ASKED
        for name in NAMES
    ]
    keys = [book.principal_of(f"{n:040}") for n in range(6)]
    users = [(book.public_keys_of(user), book.quota_of(user)) for user in USERS]
    return [asked, keys, users, [sorted(book.users_of(role)) for role in ROLES]]


# ── the rules ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", {"orders"}),
        ("orders*", {"orders", "orders.a", "orders2"}),
        ("orders.*", {"orders.a"}),
        ("o*", {"orders", "orders.a", "orders2", "other", "o"}),
        ("*", {"orders", "orders.a", "orders2", "other", "o", ""}),
        ("order", set[str]()),
        ("ORDERS", set[str]()),
    ],
)
def test_a_pattern_is_a_whole_name_or_a_prefix(pattern: str, names: set[str]) -> None:
    rule = AccessRule(True, "read", "topic", pattern)
    asked = ["orders", "orders.a", "orders2", "other", "o", ""]
    assert {name for name in asked if matches(rule, "read", "topic", name)} == names
    book = book_of(UserView("alice", [], rules=[rule]))
    assert {name for name in asked if book.decide("alice", "read", "topic", name).allowed} == names


def test_to_allow_implies_describe_and_to_deny_does_not_deny_it() -> None:
    deny = AccessRule(False, "read", "topic", "*")
    assert decide(held([READ]), "describe", "topic", "orders").allowed
    assert not decide(held([READ]), "write", "topic", "orders").allowed
    assert not decide(held([READ]), "describe", "topic", "other").allowed
    assert decide(held([READ, deny]), "describe", "topic", "orders").allowed
    assert not decide(held([READ, deny]), "read", "topic", "orders").allowed
    hide = AccessRule(False, "describe", "topic", "*")
    assert decide(held([READ, hide]), "read", "topic", "orders").allowed
    assert not decide(held([READ, hide]), "describe", "topic", "orders").allowed
    # `manage` implies neither `read` nor `write`.
    manage = AccessRule(True, "manage", "topic", "*")
    assert not decide(held([manage]), "read", "topic", "orders").allowed


@settings(max_examples=examples(600), deadline=None)
@given(rule_lists, rules, questions, st.randoms())
def test_more_denies_and_fewer_allows_never_permit_more(
    found: list[AccessRule], more: AccessRule, question: Question, rng: random.Random
) -> None:
    before = decide(held(found), *question).allowed
    deny = msgspec.structs.replace(more, allow=False)
    assert decide(held([*found, deny]), *question).allowed <= before
    allow = msgspec.structs.replace(more, allow=True)
    assert decide(held([*found, allow]), *question).allowed >= before
    allows = [rule for rule in found if rule.allow]
    if allows:
        less = list(found)
        less.remove(rng.choice(allows))
        assert decide(held(less), *question).allowed <= before


@settings(max_examples=examples(600), deadline=None)
@given(rule_lists, questions)
def test_any_matching_deny_wins_and_nothing_is_allowed_without_a_rule(
    found: list[AccessRule], question: Question
) -> None:
    speaking = [rule for rule in found if matches(rule, *question)]
    decision = decide(held(found), *question)
    assert decision.allowed == (bool(speaking) and all(rule.allow for rule in speaking))
    if speaking:
        assert decision.rule in speaking
        assert decision.rule is not None
        assert decision.rule.allow == decision.allowed
        assert str(decision.rule) in decision.why
        assert "user:x" in decision.why
    else:
        assert (decision.rule, decision.why) == (None, "no rule allows it")


@settings(max_examples=examples(300), deadline=None)
@given(rule_lists, rule_lists, rule_lists, questions, st.randoms())
def test_no_order_of_rules_or_roles_matters(
    own: list[AccessRule],
    one: list[AccessRule],
    two: list[AccessRule],
    question: Question,
    rng: random.Random,
) -> None:
    user = UserView("alice", [], ["one", "two"], own)
    found = book_of(user, roles=(RoleView("one", one), RoleView("two", two)))
    for rules_of_one in (own, one, two):
        rng.shuffle(rules_of_one)
    user = UserView("alice", [], ["two", "one"], own)
    other = book_of(user, roles=(RoleView("two", two), RoleView("one", one)))
    # Not even for the reason.
    assert found.decide("alice", *question) == other.decide("alice", *question)
    # And a rule counts the same, whether a user or a role has it.
    behind = rights_behind(*question, subscriptions=False)
    assert found.decide("alice", *question).allowed == all(
        decide(held([*own, *one, *two]), *right).allowed for right in behind
    )


@pytest.mark.parametrize("allow", [True, False])
def test_of_several_rules_the_smallest_is_the_reason(*, allow: bool) -> None:
    prefix, whole = (AccessRule(allow, "read", "topic", text) for text in ("o*", "orders"))
    found = [("role:a", whole), ("role:b", prefix), ("role:c", whole)]
    for order in (found, found[::-1]):
        decision = decide(order, "read", "topic", "orders")
        assert decision[:3] == (allow, whole, "role:a")
        assert decision.why == f"role:a has: {whole}"


def test_a_rule_speaks_of_its_verb_and_kind_alone() -> None:
    assert matches(READ, "read", "topic", "orders") is True
    assert matches(READ, "write", "topic", "orders") is False
    assert matches(READ, "read", "group", "orders") is False
    book = book_of(UserView("alice", [], rules=[READ]))
    assert not book.decide("alice", "read", "group", "orders").allowed
    group = msgspec.structs.replace(READ, kind="group")
    book = book_of(UserView("alice", [], rules=[group]))
    assert book.decide("alice", "read", "group", "orders").allowed
    assert not book.decide("alice", "read", "topic", "orders").allowed


def test_where_no_rule_decides_there_is_no_holder() -> None:
    assert decide([], "read", "topic", "orders") == (False, None, "", "no rule allows it")
    book = book_of(
        UserView("alice", [], rules=[READ], disabled=True),
        UserView("node:b", [], disabled=True),
        UserView("node:c", []),
    )
    for user, allowed, why in (
        ("nobody", False, "there is no user 'nobody'"),
        ("node:nobody", False, "there is no user 'node:nobody'"),
        ("alice", False, "user 'alice' is disabled"),
        ("node:b", False, "user 'node:b' is disabled"),
        ("node:c", True, "'node:c' is a node of this cluster"),
    ):
        assert book.decide(user, "read", "topic", "orders") == (allowed, None, "", why)


def test_an_index_yields_the_rules_that_speak_of_a_name_and_no_others() -> None:
    def rule(pattern: str, kind: ResourceKind = "topic") -> AccessRule:
        return AccessRule(True, "describe", kind, pattern)

    speaking = [rule("orders"), rule("orders*"), rule("o*"), rule("*")]
    silent = [rule("ordert*"), rule("orderX"), rule("order"), rule("o*", "group")]
    index = RuleIndex("user:x", [*silent, *speaking])
    found, _ = index.speaking_of("topic", "orders")
    assert sorted(found) == sorted(held(speaking))


@settings(max_examples=examples(300), deadline=None)
@given(rule_lists, questions)
def test_unknown_and_disabled_users_are_permitted_nothing(
    found: list[AccessRule], question: Question
) -> None:
    roles = (RoleView("r", found),)
    for name in ("alice", "node:b"):
        key = UserKey("k", "0" * 40, 0)
        book = book_of(UserView(name, [key], ["r"], found, disabled=True), roles=roles)
        for user in (name, "nobody", "node:nobody", ""):
            decision = book.decide(user, *question)
            assert (decision.allowed, decision.rule) == (False, None)
        assert book.principal_of("0" * 40) is None
        assert not book.is_current(principal_of(name, key))
    assert not AccessBook().decide("alice", *question).allowed


def test_an_unknown_role_gives_nothing() -> None:
    book = book_of(UserView("alice", [], ["none"]))
    assert not book.decide("alice", "read", "topic", "orders").allowed


def test_nodes_may_everything_and_only_they() -> None:
    book = book_of(UserView("node:b", []), UserView("nodeb", []))
    assert book.decide("node:b", "admin", "cluster", "cluster").allowed
    assert not book.decide("nodeb", "admin", "cluster", "cluster").allowed


@pytest.mark.parametrize(
    ("verb", "topic", "resource"),
    [
        ("read", "orders", ("read", "topic", "orders")),
        ("write", "%RETRY%g", ("read", "group", "g")),
        ("read", "%DLQ%g", ("read", "group", "g")),
        ("manage", "%DLQ%g", ("manage", "group", "g")),
        ("describe", "%RETRY%g", ("describe", "group", "g")),
        ("write", "%RETRY%orders%s", ("read", "topic", "orders")),
        ("describe", "%DLQ%orders%s", ("describe", "topic", "orders")),
    ],
)
def test_topics_of_groups_and_subscriptions_follow_these(
    verb: Verb, topic: str, resource: tuple[str, str, str]
) -> None:
    assert rights_behind(verb, "topic", topic, subscriptions=False) == (resource,)


@pytest.mark.parametrize(
    ("verb", "kind", "name", "rights"),
    [
        ("read", "topic", "orders", ["read topic orders"]),
        ("write", "topic", "%RETRY%g", ["read group g"]),
        ("read", "subscription", "orders/s", ["read subscription orders/s"]),
        ("manage", "subscription", "orders/a/b", ["manage subscription orders/a/b"]),
        ("write", "topic", "%RETRY%orders%s", ["read topic orders", "read subscription orders/s"]),
        (
            "manage",
            "topic",
            "%DLQ%orders%s",
            ["describe topic orders", "manage subscription orders/s"],
        ),
        (
            "read",
            "subscription",
            "%RETRY%orders%s/s",
            ["read topic orders", "read subscription orders/s"],
        ),
        ("manage", "subscription", "%DLQ%g/mine", ["manage group g"]),
    ],
)
def test_subscriptions_have_rights_of_their_own(
    verb: Verb, kind: ResourceKind, name: str, rights: list[str]
) -> None:
    found = rights_behind(verb, kind, name, subscriptions=True)
    assert [" ".join(right) for right in found] == rights


@pytest.mark.parametrize("verb", ["read", "manage", "describe"])
def test_before_they_have_rights_of_their_own_subscriptions_follow_their_topic(verb: Verb) -> None:
    needed = "describe" if verb == "describe" else "read"
    for name in ("orders/s", "%RETRY%orders%s/s"):
        found = rights_behind(verb, "subscription", name, subscriptions=False)
        assert found == ((needed, "topic", "orders"),)


def test_what_is_remembered_goes_when_subscriptions_get_rights_of_their_own() -> None:
    book = book_of(
        UserView("alice", [], rules=[AccessRule(True, "read", "topic", "*")], version=1),
    )
    asked: tuple[Verb, ResourceKind, str] = ("manage", "subscription", "orders/s")
    assert book.decide("alice", *asked).allowed
    changes = book.changes
    for version in (7, 9):
        book.enforce_subscription_rules(version)
        assert not book.decide("alice", *asked).allowed
        assert (book.changes, book.changed_at("alice")) == (changes + 1, 7)


def test_a_rule_on_all_topics_does_not_reach_the_topics_of_a_group() -> None:
    book = book_of(
        UserView("alice", [], rules=[AccessRule(True, "write", "topic", "*")]),
        UserView("bob", [], rules=[AccessRule(True, "read", "group", "g")]),
    )
    assert not book.decide("alice", "write", "topic", "%RETRY%g").allowed
    assert book.decide("bob", "write", "topic", "%RETRY%g").allowed
    assert not book.decide("bob", "write", "topic", "%RETRY%g2").allowed


# ── the copy ────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(changes, min_size=1, max_size=8), st.randoms())
def test_a_book_of_changes_is_that_of_the_whole(
    script: list[AccessView], rng: random.Random
) -> None:
    followed, users, roles = AccessBook(), dict[str, UserView](), dict[str, RoleView]()
    followed.update(AccessView(True), 0)
    for version, change in enumerate(script, 1):
        for name in change.deleted_users:
            users.pop(name, None)
        for name in change.deleted_roles:
            roles.pop(name, None)
        # Keys belong to one user, which the name servers take care of.
        taken = {key.public for each in change.users for key in each.keys}
        for name, user in users.items():
            kept = [key for key in user.keys if key.public not in taken]
            users[name] = msgspec.structs.replace(user, keys=kept)
        seen: set[str] = set()
        for user in change.users:
            keys = [key for key in user.keys if key.public not in seen]
            seen |= {key.public for key in keys}
            users[user.name] = msgspec.structs.replace(user, keys=keys, version=version)
        roles |= {role.name: role for role in change.roles}
        followed.update(
            AccessView(
                False,
                list(users.values()),
                change.roles,
                change.deleted_users,
                change.deleted_roles,
            ),
            version,
        )
        everything(followed)  # What is remembered must not outlive the change.
        whole = AccessBook()
        whole.update(AccessView(True, list(users.values()), list(roles.values())), version)
        assert everything(followed) == everything(whole)
        if rng.random() < 0.3:
            followed.update(AccessView(True, list(users.values()), list(roles.values())), version)
            assert everything(followed) == everything(whole)


def test_an_older_view_is_ignored() -> None:
    book = book_of(UserView("alice", [], rules=[READ]))
    book.update(AccessView(False, [UserView("alice", [])]), 5)
    for view in (
        AccessView(False, [UserView("alice", [], rules=[READ])]),
        AccessView(True, [UserView("alice", [], rules=[READ])]),
    ):
        book.update(view, 4)
        assert not book.decide("alice", "read", "topic", "orders").allowed
        assert book.version == 5
    # A change to the version that is here says nothing new; the whole does.
    book.update(AccessView(False, [UserView("alice", [], rules=[READ])]), 5)
    assert not book.decide("alice", "read", "topic", "orders").allowed
    book.update(AccessView(True, [UserView("alice", [], rules=[READ])]), 5)
    assert book.decide("alice", "read", "topic", "orders").allowed


def test_changes_of_a_copy_that_is_not_here_are_ignored() -> None:
    book = AccessBook()
    book.update(AccessView(False, [UserView("alice", [], rules=[READ])]), 5)
    assert (book.known, book.version) == (False, -1)
    assert book.users == {}
    book.update(AccessView(True), 0)
    assert book.known


def test_a_change_counts_at_once_and_only_for_whom_it_concerns() -> None:
    users = [UserView(name, [], ["r"] if name < "c" else [], [READ]) for name in "abcd"]
    book = book_of(*users, roles=(RoleView("r"),))
    before = {name: book.decide(name, "read", "topic", "orders") for name in "abcd"}
    deny = msgspec.structs.replace(READ, allow=False)
    book.update(AccessView(False, roles=[RoleView("r", [deny], 2)]), 2)
    after = {name: book.decide(name, "read", "topic", "orders") for name in "abcd"}
    assert [after[name].allowed for name in "abcd"] == [False, False, True, True]
    assert all(after[name] is before[name] for name in "cd"), "others are not decided anew"
    book.update(AccessView(False, [UserView("d", [], version=3)]), 3)
    assert not book.decide("d", "read", "topic", "orders").allowed
    assert book.decide("c", "read", "topic", "orders") is before["c"]


def test_what_is_told_again_is_no_change() -> None:
    user, role = UserView("alice", [], ["r"]), RoleView("r", [READ])
    book = book_of(user, roles=(role,))
    before, changes = book.decide("alice", "read", "topic", "orders"), book.changes
    book.update(AccessView(True, [user], [role]), 2)
    assert book.changes == changes
    assert book.decide("alice", "read", "topic", "orders") is before
    for version, view in enumerate(
        (
            AccessView(False, [UserView("bob", [], ["r"])]),
            AccessView(False, roles=[RoleView("r")]),
            AccessView(False, deleted_users=["bob"]),
            AccessView(False, deleted_users=["alice"]),
        ),
        3,
    ):
        book.update(view, version)
        assert book.changes > changes
        changes = book.changes
    assert vars(book)["_members"] == {}, "roles of nobody leave nothing behind"


def test_a_whole_view_takes_away_what_it_does_not_have_and_keeps_the_rest() -> None:
    user, other = UserView("alice", [], ["r"]), UserView("bob", [], rules=[READ])
    book = book_of(user, other, roles=(RoleView("r", [READ]),))
    before = book.decide("bob", "read", "topic", "orders")
    assert book.decide("alice", "read", "topic", "orders").allowed
    book.update(AccessView(True, [user, other]), 2)
    assert book.roles == {}
    assert not book.decide("alice", "read", "topic", "orders").allowed
    assert book.decide("bob", "read", "topic", "orders") is before
    book.update(AccessView(True, [user]), 3)
    assert set(book.users) == {"alice"}
    assert sum(map(len, vars(book)["_decisions"].values())) == vars(book)["_cached"] == 1


def test_a_key_moves_from_one_user_to_another() -> None:
    one, two = UserKey("k", "0" * 40, 0), UserKey("l", "0" * 40, 0)
    book = book_of(UserView("alice", [one]), UserView("bob", []))
    old = book.principal_of("0" * 40)
    for order in (1, -1):
        book = book_of(UserView("alice", [one]), UserView("bob", []))
        moved = [UserView("alice", []), UserView("bob", [two])][::order]
        book.update(AccessView(False, moved), 2)
        assert (book.principal_of("0" * 40) or "").startswith("bob/l#")
        assert not book.is_current(old or "")


def test_only_keys_that_have_not_ended_open_anything() -> None:
    keys = [UserKey("old", "0" * 40, 0, ended=True), UserKey("new", "1" * 40, 0)]
    book = book_of(UserView("alice", keys))
    assert book.principal_of("0" * 40) is None
    assert not book.is_current(principal_of("alice", keys[0]))
    assert book.is_current(principal_of("alice", keys[1]))
    assert book.public_keys_of("alice") == ["1" * 40]
    # Another key with the same label is another principal.
    assert not book.is_current(principal_of("alice", UserKey("new", "2" * 40, 0)))


def test_keys_of_users_that_are_disabled_or_gone_open_nothing() -> None:
    key = UserKey("k", "0" * 40, 0)
    user = UserView("alice", [key])
    for view in (
        AccessView(False, [msgspec.structs.replace(user, disabled=True)]),
        AccessView(False, [msgspec.structs.replace(user, keys=[])]),
        AccessView(False, deleted_users=["alice"]),
        AccessView(True),
    ):
        book = book_of(user)
        principal = book.principal_of(key.public)
        assert principal == principal_of("alice", key)
        book.update(view, 2)
        assert book.principal_of(key.public) is None
        assert not book.is_current(principal)
        book.update(AccessView(True), 3)
        assert book.users == {}
    assert book_of().public_keys_of("alice") == []


def test_a_role_tells_who_has_it_now() -> None:
    one, two = UserView("alice", [], ["r", "s"]), UserView("bob", [], ["r"])
    book = book_of(one, two)
    assert (sorted(book.users_of("r")), book.users_of("s")) == (["alice", "bob"], ["alice"])
    book.update(AccessView(False, [UserView("alice", [], ["s"])]), 2)
    assert (book.users_of("r"), book.users_of("s")) == (["bob"], ["alice"])
    book.update(AccessView(False, deleted_users=["bob"]), 3)
    assert (book.users_of("r"), book.users_of("s"), book.users_of("t")) == ([], ["alice"], [])


@pytest.mark.parametrize("of_role", [False, True])
def test_rules_that_were_asked_for_before_are_those_of_the_newest_copy(*, of_role: bool) -> None:
    def holders(rules: list[AccessRule]) -> AccessView:
        if of_role:
            return AccessView(False, [UserView("alice", [], ["r"])], [RoleView("r", rules)])
        return AccessView(False, [UserView("alice", [], rules=rules)])

    write = AccessRule(True, "write", "topic", "orders")
    book = book_of()
    for version, rules_now in enumerate(([READ], [write], [READ, write]), 2):
        book.update(holders(rules_now), version)
        for verb in ("read", "write"):
            allowed = book.decide("alice", verb, "topic", "orders").allowed
            assert allowed == any(rule.verb == verb for rule in rules_now)


def test_rules_are_indexed_once() -> None:
    book = book_of(UserView("alice", [], rules=[READ]), UserView("bob", []))
    indexes = vars(book)["_indexes"]
    book.decide("alice", "read", "topic", "orders")
    first = indexes["user:alice"]
    for user in ("alice", "bob"):
        book.decide(user, "read", "topic", "other")
    assert indexes == {"user:alice": first}


def test_what_is_remembered_is_bounded() -> None:
    book = book_of(UserView("alice", [], rules=[READ]), UserView("bob", [], rules=[READ]))
    for number in range(2 * MAX_CACHED + 10):
        assert not book.decide("alice", "read", "topic", f"t{number}").allowed
        assert book.decide("bob", "read", "topic", "orders").allowed
        assert vars(book)["_cached"] <= MAX_CACHED
    long = "x" * (MAX_CACHED_NAME + 1)
    for name in (long, long[:-1]):
        assert not book.decide("alice", "read", "topic", name).allowed
    remembered = vars(book)["_decisions"]
    assert ("read", "topic", long[:-1]) in remembered["alice"]
    assert sum(map(len, remembered.values())) == vars(book)["_cached"] <= MAX_CACHED
    assert all(name != long for decisions in remembered.values() for _, _, name in decisions)
    for number in range(1_000):
        book.decide(f"stranger {number}", "read", "topic", "orders")
    assert len(remembered) <= 2, "strangers leave nothing behind"


def test_the_version_of_what_a_user_may_do() -> None:
    book = AccessBook()
    users = [UserView("alice", [], ["r"], version=3), UserView("bob", [], ["none"], version=4)]
    book.update(AccessView(True, users, [RoleView("r", [], 7), RoleView("s", [], 9)]), 10)
    assert [book.changed_at(name) for name in ("alice", "bob", "nobody")] == [7, 4, 10]


def test_limits_of_a_user_and_the_default() -> None:
    book = AccessBook()
    users = [UserView("alice", [], quota=Quota(topics=5)), UserView("node:b", [])]
    default = Quota(topics=1, requests_per_s=9)
    book.update(AccessView(True, users, default_quota=default), 1)
    assert book.quota_of("alice") == Quota(topics=5, requests_per_s=9)
    assert book.quota_of("nobody") == default
    assert is_node_user("node:b")
    book.update(AccessView(False), 2)
    assert book.quota_of("alice") == Quota(topics=5), "each view tells the default"
