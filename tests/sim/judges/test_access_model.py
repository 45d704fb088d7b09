"""The model of rights says what docs/SECURITY.md says."""

from __future__ import annotations

import pytest

from logboom.wire.access.access_commands import (
    AddRule,
    AddUserKey,
    AdmitInitialUsers,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteUser,
    EndUserKeys,
    InitialUser,
    RemoveRule,
    RemoveUserKey,
)
from logboom.wire.access.access_rules import KINDS, AccessRule, ResourceKind, UserKey, Verb
from logboom.wire.base import Command
from logboom.wire.commands import NewTerm
from tests.sim.judges.access_model import OWN_RIGHTS, AccessModel, Need


def rule(text: str) -> AccessRule:
    """A rule of the form "allow read topic orders.*"."""
    allow, verb, kind, pattern = text.split()
    verbs: dict[str, Verb] = {"read": "read", "write": "write", "describe": "describe"}
    kinds: dict[str, ResourceKind] = {kind: kind for kind in KINDS}
    return AccessRule(allow == "allow", verbs[verb], kinds[kind], pattern)


class Book:
    """A model with ann, whose key is K1, and bob, whose key is K2."""

    def __init__(self, *rules: str) -> None:
        self.model = AccessModel()
        self.clock_ms = 1_000
        self.version = 0
        self.take(NewTerm(1, "name-1", "cluster", 0, OWN_RIGHTS))
        self.take(CreateUser("ann", [UserKey("one", "K1", 1)], [], 1))
        self.take(CreateUser("bob", [UserKey("one", "K2", 1)], [], 1))
        for text in rules:
            self.take(AddRule("user:ann", rule(text)))

    def take(self, command: Command) -> int:
        self.version += 1
        self.model.take(command, self.version, self.clock_ms)
        return self.version

    def may(self, user: str, *need: str) -> bool:
        verb, kind, name = need
        return self.model.newest.may(user, (verb, kind, name))

    def owner(self, public: str) -> str | None:
        found = self.model.newest.owner(public)
        return None if found is None else found[0]


@pytest.mark.parametrize(
    ("rules", "need", "may"),
    [
        ((), "read topic orders.eu", False),
        (("allow read topic orders.*",), "read topic orders.eu", True),
        (("allow read topic orders.*",), "read topic orders.", True),
        (("allow read topic orders.*",), "read topic orders", False),
        (("allow read topic orders.*",), "read topic xorders.eu", False),
        (("allow read topic orders",), "read topic orders.eu", False),
        (("allow read topic *",), "read topic anything", True),
        (("allow read topic *",), "write topic anything", False),
        (("allow read topic *",), "read group anything", False),
        (("allow write topic orders.*",), "describe topic orders.eu", True),
        (("allow read topic *", "deny read topic orders.*"), "read topic orders.eu", False),
        (("allow read topic *", "deny read topic orders.*"), "describe topic orders.eu", True),
        (("allow read topic *", "deny describe topic orders.*"), "read topic orders.eu", True),
        (("allow read topic *", "deny describe topic orders.*"), "describe topic orders.eu", False),
        (("allow read group g",), "write topic %RETRY%g", True),
        (("allow read group g",), "read topic %DLQ%g", True),
        (("allow read topic *",), "read topic %RETRY%g", False),
        (("allow read topic t",), "write topic %RETRY%t%mine", False),
        (("allow read subscription t/mine",), "write topic %RETRY%t%mine", False),
        (
            ("allow read topic t", "allow read subscription t/*"),
            "write topic %RETRY%t%mine",
            True,
        ),
        (("allow read topic t",), "read subscription t/mine", False),
        (("allow read subscription t*",), "read subscription t/mine", True),
    ],
)
def test_rules(rules: tuple[str, ...], need: str, may: bool) -> None:
    book = Book(*rules)
    assert book.may("ann", *need.split()) is may
    assert not book.may("bob", *need.split())
    assert not book.may("nobody", *need.split())
    book.take(AlterUser("ann", True, None, None, 1))
    assert not book.may("ann", *need.split())


def test_roles_add_their_rules_and_their_denials() -> None:
    book = Book("allow read topic *")
    book.take(CreateRole("clerk"))
    book.take(AddRule("role:clerk", rule("deny read topic secret.*")))
    book.take(AddRule("role:clerk", rule("allow write topic orders.*")))
    book.take(AlterUser("ann", None, ["clerk"], None, 1))
    assert book.may("ann", "write", "topic", "orders.eu")
    assert not book.may("ann", "read", "topic", "secret.x")
    book.take(RemoveRule("role:clerk", rule("deny read topic secret.*")))
    assert book.may("ann", "read", "topic", "secret.x")


def test_every_version_is_remembered() -> None:
    book = Book()
    given = book.take(AddRule("user:ann", rule("allow read topic a")))
    book.version += 5
    taken = book.take(RemoveRule("user:ann", rule("allow read topic a")))
    need: Need = ("read", "topic", "a")
    at = book.model.at
    assert [at(v).may("ann", need) for v in (given - 1, given, taken - 1, taken, taken + 9)] == [
        *(False, True, True, False, False)
    ]
    assert [s.may("ann", need) for s in book.model.between(given, taken)] == [True, False]
    assert [s.may("ann", need) for s in book.model.between(taken, taken + 9)] == [False]


def test_a_key_opens_connections_from_its_beginning_to_its_end() -> None:
    book = Book()
    book.take(AddUserKey("ann", UserKey("two", "K3", 100, end_ms=600)))
    assert (book.owner("K1"), book.owner("K3"), book.owner("K9")) == ("ann", "ann", None)
    book.clock_ms = 1_499
    book.take(EndUserKeys(0))
    assert book.owner("K3") == "ann"
    book.clock_ms = 1_500
    book.take(EndUserKeys(0))
    assert book.owner("K3") is None
    book.take(RemoveUserKey("ann", "two"))
    book.take(AlterUser("ann", True, None, None, 1))
    assert book.owner("K1") is None
    book.take(AlterUser("ann", False, None, None, 1))
    assert book.owner("K1") == "ann"
    book.take(DeleteUser("ann"))
    assert book.owner("K1") is None


def test_a_key_of_the_configuration_is_admitted_once() -> None:
    book = Book()
    admit = AdmitInitialUsers([InitialUser("eve", "K5", administrator=True)], 1)
    book.take(admit)
    assert book.owner("K5") == "eve"
    assert book.may("eve", "admin", "cluster", "cluster")
    book.take(DeleteUser("eve"))
    book.take(admit)
    assert book.owner("K5") is None
    # Neither does a key change hands.
    book.take(AdmitInitialUsers([InitialUser("eve", "K1", administrator=True)], 1))
    assert book.owner("K1") == "ann"


def test_nodes_may_everything() -> None:
    book = Book()
    book.take(AdmitInitialUsers([InitialUser("node:broker-1", "K6")], 1))
    assert book.may("node:broker-1", "write", "topic", "anything")
