"""Consumer groups as followed by WATCH, pure: the copy of coordinators and clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from logboom.wire.group_view import GroupView, MemberView
from logboom.wire.view import View


@dataclass(slots=True)
class KnownGroup:
    """A group: its head, and the members that are known."""

    head: GroupView
    """The newest head; its own `members`, `gone` and `full` are of that answer only."""
    members: dict[str, MemberView] = field(default_factory=dict)
    """Members by id. Their offsets are those at the last change of the member."""


class GroupRoutes:
    """A copy of the groups that never goes back (see docs/SAFETY.md, R14).

    `members_at` is the broker that the WATCH names, if any. Of groups that others coordinate no
    members are known, and those known from before are dropped.
    """

    def __init__(self, members_at: str = "") -> None:
        self.version = -1
        self.groups: dict[str, KnownGroup] = {}
        self.members_at = members_at

    def update(self, view: View) -> list[str]:
        """Apply a full view or a delta; return the names of groups that changed or disappeared.

        A view older than the copy is ignored.
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
