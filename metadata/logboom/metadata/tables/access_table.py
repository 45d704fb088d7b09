"""The replicated tables of users, roles and access rules.

They are plain data, with the primitives that keep their indexes correct. The users and roles
themselves are those of an `AccessBook`, by which this name server decides like every other node.
The rules for changes are in the `*_commands` modules of `metadata.access`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from logboom.metadata.tables.change_index import ChangeIndex
from logboom.wire.access.access_book import AccessBook, decide
from logboom.wire.access.access_rules import (
    CLUSTER,
    AccessView,
    Quota,
    RoleView,
    UserView,
    is_node_user,
)

_size: Final = msgspec.msgpack.Encoder().encode
NO_LIMITS: Final = Quota()


class AccessTable:
    """All users and roles, their changes by version, and who may administer the cluster."""

    def __init__(self, bump: Callable[[], int]) -> None:
        """Create empty tables; `bump` notes a visible change and returns its metadata version."""
        self.book = AccessBook()
        """The users and roles."""
        self.version = 0
        """Metadata version of the last change."""
        self.admitted: dict[str, None] = {}
        """All public keys that were ever admitted from a name server's configuration."""
        self.owners: dict[str, str] = {}
        """Public key → user, also of keys that have ended (derived)."""
        self.administrators: dict[str, None] = {}
        """Users that may `admin cluster` and have a key that has not ended (derived)."""
        self.size_bytes = 0
        """Size of all users and roles as they are encoded (derived)."""
        self._user_changes: ChangeIndex[str] = ChangeIndex()
        self._role_changes: ChangeIndex[str] = ChangeIndex()
        self._sizes: dict[str, int] = {}
        self._next_end_ms: int | None = None
        self._next_end_unknown = False
        """True after a change, until it is asked for."""
        self._bump = bump

    @property
    def users(self) -> Mapping[str, UserView]:
        """All users by name."""
        return self.book.users

    @property
    def roles(self) -> Mapping[str, RoleView]:
        """All roles by name."""
        return self.book.roles

    @property
    def default_quota(self) -> Quota:
        """The limits of users without their own."""
        return self.book.default_quota

    @property
    def used(self) -> bool:
        """True if there is anything to keep."""
        return bool(
            self.users or self.roles or self.admitted or self.book.default_quota != NO_LIMITS
        )

    @property
    def floor(self) -> int:
        """Version below which only a full view can answer."""
        return max(self._user_changes.floor, self._role_changes.floor)

    # ── changes ─────────────────────────────────────────────────────────────────────────────────

    def change(
        self,
        users: Iterable[UserView] = (),
        roles: Iterable[RoleView] = (),
        gone_users: Iterable[str] = (),
        gone_roles: Iterable[str] = (),
        default_quota: Quota | None = None,
    ) -> None:
        """Put users and roles, which get the command's version, and remove others."""
        version = self.version = self._bump()
        change = AccessView(
            False,
            [msgspec.structs.replace(user, version=version) for user in users],
            [msgspec.structs.replace(role, version=version) for role in roles],
            list(gone_users),
            list(gone_roles),
            self.book.default_quota if default_quota is None else default_quota,
        )
        if not self.book.known:
            self.book.update(AccessView(True), 0)
        for user in [*change.deleted_users, *(user.name for user in change.users)]:
            self._forget_keys(user)
        self.book.update(change, version)
        for user in change.deleted_users:
            self._user_changes.drop(user, version)
            self._set_size(f"user:{user}", 0)
        for role in change.deleted_roles:
            self._role_changes.drop(role, version)
            self._set_size(f"role:{role}", 0)
        for each in change.users:
            self._user_changes.touch(each.name, version)
            self._note_user(each)
        for changed in change.roles:
            self._role_changes.touch(changed.name, version)
            self._set_size(f"role:{changed.name}", size_of(changed))
        concerned = {user.name for user in change.users}.union(
            change.deleted_users, *(self.book.users_of(role.name) for role in change.roles)
        )
        for name in sorted(concerned):
            self._judge(name)

    def enforce_subscription_rules(
        self, users: Sequence[UserView], roles: Sequence[RoleView]
    ) -> None:
        """Decide on subscriptions by rules of their own from now on, with those that holders get."""
        if users or roles:
            self.change(users, roles)
        self.version = self._bump()
        self.book.enforce_subscription_rules(self.version)

    def restore(
        self,
        users: list[UserView],
        roles: list[RoleView],
        default_quota: Quota,
        admitted: Iterable[str],
        version: int,
    ) -> None:
        """Fill the empty tables from a snapshot of this metadata version."""
        self.admitted = dict.fromkeys(admitted)
        self.book.update(AccessView(True, users, roles, default_quota=default_quota), version)
        # Deletions before the snapshot are not known here.
        self.version = version
        self._user_changes = ChangeIndex(version)
        self._role_changes = ChangeIndex(version)
        for user in sorted(users, key=lambda each: each.version):
            self._user_changes.touch(user.name, user.version)
        for role in sorted(roles, key=lambda each: each.version):
            self._role_changes.touch(role.name, role.version)
            self._set_size(f"role:{role.name}", size_of(role))
        for user in users:
            self._note_user(user)
            self._judge(user.name)

    def adopt(self, book: AccessBook) -> None:
        """Go on with an older copy of the same tables, whose decisions and holders are kept.

        It never goes back, so a copy that is newer than the tables is left alone.
        """
        if book.version <= self.book.version:
            own = self.book
            book.update(self.view_since(-1, full=True), own.version)
            if own.subscriptions_at is not None:
                book.enforce_subscription_rules(own.version)
            self.book = book

    def _forget_keys(self, name: str) -> None:
        known = self.users.get(name)
        for key in known.keys if known is not None else ():
            if self.owners.get(key.public) == name:
                del self.owners[key.public]
        self._next_end_unknown = True

    def _note_user(self, user: UserView) -> None:
        self._set_size(f"user:{user.name}", size_of(user))
        for key in user.keys:
            self.owners[key.public] = user.name
        self._next_end_unknown = True

    def _set_size(self, holder: str, size: int) -> None:
        self.size_bytes += size - self._sizes.pop(holder, 0)
        if size:
            self._sizes[holder] = size

    def _judge(self, name: str) -> None:
        user = self.users.get(name)
        if user is not None and may_administer(user, self.roles):
            self.administrators[name] = None
        else:
            self.administrators.pop(name, None)

    # ── ends of keys ────────────────────────────────────────────────────────────────────────────

    def next_end_ms(self) -> int | None:
        """Return when the next key ends by the log's clock, or None."""
        if self._next_end_unknown:
            self._next_end_unknown = False
            self._next_end_ms = min(
                (
                    key.log_end_ms
                    for user in self.users.values()
                    for key in user.keys
                    if key.log_end_ms and not key.ended
                ),
                default=None,
            )
        return self._next_end_ms

    def users_with_ends(self, clock_ms: int) -> list[UserView]:
        """Return the users, in the order of their names, that have keys to end at this time."""
        next_ms = self.next_end_ms()
        if next_ms is None or next_ms > clock_ms:
            return []
        found = [
            user
            for user in self.users.values()
            if any(0 < key.log_end_ms <= clock_ms and not key.ended for key in user.keys)
        ]
        return sorted(found, key=lambda user: user.name)

    # ── views ───────────────────────────────────────────────────────────────────────────────────

    def view_since(self, version: int, *, full: bool) -> AccessView:
        """Build the view of all users and roles, or of those that changed after `version`."""
        if full:
            return AccessView(
                True,
                list(self.users.values()),
                list(self.roles.values()),
                default_quota=self.default_quota,
            )
        return AccessView(
            False,
            [self.users[name] for name in self._user_changes.changed_since(version)],
            [self.roles[name] for name in self._role_changes.changed_since(version)],
            self._user_changes.gone_since(version),
            self._role_changes.gone_since(version),
            self.default_quota,
        )


def size_of(record: UserView | RoleView) -> int:
    """Return the size of a user or role as it is encoded, in bytes."""
    return len(_size(record))


def may_administer(user: UserView, roles: Mapping[str, RoleView]) -> bool:
    """Return True if a user, not a node, has a key that has not ended and may `admin cluster`."""
    if user.disabled or is_node_user(user.name) or all(key.ended for key in user.keys):
        return False
    rules = [("", rule) for rule in user.rules if rule.kind == "cluster"]
    for name in user.roles:
        role = roles.get(name)
        rules += [("", rule) for rule in role.rules if rule.kind == "cluster"] if role else ()
    return decide(rules, "admin", "cluster", CLUSTER).allowed
