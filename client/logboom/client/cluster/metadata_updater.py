"""The client's copy of the metadata, kept up to date by one WATCH after another to one live node.

A held WATCH is answered within `WAIT`; a node that is silent for longer is replaced by another. The
copy covers the topics that were asked for. If a node does not know a topic, or knows too few queues
of it, the client commits a barrier to the name servers' log and asks again before it reports the
topic as unknown.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from logboom.client.cluster.connections import Connections
from logboom.client.core_context import CoreTurn, Timer
from logboom.wire.backoff import backoff
from logboom.wire.errors import (
    InvalidRequest,
    LogboomError,
    Refused,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnknownResource,
)
from logboom.wire.messages import Watch, WatchResult
from logboom.wire.names import topic_name_fault, unknown_topic_text
from logboom.wire.routes import Routes
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.view import TopicView

LOG = logging.getLogger("logboom.client")

WAIT: Final = 1.0
"""Seconds that a node holds a WATCH."""
PATIENCE: Final = 1.5
"""Seconds after which an unanswered WATCH is sent to another node."""

OnTopic: TypeAlias = Callable[[TopicView | LogboomError], None]


class BarrierSource(Protocol):
    """A source of barriers, whose commit yields a metadata version."""

    def barrier(self, done: Callable[[int | LogboomError], None], timeout: float) -> None:
        """Commit a barrier; `done` gets its version, or the reason why there is none."""
        ...


class _TopicWaiter:
    """A caller that waits for a topic."""

    __slots__ = ("done", "expiry", "least_version", "probing", "queues", "topic")

    def __init__(self, topic: str, queues: int, done: OnTopic) -> None:
        self.topic = topic
        self.queues = queues
        """The number of queues that the caller expects."""
        self.done = done
        self.expiry: Timer | None = None
        self.least_version = -1
        """The metadata version from which on a view that lacks the topic, or its queues, is
        conclusive. -1 if it is not known yet."""
        self.probing = False


class MetadataUpdater:
    """The copy of the metadata of all topics in use."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        connections: Connections,
        turn: CoreTurn,
        rng: random.Random,
        barriers: BarrierSource,
    ) -> None:
        self.routes = Routes()
        self.refusal: LogboomError | None = None
        """The last definite refusal by a node, until one accepts this client."""
        self._refused: set[str] = set()
        """Endpoints that have refused this client since one last accepted it."""
        self._silent: set[str] = set()
        """Endpoints that did not answer since then."""
        self._bootstrap = list(bootstrap)
        self._connections = connections
        self._turn = turn
        self._rng = rng
        self._barriers = barriers
        self._interest: set[str] = set()
        self._covered: set[str] = set()
        self._waiters: list[_TopicWaiter] = []
        self._listeners: list[Callable[[], None]] = []
        self._endpoint = ""
        self._ticket: RequestHandle | None = None
        self._generation = 0
        self._failures = 0
        self._warned = False

    @property
    def ready(self) -> bool:
        """True if any metadata has been loaded."""
        return self.routes.version >= 0

    @property
    def turned_away(self) -> bool:
        """True if every node that could be asked has refused this client for good.

        A key that one node refuses is not accepted by those that are silent, either.
        """
        refused = self._refused
        if isinstance(self.refusal, Unauthenticated):
            refused = refused | self._silent
        return refused.issuperset(self.nodes())

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each answer with news, and when all nodes have refused."""
        self._listeners.append(changed)

    def start(self) -> None:
        """Start to follow the metadata."""
        if self._ticket is None:
            self._ask()

    def want(self, topic: str, done: OnTopic, timeout: float, queues: int = 0) -> None:
        """Load a topic and follow it from now on; `done` gets it, or an error.

        It has at least `queues` queues, unless the name servers' log knows of fewer, too.
        """
        if not isinstance(topic, str):
            done(InvalidRequest(f"a topic's name must be text, not {type(topic).__name__}"))
            return
        if topic_name_fault(topic) is not None:
            # No node would answer for the topics that are followed if they were asked for this one.
            done(unknown_topic(topic))
            return
        known = self.routes.topics.get(topic)
        covered = known is not None and topic in self._covered
        if known is not None and covered and len(known.queues) >= queues:
            done(known)
            return
        waiter = _TopicWaiter(topic, queues, done)
        self._waiters.append(waiter)
        waiter.expiry = self._turn.after(timeout, lambda: self._expire(waiter))
        if covered:
            self._missing(waiter)
            return
        self._interest.add(topic)
        # Only a full view proves that a topic is missing.
        self._covered.discard(topic)
        self._ask_again()

    def refresh(self) -> None:
        """Ask for the full view again, because the copy lacks something that exists."""
        self._covered.clear()
        self._ask_again()

    def nodes(self) -> list[str]:
        """Return the endpoints to ask, those from the metadata first."""
        return list(dict.fromkeys((*self.routes.node_endpoints(), *self._bootstrap)))

    def _ask_again(self) -> None:
        if self._ticket is not None:
            self._ticket.cancel()
        self._ask()

    def _ask(self) -> None:
        if not self._endpoint:
            self._endpoint = self._rng.choice(self.nodes())
        asked = set(self._interest)
        version = self.routes.version if asked <= self._covered else -1
        self._generation += 1
        generation = self._generation
        self._ticket = self._connections.request(
            self._endpoint,
            Watch(0, int(PATIENCE * 1000), version, sorted(asked), int(WAIT * 1000)),
            (),
            lambda reply: self._answered(reply, asked, generation),
            PATIENCE,
        )

    def _answered(self, reply: Reply, asked: set[str], generation: int) -> None:
        if generation != self._generation:
            return
        self._ticket = None
        if not isinstance(reply.message, WatchResult):
            self._fail(reply.error)
            return
        view = reply.message.view
        foreign = bool(self.routes.cluster_id) and view.cluster_id != self.routes.cluster_id
        if foreign:
            self._warn_foreign()
        if view.version < 0 or not view.cluster_id or foreign:
            self._fail(None)
            return
        self._failures = 0
        self.refusal = None
        self._refused.clear()
        self._silent.clear()
        news = view.full and view.version >= self.routes.version
        changed = self.routes.update(view)
        if news:
            self._covered = asked
        if news or changed or view.brokers:
            self._grant(view.full and news)
            for listener in self._listeners:
                listener()
        if self._ticket is not None:
            return
        if view.full and not news:
            # The node lags behind this client, so its silence about a topic proves nothing.
            self._fail(None)
        else:
            self._ask()

    def _warn_foreign(self) -> None:
        if not self._warned:
            self._warned = True
            text = "%s belongs to another cluster than this client: connect() again if it is new"
            LOG.warning(text, self._endpoint)

    def _fail(self, error: LogboomError | None) -> None:
        """Try the next node, after a delay that grows with consecutive failures."""
        if isinstance(error, Refused):
            self.refusal = error
            self._refused.add(self._endpoint)
        elif error is not None:
            self._silent.add(self._endpoint)
        if self.refusal is not None and self.turned_away:
            self._turn_away(self.refusal)
        nodes = self.nodes()
        place = nodes.index(self._endpoint) if self._endpoint in nodes else -1
        self._endpoint = nodes[(place + 1) % len(nodes)]
        self._failures += 1
        generation = self._generation
        delay = backoff(self._failures, self._rng)
        if isinstance(error, Unauthenticated) and self._endpoint not in self._refused:
            # The next node is not overloaded by the question, and the program waits for the verdict.
            delay = 0.0
        self._turn.after(delay, lambda: self._retry(generation))

    def _turn_away(self, refusal: LogboomError) -> None:
        """End what waits: no node will answer it."""
        for waiter in list(self._waiters):
            self._end(waiter, refusal)
        for listener in self._listeners:
            listener()

    def _retry(self, generation: int) -> None:
        if generation == self._generation:
            self._ask()

    def _grant(self, whole: bool) -> None:
        """Serve waiters whose topic has arrived; commit barriers for topics that are missing."""
        for waiter in list(self._waiters):
            topic = self.routes.topics.get(waiter.topic)
            if waiter.topic not in self._covered:
                continue
            if topic is not None and len(topic.queues) >= waiter.queues:
                self._end(waiter, topic)
            elif whole:
                self._missing(waiter)

    def _missing(self, waiter: _TopicWaiter) -> None:
        known = self.routes.topics.get(waiter.topic)
        if 0 <= waiter.least_version <= self.routes.version:
            if known is None:
                self._interest.discard(waiter.topic)
            self._end(waiter, unknown_topic(waiter.topic) if known is None else known)
        elif not waiter.probing:
            waiter.probing = True
            self._barriers.barrier(lambda version: self._probed(waiter, version), PATIENCE)

    def _probed(self, waiter: _TopicWaiter, version: int | LogboomError) -> None:
        waiter.probing = False
        if waiter not in self._waiters:
            return
        if isinstance(version, int):
            waiter.least_version = version
        self.refresh()

    def _expire(self, waiter: _TopicWaiter) -> None:
        if waiter not in self._waiters:
            return
        if not self.ready or self.refusal is not None:
            self._end(waiter, self.unreachable())
            return
        known = self.routes.topics.get(waiter.topic)
        if known is not None:
            self._end(waiter, known)
            return
        text = (
            f"topic {waiter.topic!r} is not known here and no name server says whether it exists: "
            "check `logboom cluster status`"
        )
        self._end(waiter, TimedOut(text))

    def unreachable(self) -> LogboomError:
        """Return the error that explains why there is no metadata yet."""
        if self.refusal is not None:
            return self.refusal
        for endpoint in self._bootstrap:
            hindrance = self._connections.hindrance(endpoint)
            if hindrance is not None:
                return hindrance
        nodes = ", ".join(self._bootstrap)
        text = f"no node answered at {nodes}: is the cluster up (`logboom cluster status`)?"
        return TimedOut(text)

    def _end(self, waiter: _TopicWaiter, topic: TopicView | LogboomError) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
            if waiter.expiry is not None:
                waiter.expiry.cancel()
            waiter.done(topic)


def unknown_topic(topic: str) -> LogboomError:
    """Return the error for a topic that does not exist."""
    return UnknownResource(unknown_topic_text(topic), "UNKNOWN_TOPIC", topic=topic)


def no_leader(topic: str, queue: int) -> LogboomError:
    """Return the error for a queue without a leader."""
    text = f"queue {queue} of topic {topic!r} has no leader: are its brokers up?"
    return Unavailable(text)
