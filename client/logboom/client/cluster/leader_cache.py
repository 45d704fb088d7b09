"""The leaders of queues, from the metadata and newer hints, and the leader of the name servers."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from logboom.client.cluster.metadata_updater import no_leader
from logboom.wire.errors import LogboomError, NotLeader, RetryableError, TimedOut, UnknownResource
from logboom.wire.name_servers import NameServers
from logboom.wire.routes import Routes

Verdict: TypeAlias = Literal["end", "at once", "later"]
"""What to do with a request after an error: give it up, or send it again."""


class Role(Protocol):
    """A task that one node has at a time, such as the leadership of a queue."""

    def endpoint(self) -> str | None:
        """Return the node to ask, or None until the metadata names one.

        Raises:
            LogboomError: There is nobody to ask.
        """
        ...

    def refused(self, endpoint: str, error: LogboomError, failures: int) -> Verdict:
        """Learn from a node's error; `failures` counts the failures of this request."""
        ...

    def has_left(self, endpoint: str) -> bool:
        """True if a node is known not to have the role any longer.

        Raises:
            LogboomError: There is nobody to ask.
        """
        ...

    def timed_out(self, last: LogboomError | None) -> TimedOut:
        """Return the error for a request that ran out of time; `last` is its last error."""
        ...


class LeaderCache:
    """Leaders by queue, with the hints that NOT_LEADER answers carried."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._hints: dict[tuple[str, int], tuple[int, str]] = {}

    def endpoint(self, topic: str, queue: int) -> str | None:
        """Return host:port of the leader, or None while nobody is known to lead.

        Raises:
            UnknownResource: The topic or queue does not exist, or no longer.
        """
        found = self._routes.leader(topic, queue)
        hint = self._hints.get((topic, queue))
        if hint is not None:
            epoch = self._routes.queue(topic, queue).leader_epoch
            if hint[0] > epoch:
                return hint[1]
            del self._hints[topic, queue]
        return None if found is None else found[1]

    def check_topic(self, topic: str, meant: int) -> None:
        """Check that a topic was not deleted and created again since it had the id `meant`, unless
        that is 0. Ids only grow, so a smaller one means that our metadata is old.

        Raises:
            UnknownResource: The name belongs to a later topic now.
        """
        known = self._routes.topics.get(topic)
        if meant and known is not None and known.id > meant:
            raise UnknownResource(
                f"the topic {topic!r} that is meant no longer exists: it was deleted, with its "
                "messages, and created again",
                "UNKNOWN_TOPIC",
                topic=topic,
            )

    def learn(self, topic: str, queue: int, error: LogboomError | None) -> bool:
        """Learn from a failed request, and return True if the same request may succeed later.

        A broker that has not heard of a new topic yet calls it unknown. That passes while our
        metadata has the topic.
        """
        if isinstance(error, NotLeader):
            self._take_hint((topic, queue), error)
        if isinstance(error, UnknownResource):
            return topic in self._routes.topics
        return error is None or isinstance(error, RetryableError)

    def _take_hint(self, key: tuple[str, int], error: NotLeader) -> None:
        epoch, endpoint = error.fields.get("epoch"), error.fields.get("endpoint")
        # A broker has an endpoint for each of its listeners; the metadata has the one for us.
        known_leader = self._routes.brokers.get(str(error.fields.get("leader")))
        if known_leader is not None and endpoint:
            endpoint = known_leader.endpoint
        if not isinstance(epoch, int) or not isinstance(endpoint, str) or not endpoint:
            return
        known = self._hints.get(key)
        if known is None or known[0] < epoch:
            self._hints[key] = (epoch, endpoint)


class QueueLeader:
    """The leadership of one queue, as a `Role`."""

    def __init__(self, leaders: LeaderCache, topic: str, queue: int, topic_id: int = 0) -> None:
        self._topic_id = topic_id
        self._leaders = leaders
        self._topic = topic
        self._queue = queue

    def endpoint(self) -> str | None:
        """Return the leader's endpoint, if one is known.

        Raises:
            UnknownResource: The topic or queue does not exist, or the name is another topic's now.
        """
        self._leaders.check_topic(self._topic, self._topic_id)
        return self._leaders.endpoint(self._topic, self._queue)

    def refused(self, _endpoint: str, error: LogboomError, _failures: int) -> Verdict:
        """Learn who leads instead."""
        return "later" if self._leaders.learn(self._topic, self._queue, error) else "end"

    def has_left(self, endpoint: str) -> bool:
        """True if another broker is known to lead."""
        return self.endpoint() not in (None, endpoint)

    def timed_out(self, last: LogboomError | None) -> TimedOut:
        """Return the error for a request that ran out of time."""
        why = last if last is not None else no_leader(self._topic, self._queue)
        text = f"queue {self._queue} of topic {self._topic!r} did not answer in time: {why}"
        return TimedOut(text)


class RaftLeader:
    """The leadership of the name servers, as a `Role`."""

    def __init__(self, servers: NameServers) -> None:
        self._servers = servers

    def endpoint(self) -> str | None:
        """Return the endpoint to try, if a name server is known."""
        return self._servers.leader() or None

    def refused(self, endpoint: str, error: LogboomError, _failures: int) -> Verdict:
        """Learn who leads instead."""
        if not error.retryable:
            return "end"
        return "at once" if self._servers.refused(endpoint, error) else "later"

    def has_left(self, _endpoint: str) -> bool:
        """Always False: only the name servers themselves tell who leads."""
        return False

    def timed_out(self, last: LogboomError | None) -> TimedOut:
        """Return the error for a request that ran out of time."""
        why = "none is known" if last is None else last
        return TimedOut(f"no name server answered as their leader in time: {why}")
