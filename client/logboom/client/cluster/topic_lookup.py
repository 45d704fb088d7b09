"""Metadata for the API: the first view, single topics, and the full view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.client.calls import (
    CallHandlers,
    Connect,
    FindTopic,
    FollowTopic,
    KnownBrokers,
    LoadMetadata,
)
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.cluster.proposal_sender import ProposalSender
from logboom.client.cluster.whole_view import WholeView
from logboom.client.core_context import CoreTurn
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.errors import AlreadyExists, LogboomError, Refused, TimedOut, UnknownResource
from logboom.wire.messages import Watch, WatchResult
from logboom.wire.session import Reply
from logboom.wire.view import TopicConfig, TopicView, View

NEW_TOPIC_QUEUES: Final = 4
"""Queues of a topic that is created on first use."""
RETRY: Final = 0.05
"""Seconds before another node is asked for the full view."""


class TopicLookup:
    """The handler of calls for metadata; it also creates topics on first use."""

    def __init__(
        self,
        connections: Connections,
        watching: MetadataUpdater,
        proposals: ProposalSender,
        turn: CoreTurn,
        *,
        create: bool,
    ) -> None:
        self._connections = connections
        self._watching = watching
        self._proposals = proposals
        self._turn = turn
        self._create = create
        self._connects: list[Connect] = []
        self._follows: list[FollowTopic] = []
        self._all = WholeView()
        watching.listen(self._loaded)

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of calls for metadata."""
        handlers.register(Connect, self._connect)
        handlers.register(FindTopic, self._find_topic)
        handlers.register(FollowTopic, self._follow)
        handlers.register(LoadMetadata, self._whole_view)
        handlers.register(KnownBrokers, self._known_brokers)

    def _find_topic(self, call: FindTopic) -> None:
        def found(topic: TopicView | LogboomError) -> None:
            if isinstance(topic, LogboomError):
                call.outcome.fail(topic)
            else:
                call.outcome.resolve(topic)

        self.topic(call.topic, found, call.timeout, call.queues, create=call.create)

    def topic_to_send_to(
        self,
        name: str,
        done: Callable[[TopicView | LogboomError], None],
        timeout: float,
        queues: int,
    ) -> None:
        """Load a topic for a producer, and create it if this client is configured to."""
        self.topic(name, done, timeout, queues, create=self._create)

    def topic(
        self,
        name: str,
        done: Callable[[TopicView | LogboomError], None],
        timeout: float,
        queues: int = 0,
        *,
        create: bool,
    ) -> None:
        """Load a topic, as `MetadataUpdater.want` does; `create` creates it if it is unknown."""
        deadline = self._turn.now + timeout

        def created(result: CommandResult | LogboomError) -> None:
            if isinstance(result, LogboomError) and not isinstance(result, AlreadyExists):
                done(result)
            else:
                self._watching.want(name, done, max(deadline - self._turn.now, 0.1))

        def found(topic: TopicView | LogboomError) -> None:
            if isinstance(topic, UnknownResource) and create:
                config, wall_ms = TopicConfig(), self._turn.wall_ms
                command = CreateTopic(name, NEW_TOPIC_QUEUES, 0, config, wall_ms)
                left = max(deadline - self._turn.now, 0.1)
                self._proposals.propose(command, created, left)
            else:
                done(topic)

        self._watching.want(name, found, timeout, queues)

    def _connect(self, call: Connect) -> None:
        if self._watching.ready:
            call.outcome.resolve(None)
            return
        self._connects.append(call)

        def expire() -> None:
            call.outcome.fail(self._watching.unreachable())

        self._turn.after(call.timeout, expire)

    def _follow(self, call: FollowTopic) -> None:
        self._follows.append(call)
        self._turn.after(call.timeout, lambda: call.outcome.resolve(None))
        self._resolve_follows()

    def _resolve_follows(self) -> None:
        routes = self._watching.routes
        for call in self._follows:
            if call.topic not in routes.topics or routes.version >= call.version:
                call.outcome.resolve(None)
        self._follows = [call for call in self._follows if not call.outcome.done]

    def _loaded(self) -> None:
        self._resolve_follows()
        if not self._watching.ready and not self._watching.turned_away:
            return
        for call in self._connects:
            if self._watching.ready:
                call.outcome.resolve(None)
            else:
                call.outcome.fail(self._watching.unreachable())
        self._connects.clear()

    def _known_brokers(self, call: KnownBrokers) -> None:
        found = self._watching.routes.brokers.values()
        call.outcome.resolve(sorted(found, key=lambda broker: broker.id))

    def _whole_view(self, call: LoadMetadata) -> None:
        self._whole(call, self._turn.now + call.timeout, 0, frozenset())

    def _whole(
        self, call: LoadMetadata, deadline: float, tried: int, refused: frozenset[str]
    ) -> None:
        """Ask one node after the other until one has a recent enough view, or all have refused."""
        nodes = self._watching.nodes()
        left = deadline - self._turn.now
        if left <= 0:
            text = "no node returned the metadata in time: check `logboom cluster status`"
            call.outcome.fail(TimedOut(text))
            return

        def answered(reply: Reply) -> None:
            message = reply.message
            if isinstance(message, WatchResult):
                view = self._taken(call, message.view)
                if view is not None:
                    call.outcome.resolve(view)
                    return
            by = refused
            if isinstance(reply.error, Refused):
                by = refused | {endpoint}
                if by.issuperset(nodes):
                    call.outcome.fail(reply.error)
                    return
            self._turn.after(RETRY, lambda: self._whole(call, deadline, tried + 1, by))

        # Name servers are last in the list and know of changes first.
        endpoint = nodes[-1 - tried % len(nodes)]
        wait = min(left, 1.5)
        # A node that cannot tell what has changed is asked for everything.
        since = self._all.version if call.topics is None and tried == 0 else -1
        message = Watch(0, int(wait * 1000), since, call.topics, 0)
        self._connections.request(endpoint, message, (), answered, wait)

    def _taken(self, call: LoadMetadata, view: View) -> View | None:
        """Return the metadata that an answer leads to, or None if it is too old."""
        if call.topics is None:
            return self._all.update(view, call.version)
        return view if view.full and view.version >= max(call.version, 0) else None
