"""Commands of the Raft log about users, roles and rules; their results have no value."""

from __future__ import annotations

from msgspec import Struct

from logboom.wire.access.access_rules import AccessRule, Quota, UserKey
from logboom.wire.base import Command


class InitialUser(Struct, frozen=True, array_like=True):
    """A user of a name server's own configuration: a node, or an administrator."""

    name: str
    public: str
    administrator: bool = False


class AdmitInitialUsers(Command, frozen=True, array_like=True):
    """Admit the users of the Raft leader's configuration, each key once.

    A key that was admitted before is not admitted again, even if it was removed since.
    Administrators get the role `administrator`, which is created with it.
    """

    users: list[InitialUser]
    time_ms: int


class CreateUser(Command, frozen=True, array_like=True):
    """Create a user. Its keys belong to no other user.

    Of a key, `ended` and `log_end_ms` are the name servers' and not taken from here.
    """

    name: str
    keys: list[UserKey]
    roles: list[str]
    time_ms: int


class AlterUser(Command, frozen=True, array_like=True):
    """Change a user. None leaves a value as it is."""

    name: str
    disabled: bool | None
    roles: list[str] | None
    quota: Quota | None
    time_ms: int
    seen_version: int = -1
    """The version of the user that the change was made from: CONFLICT if it has another by now, so
    that nobody brings a role back that somebody else revokes. -1: whatever it is."""


class DeleteUser(Command, frozen=True, array_like=True):
    """Delete a user with its keys and its own rules."""

    name: str


class AddUserKey(Command, frozen=True, array_like=True):
    """Give a user one more public key."""

    name: str
    key: UserKey


class RemoveUserKey(Command, frozen=True, array_like=True):
    """Remove a user's key; the last one stays, so that a user always has one."""

    name: str
    label: str


class EndUserKeys(Command, frozen=True, array_like=True):
    """End all keys whose time has come by the log's clock; proposed by the Raft leader alone.

    The clock is that of the entry; `time_ms` is informative.
    """

    time_ms: int


class CreateRole(Command, frozen=True, array_like=True):
    """Create a role without rules."""

    name: str


class DeleteRole(Command, frozen=True, array_like=True):
    """Delete a role; no user may have it any more."""

    name: str


class AddRule(Command, frozen=True, array_like=True):
    """Add a rule to "user:NAME" or "role:NAME"; one that is there already is left alone."""

    holder: str
    rule: AccessRule


class RemoveRule(Command, frozen=True, array_like=True):
    """Remove a rule from "user:NAME" or "role:NAME", which must have it."""

    holder: str
    rule: AccessRule


class SetDefaultQuota(Command, frozen=True, array_like=True):
    """Set the limits that count for users without their own."""

    quota: Quota
    seen: Quota | None = None
    """The limits that the change was made from: CONFLICT if they are others by now. None: whatever
    they are."""


AccessCommand = (
    AdmitInitialUsers
    | CreateUser
    | AlterUser
    | DeleteUser
    | AddUserKey
    | RemoveUserKey
    | EndUserKeys
    | CreateRole
    | DeleteRole
    | AddRule
    | RemoveRule
    | SetDefaultQuota
)
