"""The name server's core: Raft, replicated state, WATCH and sessions; events in, effects out.

A turn takes its events, ticks the Raft node until it has nothing left to do (unless nothing in the
turn concerns it), and syncs the journal before any of its messages leave, because a message must
not announce what a crash could still undo (see docs/SAFETY.md, R8). Every name server answers reads
from its own applied state; only the Raft leader accepts proposals and heartbeats.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from logboom.metadata.config import LEASE_MS, NameServerConfig, check_lease
from logboom.metadata.duties.leader_duties import LeaderDuties
from logboom.metadata.groups.group_reads import GroupReads
from logboom.metadata.log_time import LogTime
from logboom.metadata.proposal_checks import proposer_of, refuse_proposal
from logboom.metadata.raft.journal_store import JournalStore
from logboom.metadata.raft.log_commands import (
    AnyLogCommand,
    decode_result,
    encode_entry,
    entry_of,
)
from logboom.metadata.raft.membership_changes import MembershipChanges
from logboom.metadata.raft.newcomers import Newcomers, OnEnd
from logboom.metadata.raft.raft_config import (
    RaftConfig,
    RaftError,
    Refusal,
    SubmitOutcome,
    SubmitStatus,
)
from logboom.metadata.raft.raft_links import RaftLinks
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.raft_state import RaftCallbacks
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.state.state_counters import Figures, figures_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.name_rules import endpoint_fault
from logboom.metadata.watch.watch_handler import WatchHandler
from logboom.metadata.watch.watch_views import name_servers, removed_name_servers
from logboom.wire.acceptor import Acceptor, PeerSession, error_frames, removed_text
from logboom.wire.actor import Call, Effects, Event, Instant, PeerAddress, Received, Send
from logboom.wire.base import WireMessage
from logboom.wire.errors import InvalidRequest, LogboomError, NotLeader, Refused, Unavailable
from logboom.wire.frames import Frame, encode
from logboom.wire.hello import Identity
from logboom.wire.messages import (
    AddNameServer,
    AnyMessage,
    DescribeGroup,
    Heartbeat,
    HeartbeatGranted,
    ListGroups,
    Propose,
    Proposed,
    RaftFrame,
    RemoveNameServer,
    Stats,
    StatsResult,
    Watch,
)
from logboom.wire.view import NameServerView

MAX_TICKS: Final = 16
"""Raft ticks per turn; further work waits for the next turn, which follows at once."""
HAND_OVER: Final = 0.5
"""Seconds that a stopping Raft leader waits for another member to take over."""


class NameServer:
    """One name server. Listeners: "main" (clients, brokers) and "raft" (other name servers).

    It syncs its own journal through `disk` within `handle`. Its effects therefore carry neither
    writes nor tokens, and it never receives `Synced`.
    """

    def __init__(
        self,
        config: NameServerConfig,
        disk: JournalStore,
        rng: random.Random,
        cluster_key: bytes,
        now: Instant,
        raft_config: RaftConfig | None = None,
    ) -> None:
        """Open the journal and restore the state.

        Raises:
            JournalError: the journal or snapshot is damaged or belongs to another node (R9).
            StartError: a lease would outlive its broker's session (Q11).
        """
        raft_config = raft_config or RaftConfig()
        check_lease(raft_config.leader_fallback_s)
        self.config = config
        self.state = StateMachine()
        self._time = LogTime(now.mono)
        self._now = now
        self._rng = rng
        self._founders = config.members()
        self.acceptor = Acceptor(config.id, cluster_key, rng)
        self.raft = RaftNode(
            config.id,
            list(self._founders),
            disk,
            RaftCallbacks(
                apply=self._apply,
                snapshot=lambda: self.state.snapshot(),
                restore=self._restore,
                clock=lambda: self._now.mono,
            ),
            rng,
            raft_config,
        )
        identity = Identity(config.id, "name-server", cluster_key=cluster_key)
        self.links = RaftLinks(identity, self.raft, rng)
        self._newcomers = Newcomers(identity, rng)
        self._watch_handler = WatchHandler(config.id, self)
        self._duties = LeaderDuties(config, self)
        self._changes = MembershipChanges(self)
        self._group_reads = GroupReads(self)
        self._shown = -1
        """Metadata version that the other parts of the node have followed."""
        self._restored = False
        self._stop_at: float | None = None
        self._out = Effects()
        """Effects of the current turn; results from Raft are answered into it."""
        self._counts = {"applied": 0, "watches": 0, "proposals": 0, "heartbeats": 0}
        self.sends_dropped = self.sends_waiting_bytes = 0
        """Messages dropped because their receiver does not read or is gone; bytes that wait for
        such receivers. The skin sets both."""
        self.connections_closed = 0
        """Connections closed because they sent too much of unfinished messages. The skin sets it.
        """

    @property
    def serving(self) -> bool:
        """True if this node leads the Raft group and its term has begun in the state."""
        return self._duties.serving

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""
        return self.state.cluster

    @property
    def raft_leader(self) -> str | None:
        """The leader of the Raft group, if it is known."""
        return self.raft.leader

    @property
    def in_touch(self) -> bool:
        """True if this node hears the Raft group: as its leader, or through a link to the leader."""
        leader = self.raft.leader
        if leader == self.config.id:
            return self.raft.leads_at(self._now.mono)
        return leader is not None and self.links.is_up(leader)

    # ── the turn ────────────────────────────────────────────────────────────────────────────────

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Run one turn.

        After `Call("stop")` a leader offers its leadership, and the stop ends in `Effects.stop == ""`.
        """
        self._now = now
        out = self._out = Effects()
        try:
            self._follow(out)
            self._duties.wake(now.mono)
            for event in events:
                self._take(event, out)
            self._duties.perform(now)
            self.links.tick(out, now.mono)
            self._newcomers.tick(out, now.mono)
            self._run_raft(out)
        except RaftError as error:
            # Messages of this turn may rest on entries that are not on disk: send none (R8, R9).
            return Effects(stop=str(error))
        self._follow(out)
        self._watch_handler.end_due(out, now.mono)
        self._watch_handler.watches.forget(self.acceptor.sweep(now.mono))
        self._end(out)
        return out

    def deadline(self) -> float | None:
        """Return the monotonic time at which the next turn is due without events."""
        wanted = [
            self.raft.deadline,
            self.links.deadline(),
            self._newcomers.deadline(),
            self._watch_handler.watches.deadline(),
            self._duties.deadline(),
            self._stop_at,
        ]
        return min(at for at in wanted if at is not None)

    def _take(self, event: Event, out: Effects) -> None:
        match event:
            case Received(peer=PeerAddress() as address, frames=frames):
                admitted = self.acceptor.admit(address, frames, out, self._now.mono)
                if admitted is not None:
                    self._serve(*admitted, out)
            case Received(peer=str() as endpoint, frames=frames):
                now = self._now.mono
                if not self.links.from_dialled(endpoint, frames, out, now):
                    self._newcomers.from_dialled(endpoint, frames, out, now)
            case Call(request="stop"):
                self._stop_at = self._now.mono + HAND_OVER
                if self.raft.is_leader:
                    self.raft.transfer_leadership()
            case _:
                pass

    def _run_raft(self, out: Effects) -> None:
        now = self._now.mono
        if not self.raft.due(now):
            return
        for _ in range(MAX_TICKS):
            self.raft.tick(now)
            self.raft.sync()
            for peer, payload in self.raft.take_outbox():
                self.links.send(peer, payload, out, now)
            self._duties.perform(self._now)
            if self.raft.deadline > now:
                break

    def _end(self, out: Effects) -> None:
        refused = self.links.refusal() or self.links.removal()
        if self.config.id in removed_name_servers(self.state.cluster):
            out.stop = removed_text(self.config.id)
        elif refused is not None:
            out.stop = refused.text
        elif self._stop_at is not None and (
            not self.raft.is_leader or self._now.mono >= self._stop_at
        ):
            out.stop = ""

    # ── the replicated state ────────────────────────────────────────────────────────────────────

    def _apply(self, entry: bytes) -> bytes:
        self._counts["applied"] += 1
        result = self.state.apply(entry)
        self._time.follow(self.cluster.clock_ms, self._now.mono)
        return result

    def _restore(self, snapshot: bytes) -> None:
        self.state.restore(snapshot)
        self._time.follow(self.cluster.clock_ms, self._now.mono)
        self._restored = True

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""
        self.raft.submit(self._entry("", 0, command), on_result)

    def new_cluster_id(self) -> str:
        """Draw a random cluster id, which is used only if the cluster has none yet."""
        return self._rng.randbytes(16).hex()

    def _entry(self, proposer: str, number: int, command: AnyLogCommand) -> bytes:
        return encode_entry(
            entry_of(proposer, number, self._time.stamp_ms(self._now.mono), command)
        )

    def _follow(self, out: Effects) -> None:
        """Let the other parts of the node follow what was applied."""
        cluster = self.state.cluster
        version = cluster.version
        if version == self._shown and not self._restored:
            return
        shown, restored = self._shown, self._restored
        self._shown, self._restored = version, False
        self.acceptor.cluster_id = cluster.cluster_id
        self.acceptor.expel(removed_name_servers(cluster))
        members = name_servers(cluster, self._founders)
        views = [NameServerView(m.id, m.endpoint) for m in members.values()]
        everybody = restored or shown <= 0 or views != self._watch_handler.members
        self._watch_handler.members = views
        peers = {m.id: m.raft_endpoint for m in members.values() if m.id != self.config.id}
        me = members.get(self.config.id)
        self.links.endpoint = me.raft_endpoint if me is not None else ""
        self.links.set_peers(peers, out, self._now.mono, removed_name_servers(cluster))
        if everybody or cluster.broker_changes.changed_since(shown):
            self._duties.follow(self._now.mono)
            everybody = True
        everybody = everybody or bool(cluster.broker_changes.gone_since(shown))
        topics = set(cluster.topic_changes.changed_since(shown))
        topics.update(cluster.topic_changes.gone_since(shown))
        groups = set(cluster.groups.changes.changed_since(shown))
        groups.update(cluster.groups.changes.gone_since(shown))
        decided = cluster.transactions.changes
        decisions = bool(decided.changed_since(shown) or decided.gone_since(shown))
        self._watch_handler.wake(topics, groups, out, everybody=everybody, decisions=decisions)

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def _serve(
        self, peer: PeerSession, message: AnyMessage, batches: Sequence[Frame], out: Effects
    ) -> None:
        address = peer.address
        match message:
            case RaftFrame():
                if peer.kind == "name-server" and peer.client_id == message.sender:
                    self.links.from_peer(message, batches, out, self._now.mono)
            case Heartbeat():
                self._counts["heartbeats"] += 1
                self._reply(out, address, message.id, self._heartbeat(message))
            case Watch():
                self._counts["watches"] += 1
                self._watch_handler.take(address, message, out, self._now.mono)
            case Propose():
                self._propose(peer, message, out)
            case ListGroups() | DescribeGroup():
                answer = partial(self._reply_later, address, message.id)
                self._group_reads.take(message, answer)
            case AddNameServer():
                self._changes.add(message, partial(self._reply_later, address, message.id))
            case RemoveNameServer():
                self._changes.remove(message, partial(self._reply_later, address, message.id))
            case Stats():
                stats = StatsResult(0, self.config.id, self._role(), self.counters())
                self._reply(out, address, message.id, stats)
            case _:
                text = f"{self.config.id} is a name server: it takes no {type(message).__name__}"
                error = InvalidRequest(text, "UNKNOWN_TYPE")
                self._reply(out, address, message.id, error)

    def _reply(
        self, out: Effects, address: PeerAddress, number: int, answer: WireMessage | LogboomError
    ) -> None:
        if isinstance(answer, LogboomError):
            out.sends.append(Send(address, error_frames(number, answer)))
        else:
            answer.id = number
            out.sends.append(Send(address, encode(answer)))

    def _reply_later(
        self, address: PeerAddress, number: int, answer: WireMessage | LogboomError
    ) -> None:
        """Answer from within the Raft node's `sync`: all that the answer says is on disk."""
        self._reply(self._out, address, number, answer)

    def _heartbeat(self, message: Heartbeat) -> WireMessage | LogboomError:
        if not self._duties.serving or not self.raft.leads_at(self._now.mono):
            return self.not_leader()
        broker = self.state.cluster.brokers.get(message.broker)
        if (
            broker is None
            or not broker.alive
            or broker.instance_epoch != message.instance_epoch
            or not self._duties.heard(broker, message.unheard, self._now.mono)
        ):
            return Refused(f"broker {message.broker!r} is fenced: it must register again")
        return HeartbeatGranted(0, LEASE_MS, self.state.version)

    def _propose(self, peer: PeerSession, message: Propose, out: Effects) -> None:
        self._counts["proposals"] += 1
        entry = self._entry(proposer_of(peer, message), message.number, message.command)
        error = (
            refuse_proposal(peer, message, len(entry), self.state.cluster.groups)
            if self.raft.is_leader
            else None
        )
        if not self.raft.is_leader:
            error = self.not_leader()
        if error is not None:
            self._reply(out, peer.address, message.id, error)
        else:
            self.raft.submit(entry, partial(self._proposed, peer.address, message.id))

    def _proposed(self, address: PeerAddress, number: int, outcome: SubmitOutcome) -> None:
        if outcome.applied:
            self._reply_later(address, number, Proposed(0, decode_result(outcome.result)))
        else:
            self._reply_later(address, number, self.failure(outcome))

    def reachable(self) -> set[str]:
        """Return the members that this node is connected to, itself included."""
        up = {member for member in self.raft.members if self.links.is_up(member)}
        return up | {self.config.id}

    def ask_newcomer(self, request: AddNameServer, on_end: OnEnd) -> None:
        """Find out whether a name server that is to be added is running."""
        if request.name_server in removed_name_servers(self.cluster):
            # The log refuses the change, and gives the reason.
            on_end(None)
            return
        ends = [request.endpoint]
        for end in (request.endpoint, request.raft_endpoint):
            fault = endpoint_fault(end)
            if fault is not None:
                on_end(InvalidRequest(fault))
                return
        if not self.links.dials(request.raft_endpoint):
            ends.append(request.raft_endpoint)
        elif not self.links.is_open(request.raft_endpoint, request.name_server):
            text = (
                f"{request.name_server} does not answer at {request.raft_endpoint}: start it first"
            )
            on_end(InvalidRequest(text))
            return
        seconds = request.timeout_ms / 1000
        self._newcomers.ask(request.name_server, ends, seconds, on_end, self._out, self._now.mono)

    def not_leader(self) -> LogboomError:
        """Build NOT_LEADER, with a hint where to ask."""
        leader = self.raft.leader
        if leader == self.config.id:
            # It leads, but cannot be sure of its majority now.
            leader = None
        known = {member.id: member.endpoint for member in self._watch_handler.members}
        text = f"{self.config.id} is not the raft leader: ask {leader or 'another, or wait'}"
        return NotLeader(text, leader=leader, endpoint=known.get(leader or ""))

    def failure(self, outcome: SubmitOutcome) -> LogboomError:
        """Build the error for a submitted command that was not applied, or not known to be."""
        if outcome.status is SubmitStatus.UNKNOWN:
            text = "leadership was lost while committing: the outcome is unknown, ask again"
            return Unavailable(text)
        if outcome.refusal is Refusal.NOT_LEADER:
            return self.not_leader()
        if outcome.refusal is Refusal.CHANGE_PENDING:
            return Unavailable("another name server is being added or removed: wait", "BUSY")
        reason = outcome.refusal.value if outcome.refusal is not None else "refused"
        return InvalidRequest(f"refused: {reason}")

    # ── figures ─────────────────────────────────────────────────────────────────────────────────

    def _role(self) -> str:
        return "raft leader" if self.raft.is_leader else "name server"

    def counters(self) -> Figures:
        """Return flat figures for STATS."""
        figures: Figures = dict(self._counts)
        figures.update(figures_of(self.state))
        figures.update(
            in_touch=int(self.in_touch),
            watches_held=len(self._watch_handler.watches),
            sessions=len(self.acceptor),
            raft_links_up=self.links.up_count(),
            raft_link_gaps=self.links.gaps,
            sends_dropped=self.sends_dropped,
            sends_waiting_bytes=self.sends_waiting_bytes,
            connections_closed=self.connections_closed,
        )
        figures.update({f"raft_{name}": value for name, value in self.raft.status().items()})
        return figures
