"""Consumer groups as followed by WATCH, pure: what coordinators and clients know of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from logboom.wire.group_view import GroupView, MemberView
from logboom.wire.view import View


@dataclass(slots=True)
class KnownGroup:
    """One group: its head, and the members that were told of."""

    head: GroupView
    """As last told; its own `members`, `gone` and `full` are of that answer only."""
    members: dict[str, MemberView] = field(default_factory=dict)
    """By id. Offsets in them are those of when the member last changed."""


class GroupRoutes:
    """A copy of the groups that only ever goes forward (R14).

    `members_at`: the broker that the WATCH names, if it names one: of groups that others
    coordinate no members are known, and those known from before are dropped.
    """

    def __init__(self, members_at: str = "") -> None:
        self.version = -1
        self.groups: dict[str, KnownGroup] = {}
        self.members_at = members_at

    def update(self, view: View) -> list[str]:
        """Take a whole or a delta; returns the names of groups that changed or went.

        A view older than what is held is ignored.
        """
        if view.version < self.version or (view.version == self.version and not view.full):
            return []
        self.version = view.version
        gone = view.deleted_groups
        if view.full:
            named = {group.name for group in view.groups}
            gone = [name for name in self.groups if name not in named]
        gone = [name for name in gone if self.groups.pop(name, None) is not None]
        for group in view.groups:
            self._take(group)
        return gone + [group.name for group in view.groups]

    def _take(self, group: GroupView) -> None:
        known = self.groups.get(group.name)
        told = not self.members_at or group.coordinator == self.members_at
        members = known.members if known is not None and told and not group.full else {}
        for name in group.gone:
            members.pop(name, None)
        members.update((member.id, member) for member in group.members)
        self.groups[group.name] = KnownGroup(group, members)
