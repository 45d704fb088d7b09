"""Where a queue's leader is: the metadata, unless a broker has told of a newer epoch."""

from __future__ import annotations

from logboom.wire.errors import LogboomError, NotLeader, RetryableError, UnknownResource
from logboom.wire.routes import Routes


class LeaderCache:
    """Leaders by queue, with the hints that NOT_LEADER answers carried."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._hints: dict[tuple[str, int], tuple[int, str]] = {}

    def endpoint(self, topic: str, queue: int) -> str | None:
        """host:port of the leader, or None while nobody is known to lead.

        Raises:
            UnknownResource: there is no such topic or queue (any more).
        """
        found = self._routes.leader(topic, queue)
        hint = self._hints.get((topic, queue))
        if hint is not None:
            epoch = self._routes.queue(topic, queue).leader_epoch
            if hint[0] > epoch:
                return hint[1]
            del self._hints[topic, queue]
        return None if found is None else found[1]

    def learn(self, topic: str, queue: int, error: LogboomError | None) -> None:
        """Take the hint of a NOT_LEADER answer, if it has one."""
        if not isinstance(error, NotLeader):
            return
        epoch, endpoint = error.fields.get("epoch"), error.fields.get("endpoint")
        if not isinstance(epoch, int) or not isinstance(endpoint, str) or not endpoint:
            return
        known = self._hints.get((topic, queue))
        if known is None or known[0] < epoch:
            self._hints[topic, queue] = (epoch, endpoint)

    def worth_retrying(self, topic: str, error: LogboomError | None) -> bool:
        """Whether the same request may succeed later.

        A broker that has not heard yet of a new topic calls it unknown; while our metadata has
        the topic, that passes.
        """
        if isinstance(error, UnknownResource):
            return topic in self._routes.topics
        return isinstance(error, RetryableError)
