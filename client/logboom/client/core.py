"""The core of the client: its entire behaviour, without sockets, clocks and threads.

A skin (or the simulation) passes it events and executes its effects. The API reaches it by the
calls of `logboom.client.calls` and by the producers' `SendBuffer`s.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from logboom.client.calls import AskAll, CallHandlers, CoreCall, ProposeCommand
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.leader_cache import LeaderCache, RaftLeader
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.cluster.node_keys import NodeKeys
from logboom.client.cluster.proposal_sender import ProposalSender
from logboom.client.cluster.request_router import RequestRouter
from logboom.client.cluster.topic_lookup import TopicLookup
from logboom.client.core_context import CoreTurn
from logboom.client.fetch.fetcher import Fetcher
from logboom.client.groups.group_members import GroupMembers
from logboom.client.promise import Countdown
from logboom.client.send.sender import Sender, closed
from logboom.client.subscriptions.attachments import Attachments
from logboom.client.transactions.half_check_poller import CheckPoller
from logboom.wire.actor import Call, Effects, Event, HandshakeFailed, Instant, Received
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.hello import Identity
from logboom.wire.key_pair import SecretBytes


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The configuration of a client."""

    endpoints: tuple[str, ...]
    """host:port of any nodes, to start with."""
    client_id: str
    """Unique per client, because commands are deduplicated by it."""
    create_topics: bool = False
    """Create a missing topic that a producer or consumer names (for development, and embedded)."""
    cluster_key: bytes = field(default=b"", repr=False)
    """For operators: the content of the cluster key file."""
    user: str = ""
    """The name in the credentials file; empty: nodes are open."""
    server_keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Endpoint → public keys of the node there, from the credentials file; empty: the nodes are
    open."""


class ClientCore:
    """One client (`wire.actor.Core`)."""

    def __init__(self, config: ClientConfig, rng: random.Random, now: Instant) -> None:
        self.config = config
        self._turn = turn = CoreTurn(now, rng)
        identity = Identity(config.client_id, user=config.user)
        if keys := config.cluster_key.split():
            # Two while the key is changed: nodes prove themselves with either of them.
            identity.take_cluster_keys([SecretBytes(key) for key in keys])
        self._connections = Connections(identity, rng, turn)
        self._proposals = ProposalSender(config.client_id, self._connections, turn, rng)
        self.watching = MetadataUpdater(
            config.endpoints, self._connections, turn, rng, self._proposals
        )
        routes, servers = self.watching.routes, self._proposals.servers
        self.watching.listen(lambda: servers.learn(routes))
        self.node_keys = NodeKeys(config.server_keys)
        """The keys by which the skin's sockets know the nodes."""
        self.watching.listen(
            lambda: self.node_keys.learn((*routes.brokers.values(), *routes.name_servers))
        )
        leaders = LeaderCache(routes)
        parts = (self._connections, leaders, self.watching)
        topic_lookup = TopicLookup(
            self._connections, self.watching, self._proposals, turn, create=config.create_topics
        )
        router = RequestRouter(*parts, RaftLeader(servers), turn)
        self._sender = Sender(*parts, topic_lookup, self._proposals, turn)
        fetcher = Fetcher(*parts, turn)
        group_members = GroupMembers(router, self.watching, fetcher, turn)
        check_poller = CheckPoller(self._connections, self.watching, turn)
        attachments = Attachments(*parts, turn)
        self._handlers = handlers = CallHandlers()
        for room in (
            topic_lookup,
            router,
            self._sender,
            fetcher,
            group_members,
            check_poller,
            attachments,
        ):
            room.register(handlers)
        handlers.register(ProposeCommand, self._propose)
        handlers.register(AskAll, self._together)
        self._started = False
        self._closed = False
        self._due = float("-inf")
        """What `deadline` returned since the last turn; minus infinity: it was not called."""

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Handle the events of a turn, and send what producers have added."""
        turn = self._turn
        turn.begin(now)
        due, self._due = self._due, float("-inf")
        if not self._started:
            self._started = True
            self.watching.start()
        for event in events:
            match event:
                case Received(peer, frames) if isinstance(peer, str):
                    self._connections.receive(peer, frames)
                case HandshakeFailed():
                    self._connections.handshake_failed(event)
                case Call(request):
                    self._call(request)
                case _:
                    pass
        if due <= now.mono:
            turn.run_timers()
            self._proposals.step()
            self._connections.tick()
        self._sender.pump()
        return turn.out

    def deadline(self) -> float | None:
        """Return the monotonic time of the next turn that is needed without events."""
        if self._sender.waiting() or not self._started:
            return self._turn.now
        wanted = self._turn.deadline(), self._connections.deadline(), self._proposals.deadline()
        self._due = min([when for when in wanted if when is not None], default=float("inf"))
        return None if self._due == float("inf") else self._due

    def close(self, error: LogboomError) -> None:
        """Fail what producers still hold; the core handles nothing afterwards."""
        self._closed = True
        self._sender.close_all(error)

    def _call(self, call: CoreCall) -> None:
        if self._closed:
            call.fail(closed())
        else:
            self._handlers.handle(call)

    def _together(self, call: AskAll) -> None:
        countdown = Countdown(call.outcome)
        for each in call.calls:
            countdown.expect(each.outcome)
            self._call(each)
        countdown.start()

    def _propose(self, call: ProposeCommand) -> None:
        def done(result: CommandResult | LogboomError) -> None:
            if isinstance(result, LogboomError):
                call.outcome.fail(result)
            else:
                call.outcome.resolve(result)

        self._proposals.propose(call.command, done, call.timeout)
