"""Looking at simulated groups from outside: what name servers have decided, and who reads what."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from logboom.metadata.state.cluster import Cluster
from logboom.wire.actor import Address
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import decode
from logboom.wire.group_commands import ExpireMembers
from logboom.wire.messages import Propose
from tests.sim.group_ledger import GroupLedger
from tests.sim.group_member import GroupMember
from tests.sim.history import Queue
from tests.sim.network import Frames, Host, Watcher
from tests.sim.trace import BrokenProperty
from tests.sim.world import World

LOOK_S: Final = 0.15


class GroupWatch:
    """Holds the groups of a world against their ledger, again and again."""

    def __init__(self, world: World, ledger: GroupLedger, cores: Mapping[str, GroupMember]) -> None:
        """`cores`: machine → the process of a member that it has now."""
        self._world = world
        self._ledger = ledger
        self._cores = cores
        self._looked = 0
        self._moved: set[tuple[str | int, ...]] = set()
        """Epochs of coordinators and owners that were counted."""
        world.network.on_arrival = partial(self._overhear, world.network.on_arrival)

    def _overhear(self, arrived: Watcher, host: Host, peer: Address, frames: Frames) -> None:
        """Whose expiry a coordinator asks for: what those finished may come again."""
        if b"expiremembers" in frames[0]:
            try:
                message = decode(frames)
            except InvalidRequest:
                message = None
            if isinstance(message, Propose) and isinstance(message.command, ExpireMembers):
                for member, _ in message.command.members:
                    self._world.trace.count("members expired", self._ledger.lost(member, "expired"))
        arrived(host, peer, frames)

    def begin(self) -> None:
        """Look, again and again."""
        self._world.scheduler.after(LOOK_S, self.begin)
        cores = [
            core
            for machine in self._world.nodes("name-server")
            if (core := self._world.name_server(machine.name)) is not None
        ]
        newest = max(cores, key=lambda core: core.raft.applied_index, default=None)
        # Whoever knew more may be down.
        if newest is None or newest.raft.applied_index < self._looked:
            return
        self._looked = newest.raft.applied_index
        self._count_moves(newest.cluster)
        self._ledger.look(newest.cluster)
        self._look_at_owners(newest.cluster)

    def _count_moves(self, cluster: Cluster) -> None:
        for group in cluster.groups.by_name.values():
            known = (group.name, group.coordinator_epoch)
            if group.coordinator_epoch > 1 and known not in self._moved:
                self._world.trace.count("coordinators moved")
            self._moved.add(known)
            for topic in group.topics.values():
                for number, epoch in enumerate(topic.owner_epochs):
                    moved = (group.name, topic.id, number, epoch)
                    if epoch and moved not in self._moved:
                        self._world.trace.count("queues moved")
                    self._moved.add(moved)

    def _look_at_owners(self, cluster: Cluster) -> None:
        """Nobody reads a queue that is another's, unless it was fenced and cannot know (G1)."""
        for name, core in self._cores.items():
            group = cluster.groups.by_name.get(core.of.group)
            if group is None or self._world.machines[name].process is None:
                continue
            member = group.members.get(core.id)
            if member is None or member.epoch != core.member.epoch:
                continue
            for key, holding in core.member.holdings.items():
                topic = group.topics.get(key[0])
                if topic is None or holding.releasing or holding.state == "lost":
                    continue
                if self._ledger.resetting(core.of.group, Queue(holding.topic, holding.queue)):
                    # What its owner has in its hands is to be done again anyway.
                    continue
                owner = topic.owners[key[1]]
                given_on = topic.owner_epochs[key[1]] > holding.owner_epoch
                if owner is not None and owner is not member and given_on:
                    where = f"{core.of.group} {holding.topic}/{holding.queue}"
                    detail = f"{where}: {core.id} and {owner.id}"
                    raise BrokenProperty("one owner at a time", detail)
