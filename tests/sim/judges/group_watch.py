"""Looking at simulated groups from outside: what name servers have decided, and who reads what."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.metadata.tables.cluster_state import ClusterState
from logboom.wire.actor import Address
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import decode
from logboom.wire.group_commands import ExpireMembers, JoinGroup
from logboom.wire.messages import Propose
from logboom.wire.names import RETRY_PREFIX
from tests.sim.judges.group_ledger import GroupLedger
from tests.sim.judges.history import Queue
from tests.sim.world.network import Frames, Host, Watcher
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

if TYPE_CHECKING:
    from tests.sim.cast.group_member import GroupMember

LOOK_S: Final = 0.15
EVEN: Final = ("sticky", "averagely", "averagely_by_circle")
"""Strategies that give each member as many queues of a topic as any other, or one more."""


class GroupWatch:
    """Holds the groups of a world against their ledger, again and again."""

    def __init__(self, world: World, ledger: GroupLedger, cores: Mapping[str, GroupMember]) -> None:
        """`cores`: machine → the process of a member that it has now."""
        self._world = world
        self._ledger = ledger
        self._cores = cores
        self.looked = 0
        """Index that the state must be beyond that is looked at next."""
        self._moved: set[tuple[str | int, ...]] = set()
        """Epochs of coordinators and owners that were counted."""
        world.network.on_arrival = partial(self._overhear, world.network.on_arrival)

    def _overhear(self, arrived: Watcher, host: Host, peer: Address, frames: Frames) -> None:
        """Whose expiry a coordinator asks for, or whose name another process takes (perhaps one
        that began before it, and was held up): what those finished may come again."""
        if b"expiremembers" in frames[0] or b"joingroup" in frames[0]:
            try:
                message = decode(frames)
            except InvalidRequest:
                message = None
            command = message.command if isinstance(message, Propose) else None
            if isinstance(command, ExpireMembers):
                for member, _ in command.members:
                    self._world.trace.count("members expired", self._ledger.lost(member, "expired"))
            elif isinstance(command, JoinGroup) and command.instance:
                for core in self._cores.values():
                    named = (core.of.group, core.of.instance) == (command.group, command.instance)
                    if named and core.id != command.member and core.joined and not core.leaving:
                        self._ledger.lost(core.id, "replaced")
        arrived(host, peer, frames)

    def recovered(self) -> None:
        """A survivor goes on alone, whose log is shorter than what was looked at."""
        self.looked = 0

    def begin(self) -> None:
        """Look, again and again."""
        self._world.scheduler.after(LOOK_S, self.begin)
        newest = self._world.newest_name_server()
        # Whoever knew more may be down.
        if newest is None or newest.raft.applied_index < self.looked:
            return
        self.looked = newest.raft.applied_index
        self._count_moves(newest.cluster)
        self._look_at_names(newest.cluster)
        self._ledger.look(newest.cluster)
        self._look_at_owners(newest.cluster)
        self._look_at_targets(newest.cluster)

    def _look_at_names(self, cluster: ClusterState) -> None:
        """Whose name another process has, though it has not ended: it may be out before it knows."""
        for core in self._cores.values():
            group = cluster.groups.by_name.get(core.of.group)
            for member in () if group is None or not core.of.instance else group.members.values():
                named = member.instance == core.of.instance and member.id != core.id
                if named and core.joined:
                    self._ledger.lost(core.id, "replaced")

    def _count_moves(self, cluster: ClusterState) -> None:
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

    def _look_at_owners(self, cluster: ClusterState) -> None:
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
                if holding.owner_epoch < self._ledger.since:
                    # That it got the queue was lost, which it cannot know yet.
                    continue
                owner = topic.owners[key[1]]
                given_on = topic.owner_epochs[key[1]] > holding.owner_epoch
                if owner is not None and owner is not member and given_on:
                    where = f"{core.of.group} {holding.topic}/{holding.queue}"
                    detail = f"{where}: {core.id} and {owner.id}"
                    raise BrokenProperty("one owner at a time", detail)

    def _look_at_targets(self, cluster: ClusterState) -> None:
        """Every queue is somebody's once it is allocated, or it is said why not; a topic's queues
        are spread evenly, whatever else its group reads."""
        for group in cluster.groups.by_name.values():
            if group.target_epoch != group.group_epoch or not group.members:
                continue
            if group in cluster.groups.pending:
                continue
            strategy = group.config.strategy
            for topic in group.topics.values():
                if not topic.subscribed:
                    continue
                name = cluster.topics_by_id[topic.id].name
                left = topic.targets.count(None)
                if left and (name == RETRY_PREFIX + group.name or not group.fault):
                    detail = f"{left} of {group.name} in {name}, strategy {strategy}"
                    raise BrokenProperty("every queue has a member or a reason", detail)
                self._world.trace.count("queues that nobody gets", left)
                sizes = [topic.targets.count(member) for member in group.members.values()]
                if strategy in EVEN and max(sizes) - min(sizes) > 1:
                    detail = f"{group.name} in {name}, strategy {strategy}: {sizes}"
                    raise BrokenProperty("each topic's queues are spread evenly", detail)
