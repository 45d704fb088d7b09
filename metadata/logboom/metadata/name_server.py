"""The name server's core: Raft, replicated state, WATCH and sessions; events in, effects out.

A turn takes its events, ticks the Raft node until it has nothing left to do (unless nothing in the
turn concerns it), and syncs the journal before any of its messages leave, because a message must
not announce what a crash could still undo (see docs/SAFETY.md, R8). Every name server answers reads
from its own applied state; only the Raft leader accepts proposals and heartbeats.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final

from logboom.metadata.access.access_reads import AccessReads
from logboom.metadata.access.initial_keys import InitialKeys
from logboom.metadata.broker_claims import refuse_claim
from logboom.metadata.config import (
    LEASE_MS,
    NameServerConfig,
    announced_listeners,
    check_lease,
    listeners_of,
)
from logboom.metadata.duties.broker_rivals import BrokerRivals
from logboom.metadata.duties.cluster_reads import ClusterReads
from logboom.metadata.duties.feature_levels import FeatureLevels
from logboom.metadata.duties.leader_duties import LeaderDuties
from logboom.metadata.duties.queue_admission import QueueAdmission
from logboom.metadata.duties.queue_placer import QueuePlacer
from logboom.metadata.groups.group_reads import GroupReads
from logboom.metadata.hidden_topics import conceal, reveal
from logboom.metadata.log_time import LogTime
from logboom.metadata.proposal_checks import (
    command_of,
    proposer_of,
    refuse_message_size,
    refuse_proposal,
    refuse_settings,
    result_for,
)
from logboom.metadata.raft.barrier_rounds import BarrierRounds
from logboom.metadata.raft.journal_store import JournalStore
from logboom.metadata.raft.log_commands import (
    AnyLogCommand,
    QueuesCommand,
    decode_result,
    encode_entry,
    entry_of,
    level_of,
)
from logboom.metadata.raft.membership_changes import MembershipChanges
from logboom.metadata.raft.newcomers import JOURNAL_FIGURE, Newcomers, OnEnd
from logboom.metadata.raft.raft_config import (
    RaftConfig,
    RaftError,
    Refusal,
    SubmitOutcome,
    SubmitStatus,
)
from logboom.metadata.raft.raft_links import Announced, RaftLinks
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.raft_state import RaftCallbacks
from logboom.metadata.raft.raft_watch import RaftWatch, rival_text
from logboom.metadata.raft.submissions import OnResult
from logboom.metadata.state.journal_notes import (
    foreign_journal_text,
    has_joined,
    is_foreign,
    named_journal,
    noted_journal,
)
from logboom.metadata.state.state_counters import figures_of, next_key_end_ms
from logboom.metadata.state.state_machine import StateMachine, result_of
from logboom.metadata.state.state_reads import StateReads
from logboom.metadata.tables.cluster_state import OPEN, ClusterState
from logboom.metadata.watch.held_watches import Change
from logboom.metadata.watch.watch_handler import WatchHandler
from logboom.metadata.watch.watch_views import (
    name_server_view,
    name_servers,
    raft_endpoint,
    removed_name_servers,
)
from logboom.wire.acceptor import Acceptor, PeerSession, error_frames, removed_text
from logboom.wire.access.access_rules import node_user, user_of
from logboom.wire.actor import (
    Call,
    Effects,
    Event,
    HandshakeFailed,
    Instant,
    PeerAddress,
    Received,
    Send,
    note,
)
from logboom.wire.auditor import MANAGEMENT, Auditor
from logboom.wire.authenticator import REFUSED, Verdict, verdict_on
from logboom.wire.authorizer import Authorizer
from logboom.wire.backup_messages import ReadState
from logboom.wire.base import WireMessage
from logboom.wire.commands import Barrier, CommandResult, NewTerm, RegisterBroker
from logboom.wire.config_requests import describe_config
from logboom.wire.connection_requests import kick_connection, list_connections
from logboom.wire.errors import (
    InvalidRequest,
    LogboomError,
    NotLeader,
    Refused,
    Unavailable,
    error_for,
)
from logboom.wire.features import upgrade_text
from logboom.wire.frames import Frame, encode
from logboom.wire.hello import Identity
from logboom.wire.listeners import exposed, may_dial_open
from logboom.wire.messages import (
    AddNameServer,
    AnyMessage,
    DescribeAccess,
    DescribeConfig,
    DescribeGroup,
    DescribeVersions,
    FinalizeUpgrade,
    Heartbeat,
    HeartbeatGranted,
    KickConnection,
    ListConnections,
    ListGroups,
    Ok,
    Propose,
    Proposed,
    RaftFrame,
    RemoveNameServer,
    Stats,
    StatsResult,
    Watch,
)
from logboom.wire.node_requirements import NodeKind, kinds_of
from logboom.wire.operation_commands import RaiseFeatures
from logboom.wire.operation_messages import DescribeCluster, PlanBalance, ReportLoad
from logboom.wire.quotas.throttle import EXEMPT, PlainTurn, Throttle
from logboom.wire.settings import LiveSettings
from logboom.wire.sight import Sight
from logboom.wire.stats import FigureTable
from logboom.wire.survey_messages import SurveyGroups
from logboom.wire.view import NameServerView

DECIDED_BY_LEADER: Final = (
    Propose,
    DescribeGroup,
    ReadState,
    DescribeCluster,
    PlanBalance,
    AddNameServer,
    RemoveNameServer,
    DescribeVersions,
    FinalizeUpgrade,
)
"""Requests of users about whose rights the Raft leader decides: its rules are the newest."""
NEVER_WAIT: Final = EXEMPT & {DescribeConfig, Heartbeat, KickConnection, ListConnections, Stats}
"""Requests that wait for no quota. What only brokers serve is refused here, which counts."""
SETS_LEVEL: Final = (NewTerm, RaiseFeatures)
"""Commands that set the features level, and so need none."""
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
        self.settings = LiveSettings(config.id, config)
        """The settings that count here now; they follow the replicated ones."""
        self.state = StateMachine()
        self._time = LogTime(now.mono)
        self._now = now
        self._rng = rng
        self._founders = config.members()
        self.acceptor = Acceptor(config.id, cluster_key, rng)
        # A restored state has a copy of its own.
        self.initial_keys = InitialKeys(config)
        """The keys that this node's configuration lists."""
        self.authorizer = Authorizer(
            lambda: self.cluster.access.book,
            lambda principal: self.initial_keys.is_current(principal, self.cluster),
        )
        self.authorizer.kinds_of = self._node_kinds
        self.acceptor.authorizer = self.authorizer
        self.acceptor.decided_later = DECIDED_BY_LEADER
        self._throttle = Throttle(
            lambda: self.cluster.access.book,
            self.acceptor.peer,
            self.acceptor.recheck,
            self.acceptor.stats,
            exempt=NEVER_WAIT,
        )
        self.acceptor.postpones = self._throttle.postpones
        self._started = self._restored = False
        self.raft = RaftNode(
            config.id,
            list(self._founders),
            disk,
            RaftCallbacks(
                apply=self._apply,
                snapshot=lambda: self.state.snapshot(),
                restore=self._restore,
                clock=lambda: self._now.mono,
                journal_of=lambda member: named_journal(self.cluster, self.raft, member),
            ),
            rng,
            raft_config,
        )
        # The number of this process; a peer of another one with this Raft id tells them apart by it.
        process = copy(rng).getrandbits(62) | 1
        self._identity = identity = Identity(
            config.id, "name-server", process, cluster_key=cluster_key, user=node_user(config.id)
        )
        self.links = RaftLinks(identity, self.raft, rng)
        self.links.listeners = announced_listeners(config)
        self.links.journal = self.raft.journal_id
        self.links.noted = lambda peer: noted_journal(self.cluster, self.raft, peer)
        self._newcomers = Newcomers(identity, rng)
        listeners = listeners_of(config)
        self._may_dial_open = may_dial_open(listeners)
        securities = {each.name: each.security for each in listeners}
        self._raft_listeners = {each.name for each in listeners if each.for_raft}
        self._watch_handler = WatchHandler(config.id, self, securities, self.authorizer.sight)
        self._duties = LeaderDuties(config, self.initial_keys, self)
        self._changes = MembershipChanges(self)
        self._feature_levels = FeatureLevels(config.id, self)
        self._barriers = BarrierRounds(partial(self.submit, Barrier()))
        self._group_reads = GroupReads(self, self.authorizer)
        self._access_reads = AccessReads(self)
        self._state_reads = StateReads(self, self.authorizer)
        self._cluster_reads = ClusterReads(self, self.authorizer, self._duties.moves)
        self._shown = -1
        """Metadata version that the other parts of the node have followed."""
        self._settings_followed: Mapping[tuple[str, str], str] | None = None
        """The replicated settings that `settings` has taken over."""
        self._stop_at: float | None = None
        self._out = Effects()
        """Effects of the current turn; results from Raft are answered into it."""
        self._proposers: dict[bytes, str] = {}
        """Entries of management that were submitted and not applied yet → who proposed them."""
        self._told_index = self.raft.last_index
        """Entries up to this index are not told of again: the journal had them at the start."""
        self._started = True
        self._raft_watch = RaftWatch(config.id, now.mono)
        self._rivals = BrokerRivals()
        self._queue_admission = QueueAdmission()
        self._queue_placer = QueuePlacer(self)
        self._accepted_bytes: dict[str, int] = {}
        """Broker → `max_request_bytes` of its last heartbeat to this node."""
        self.stats = self.acceptor.stats
        self._counts = self.stats.counters
        self._counts.update(applied=0, watches=0, proposals=0, heartbeats=0)
        self._commit_times = self.stats.histograms["raft_commit"]
        self._key_end = (-1, 0)
        """Version of the users, and when the next of their keys ends."""
        self._committed: list[float] = []
        """When the commands were submitted whose results this turn has brought."""
        self.sends_dropped = self.sends_waiting_bytes = 0
        """Messages dropped because their receiver does not read or is gone; bytes that wait for
        such receivers. The skin sets both."""
        self.connections_closed = 0
        """Connections closed because they sent too much of unfinished messages. The skin sets it.
        """
        self.auditor = Auditor(config.id, self.stats)
        self.acceptor.on_denial = self.auditor.refused
        self.acceptor.authorizer.on_refusal = self.auditor.refused_by_rule
        self.skin_figures: Callable[[], FigureTable] = dict
        """Returns the figures of connections and process; the skin sets it."""

    def take_cluster_keys(self, keys: Sequence[bytes]) -> None:
        """Use the first of these cluster keys from now on, and accept each."""
        self.acceptor.take_cluster_keys(keys)
        self._identity.take_cluster_keys(keys)

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
        self.auditor.begin(now)
        self._committed.clear()
        out = self._out = Effects()
        try:
            self._follow(out)
            if self.raft.joining and has_joined(self.cluster, self.raft):
                self.raft.end_joining()
            self._duties.wake(now.mono)
            turn = PlainTurn(out, now.mono, self.stats)
            for session, message, batches in self._throttle.release(turn):
                self._serve(session, message, batches, out)
            for event in events:
                self._take(event, turn)
            self._queue_placer.perform()
            self._duties.perform(now)
            self.links.tick(out, now.mono)
            self._newcomers.tick(out, now.mono)
            self._run_raft(out)
        except RaftError as error:
            # Messages of this turn may rest on entries that are not on disk: send none (R8, R9).
            return Effects(stop=str(error))
        self._follow(out)
        out.notes += self._duties.moves.take_notes()
        out.notes += self._raft_watch.look(self.raft, now.mono, in_touch=self.in_touch)
        if self.links.strangers:
            out.notes += self._raft_watch.refused(self.links.strangers)
        if self.links.rivals:
            self.acceptor.refuse_processes(self.links.rivals, rival_text)
            out.notes += self._raft_watch.rivals(self.links.rivals)
        self._watch_handler.end_due(out, now.mono)
        ended = self.acceptor.end_revoked(now.mono)
        self._watch_handler.end_sessions(ended, out)
        self._watch_handler.serve(out)
        out.kicks += ended
        self._watch_handler.watches.forget([*self.acceptor.sweep(now.mono), *out.kicks])
        self._end(out)
        if self.auditor.notes:
            out.notes += self.auditor.take_notes()
        return out

    def deadline(self) -> float | None:
        """Return the monotonic time at which the next turn is due without events."""
        wanted = [
            self.raft.deadline,
            self.links.deadline(),
            self._newcomers.deadline(),
            self._watch_handler.watches.deadline(),
            self._duties.deadline(),
            self._queue_placer.deadline(),
            self._throttle.deadline(),
            self._stop_at,
        ]
        return min(at for at in wanted if at is not None)

    def authenticate(self, public_key: str, address: str, listener: str) -> Verdict:
        """Return whether a key may connect to a listener with keys (`Sockets.authenticate`)."""
        principal = self.initial_keys.principal_of(public_key, self.cluster)
        verdict = verdict_on(principal, self.cluster.access.book)
        if (
            principal is not None
            and listener in self._raft_listeners
            and not self.authorizer.is_node_of(user_of(principal), "name-server")
        ):
            # Only name servers, and nodes that may become one, have business there.
            verdict = REFUSED
        if verdict is REFUSED:
            self.auditor.refused_key(address, listener, principal)
        return verdict

    def _node_kinds(self, node: str) -> tuple[NodeKind, ...]:
        """Return what a node may be, as far as this name server knows."""
        is_broker, is_name_server = node in self.cluster.brokers, node in self.raft.members
        return kinds_of(is_broker=is_broker, is_name_server=is_name_server)

    def server_keys(self, endpoint: str) -> Sequence[str]:
        """Return the keys that the name server at an endpoint has, if it is known to encrypt there,
        or has to because this one does not dial otherwise (`Sockets.server_keys`)."""
        newcomer = self._newcomers.asked_at(endpoint)
        name = newcomer or self.links.peer_at(endpoint)
        if not name:
            return ()
        main, raft = self.links.announced.get(name) or self.cluster.listeners.get(name, OPEN)
        security = next((each.security for each in (*main, *raft) if each.endpoint == endpoint), "")
        # Of a newcomer nothing is known but its user; without a state, of nobody.
        unknown = not security and (bool(newcomer) or not self._may_dial_open)
        if security == "curve" or unknown:
            return self.initial_keys.public_keys_of(name, self.cluster)
        return ()

    def _take(self, event: Event, turn: PlainTurn) -> None:
        out = turn.out
        match event:
            case Received(peer=PeerAddress() as address, frames=frames, principal=principal):
                admitted = self.acceptor.admit(address, frames, out, self._now.mono, principal)
                if admitted is not None and (
                    principal is None or self._throttle.takes(*admitted, turn)
                ):
                    self._serve(*admitted, out)
            case Received(peer=str() as endpoint, frames=frames):
                now = self._now.mono
                if not self.links.from_dialled(endpoint, frames, out, now):
                    self._newcomers.from_dialled(endpoint, frames, out, now)
            case HandshakeFailed():
                if not self.links.handshake_failed(event, out, self._now.mono):
                    self._newcomers.handshake_failed(event, out, self._now.mono)
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
        refused = self.links.refusal(belongs=bool(self.cluster.cluster_id)) or self.links.removal()
        if self.config.id in removed_name_servers(self.state.cluster):
            out.stop = removed_text(self.config.id)
        elif self.links.stranger_to or is_foreign(self.cluster, self.raft):
            out.stop = foreign_journal_text(self.config.id, self.links.stranger_to)
        elif refused is not None:
            out.stop = refused.text
        elif self._stop_at is not None and (
            not self.raft.is_leader or self._now.mono >= self._stop_at
        ):
            out.stop = ""

    # ── the replicated state ────────────────────────────────────────────────────────────────────

    def _apply(self, entry: bytes) -> bytes:
        self._counts["applied"] += 1
        # What was in the journal at the start has been told by an earlier process.
        if self.raft.is_leader and self.raft.applying_index > self._told_index:
            by = self._proposers.pop(entry, None) if self._proposers else None
            result = self.state.apply(entry, self._out.notes, by)
        else:
            result = self.state.apply(entry)
        self._time.follow(self.cluster.clock_ms, self._now.mono)
        return result

    def _restore(self, snapshot: bytes) -> None:
        self.state.restore(snapshot)
        self._time.follow(self.cluster.clock_ms, self._now.mono)
        self._restored = True
        if self._started:
            self._out.notes.append(note("raft_snapshot_installed"))

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Submit a command of this node's own to the log."""

        if level_of(command) > self.cluster.features and not isinstance(command, SETS_LEVEL):
            # An older name server would stop at it (M7).
            on_result(SubmitOutcome(SubmitStatus.REFUSED, refusal=Refusal.BELOW_LEVEL))
            return

        def end(outcome: SubmitOutcome) -> None:
            self._proposers.pop(entry, None)
            self.auditor.commanded_itself(command, self._code_of(outcome))
            on_result(outcome)

        entry = self._entry("", 0, command)
        if isinstance(command, MANAGEMENT):
            self._proposers[entry] = self.config.id
        self._submit(entry, end)

    def barrier(self, on_result: OnResult) -> None:
        """Call back once everything that was committed until now is applied here."""
        self._barriers.wait(on_result)

    def announced(self) -> Mapping[str, Announced]:
        """Return the listeners that each member has announced, this one's included."""
        announced = self.links.announced | {self.config.id: self.links.listeners}
        members = self.raft.members
        return {name: found for name, found in announced.items() if name in members}

    def journals(self) -> Mapping[str, str]:
        """Return the ids of the journals that members have announced, this one's included."""
        announced = self.links.journals | {self.config.id: self.raft.journal_id}
        members = self.raft.members
        return {name: journal for name, journal in announced.items() if journal and name in members}

    def log_time_ms(self, now: float) -> int:
        """Return the time of the Raft log at a monotonic time."""
        return self._time.stamp_ms(now)

    def wall_ms(self) -> int:
        """Return the wall time of this turn."""
        return self._now.wall_ms

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
        if cluster.settings is not self._settings_followed:
            self._settings_followed = cluster.settings
            self.settings.follow((*key, text) for key, text in cluster.settings.items())
        shown, restored = self._shown, self._restored
        self._shown, self._restored = version, False
        self.acceptor.cluster_id = cluster.cluster_id
        self.acceptor.expel(removed_name_servers(cluster))
        members = name_servers(cluster, self._founders)
        views = [name_server_view(cluster, member) for member in members.values()]
        everybody = restored or shown <= 0 or views != self._watch_handler.members
        self._watch_handler.members = views
        encrypt = bool(self.config.credentials_file)
        peers = {
            view.id: raft_endpoint(cluster, members[view.id], encrypt=encrypt and bool(view.keys))
            for view in views
            if view.id != self.config.id
        }
        me = members.get(self.config.id)
        own = self.links.listeners[1]
        self.links.endpoint = own[0].endpoint if own else me.raft_endpoint if me is not None else ""
        self.links.set_peers(peers, out, self._now.mono, removed_name_servers(cluster))
        if everybody or cluster.broker_changes.changed_since(shown):
            self._duties.follow(self._now.mono)
            everybody = True
        everybody = everybody or bool(cluster.broker_changes.gone_since(shown))
        everybody = everybody or cluster.settings_version > shown
        topics = set(cluster.topic_changes.changed_since(shown))
        topics.update(cluster.topic_changes.gone_since(shown))
        groups = set(cluster.groups.changes.changed_since(shown))
        groups.update(cluster.groups.changes.gone_since(shown))
        decided = cluster.transactions.changes
        decisions = bool(decided.changed_since(shown) or decided.gone_since(shown))
        access = cluster.access.version > shown
        change = Change(version, topics, groups, everybody, decisions, access)
        self._watch_handler.wake(change, out)

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def _serve(
        self, peer: PeerSession, message: AnyMessage, batches: Sequence[Frame], out: Effects
    ) -> None:
        address = peer.address
        match message:
            case RaftFrame():
                if peer.kind == "name-server" and peer.client_id == message.sender:
                    now = self._now.mono
                    self.links.from_peer(message, batches, out, now, peer.instance_epoch)
            case Heartbeat():
                self._counts["heartbeats"] += 1
                self._reply(out, address, message.id, self._heartbeat(message))
            case Watch():
                self._counts["watches"] += 1
                self._watch_handler.take(peer, message, out, self._now.mono)
            case Propose():
                self._propose(peer, message, out)
            case ListGroups() | DescribeGroup() | SurveyGroups():
                answer = partial(self._reply_later, address, message.id)
                self._group_reads.take(peer, message, answer)
            case DescribeCluster() | PlanBalance():
                answer = partial(self._reply_later, address, message.id)
                self._cluster_reads.take(peer, message, answer)
            case ReportLoad():
                self._reply(out, address, message.id, self._reported(peer, message))
            case DescribeAccess():
                self._access_reads.take(
                    peer, message, partial(self._reply_later, address, message.id)
                )
            case ReadState():
                self._state_reads.take(peer, message, partial(self._state_read, peer, message))
            case AddNameServer() | RemoveNameServer() | DescribeVersions() | FinalizeUpgrade() if (
                error := self._refusal(peer, message)
            ) is not None:
                self._reply(out, address, message.id, error)
            case AddNameServer():
                self._changes.add(message, partial(self._change_ended, peer, message))
            case RemoveNameServer():
                self._changes.remove(message, partial(self._change_ended, peer, message))
            case DescribeVersions():
                self._reply(out, address, message.id, self._feature_levels.describe())
            case FinalizeUpgrade():
                self._feature_levels.finalize(message, partial(self._change_ended, peer, message))
            case ListConnections():
                listed = list_connections(
                    self.acceptor, message, self._now.mono, self._throttle.throttled_ms_of
                )
                self._reply(out, address, message.id, listed)
            case DescribeConfig():
                told = describe_config(
                    message, self.config.id, "name server", self.config, self.settings
                )
                self._reply(out, address, message.id, told)
            case KickConnection():
                kicked = kick_connection(self.acceptor, message, out)
                code = kicked.code if isinstance(kicked, LogboomError) else ""
                self.auditor.requested(peer, message, code)
                self._reply(out, address, message.id, kicked)
            case Stats():
                stats = StatsResult(0, self.config.id, self._role(), self.counters())
                self._reply(out, address, message.id, stats)
            case _:
                text = f"{self.config.id} is a name server: it takes no {type(message).__name__}"
                error = InvalidRequest(text, "UNKNOWN_TYPE")
                self._reply(out, address, message.id, error)

    def _reply(
        self,
        out: Effects,
        address: PeerAddress,
        number: int,
        answer: WireMessage | LogboomError,
        frames: Sequence[Frame] = (),
    ) -> None:
        if isinstance(answer, LogboomError):
            self.stats.count_failure(answer.code)
            out.sends.append(Send(address, error_frames(number, answer)))
        else:
            answer.id = number
            out.sends.append(Send(address, encode(answer, frames)))

    def _reply_later(
        self, address: PeerAddress, number: int, answer: WireMessage | LogboomError
    ) -> None:
        """Answer from within the Raft node's `sync`: all that the answer says is on disk."""
        self._reply(self._out, address, number, answer)

    def _heartbeat(self, message: Heartbeat) -> WireMessage | LogboomError:
        if not self._duties.serving or not self.raft.leads_at(self._now.mono):
            return self.not_leader()
        if message.features < self.cluster.features:
            # It has been registered by a leader that did not know the level yet.
            text = upgrade_text(message.broker, message.features, self.cluster.features)
            return InvalidRequest(text)
        broker = self.state.cluster.brokers.get(message.broker)
        if (
            broker is None
            or not broker.alive
            or broker.instance_epoch != message.instance_epoch
            or not self._duties.heard(broker, message.unheard, self._now.mono)
        ):
            return Refused(f"broker {message.broker!r} is fenced: it must register again")
        self._accepted_bytes[message.broker] = message.max_request_bytes
        self._queue_admission.heard(message)
        self._feature_levels.heard(message)
        rival = self._rivals.rival(message.broker, self._now.mono)
        return HeartbeatGranted(0, LEASE_MS, self.state.version, rival)

    def _reported(self, peer: PeerSession, message: ReportLoad) -> WireMessage | LogboomError:
        if not self._duties.serving:
            return self.not_leader()
        broker = self.state.cluster.brokers.get(message.broker)
        if (
            broker is None
            or peer.client_id != message.broker
            or broker.instance_epoch != message.instance_epoch
        ):
            return Refused(f"broker {message.broker!r} is fenced: it must register again")
        self._duties.moves.reported(message, self._now.mono)
        return Ok(0)

    def sent(self, now: float) -> None:
        """Note that the effects of the last turn are carried out, at a monotonic time."""
        for submitted in self._committed:
            self._commit_times.add(now - submitted)
        self._committed.clear()

    def _submit(self, entry: bytes, on_result: OnResult) -> None:
        """Submit an entry, and time it until its result."""
        submitted = self._now.mono

        def end(outcome: SubmitOutcome) -> None:
            if outcome.applied:
                self._committed.append(submitted)
            on_result(outcome)

        self.raft.submit(entry, end)

    def _propose(self, peer: PeerSession, message: Propose, out: Effects) -> None:
        self._counts["proposals"] += 1
        error = self._refusal(peer, message)
        if error is not None:
            self.auditor.proposed(peer, message, error)
            self._reply(out, peer.address, message.id, error)
            return
        message.command = command_of(peer, message)
        sight, command = self.authorizer.sight(peer), message.command
        if sight is not None:
            command = conceal(command, partial(self._seen, sight))
        entry = self._entry(proposer_of(peer, message), message.number, command)
        error = refuse_proposal(
            peer,
            message,
            len(entry),
            self.cluster,
            current=self.serving,
        )
        if error is None:
            unfounded = self._refuse_claim(peer, message)
            if unfounded is not None:
                if unfounded.code == "FORBIDDEN":
                    # The others may just be late.
                    refused = error_for(unfounded.code, unfounded.text, unfounded.fields)
                    self.auditor.proposed(peer, message, refused)
                self._reply(out, peer.address, message.id, Proposed(0, unfounded))
                return
        if error is None and isinstance(command, RegisterBroker):
            error = self._refuse_rival(command)
        if error is None:
            members = name_servers(self.cluster, self._founders)
            error = refuse_settings(message.command, self.cluster.brokers, members)
        if error is None:
            live = {b: n for b, n in self._accepted_bytes.items() if b in self.cluster.alive}
            error = refuse_message_size(message.command, self.cluster.topics, live)
        if error is None and peer.kind == "client":
            # Nodes wait for nobody: their commands follow each other.
            error = self._queue_admission.admit(entry, message.command, self.cluster)
        if error is not None:
            self.auditor.proposed(peer, message, error)
            self._reply(out, peer.address, message.id, error)
        elif isinstance(command, Barrier):
            # It changes nothing, so nothing has to be kept of it, and one serves all that wait.
            self.barrier(partial(self._proposed, peer, message, entry, entry))
        elif not isinstance(command, QueuesCommand) or not self._queue_placer.take(
            command, partial(self._submit_placed, peer, message, entry)
        ):
            self._submit_proposed(peer, message, entry, entry)

    def _submit_placed(
        self, peer: PeerSession, message: Propose, admitted: bytes, command: AnyLogCommand | None
    ) -> None:
        """Submit a command whose queues are placed now; None: this node leads no longer."""
        if command is None:
            refused = SubmitOutcome(SubmitStatus.REFUSED, refusal=Refusal.NOT_LEADER)
            self._proposed(peer, message, admitted, admitted, refused)
        else:
            entry = self._entry(proposer_of(peer, message), message.number, command)
            self._submit_proposed(peer, message, admitted, entry)

    def _submit_proposed(
        self, peer: PeerSession, message: Propose, admitted: bytes, entry: bytes
    ) -> None:
        if isinstance(message.command, MANAGEMENT):
            self._proposers[entry] = self.auditor.name_of(peer)
        self._submit(entry, partial(self._proposed, peer, message, admitted, entry))

    def _refusal(self, peer: PeerSession, message: AnyMessage) -> LogboomError | None:
        """Return why this name server does not take a request that the Raft leader decides.

        A user's rights are those of everything that was committed before, so a leader decides, once
        its term has begun.
        """
        leads = self.raft.is_leader if peer.principal is None else self.serving
        if not leads:
            return self.not_leader()
        if not isinstance(message, Propose):
            return self.authorizer.refusal(peer, message)
        return self.authorizer.refusal_of_command(peer, message.command, self.cluster.name_of_topic)

    def _refuse_claim(self, peer: PeerSession, message: Propose) -> CommandResult | None:
        """Return the result of a broker's command that speaks of what is not that broker's, or None.

        One that was applied before has its first result.
        """
        if peer.principal is None or peer.kind == "client":
            return None
        if self.state.dedup.find(message.proposer, message.number) is not None:
            return None
        outcome = refuse_claim(peer.client_id, message.command, self.cluster)
        return None if outcome is None else result_of(self.cluster, outcome)

    def _refuse_rival(self, command: RegisterBroker) -> LogboomError | None:
        error = self._rivals.refuse(command, self.cluster.brokers, self._now.mono)
        if error is not None:
            refused = note("broker_refused", broker=command.broker, text=error.text)
            self._out.notes.append(refused)
        return error

    def _seen(self, sight: Sight, topic_id: int) -> bool:
        name = self.cluster.name_of_topic(topic_id)
        return name is not None and sight.topic(name)

    def _proposed(
        self,
        peer: PeerSession,
        message: Propose,
        admitted: bytes,
        entry: bytes,
        outcome: SubmitOutcome,
    ) -> None:
        self._proposers.pop(entry, None)
        self._queue_admission.ended(admitted)
        self.auditor.commanded(peer, message, self._code_of(outcome))
        if outcome.applied:
            result = result_for(peer, message, decode_result(outcome.result))
            if self.authorizer.sight(peer) is not None:
                result = reveal(result)
            self._reply_later(peer.address, message.id, Proposed(0, result))
        else:
            self._reply_later(peer.address, message.id, self.failure(outcome))

    def _code_of(self, outcome: SubmitOutcome) -> str:
        """Return the code of a command's result; "" if it was done."""
        if outcome.applied:
            return decode_result(outcome.result).code
        return self.failure(outcome).code

    def _change_ended(
        self,
        peer: PeerSession,
        message: AddNameServer | RemoveNameServer | FinalizeUpgrade,
        answer: WireMessage | LogboomError,
    ) -> None:
        code = answer.code if isinstance(answer, LogboomError) else ""
        self.auditor.requested(peer, message, code)
        if not code and isinstance(message, AddNameServer | RemoveNameServer):
            added = isinstance(message, AddNameServer)
            by = self.auditor.name_of(peer)
            self._out.notes.append(
                note(
                    "raft_member_added" if added else "raft_member_removed",
                    name_server=message.name_server,
                    by=by,
                )
            )
        self._reply_later(peer.address, message.id, answer)

    def _state_read(
        self,
        peer: PeerSession,
        message: ReadState,
        answer: WireMessage | LogboomError,
        frames: Sequence[Frame],
    ) -> None:
        code = answer.code if isinstance(answer, LogboomError) else ""
        self.auditor.requested(peer, message, code)
        self._reply(self._out, peer.address, message.id, answer, frames)

    def name_server_views(self) -> list[NameServerView]:
        """Return the views of all name servers."""
        return self._watch_handler.members

    def reachable(self) -> set[str]:
        """Return the members that this node is connected to, itself included."""
        up = {member for member in self.raft.members if self.links.is_up(member)}
        return up | {self.config.id}

    def ask_newcomer(self, request: AddNameServer, on_end: OnEnd) -> None:
        """Find out whether a name server that is to be added is running."""
        if request.name_server in removed_name_servers(self.cluster):
            # The log refuses the change, and gives the reason.
            on_end(None, "")
            return
        ends = [request.endpoint]
        if not self.links.dials(request.raft_endpoint):
            ends.append(request.raft_endpoint)
        elif not self.links.is_open(request.raft_endpoint, request.name_server):
            text = (
                f"{request.name_server} does not answer at {request.raft_endpoint}: start it first"
            )
            on_end(InvalidRequest(text), "")
            return
        seconds = request.timeout_ms / 1000

        def ended(error: LogboomError | None, journal: str) -> None:
            # An older name server would not know of it (M7).
            on_end(error, journal if self.cluster.features else "")

        self._newcomers.ask(request.name_server, ends, seconds, ended, self._out, self._now.mono)

    def standing(self) -> tuple[frozenset[str], set[str]]:
        """Return all name servers, and those of them that serve; callable from any thread."""
        return self.raft.members, self.reachable() if self.in_touch else set()

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

    def _next_key_end_ms(self) -> int:
        book = self.cluster.access.book
        if self._key_end[0] != book.version:
            self._key_end = (book.version, next_key_end_ms(book))
        return self._key_end[1]

    # ── figures ─────────────────────────────────────────────────────────────────────────────────

    def _role(self) -> str:
        return "raft leader" if self.raft.is_leader else "name server"

    def counters(self) -> FigureTable:
        """Return flat figures for STATS."""
        return {**self.stats.flat(), **self.figures()}

    def figures(self) -> FigureTable:
        """Return them without what histograms add."""
        figures = self.stats.totals()
        figures.update(figures_of(self.state))
        end_ms = self._next_key_end_ms()
        if end_ms:
            # The clock of the Raft log differs from this one's.
            left_s = (end_ms - self._time.stamp_ms(self._now.mono)) / 1000
            figures["key_expiry_timestamp_seconds"] = self._now.wall_ms / 1000 + left_s
        figures.update(self.acceptor.figures())
        figures.update(self._throttle.figures())
        figures.update(
            in_touch=int(self.in_touch),
            watches_held=len(self._watch_handler.watches),
            sessions=len(self.acceptor),
            raft_links_up=self.links.up_count(),
            raft_link_gaps=self.links.gaps,
            sends_dropped=self.sends_dropped,
            sends_waiting_bytes=self.sends_waiting_bytes,
            connections_closed=self.connections_closed,
            insecure_listeners=len(exposed(listeners_of(self.config))),
            audit_lines=self.auditor.log.entries,
            **{JOURNAL_FIGURE: self.raft.journal_id},
            raft_is_leader=int(self.raft.is_leader),
            **self.skin_figures(),
        )
        figures.update({f"raft_{name}": value for name, value in self.raft.status().items()})
        return figures
