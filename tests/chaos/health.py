"""Whether a cluster is whole: all nodes there, all replicas in sync, all that is stored read."""

from __future__ import annotations

from collections import Counter
from typing import Final

from logboom.deploy import Cluster
from logboom.deploy.node_client import NodeClient
from logboom.wire.messages import StatsResult
from logboom.wire.view import TopicView, View

ASK_S: Final = 1.0
"""What a node gets to answer; one that is as good as whole needs a few ms."""


def topic_of(view: View) -> TopicView:
    """The one topic of a view."""
    return view.topics[0]


class Health:
    """What the nodes of a cluster say of themselves and of its topics."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topics = [topic]
        self._epochs: dict[str, int] = {}
        """Broker → the instance epoch that it had when it was last seen."""
        self._past: dict[str, int] = {}
        """Broker → the instance epoch of a process of it that is gone: metadata that still speaks
        of that one says nothing of the next."""

    @property
    def brokers(self) -> list[str]:
        """The brokers' names."""
        return [name for name in self._cluster.nodes if name.startswith("broker-")]

    def also(self, topic: str) -> None:
        """From now on this topic must be in sync too."""
        self._topics.append(topic)

    def goes(self, name: str) -> None:
        """The process of a node is about to go, or has gone."""
        self._past[name] = self._epochs.get(name, -1)

    def missing(self) -> str:
        """What keeps the cluster from being whole; "" when nothing does."""
        nodes = self._cluster.nodes
        for name in nodes:
            if not self._cluster.running(name):
                return f"{name} does not run"
        ends = {name: self._cluster.endpoint(name) for name in nodes}
        with NodeClient() as asker:
            views = asker.views(list(ends.values()), ASK_S, self._topics)
        if silent := [name for name, end in ends.items() if end not in views]:
            return f"{silent[0]} does not answer"
        newest = max(views.values(), key=lambda view: view.version)
        servers = [name for name in nodes if name not in self.brokers]
        if late := [name for name in servers if views[ends[name]].version < newest.version]:
            return f"{late[0]} does not follow"
        if {server.id for server in newest.name_servers} != set(servers):
            return f"name servers are {[server.id for server in newest.name_servers]}"
        self._epochs = {broker.id: broker.instance_epoch for broker in newest.brokers}
        for broker in newest.brokers:
            if not broker.alive or broker.instance_epoch <= self._past.get(broker.id, -1):
                return f"{broker.id} is not back"
        if lacking := {*self._topics} - {topic.name for topic in newest.topics}:
            return f"topic {min(lacking)} is not known"
        for topic in newest.topics:
            for number, queue in enumerate(topic.queues):
                if queue.leader is None or len(queue.isr) < len(queue.replicas):
                    return f"{topic.name}/{number}: leader {queue.leader}, in sync {queue.isr}"
        return ""

    def counters(self) -> dict[str, Counter[str]]:
        """The counters of each node that answers, as far as they are whole numbers."""
        by_endpoint = {
            self._cluster.endpoint(name): name
            for name in self._cluster.nodes
            if self._cluster.running(name)
        }
        with NodeClient() as asker:
            answers: dict[str, StatsResult] = asker.stats(list(by_endpoint), 2.0)
        return {
            by_endpoint[endpoint]: Counter(
                {k: v for k, v in (answer.counters or {}).items() if isinstance(v, int)}
            )
            for endpoint, answer in answers.items()
        }


class ScrubPasses:
    """Waits until every broker has read all that it holds, from now on."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._last = dict.fromkeys(health.brokers, 0)
        """The number of passes that a broker had when it was asked last."""
        self._wanted = dict.fromkeys(health.brokers, 2)
        """Passes that are still to end. The one that runs now began before."""
        for name, counters in health.counters().items():
            if name in self._last:
                self._last[name] = counters["scrub_passes"]

    def done(self) -> bool:
        """Whether they have, and found everything good."""
        now = self._health.counters()
        for name, last in self._last.items():
            if name not in now:
                continue
            passes = now[name]["scrub_passes"]
            # One that has restarted counts from 0 again; what it reads since is from now on.
            self._wanted[name] -= passes - last if passes >= last else passes
            self._last[name] = passes
        return (
            max(self._wanted.values()) <= 0
            and all(name in now and now[name]["damaged"] == 0 for name in self._last)
            and not self._health.missing()
        )
