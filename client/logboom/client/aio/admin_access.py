"""Administration of who may do what: users, their keys, roles, rules and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from logboom.client import flows
from logboom.client.admin_flows import access_flows
from logboom.client.admin_flows.access_flows import Effect
from logboom.client.aio.bridge import drive
from logboom.client.flows import Flow
from logboom.client.io_thread import IoThread, wall_ms
from logboom.wire.access.access_book import AccessDecision
from logboom.wire.access.access_commands import (
    AddUserKey,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteRole,
    DeleteUser,
    RemoveUserKey,
)
from logboom.wire.access.access_rules import (
    AccessRule,
    Quota,
    ResourceKind,
    RoleView,
    UserKey,
    UserView,
    Verb,
)

T = TypeVar("T")

FIRST_LABEL: Final = "first"
"""Label of the key that a user is created with, unless another is given."""


class AccessAdmin:
    """Users, roles and rules, as a part of `admin`. All but explaining and describing oneself needs
    the right `admin cluster`."""

    def __init__(self, io: IoThread, timeout_s: float) -> None:
        self._io = io
        self._timeout_s = timeout_s

    async def _run(self, flow: Flow[T]) -> T:
        return await drive(self._io, flow)

    async def create_user(
        self,
        name: str,
        public_key: str,
        *,
        label: str = FIRST_LABEL,
        roles: Sequence[str] = (),
        end_ms: int = 0,
    ) -> None:
        """Create a user, who may connect with a key and has no rights but those of its roles.

        Args:
            name: 1 to 64 of A-Z a-z 0-9 . _ @ -, after "node:" for a node.
            public_key: 40 characters of Z85. The secret key stays with the user.
            label: a name of the key, for rotation and the audit log.
            end_ms: time at which the key ends, in ms since 1970 UTC; 0: never.

        Raises:
            AlreadyExists: USER_EXISTS: there is a user of this name.
            UnknownResource: UNKNOWN_ROLE: a role does not exist.
            InvalidRequest: a name or the key is invalid, or another user has the key.
        """
        now = wall_ms()
        keys = [UserKey(label, public_key, now, end_ms)]
        command = CreateUser(name, keys, list(roles), now)
        await self._run(flows.propose(command, self._timeout_s))

    async def alter_user(
        self,
        name: str,
        *,
        disabled: bool | None = None,
        roles: Sequence[str] | None = None,
        quota: Quota | None = None,
    ) -> None:
        """Change a user. None leaves a value as it is.

        Args:
            disabled: True: refuse the user from now on, also on connections that are open.
            roles: all roles of the user.
            quota: all limits of the user; 0 stands for the default's.
        """
        wanted = None if roles is None else list(roles)
        command = AlterUser(name, disabled, wanted, quota, wall_ms())
        await self._run(flows.propose(command, self._timeout_s))

    async def delete_user(self, name: str) -> None:
        """Delete a user with its keys and its own rules."""
        await self._run(flows.propose(DeleteUser(name), self._timeout_s))

    async def add_user_key(
        self, name: str, public_key: str, *, label: str, end_ms: int = 0
    ) -> None:
        """Give a user one more key, of at most four: the old one counts on until it is removed.

        Args:
            end_ms: time at which the key ends, in ms since 1970 UTC; 0: never.
        """
        command = AddUserKey(name, UserKey(label, public_key, wall_ms(), end_ms))
        await self._run(flows.propose(command, self._timeout_s))

    async def remove_user_key(self, name: str, label: str) -> None:
        """Remove a key of a user, who is refused with it from now on. The last one stays."""
        await self._run(flows.propose(RemoveUserKey(name, label), self._timeout_s))

    async def users(self) -> list[UserView]:
        """Return all users, sorted by name, nodes included."""
        return await self._run(access_flows.users(self._timeout_s))

    async def describe_user(self, name: str) -> UserView:
        """Return one user: its keys, roles, own rules and limits. Every user may describe itself.

        Raises:
            UnknownResource: UNKNOWN_USER: there is no such user.
        """
        return await self._run(access_flows.describe_user(name, self._timeout_s))

    async def grant_role(self, user: str, role: str) -> list[str]:
        """Give a user one more role, and return those that it has then."""
        flow = access_flows.change_roles(user, role, wall_ms(), self._timeout_s, grant=True)
        return await self._run(flow)

    async def revoke_role(self, user: str, role: str) -> list[str]:
        """Take a role from a user, and return those that it has then."""
        flow = access_flows.change_roles(user, role, wall_ms(), self._timeout_s, grant=False)
        return await self._run(flow)

    async def create_role(self, name: str) -> None:
        """Create a role without rules.

        Raises:
            AlreadyExists: ROLE_EXISTS: there is a role of this name.
        """
        await self._run(flows.propose(CreateRole(name), self._timeout_s))

    async def delete_role(self, name: str) -> None:
        """Delete a role that no user has any more."""
        await self._run(flows.propose(DeleteRole(name), self._timeout_s))

    async def roles(self) -> list[RoleView]:
        """Return all roles with their rules, sorted by name."""
        return await self._run(access_flows.roles(self._timeout_s))

    async def describe_role(self, name: str) -> RoleView:
        """Return one role with its rules.

        Raises:
            UnknownResource: UNKNOWN_ROLE: there is no such role.
        """
        return await self._run(access_flows.describe_role(name, self._timeout_s))

    async def rules(self, *, user: str = "", holder: str = "") -> list[tuple[str, AccessRule]]:
        """Return rules with their holders, sorted.

        Args:
            user: only the rules that count for this user: its own and those of its roles.
            holder: only the rules of this "role:NAME" or "user:NAME".
        """
        return await self._run(access_flows.rules(user, holder, self._timeout_s))

    async def add_rule(
        self, holder: str, effect: Effect, verb: Verb, kind: ResourceKind, pattern: str = ""
    ) -> None:
        """Allow or deny something to a user or role; a rule that is there already is left alone.

        To allow any verb allows `describe`. What no rule allows is refused, and a rule that denies
        wins over all that allow.

        Args:
            holder: "role:NAME" or "user:NAME".
            pattern: a whole name, or a prefix that ends with *; not needed for the cluster.

        Raises:
            InvalidRequest: a word or the pattern is invalid; the text states what is valid.
            UnknownResource: there is no such user or role.
        """
        rule = access_flows.make_rule(effect, verb, kind, pattern)
        await self._run(access_flows.change_rule(holder, rule, self._timeout_s, add=True))

    async def remove_rule(
        self, holder: str, effect: Effect, verb: Verb, kind: ResourceKind, pattern: str = ""
    ) -> None:
        """Remove a rule of a user or role; the arguments are those of `add_rule`."""
        rule = access_flows.make_rule(effect, verb, kind, pattern)
        await self._run(access_flows.change_rule(holder, rule, self._timeout_s, add=False))

    async def explain(self, user: str, verb: Verb, kind: ResourceKind, name: str) -> AccessDecision:
        """Return whether a user may do something, and the rule that decides. Every user may explain
        its own rights.

        Raises:
            UnknownResource: UNKNOWN_USER: there is no such user.
        """
        return await self._run(access_flows.explain(user, verb, kind, name, self._timeout_s))

    async def set_quota(self, user: str, **limits: int) -> Quota:
        """Change limits of a user, and return all of its own. Those that are not named stay.

        Args:
            limits: fields of `Quota`: produce_bytes_per_s, fetch_bytes_per_s, requests_per_s,
                connections, topics, queues, stored_bytes. 0 stands for the default's value.
        """
        flow = access_flows.set_quota(user, limits, wall_ms(), self._timeout_s)
        return await self._run(flow)

    async def default_quota(self) -> Quota:
        """Return the limits of users without their own."""
        return await self._run(access_flows.default_quota(self._timeout_s))

    async def set_default_quota(self, **limits: int) -> Quota:
        """Change limits of users without their own, and return all of them; 0: no limit."""
        return await self._run(access_flows.set_default_quota(limits, self._timeout_s))
