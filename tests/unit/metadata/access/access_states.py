"""A replicated state with short words for the commands of users and rules."""

from __future__ import annotations

from logboom.metadata.raft.log_commands import AnyLogCommand
from logboom.metadata.tables.access_table import AccessTable
from logboom.wire.access.access_commands import (
    AddRule,
    AlterUser,
    CreateRole,
    CreateUser,
    RemoveRule,
)
from logboom.wire.access.access_rules import AccessRule, UserKey, Verb
from logboom.wire.commands import CommandResult
from logboom.wire.features import FEATURES
from tests.unit.metadata.state.states import Tables

ADMIN = AccessRule(True, "admin", "cluster", "cluster")
READ = AccessRule(True, "read", "topic", "orders*")


def public_key(number: int) -> str:
    """A public key unlike the others."""
    return f"{number:040}"


def key(label: str, number: int, created_ms: int = 1_000, end_ms: int = 0) -> UserKey:
    """A key of a user."""
    return UserKey(label, public_key(number), created_ms, end_ms)


class AccessTables(Tables):
    """A cluster whose administrator is root, with key 1; alice has key 2, and no rights."""

    def __init__(self, features: int = FEATURES) -> None:
        super().__init__()
        self.begin(features=features)
        self.done(CreateRole("admins"))
        self.done(AddRule("role:admins", ADMIN))
        self.create_user("root", 1, "admins")
        self.create_user("alice", 2)

    @property
    def access(self) -> AccessTable:
        """The tables of users and roles."""
        return self.state.cluster.access

    def create_user(self, name: str, number: int, *roles: str) -> None:
        """Create a user with one key."""
        self.done(CreateUser(name, [key("first", number)], list(roles), 5))

    def grant(self, holder: str, rule: AccessRule = READ) -> None:
        """Add a rule."""
        self.done(AddRule(holder, rule))

    def revoke(self, holder: str, rule: AccessRule = READ) -> None:
        """Remove a rule."""
        self.done(RemoveRule(holder, rule))

    def give_roles(self, name: str, *roles: str) -> None:
        """Replace a user's roles."""
        self.done(AlterUser(name, None, list(roles), None, 0))

    def pass_time(self, command: AnyLogCommand, clock_ms: int) -> CommandResult:
        """Apply a command at a time of the log."""
        return self.apply(command, time_ms=clock_ms)

    def allows(self, user: str, verb: Verb = "read", topic: str = "orders") -> bool:
        """Whether a user may use a topic."""
        return self.access.book.decide(user, verb, "topic", topic).allowed
