"""Flows for users, roles and rules, against tables that are kept here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logboom.client.admin_flows import access_flows
from logboom.client.calls import AskRaftLeader, ProposeCommand
from logboom.client.flows import Flow, run_flow
from logboom.wire.access.access_commands import AddRule, AlterUser, RemoveRule, SetDefaultQuota
from logboom.wire.access.access_rules import AccessRule, Quota, RoleView, UserKey, UserView
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InvalidRequest, Unavailable, UnknownResource
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.messages import AccessDescribed, DescribeAccess

READ = AccessRule(True, "read", "topic", "orders.*")
DENY = AccessRule(False, "read", "topic", "orders.salaries")
KEY = UserKey("first", "k" * 40, 0)


class NameServers:
    """What the name servers have, and were asked and told."""

    def __init__(self) -> None:
        self.users = [
            UserView("bob", [KEY]),
            UserView("alice", [KEY], ["team", "spare"], [DENY], quota=Quota(topics=5), version=4),
        ]
        self.roles = [RoleView("team", [READ]), RoleView("spare"), RoleView("other", [READ])]
        self.default = Quota(connections=10)
        self.features = 0
        self.asked: list[str] = []
        self.proposed: list[Any] = []
        self.faster: list[Callable[[], None]] = []
        """What others do before a command, which conflicts with it then."""

    def answer(self, call: Any) -> Any:
        if isinstance(call, ProposeCommand):
            self.proposed.append(call.command)
            if self.faster:
                self.faster.pop()()
                raise Unavailable("somebody was faster", "CONFLICT")
            return CommandResult(8)
        assert isinstance(call, AskRaftLeader)
        request = call.message(1000)
        assert isinstance(request, DescribeAccess)
        self.asked.append(request.user)
        users = [u for u in self.users if request.user in ("", u.name)]
        named = {role for user in users for role in user.roles}
        roles = [r for r in self.roles if not request.user or r.name in named]
        return AccessDescribed(1, users, roles, self.default, 7, self.features), []

    def run(self, flow: Flow[Any]) -> Any:
        return run_flow(flow, self.answer)


@pytest.fixture
def servers() -> NameServers:
    return NameServers()


def test_users_and_roles_are_sorted_and_found(servers: NameServers) -> None:
    assert [user.name for user in servers.run(access_flows.users(1.0))] == ["alice", "bob"]
    assert [role.name for role in servers.run(access_flows.roles(1.0))] == [
        "other",
        "spare",
        "team",
    ]
    assert servers.run(access_flows.describe_user("bob", 1.0)).keys == [KEY]
    assert servers.run(access_flows.describe_role("team", 1.0)).rules == [READ]
    assert servers.asked == ["", "", "bob", ""]


@pytest.mark.parametrize(
    ("flow", "code"),
    [
        (lambda: access_flows.describe_user("eve", 1.0), "UNKNOWN_USER"),
        (lambda: access_flows.describe_role("none", 1.0), "UNKNOWN_ROLE"),
        (lambda: access_flows.rules("eve", "", 1.0), "UNKNOWN_USER"),
        (lambda: access_flows.rules("", "user:eve", 1.0), "UNKNOWN_USER"),
        (lambda: access_flows.rules("", "role:none", 1.0), "UNKNOWN_ROLE"),
        (lambda: access_flows.explain("eve", "read", "topic", "t", 1.0), "UNKNOWN_USER"),
    ],
)
def test_what_there_is_not_is_told(
    servers: NameServers, flow: Callable[[], Flow[Any]], code: str
) -> None:
    with pytest.raises(UnknownResource) as told:
        servers.run(flow())
    assert told.value.code == code
    assert "logboom" in str(told.value)


def test_an_empty_name_does_not_stand_for_all_users(servers: NameServers) -> None:
    with pytest.raises(InvalidRequest):
        servers.run(access_flows.describe_user("", 1.0))
    with pytest.raises(InvalidRequest):
        servers.run(access_flows.explain("", "read", "topic", "t", 1.0))
    assert servers.asked == []


def test_rules_by_user_and_by_holder(servers: NameServers) -> None:
    assert servers.run(access_flows.rules("", "", 1.0)) == [
        ("role:other", READ),
        ("role:team", READ),
        ("user:alice", DENY),
    ]
    assert servers.run(access_flows.rules("alice", "", 1.0)) == [
        ("role:team", READ),
        ("user:alice", DENY),
    ]
    assert servers.run(access_flows.rules("", "user:alice", 1.0)) == [("user:alice", DENY)]
    assert servers.run(access_flows.rules("", "role:team", 1.0)) == [("role:team", READ)]


def test_explain_names_the_rule_and_its_holder(servers: NameServers) -> None:
    def explain(user: str, verb: str, kind: str, name: str) -> Any:
        return servers.run(access_flows.explain(user, verb, kind, name, 1.0))

    allowed = explain("alice", "read", "topic", "orders.eu")
    assert (allowed.allowed, allowed.rule, allowed.holder) == (True, READ, "role:team")
    denied = explain("alice", "read", "topic", "orders.salaries")
    assert (denied.allowed, denied.rule, denied.holder) == (False, DENY, "user:alice")
    assert explain("alice", "describe", "topic", "orders.salaries").allowed
    nothing = explain("bob", "read", "topic", "orders.eu")
    assert (nothing.allowed, nothing.rule) == (False, None)


def test_rights_on_subscriptions_are_explained_by_the_level_of_the_cluster(
    servers: NameServers,
) -> None:
    for features, allowed in ((SUBSCRIPTION_RIGHTS - 1, True), (SUBSCRIPTION_RIGHTS, False)):
        servers.features = features
        asked = ("alice", "manage", "subscription", "orders.eu/billing")
        assert servers.run(access_flows.explain(*asked, 1.0)).allowed is allowed


def test_a_role_is_granted_and_revoked_once(servers: NameServers) -> None:
    def change(role: str, *, grant: bool) -> Any:
        return servers.run(access_flows.change_roles("alice", role, 99, 1.0, grant=grant))

    assert change("other", grant=True) == ["team", "spare", "other"]
    assert change("spare", grant=False) == ["team"]
    assert servers.proposed == [
        AlterUser("alice", None, ["team", "spare", "other"], None, 99, 4),
        AlterUser("alice", None, ["team"], None, 99, 4),
    ]


def test_what_somebody_else_revokes_meanwhile_stays_revoked(servers: NameServers) -> None:
    def revoke() -> None:
        servers.users[1] = UserView("alice", [KEY], ["spare"], version=5)

    servers.faster = [revoke]
    flow = access_flows.change_roles("alice", "other", 99, 1.0, grant=True)
    assert servers.run(flow) == ["spare", "other"]
    assert servers.proposed[-1] == AlterUser("alice", None, ["spare", "other"], None, 99, 5)
    servers.faster = [revoke] * access_flows.MAX_TRIES
    with pytest.raises(Unavailable, match="somebody was faster"):
        servers.run(access_flows.change_roles("alice", "other", 99, 1.0, grant=True))
    assert servers.faster == []


def test_limits_that_are_not_named_stay(servers: NameServers) -> None:
    servers.run(access_flows.set_quota("alice", {"connections": 3}, 99, 1.0))
    servers.run(access_flows.set_default_quota({"topics": 7}, 1.0))
    assert servers.proposed == [
        AlterUser("alice", None, None, Quota(connections=3, topics=5), 99, 4),
        SetDefaultQuota(Quota(connections=10, topics=7), Quota(connections=10)),
    ]


def test_a_default_limit_that_somebody_else_sets_meanwhile_stays(servers: NameServers) -> None:
    def limit() -> None:
        servers.default = Quota(connections=10, queues=3)

    servers.faster = [limit]
    found = servers.run(access_flows.set_default_quota({"topics": 7}, 1.0))
    assert found == Quota(connections=10, topics=7, queues=3)
    assert servers.proposed[-1] == SetDefaultQuota(found, Quota(connections=10, queues=3))


@pytest.mark.parametrize(
    "changes", [{"speed": 1}, {"topics": -1}, {"topics": 1.5}, {"topics": True}, {"topics": "5"}]
)
def test_what_is_no_limit_is_refused(servers: NameServers, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        servers.run(access_flows.set_quota("alice", changes, 99, 1.0))
    assert servers.proposed == []


def test_rules_are_added_and_removed(servers: NameServers) -> None:
    servers.run(access_flows.change_rule("role:team", DENY, 1.0, add=True))
    servers.run(access_flows.change_rule("user:bob", READ, 1.0, add=False))
    assert servers.proposed == [AddRule("role:team", DENY), RemoveRule("user:bob", READ)]


@pytest.mark.parametrize("holder", ["", "alice", "role:", "group:billing", ":x"])
def test_only_users_and_roles_hold_rules(servers: NameServers, holder: str) -> None:
    with pytest.raises(InvalidRequest, match="role:"):
        servers.run(access_flows.change_rule(holder, READ, 1.0, add=True))
    assert servers.proposed == []


def test_a_rule_is_made_of_its_words() -> None:
    assert access_flows.make_rule("allow", "read", "topic", "orders.*") == READ
    assert access_flows.make_rule("deny", "read", "topic", "orders.salaries") == DENY
    every = AccessRule(True, "admin", "cluster", "cluster")
    assert access_flows.make_rule("allow", "admin", "cluster", "") == every


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("permit", "read", "topic", "t"), "allow or deny"),
        (("allow", "consume", "topic", "t"), "use one of read, write"),
        (("allow", "topic", "read", "t"), "use one of read, write"),
        (("allow", "read", "queue", "t"), "use one of topic, group"),
        (("allow", "admin", "topic", "t"), "not a verb of a topic: use one of read"),
        (("allow", "read", "topic", ""), "a prefix that ends with"),
        (("allow", "read", "topic", "or*ders"), "a prefix that ends with"),
        (("allow", "read", "topic", "^orders$"), "a prefix that ends with"),
        (("allow", "admin", "cluster", "prod"), "there is one cluster"),
    ],
)
def test_a_wrong_word_is_told_with_the_right_ones(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        access_flows.make_rule(*words)
