"""The metadata that clients and brokers follow by WATCH, pure."""

from __future__ import annotations

from logboom.wire.access.access_book import AccessBook
from logboom.wire.errors import UnknownResource
from logboom.wire.features import SUBSCRIPTION_RIGHTS
from logboom.wire.names import unknown_topic_text
from logboom.wire.transactions import DecisionView
from logboom.wire.view import BrokerView, NameServerView, QueueView, SettingView, TopicView, View


class Routes:
    """A copy of the cluster's metadata that never goes back (see docs/SAFETY.md, R14)."""

    def __init__(self) -> None:
        self.version = -1
        self.whole_at = -1
        """Version of the last full view; topics that existed only before it may be unknown here."""
        self.cluster_id = ""
        self.topics: dict[str, TopicView] = {}
        self.names: dict[int, str] = {}
        """Topic id → name."""
        self.newest_topic = 0
        """The greatest topic id ever seen; ids are assigned in growing order and never reused."""
        self.brokers: dict[str, BrokerView] = {}
        self.name_servers: list[NameServerView] = []
        self.raft_leader: str | None = None
        self.decisions: dict[int, DecisionView] = {}
        """Decisions on transactions that not all queues have reported, by growing number; empty
        unless the WATCH asks for them."""
        self.access = AccessBook()
        """Users and access rules; nothing is known unless the WATCH asks for them."""
        self.next_topic_id = 0
        """The id of the next topic; 0: not known."""
        self.lost_topic_ids: list[tuple[int, int]] = []
        """Ranges [first, end) of ids that may be those of topics that the name servers have lost."""
        self.recoveries = 0
        """How often a name server went on alone."""
        self.features = 0
        """The features level of the cluster, as nodes are told; it never falls."""
        self.settings: list[SettingView] = []
        """The replicated settings; another list once one of them changed."""

    def update(self, view: View) -> list[str]:
        """Apply a full view or a delta; return the names of topics that changed or disappeared.

        A view older than the copy is ignored.
        """
        if view.raft_leader is not None:
            self.raft_leader = view.raft_leader
        if view.version < self.version or (view.version == self.version and not view.full):
            return []
        changed: list[str] = []
        if view.full:
            self.whole_at = view.version
            kept = {topic.name for topic in view.topics}
            changed += self._drop([name for name in self.topics if name not in kept])
            self.brokers.clear()
            self.decisions.clear()
        else:
            changed += self._drop(view.deleted)
            for broker_id in view.deleted_brokers:
                self.brokers.pop(broker_id, None)
            for number in view.ended_decisions:
                self.decisions.pop(number, None)
        for topic in view.topics:
            known = self.topics.get(topic.name)
            if known is not None and known.id != topic.id:
                self.names.pop(known.id, None)
            self.topics[topic.name] = topic
            self.names[topic.id] = topic.name
            self.newest_topic = max(self.newest_topic, topic.id)
            changed.append(topic.name)
        for broker in view.brokers:
            self.brokers[broker.id] = broker
        for decision in view.decisions:
            self.decisions[decision.number] = decision
        if view.name_servers:
            self.name_servers = view.name_servers
        if view.access is not None:
            self.access.update(view.access, view.version)
        if view.settings is not None:
            self.settings = view.settings
        self.next_topic_id = max(self.next_topic_id, view.next_topic_id)
        self.lost_topic_ids = view.lost_topic_ids
        self.recoveries = view.recoveries
        self.features = max(self.features, view.features)
        if self.features >= SUBSCRIPTION_RIGHTS:
            self.access.enforce_subscription_rules(view.version)
        self.cluster_id = view.cluster_id
        self.version = view.version
        return changed

    def known_queue(self, topic: str, number: int) -> QueueView | None:
        """Return a queue of a topic, or None if it is not known."""
        known = self.topics.get(topic)
        return known.queues[number] if known is not None and number < len(known.queues) else None

    def _drop(self, names: list[str]) -> list[str]:
        for name in names:
            topic = self.topics.pop(name, None)
            if topic is not None:
                self.names.pop(topic.id, None)
        return names

    def was_deleted(self, topic_id: int) -> bool:
        """Return True if a topic of this id was deleted, and not only if none is known (R15).

        Ids are given in growing order. So of one below the next that no topic has, a deletion is in
        the log, unless the name servers have lost what they knew of it.
        """
        if topic_id in self.names or topic_id >= self.next_topic_id:
            return False
        return not any(first <= topic_id < end for first, end in self.lost_topic_ids)

    def topic(self, name: str) -> TopicView:
        """Return the topic of this name.

        Raises:
            UnknownResource: UNKNOWN_TOPIC.
        """
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownResource(unknown_topic_text(name), "UNKNOWN_TOPIC", topic=name)
        return topic

    def queue(self, name: str, queue: int) -> QueueView:
        """Return one queue of a topic.

        Raises:
            UnknownResource: UNKNOWN_TOPIC or UNKNOWN_QUEUE.
        """
        topic = self.topic(name)
        if not 0 <= queue < len(topic.queues):
            raise UnknownResource(
                f"topic {name!r} has queues 0 to {len(topic.queues) - 1}, not {queue}",
                "UNKNOWN_QUEUE",
                topic=name,
                queue=queue,
            )
        return topic.queues[queue]

    def leader(self, name: str, queue: int) -> tuple[str, str, int] | None:
        """Return (broker id, endpoint, leader epoch) of a queue's leader, or None without one."""
        view = self.queue(name, queue)
        if view.leader is None:
            return None
        broker = self.brokers.get(view.leader)
        if broker is None:
            return None
        return broker.id, broker.endpoint, view.leader_epoch

    def node_endpoints(self) -> list[str]:
        """Return the endpoints of all live brokers and name servers, to ask for metadata."""
        live = [b.endpoint for b in self.brokers.values() if b.alive]
        return live + [n.endpoint for n in self.name_servers]
