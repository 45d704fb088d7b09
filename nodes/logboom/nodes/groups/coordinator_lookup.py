"""Whether this broker may answer a member: its lease, its groups, the member's epoch."""

from __future__ import annotations

from logboom.nodes.cluster.lease import Lease
from logboom.nodes.groups import group_answers
from logboom.wire.errors import LogboomError
from logboom.wire.group_routes import GroupRoutes, KnownGroup
from logboom.wire.group_view import GroupView
from logboom.wire.routes import Routes


class CoordinatorLookup:
    """This broker among the coordinators, by its own copy of the metadata."""

    def __init__(self, me: str, routes: Routes, groups: GroupRoutes, lease: Lease) -> None:
        self.me = me
        self.routes = routes
        self.groups = groups
        self.lease = lease

    def known(self, group: str) -> KnownGroup | None:
        """A group, whoever coordinates it."""
        return self.groups.groups.get(group)

    def own(self, group: str) -> GroupView | None:
        """The head of a group that this broker coordinates."""
        known = self.known(group)
        return known.head if known is not None and known.head.coordinator == self.me else None

    def elsewhere(self, head: GroupView) -> LogboomError:
        """NOT_COORDINATOR: who coordinates this group."""
        return group_answers.not_coordinator(
            self.routes, head.name, head.coordinator, head.coordinator_epoch
        )

    def refusal(self, group: str, member: str, epoch: int, now: float) -> LogboomError | None:
        """Why this broker does not serve a member, or None: it is one, of an own group."""
        known = self.known(group)
        if known is not None and known.head.coordinator != self.me:
            # A hint, for which no lease is needed: who hands over says so to the last.
            return self.elsewhere(known.head)
        if not self.lease.holds(now):
            return group_answers.no_lease()
        ahead = self.is_ahead(group, epoch)
        if known is None:
            return group_answers.stale_metadata() if ahead else group_answers.unknown_group(group)
        view = known.members.get(member)
        if view is not None and view.epoch == epoch:
            return None
        if ahead:
            return group_answers.stale_metadata()
        if view is None:
            return group_answers.unknown_member(group, member)
        return group_answers.stale_epoch(group, member, view.epoch, epoch)

    def is_ahead(self, group: str, epoch: int) -> bool:
        """Whether a member epoch, which is a metadata version, is newer than all that is known
        here, so that nothing can be said of it."""
        known = self.known(group)
        mine = known is None or known.head.coordinator == self.me
        return mine and epoch > self.groups.version
