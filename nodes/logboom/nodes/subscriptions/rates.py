"""How fast the subscriptions of a queue may be served in all, as its topic says."""

from __future__ import annotations

from logboom.nodes.log.replica import QueueKey, Replica
from logboom.nodes.subscriptions.permits import DispatchRate
from logboom.wire.routes import Routes


class TopicRates:
    """One rate for each queue, shared by its subscriptions."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._rates: dict[QueueKey, DispatchRate] = {}

    def of(self, replica: Replica) -> DispatchRate:
        """A queue's rate, as its topic has it now."""
        rate = self._rates.setdefault(replica.key, DispatchRate())
        self._adopt(replica, rate)
        return rate

    def changed(self, replica: Replica) -> bool:
        """Whether the topic has another rate by now; that is taken over."""
        rate = self._rates.get(replica.key)
        return rate is not None and self._adopt(replica, rate)

    def forget(self, key: QueueKey) -> None:
        """No subscription of a queue is served any more."""
        self._rates.pop(key, None)

    def _adopt(self, replica: Replica, rate: DispatchRate) -> bool:
        topic = self._routes.topics.get(replica.topic)
        if topic is None:
            return False
        config = topic.config
        wanted = config.dispatch_messages_per_s, config.dispatch_bytes_per_s
        if wanted == (rate.messages_per_s, rate.bytes_per_s):
            return False
        rate.change(*wanted)
        return True
