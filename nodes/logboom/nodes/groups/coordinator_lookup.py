"""Lookup of a group's coordinator, and checks whether this broker may answer a member."""

from __future__ import annotations

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.groups import group_answers
from logboom.wire.errors import LogboomError
from logboom.wire.group_routes import KnownGroup
from logboom.wire.group_view import GroupView


class CoordinatorLookup:
    """The groups as seen by this broker: its lease, and its own copy of the metadata."""

    def __init__(self, context: BrokerContext) -> None:
        self.me = context.me
        self.routes = context.routes
        self.groups = context.groups
        self.lease = context.lease

    def known(self, group: str) -> KnownGroup | None:
        """Return a group, whoever coordinates it."""
        return self.groups.groups.get(group)

    def own(self, group: str) -> GroupView | None:
        """Return the head of a group that this broker coordinates."""
        known = self.known(group)
        return known.head if known is not None and known.head.coordinator == self.me else None

    def elsewhere(self, head: GroupView) -> LogboomError:
        """NOT_COORDINATOR, with the coordinator of this group."""
        return group_answers.not_coordinator(
            self.routes, head.name, head.coordinator, head.coordinator_epoch
        )

    def refusal(self, group: str, member: str, epoch: int, now: float) -> LogboomError | None:
        """Return the error for a member that this broker does not serve, or None."""
        known = self.known(group)
        if known is not None and known.head.coordinator != self.me:
            # This is a hint and needs no lease, so a broker that hands over its groups gives it to
            # the end.
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
        """True if a member epoch (a metadata version) is newer than everything known here."""
        known = self.known(group)
        mine = known is None or known.head.coordinator == self.me
        return mine and epoch > self.groups.version
