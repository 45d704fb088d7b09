"""The broker: a state machine over events, composed of pure parts (`broker_parts`).

One turn takes the events in order, lets every service do what is due, and then settles the
consequences, once per queue. Before the deadline, requests and syncs alone make nothing due. All
writes of a turn form one write set with one token. Whatever must follow their sync waits for
`Synced`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from logboom.nodes.broker_parts import BrokerParts
from logboom.nodes.config import BrokerConfig, listeners_of
from logboom.nodes.log.storage import Storage
from logboom.nodes.request_times import RequestTimes
from logboom.nodes.stats_handler import StatsHandler
from logboom.nodes.subscriptions.entry_filter import DispatchFilter
from logboom.nodes.turn import BrokerTurn, Figures, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import Call, Effects, Event, HandshakeFailed, Instant, Received, Synced
from logboom.wire.auditor import Auditor
from logboom.wire.authenticator import REFUSED, Verdict, verdict_on
from logboom.wire.config_requests import describe_config
from logboom.wire.connection_requests import kick_connection, list_connections
from logboom.wire.errors import InvalidRequest, LogboomError, NotLeader
from logboom.wire.listeners import exposed
from logboom.wire.messages import (
    AnyMessage,
    DescribeConfig,
    KickConnection,
    ListConnections,
    Propose,
)
from logboom.wire.name_servers import KnownServer
from logboom.wire.stats import FigureTable
from logboom.wire.told_endpoints import published_keys
from logboom.wire.view import View


class Broker:
    """One broker node; a skin or the simulation drives it (`wire.actor.Core`)."""

    stores_set_aside = 0
    """Damaged stores kept in the data folder. The skin sets this figure and the following ones."""
    sends_dropped = 0
    """Messages that were not sent, since their peers do not read or are gone."""
    sends_waiting_bytes = 0
    """Bytes that wait for peers that do not read."""
    connections_closed = 0
    """Connections closed because of unfinished messages."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        rng: random.Random,
        incarnation: str,
        cluster_key: bytes = b"",
        plug_ins: Sequence[DispatchFilter] = (),
    ) -> None:
        """Open all queues that `storage` holds, whose content counts as on disk.

        Args:
            config: its `advertise` must be set.
            incarnation: random per process.
            plug_ins: the functions that `config.dispatch_filters` names.
        """
        parts = BrokerParts(config, storage, rng, incarnation, cluster_key, plug_ins)
        context = parts.context
        self.parts, self.context, self.acceptor = parts, context, parts.acceptor
        self.stats, self.queues, self.routes = context.stats, context.queues, context.routes
        self.registration = context.registration
        self.acceptor.max_request_bytes = config.max_request_bytes
        self.acceptor.stats = self.stats
        self._times = RequestTimes(self.stats, self.acceptor.peer)
        self.auditor = Auditor(config.id, self.stats)
        self.acceptor.on_denial = self.auditor.refused
        self.acceptor.authorizer.on_refusal = self.auditor.refused_by_rule
        self.skin_figures: Callable[[], FigureTable] = dict
        """Returns the figures of connections, store and process; the skin sets it."""
        self._services = (
            *parts.services,
            StatsHandler(context.me, self.stats, self.figure_steps),
        )
        self._throttle = parts.throttle
        self._steps = [each.step for each in self._services if _overrides(each, "step")]
        self._deadlines = [each.deadline for each in self._services if _overrides(each, "deadline")]
        self._synced_services = [
            each.synced for each in parts.services if _overrides(each, "synced")
        ]
        self._due = float("-inf")
        """What `deadline` returned last."""
        self._handlers: dict[type, Handler] = {
            Propose: self._on_propose,
            ListConnections: self._on_connections,
            DescribeConfig: self._on_describe_config,
            KickConnection: self._on_kick_connection,
        }
        for service in self._services:
            self._handlers.update(service.handlers())
        self._syncing: deque[tuple[int, float]] = deque()
        """Tokens of the turns that are not on disk yet, with the times of the turns."""

    @property
    def cluster_id(self) -> str:
        """The cluster whose metadata this broker follows; empty until it is known.

        The skin compares it with that of the data folder before the effects of a turn are carried
        out.
        """
        return self.routes.cluster_id

    @property
    def registered(self) -> bool:
        """True if the name servers know this process, and of its store if that is suspect."""
        return self.registration.registered

    # ── the turn ────────────────────────────────────────────────────────────────────────────────

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Take a turn's events, and return its effects.

        `Call("stop")` begins a controlled shutdown, which ends with the effect `stop=""`.
        """
        turn = BrokerTurn(now, self._throttle.meter, self._times, self.stats)
        self._times.begin()
        self.auditor.begin(now)
        timed = not events or self._due <= turn.mono
        self.queues.begin()
        self.parts.maintenance.returned(turn)
        self.parts.coordinator.returned(turn)
        # Before the requests of this turn, which wait behind them.
        for session, message, batches in self._throttle.release(turn):
            turn.batches = batches
            self._serve(session, message, turn)
        for event in events:
            if isinstance(event, Received):
                # An answer may bring metadata, a lease or a leadership, which all services follow.
                timed |= isinstance(event.peer, str)
                self._received(event, turn)
            elif isinstance(event, HandshakeFailed):
                timed = True
                self.context.links.handshake_failed(event, turn)
            elif isinstance(event, Synced):
                self._synced(event.token, turn)
            elif isinstance(event, Call):
                timed = True
                self.parts.shutdown.begin(turn)
            else:
                # A sync that failed is never retried: its success would prove nothing (Q14).
                turn.out.stop = f"the disk refused a sync ({event.reason}): check the disk"
        if timed:
            for step in self._steps:
                step(turn)
        self.acceptor.sweep(turn.mono)
        turn.out.kicks += self.acceptor.end_revoked(turn.mono)
        for settle in self.parts.settling:
            settle(turn)
        # Last: the records of all logs that the turn changed, under the token of all its writes.
        self.queues.commit(turn)
        if turn.out.token:
            self._syncing.append((turn.out.token, turn.mono))
            self.context.disk_speed.begin(turn.out.token, turn.writes.size, turn.mono)
        if self.routes.version < 0 and turn.out.stop is None:
            turn.out.stop = self._turned_away()
        if self.auditor.notes:
            turn.out.notes += self.auditor.take_notes()
        return turn.out

    @property
    def mode(self) -> str:
        """The mode that an operator has given this broker, as far as it knows."""
        view = self.routes.brokers.get(self.context.me)
        return "active" if view is None else view.mode

    def view(self) -> View:
        """Return this broker's copy of all brokers and topics; callable from any thread."""
        routes = self.routes
        brokers, topics = [*routes.brokers.values()], [*routes.topics.values()]
        return View(routes.version, True, routes.cluster_id, brokers, topics, [], [], [], None)

    def sent(self, now: float) -> None:
        """Note that what the last turn answered has been sent, at a monotonic time."""
        self._times.sent(now)

    def figure_steps(self, now: float) -> Iterator[Figures]:
        """Yield the figures of the broker, its counters included, in steps between turns.

        Each step takes less than a millisecond, so that nobody waits for all of them.
        """
        for service in self._services:
            yield from service.figure_steps(now)
        yield {**self.stats.totals(), **self._own_figures()}

    def authenticate(self, public_key: str, address: str, listener: str) -> Verdict:
        """Return whether a key may connect to a listener with keys (`Sockets.authenticate`)."""
        book = self.routes.access
        verdict = verdict_on(book.principal_of(public_key), book)
        if verdict is REFUSED:
            self.auditor.refused_key(address, listener)
        return verdict

    def server_keys(self, endpoint: str) -> Sequence[str]:
        """Return the keys that the nodes at an endpoint have published (`Sockets.server_keys`)."""
        routes, remembered = self.routes, self.context.storage.known_servers
        published = published_keys(endpoint, [*routes.name_servers, *routes.brokers.values()])
        known = [key for each in remembered if each.endpoint == endpoint for key in each.keys]
        return [*published, *known]

    def known_servers(self) -> list[KnownServer]:
        """Return the name servers of the cluster, for the skin to remember; none before it is known."""
        servers = self.routes.name_servers
        return [
            KnownServer(each.endpoint, published_keys(each.endpoint, [each])) for each in servers
        ]

    def deadline(self) -> float | None:
        """Return the monotonic time of the next turn without events; `now` or earlier: at once."""
        self._due = min([deadline() for deadline in self._deadlines])
        return self._due

    def _turned_away(self) -> str | None:
        """Return why every name server refuses this broker (key, protocol version), or None.

        Trying again would be of no use then. Once the broker was accepted, a single wrong name
        server must not end it.
        """
        refusals = [
            self.context.links.refusal(endpoint) for endpoint in self.context.servers.endpoints
        ]
        return refusals[0].text if refusals[0] is not None and all(refusals) else None

    def _received(self, event: Received, turn: BrokerTurn) -> None:
        peer = event.peer
        if isinstance(peer, str):
            self.context.links.receive(peer, event.frames, turn)
            return
        if event.unsent_bytes:
            turn.unsent_bytes[peer] = event.unsent_bytes
        admitted = self.acceptor.admit(peer, event.frames, turn.out, turn.mono, event.principal)
        if admitted is None:
            return
        session, message, turn.batches = admitted
        self._times.arrived(session, message, turn.mono)
        if session.principal is not None:
            served = self._throttle.takes(*admitted, turn)
            turn.meter = self._throttle.meter
            if not served:
                return
        self._serve(session, message, turn)

    def _serve(self, session: PeerSession, message: AnyMessage, turn: BrokerTurn) -> None:
        handler = self._handlers.get(type(message))
        if handler is not None:
            turn.refusal = ""
            handler(session, message, turn)
            self.auditor.requested(session, message, turn.refusal)
        elif message.id:
            text = f"a broker does not serve {type(message).__name__}: ask a name server"
            turn.refuse(session.address, message.id, InvalidRequest(text, "UNKNOWN_TYPE"))

    def _synced(self, token: int, turn: BrokerTurn) -> None:
        self.context.disk_speed.end(token, turn.mono)
        while self._syncing and self._syncing[0][0] <= token:
            _, begun = self._syncing.popleft()
            self.stats.histograms["sync"].add(turn.mono - begun)
        for synced in self._synced_services:
            synced(token, turn)

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def _on_propose(self, peer: PeerSession, message: Propose, turn: BrokerTurn) -> None:
        endpoint = self.context.servers.leader()
        text = "a broker takes no commands: ask the raft leader of the name servers"
        error = NotLeader(text, leader=self.routes.raft_leader, endpoint=endpoint)
        turn.refuse(peer.address, message.id, error)

    def _own_figures(self) -> FigureTable:
        return {
            "sessions": len(self.acceptor),
            **self.acceptor.figures(),
            "busy_answers": self.stats.counters["failures.BUSY"],
            "stores_set_aside": self.stores_set_aside,
            "sends_dropped": self.sends_dropped,
            "sends_waiting_bytes": self.sends_waiting_bytes,
            "connections_closed": self.connections_closed,
            "insecure_listeners": len(exposed(listeners_of(self.context.config))),
            "audit_lines": self.auditor.log.entries,
            **self.skin_figures(),
        }

    def _on_connections(
        self, peer: PeerSession, message: ListConnections, turn: BrokerTurn
    ) -> None:
        waited = self._throttle.throttled_ms_of
        answer = list_connections(self.acceptor, message, turn.mono, waited)
        turn.answer(peer.address, answer)

    def _on_describe_config(
        self, peer: PeerSession, message: DescribeConfig, turn: BrokerTurn
    ) -> None:
        context = self.context
        answer = describe_config(message, context.me, "broker", context.config, context.settings)
        turn.answer(peer.address, answer)

    def _on_kick_connection(
        self, peer: PeerSession, message: KickConnection, turn: BrokerTurn
    ) -> None:
        answer = kick_connection(self.acceptor, message, turn.out)
        if isinstance(answer, LogboomError):
            turn.refuse(peer.address, message.id, answer)
        else:
            turn.answer(peer.address, answer)


def _overrides(service: Service, method: str) -> bool:
    """True if a service does not leave a method at its default."""
    return getattr(type(service), method) is not getattr(Service, method)
