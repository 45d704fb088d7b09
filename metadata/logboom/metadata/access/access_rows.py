"""The row of users, roles and access rules in a snapshot."""

from __future__ import annotations

from msgspec import Struct

from logboom.metadata.tables.access_table import AccessTable
from logboom.wire.access.access_rules import Quota, RoleView, UserView


class AccessRow(Struct, frozen=True, array_like=True):
    """All users and roles, sorted by name, and the keys that were admitted once, sorted."""

    users: list[UserView] = []
    roles: list[RoleView] = []
    default_quota: Quota = Quota()
    admitted: list[str] = []


def access_row(table: AccessTable) -> AccessRow:
    """Encode all users and roles."""
    return AccessRow(
        [user for _, user in sorted(table.users.items())],
        [role for _, role in sorted(table.roles.items())],
        table.default_quota,
        sorted(table.admitted),
    )


def restore_access(table: AccessTable, row: AccessRow, version: int) -> None:
    """Restore the users and roles of a snapshot of this metadata version into the empty table."""
    table.restore(row.users, row.roles, row.default_quota, row.admitted, version)
