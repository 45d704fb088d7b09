"""The roles of this broker's replicas, derived from the metadata: leader, follower, or none.

The broker acts as a leader only while it is registered, by metadata that is at least as new as its
registration, and only in a newer epoch than any before. Otherwise it could act on leaderships of an
earlier process (Q2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.requests.pull_handler import PullHandler
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.view import QueueView, TopicView


class ReplicaRoles(Service):
    """Gives each replica its role."""

    def __init__(
        self,
        context: BrokerContext,
        produce_handler: ProduceHandler,
        pull_handler: PullHandler,
        replicate_handler: ReplicateHandler,
        fetchers: ReplicaFetchers,
        repair: ReplicaRepair,
    ) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._registration = context.registration
        self._stats = context.stats
        self._produce_handler = produce_handler
        self._pull_handler = pull_handler
        self._replicate_handler = replicate_handler
        self._fetchers = fetchers
        self._repair = repair
        self._swept = False
        self.closed = False
        """The node is about to end and leads nothing any longer."""

    @property
    def _may_follow(self) -> bool:
        """True if the metadata is at least as new as this process.

        Older metadata may still show the roles of an earlier process of this broker. If the broker
        followed an old leader by it, that leader would count its position and acknowledge messages
        that the new leader never had.
        """
        registration = self._registration
        return registration.registered and self._routes.version >= registration.version

    @property
    def _may_lead(self) -> bool:
        """True if the metadata contains the registration of this process (Q2)."""
        if not self._may_follow or self.closed:
            return False
        registration, routes = self._registration, self._routes
        known = routes.brokers.get(self._me)
        return known is not None and known.instance_epoch == registration.instance_epoch

    def resign(self, turn: BrokerTurn) -> None:
        """Lead nothing any longer, since the instance epoch is over."""
        self._swept = False
        for replica in list(self._queues.led.values()):
            self._none(replica, turn)

    def fenced(self, turn: BrokerTurn) -> None:
        """Lead nothing any longer."""
        self.resign(turn)

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Give the queues of changed topics their roles."""
        self.apply(topics, turn)

    def figures(self, now: float) -> Figures:
        """Return how many replicas there are here, and how many of them lead."""
        led = self._queues.led.values()
        return {
            "replicas": len(self._queues.replicas),
            "leading": len(led),
            "under_replicated": sum(
                len(r.leading.isr) < len(r.leading.replicas) for r in led if r.leading is not None
            ),
        }

    def apply_all(self, turn: BrokerTurn) -> None:
        """Give every queue its role again."""
        self.apply(list(self._routes.topics), turn)

    def apply(self, names: Iterable[str], turn: BrokerTurn) -> None:
        """Give the queues of changed or removed topics their roles."""
        if not self._swept and self._may_lead:
            self._swept = True
            self._sweep(turn)
            names = [*names, *self._routes.topics]
        for name in dict.fromkeys(names):
            topic = self._routes.topics.get(name)
            if topic is not None:
                self._apply_topic(topic, turn)
                continue
            for replica in self._queues.held(name):
                self._drop(replica, turn)

    def _sweep(self, turn: BrokerTurn) -> None:
        """Remove the queues that the metadata does not contain: they were deleted in the meantime.

        This is done once per registration.
        """
        for replica in self._queues:
            if replica.topic_id not in self._routes.names:
                self._drop(replica, turn)

    def _apply_topic(self, topic: TopicView, turn: BrokerTurn) -> None:
        for older in self._queues.held(topic.name):
            if older.topic_id != topic.id:
                # The topic was deleted and created again under the same name, possibly with fewer
                # queues.
                self._drop(older, turn)
        for number, view in enumerate(topic.queues):
            replica = self._queues.replicas.get((topic.id, number))
            if self._me in view.replicas:
                if replica is None:
                    replica = self._queues.create(topic.id, number, topic.name)
                    self._queues.touch(replica)
                elif replica.topic != topic.name:
                    self._queues.name(replica, topic.name)
                self._apply_queue(replica, topic, view, turn)
            elif replica is not None:
                self._drop(replica, turn)

    def _apply_queue(
        self, replica: Replica, topic: TopicView, view: QueueView, turn: BrokerTurn
    ) -> None:
        if view.leader_epoch < replica.leader_epoch:
            return
        if view.leader == self._me:
            if self._may_lead:
                self._lead(replica, topic, view, turn)
            elif replica.leading is not None:
                self._none(replica, turn)
            return
        if not self._may_follow:
            self._none(replica, turn)
            return
        leader = self._routes.brokers.get(view.leader) if view.leader is not None else None
        if leader is None:
            replica.leader_epoch = view.leader_epoch
            self._none(replica, turn)
        elif (
            replica.role != "follower"
            or replica.leader != leader.id
            or replica.leader_epoch != view.leader_epoch
        ):
            self._follow(replica, leader.id, leader.endpoint, view.leader_epoch, turn)

    def _lead(self, replica: Replica, topic: TopicView, view: QueueView, turn: BrokerTurn) -> None:
        leading = replica.leading
        if leading is None or leading.epoch != view.leader_epoch:
            self._fetchers.unfollow(replica)
            if leading is not None:
                self._produce_handler.lost(replica, leading, turn)
            leading = Leadership(self._me, view.leader_epoch, replica.end, turn.mono)
            replica.role, replica.leader, replica.leading = "leader", self._me, leading
            replica.leader_epoch = view.leader_epoch
            # After an unclean election the windows may contain more than the log.
            replica.windows.cut(replica.end)
            replica.parked.rewind()
            self._queues.led[replica.key] = replica
            self._stats.count("leaderships")
            leading.take_view(view, topic.config, self._routes.version, turn.mono)
            self._replicate_handler.role_changed(replica, turn)
            self._pull_handler.role_changed(replica, turn)
        else:
            leading.take_view(view, topic.config, self._routes.version, turn.mono)
        self._queues.recount(replica)

    def _follow(
        self, replica: Replica, leader: str, endpoint: str, epoch: int, turn: BrokerTurn
    ) -> None:
        self._end_leading(replica, turn)
        replica.role, replica.leader = "follower", leader
        replica.leader_epoch = epoch
        replica.leader_hw = None
        if self._repair.may_follow(replica):
            self._fetchers.follow(replica, leader, endpoint)
        else:
            self._fetchers.unfollow(replica)
        self._pull_handler.role_changed(replica, turn)

    def refetch(self, replica: Replica) -> None:
        """Let a damaged replica follow again, after it was truncated."""
        leader = self._routes.brokers.get(replica.leader) if replica.leader is not None else None
        if replica.role == "follower" and leader is not None:
            self._fetchers.follow(replica, leader.id, leader.endpoint)

    def _none(self, replica: Replica, turn: BrokerTurn) -> None:
        self._fetchers.unfollow(replica)
        self._end_leading(replica, turn)
        if replica.role != "none":
            replica.role, replica.leader = "none", None
            self._pull_handler.role_changed(replica, turn)

    def _end_leading(self, replica: Replica, turn: BrokerTurn) -> None:
        leading = replica.leading
        if leading is None:
            return
        replica.leading = None
        replica.role, replica.leader = "none", None
        self._queues.led.pop(replica.key, None)
        self._produce_handler.lost(replica, leading, turn)
        self._replicate_handler.role_changed(replica, turn)
        self._pull_handler.role_changed(replica, turn)

    def _drop(self, replica: Replica, turn: BrokerTurn) -> None:
        self._none(replica, turn)
        self._repair.forget(replica)
        self._queues.drop(replica, turn)
        self._pull_handler.role_changed(replica, turn)
        self._stats.count("dropped_replicas")
