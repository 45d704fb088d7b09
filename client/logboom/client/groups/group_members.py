"""All members of groups that one client has."""

from __future__ import annotations

import random

from logboom.client.calls import CloseMember, CommitMember, OpenMember, WakeMember
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.coordinator_client import CoordinatorClient
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.core_context import CoreTurn
from logboom.client.fetch.fetcher import Fetcher
from logboom.client.groups.broadcast_member import BroadcastMember
from logboom.client.groups.membership import GroupLookup, Membership
from logboom.client.groups.reconciler import Reconciler
from logboom.wire.errors import ClientClosed


class GroupMembers:
    """The core's side of all members."""

    def __init__(
        self,
        connections: Connections,
        watching: MetadataUpdater,
        fetching: Fetcher,
        turn: CoreTurn,
        rng: random.Random,
    ) -> None:
        self._connections = connections
        self._watching = watching
        self._fetching = fetching
        self._turn = turn
        self._rng = rng
        self._members: dict[int, Membership | BroadcastMember] = {}
        watching.listen(self._rerouted)

    def call(self, call: OpenMember | CommitMember | WakeMember | CloseMember) -> None:
        """Do what the API asks."""
        if isinstance(call, OpenMember):
            self._open(call)
            return
        membership = self._members.get(id(call.member))
        if membership is None:
            if isinstance(call, CommitMember):
                call.outcome.fail(ClientClosed("this consumer is closed: make another"))
            elif isinstance(call, CloseMember):
                call.outcome.resolve(None)
        elif isinstance(call, CommitMember):
            membership.commit(call)
        elif isinstance(call, WakeMember):
            membership.wake()
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
            member.options.group, self._connections, self._watching, turn, self._rng
        )
        custody = Reconciler(member, self._fetching, self._watching, turn)
        look = GroupLookup(self._connections, self._watching)
        membership = Membership(member, coordinator, custody, look, turn, self._rng)
        self._members[id(member)] = membership
        membership.open(call)

    def _rerouted(self) -> None:
        # What ends by it goes from among them.
        for membership in list(self._members.values()):
            membership.rerouted()
