"""All group members of one client."""

from __future__ import annotations

from logboom.client.calls import CallHandlers
from logboom.client.cluster.coordinator_client import CoordinatorClient
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.cluster.request_router import RequestRouter
from logboom.client.core_context import CoreTurn
from logboom.client.fetch.fetcher import Fetcher
from logboom.client.groups.broadcast_member import BroadcastMember
from logboom.client.groups.member import CloseMember, CommitMember, OpenMember, WakeMember
from logboom.client.groups.membership import GroupLookup, Membership
from logboom.client.groups.reconciler import Reconciler
from logboom.wire.errors import ClientClosed


class GroupMembers:
    """The core's side of all members."""

    def __init__(
        self,
        asking: RequestRouter,
        watching: MetadataUpdater,
        fetching: Fetcher,
        turn: CoreTurn,
    ) -> None:
        self._asking = asking
        self._watching = watching
        self._fetching = fetching
        self._turn = turn
        self._members: dict[int, Membership | BroadcastMember] = {}
        watching.listen(self._rerouted)

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of a member's calls."""
        handlers.register(OpenMember, self._open)
        handlers.register(CommitMember, self._commit)
        handlers.register(WakeMember, self._wake)
        handlers.register(CloseMember, self._close)

    def _commit(self, call: CommitMember) -> None:
        membership = self._members.get(id(call.member))
        if membership is None:
            call.fail(ClientClosed("this consumer is closed: make another"))
        else:
            membership.commit(call)

    def _wake(self, call: WakeMember) -> None:
        membership = self._members.get(id(call.member))
        if membership is not None:
            membership.wake()

    def _close(self, call: CloseMember) -> None:
        membership = self._members.get(id(call.member))
        if membership is None:
            call.outcome.resolve(None)
        else:
            call.outcome.add_callback(lambda: self._members.pop(id(call.member), None))
            membership.close(call)

    def _open(self, call: OpenMember) -> None:
        member, turn = call.member, self._turn
        if member.store is not None:
            alone = BroadcastMember(member, member.store, self._fetching, self._watching, turn)
            self._members[id(member)] = alone
            alone.open(call)
            return
        coordinator = CoordinatorClient(
            member.options.group, self._asking, self._watching, turn.rng
        )
        reconciler = Reconciler(member, self._fetching, self._watching, turn)
        lookup = GroupLookup(self._asking)
        membership = Membership(member, coordinator, reconciler, lookup, turn)
        self._members[id(member)] = membership
        membership.open(call)

    def _rerouted(self) -> None:
        # A copy, because members may end during the loop.
        for membership in list(self._members.values()):
            membership.rerouted()
