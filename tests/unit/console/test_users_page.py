"""Users, roles, rules and quotas, and the answer to who may do what."""

from __future__ import annotations

import msgspec

from logboom.console.pages.users_page import (
    DAY_MS,
    AccessData,
    UsersModel,
    build_role,
    build_user,
    build_users,
    explain_form,
    explained,
)
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.access.access_book import AccessDecision
from logboom.wire.access.access_rules import AccessRule, Quota, RoleView, UserKey, UserView

NOW_MS = 1_800_000_000_000
READ = AccessRule(True, "read", "topic", "orders.*")
DENY = AccessRule(False, "read", "topic", "orders.salaries")
KEY = UserKey("first", "k" * 40, NOW_MS - DAY_MS)
ALICE = UserView("alice", [KEY], ["team"], [DENY], quota=Quota(connections=5), created_ms=NOW_MS)
BOB = UserView("bob", [msgspec.structs.replace(KEY, end_ms=NOW_MS + DAY_MS)], disabled=True)
NODE = UserView("node:broker-1", [KEY])
DATA = AccessData([ALICE, BOB, NODE], [RoleView("team", [READ])], Quota(produce_bytes_per_s=100))


def page(parameters: str = "", data: AccessData = DATA) -> UsersModel:
    query = PageQuery("/users", parameters)
    return build_users(data, explain_form(query, data.users), query, NOW_MS)


def test_a_cluster_without_users_says_so_and_how_to_turn_them_on() -> None:
    model = page(data=AccessData([], [], Quota()))
    assert not model.has_users
    assert "logboom cluster init" in model.notices[0].text


def test_nodes_are_left_out_unless_asked_for() -> None:
    model = page()
    assert [row.source["name"] for row in model.table.rows] == ["alice", "bob"]
    assert model.nodes == 1
    assert len(page("nodes=1").table.rows) == 3


def test_disabled_users_and_keys_that_end_soon_are_marked() -> None:
    model = page()
    assert [row.source["state"] for row in model.table.rows] == ["active", "disabled"]
    assert model.table.rows[1].source["ends_soon"]
    assert "bob" in model.notices[0].text


def test_a_user_whose_keys_all_ended_cannot_connect() -> None:
    ended = UserView("carol", [msgspec.structs.replace(KEY, ended=True)])
    model = page(data=AccessData([ended], [], Quota()))
    assert (model.table.rows[0].source["state"], model.table.rows[0].source["keys"]) == (
        "all keys ended",
        0,
    )


def test_tabs_show_roles_rules_and_quotas() -> None:
    assert [row.source["users"] for row in page("tab=roles").table.rows] == [["alice"]]
    rules = [(row.source["holder"], row.source["effect"]) for row in page("tab=rules").table.rows]
    assert rules == [("role:team", "allow"), ("user:alice", "deny")]
    quotas = page("tab=quotas").table.rows
    assert [row.source["user"] for row in quotas] == ["(default)", "alice"]
    assert quotas[0].cells[0].href == ""
    assert page("tab=nonsense").tab == "users"


def test_no_model_holds_more_of_a_key_than_its_public_part() -> None:
    model = build_user(ALICE, DATA.roles, DATA.default_quota, PageQuery("/users/alice"), NOW_MS)
    (key,) = (row.source for row in model.keys.rows)
    assert set(key) == {"label", "state", "public_key", "created_ms", "ends_ms", "ends_soon"}


def test_one_user_has_its_own_rules_and_those_of_its_roles() -> None:
    model = build_user(ALICE, DATA.roles, DATA.default_quota, PageQuery("/users/alice"), NOW_MS)
    assert [row.source["holder"] for row in model.rules.rows] == ["role:team", "user:alice"]
    assert model.roles == (("team", "/roles/team"),)
    assert [row.source["user"] for row in model.quota.rows] == ["own", "default"]


def test_one_role_names_who_has_it() -> None:
    model = build_role(DATA.roles[0], DATA.users, PageQuery("/roles/team"))
    assert model.users == (("alice", "/users/alice"),)


def test_an_answer_names_the_rule_and_where_it_stands() -> None:
    form = explain_form(
        PageQuery("/users", "tab=explain&user=alice&resource=orders.salaries"), [ALICE]
    )
    assert (form.user, form.verb, form.kind, form.asked) == ("alice", "read", "topic", True)
    answer = explained(form, AccessDecision(False, DENY, "user:alice"))
    assert not answer.allowed
    assert answer.rule == "deny read topic orders.salaries"
    assert answer.holder_url == "/users/alice"
    refused = explained(form, AccessDecision(False, None))
    assert (refused.rule, refused.holder_url, refused.why) == ("", "", "no rule allows it")
