"""The broker: a state machine over events, composed of the pure parts beside it.

One turn: take the events in order, then do what they brought about, once per queue: HWs, acks,
holds, followers. All writes of a turn go out as one write set under one token; what must follow
their sync waits for `Synced`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from logboom.nodes.cluster.metadata_watcher import ClientWatchHandler, MetadataWatcher
from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.cluster.registration import Registration
from logboom.nodes.cluster.room_reports import RoomReports
from logboom.nodes.compaction.compactor import Compactor
from logboom.nodes.config import BrokerConfig
from logboom.nodes.controlled_shutdown import ControlledShutdown
from logboom.nodes.disk.disk_space import SpaceGauge
from logboom.nodes.groups.coordinator_lookup import CoordinatorLookup
from logboom.nodes.groups.group_coordinator import GroupCoordinator
from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import Storage
from logboom.nodes.maintenance import Maintenance
from logboom.nodes.parking.recall_handler import RecallHandler
from logboom.nodes.parking.release_scheduler import ReleaseScheduler
from logboom.nodes.parking.relocation import ParkedRelocator
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.replica_table import ReplicaTable
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.replication.isr_keeper import IsrKeeper
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers, replication_lag
from logboom.nodes.replication.replica_repair import REPORTED_AT_ONCE, ReplicaRepair
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.replication.scrubber import Scrubber
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.requests.pull_handler import PullHandler
from logboom.nodes.salvage.restored_queues import RestoredQueues
from logboom.nodes.stats import Statistics
from logboom.nodes.subscriptions.entry_filter import DispatchFilter
from logboom.nodes.subscriptions.subscription_handler import (
    SubscriptionAdminHandler,
    SubscriptionHandler,
    SubscriptionLookup,
)
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.nodes.transactions.decision_executor import DecisionExecutor
from logboom.nodes.transactions.decision_reports import DecisionReports
from logboom.nodes.transactions.half_message_handlers import EndHalfHandler, HalfMessageChecker
from logboom.nodes.transactions.orphan_aborter import OrphanAborter
from logboom.nodes.transactions.undecided_handler import UndecidedHandler
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.actor import Call, Effects, Event, Instant, PeerAddress, Received, Synced
from logboom.wire.commands import QueueTail, ReportTails
from logboom.wire.errors import DamagedBatch, DataDamaged, InvalidRequest, NotLeader
from logboom.wire.frames import Frame
from logboom.wire.group_messages import (
    GroupCommit,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupRelease,
    GroupStatus,
)
from logboom.wire.group_routes import GroupRoutes
from logboom.wire.hello import Identity
from logboom.wire.messages import (
    FindKey,
    OffsetForTime,
    Offsets,
    Produce,
    Propose,
    Pull,
    Replicate,
    Stats,
    StatsResult,
    Watch,
)
from logboom.wire.name_servers import NameServers
from logboom.wire.parking import Recall
from logboom.wire.routes import Routes
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    Detach,
    Receive,
    SettleMessages,
    Subscribe,
)
from logboom.wire.transactions import AwaitDecided, CheckHalves, CheckParked, EndHalf, ListUndecided

INDEXED_AT_ONCE: Final = 4
"""Queues whose index goes forward in one turn."""
GROUP_COMMANDS_AT_ONCE: Final = 16
"""Commands of groups that are under way at the raft leader."""
DECISIONS_AT_ONCE: Final = 32
"""Commands about transactions that are under way there."""
NAMED_DAMAGES: Final = 20
"""Damaged queues that STATS name."""
LOOKED_AT_ONCE: Final = 512
"""Queues of which one turn sees whether their index is behind at all."""

_Serve = Callable[[PeerSession, Any, Sequence[Frame], BrokerTurn], None]


class Broker:
    """One broker node; a skin or the simulation drives it (`wire.actor.Core`)."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        rng: random.Random,
        incarnation: str,
        cluster_key: bytes = b"",
        plug_ins: Sequence[DispatchFilter] = (),
    ) -> None:
        """Open all queues that `storage` holds; `config.advertise` must be filled in.

        `incarnation` is random per process. The storage's content counts as on disk. `plug_ins`:
        those that `config.dispatch_filters` names.
        """
        self.config = config
        self.storage = storage
        self.stats = Statistics()
        self.stores_set_aside = 0
        """Damaged stores kept in the data folder, for STATS. (The skin knows.)"""
        self.sends_dropped = self.sends_waiting_bytes = 0
        """Messages for peers that do not read, or went; bytes that wait for such. (The skin's.)"""
        self.connections_closed = 0
        """Connections closed for the unfinished messages that they sent. (The skin's.)"""
        self.routes = Routes()
        self.queues = ReplicaTable(storage, config.cache_bytes)
        self.gate = Acceptor(config.id, cluster_key, rng)
        self.links = PeerConnections(Identity(config.id, "broker", 0, cluster_key), rng)
        self.servers = NameServers(config.name_servers)
        self.proposals = ProposalQueue(f"{config.id}/{incarnation}", self.links, self.servers)
        self.registration = Registration(
            config,
            storage.store_id,
            storage.suspect,
            incarnation,
            self.links,
            self.servers,
            self.proposals,
            self._registered,
            self._fenced,
            self._heard_of,
            self._unheard,
        )
        lease, stats = self.registration.lease, self.stats
        self.space = SpaceGauge(storage, config.disk_reserve_bytes, config.disk_reserve_percent)
        self.room = RoomReports(config.id, self.space, self.registration, self.proposals)
        self.groups = GroupRoutes(members_at=config.id)
        self.watcher = MetadataWatcher(
            self.routes, self.links, self.servers, self.groups, self._metadata
        )
        self.told = ClientWatchHandler(self.routes, lease.holds)
        self.isr = IsrKeeper(
            config.id, self.routes, self.registration, self.proposals, stats, self._recount
        )
        self.damages = ReplicaRepair(
            config.id,
            self.queues,
            self.routes,
            self.registration,
            self.proposals,
            stats,
            self._halt,
            self._refetch,
        )
        self.returning = RestoredQueues(
            config.id, self.queues, self.routes, self.registration, self.proposals
        )
        self.producing = ProduceHandler(
            config.id, self.queues, self.routes, lease, self.space, stats, self.damages.refusal
        )
        self.compacting = Compactor(
            self.queues,
            self.routes,
            config.compaction_messages_per_s,
            stats,
            self.damages.found,
            self._lacking,
        )
        self.pulling = PullHandler(
            config,
            self.queues,
            self.routes,
            self.groups,
            lease,
            self.damages,
            stats,
            self._hw_moved,
            self.compacting.broken,
        )
        self.feeder = ReplicateHandler(
            config, self.queues, self.routes, stats, self._position, self.damages.found
        )
        self.fetching = ReplicaFetchers(
            config,
            self.queues,
            self.links,
            rng,
            self.space,
            stats,
            self._hw_moved,
            self.damages.found,
        )
        self.scrub = Scrubber(
            self.queues,
            config.scrub_bytes_per_s,
            config.scrub_every_s,
            stats,
            self.damages.found,
        )
        self.releasing = ReleaseScheduler(
            self.queues, self.space, stats, self.feeder.appended, self.damages.found
        )
        self.recalling = RecallHandler(
            config.id, self.queues, self.routes, self.producing, self.damages.refusal, stats
        )
        self.ending = EndHalfHandler(
            config.id,
            self.queues,
            self.routes,
            self.producing,
            self.releasing,
            self.space,
            self.damages.refusal,
            self.damages.found,
        )
        self.checking = HalfMessageChecker(config, self.queues, self.damages.found)
        self.deciding = DecisionExecutor(
            self.queues,
            self.routes,
            self.space,
            stats,
            self.releasing,
            self.feeder.appended,
            self.damages.found,
        )
        self.decisions = ProposalQueue(
            f"{config.id}/{incarnation}/decisions", self.links, self.servers, DECISIONS_AT_ONCE
        )
        self.reports = DecisionReports(
            config.id, self.queues, self.routes, self.registration, self.decisions, self.deciding
        )
        self.orphans = OrphanAborter(config, storage, self.decisions, stats, self.damages.found)
        self.desk = SubscriptionService(
            config.id,
            self.queues,
            self.routes,
            lease,
            stats,
            self.feeder.appended,
            self.damages.found,
            plug_ins,
        )
        access = SubscriptionLookup(
            config.id, self.queues, self.routes, self.desk, self.damages.refusal
        )
        self.subscriptions = SubscriptionHandler(access, self.desk, stats, self.pulling.offset_at)
        self.operators = SubscriptionAdminHandler(access, self.desk, stats)
        self.roles = ReplicaRoles(
            config.id,
            self.queues,
            self.routes,
            self.registration,
            self.producing,
            self.pulling,
            self.feeder,
            self.fetching,
            self.damages,
            stats,
            self._recount,
        )
        self.unended = UndecidedHandler(
            config, self.queues, self.routes, self.roles.led.values, self.damages
        )
        self.upkeep = Maintenance(
            config,
            self.queues,
            self.routes,
            self.roles,
            self.feeder,
            self.producing,
            self.damages,
            self.isr,
            self.fetching,
            self.links,
            self.servers,
            stats,
            ParkedRelocator(self.queues, stats, self.feeder.appended).carry,
            self.desk.refresh,
            self.compacting,
        )
        self.coordinator = GroupCoordinator(
            CoordinatorLookup(config.id, self.routes, self.groups, lease),
            self.links,
            self.pulling,
            ProposalQueue(
                f"{config.id}/{incarnation}/groups",
                self.links,
                self.servers,
                GROUP_COMMANDS_AT_ONCE,
            ),
            stats,
        )
        self.stopping = ControlledShutdown(
            config.id,
            self.queues,
            self.routes,
            self.roles,
            self.registration,
            self.proposals,
            self.coordinator.__len__,
        )
        self._recounts: dict[QueueKey, Replica] = {}
        self._moved: dict[QueueKey, Replica] = {}
        self._to_apply: dict[QueueKey, Replica] = {replica.key: replica for replica in self.queues}
        """Queues with entries below the HW that the derived families lack (Q12)."""
        self._to_index: dict[QueueKey, Replica] = {
            replica.key: replica for replica in self.queues if replica.damage is None
        }
        for replica in self.queues:
            self.compacting.moved(replica)
        self._more = False
        self._syncing: deque[tuple[int, float]] = deque()
        """(token, when) of turns that are not on disk yet."""
        self._serves: dict[type, _Serve] = {
            Produce: self._on_produce,
            Pull: self._on_pull,
            Replicate: self._on_replicate,
            Offsets: self._on_offsets,
            OffsetForTime: self._on_offset_for_time,
            FindKey: self._on_find_key,
            Watch: self._on_watch,
            Propose: self._on_propose,
            Stats: self._on_stats,
            Recall: self._on_recall,
            EndHalf: self._on_end_half,
            CheckHalves: self._on_plain(self.checking.ask),
            AwaitDecided: self._on_plain(self.reports.ask),
            CheckParked: self._on_plain(self.unended.check),
            ListUndecided: self._on_plain(self.unended.tell),
            GroupJoin: self._on_group(self.coordinator.join),
            GroupHeartbeat: self._on_group(self.coordinator.heartbeat),
            GroupCommit: self._on_group(self.coordinator.requests.commit),
            GroupRelease: self._on_group(self.coordinator.requests.release),
            GroupLeave: self._on_group(self.coordinator.requests.leave),
            GroupStatus: self._on_group(self.coordinator.status),
            Subscribe: self._on_subscription(self.subscriptions.subscribe),
            Receive: self._on_subscription(self.subscriptions.receive),
            SettleMessages: self._on_subscription(self.subscriptions.settle),
            Detach: self._on_subscription(self.subscriptions.detach),
            AlterSubscription: self._on_subscription(self.operators.alter),
            DescribeSubscriptions: self._on_subscription(self.operators.describe),
        }

    @property
    def cluster_id(self) -> str:
        """The cluster whose metadata this broker follows; empty until it knows. The skin compares
        it with the data folder's before anything of the turn takes effect."""
        return self.routes.cluster_id

    @property
    def registered(self) -> bool:
        """Whether the name server knows this process: a suspect store has been reported."""
        return self.registration.registered

    # ── the turn ────────────────────────────────────────────────────────────────────────────────

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """Take a turn's events; `Call("stop")` begins a graceful stop, ended by `stop=""`."""
        turn = BrokerTurn(now)
        self.queues.begin()
        self.upkeep.returned(turn.mono)
        self.coordinator.returned(turn)
        for event in events:
            if isinstance(event, Received):
                self._received(event, turn)
            elif isinstance(event, Synced):
                self._synced(event.token, turn)
            elif isinstance(event, Call):
                self.stopping.begin(turn)
            else:
                # A sync is never retried (Q14).
                turn.out.stop = f"the disk refused a sync ({event.reason}): check the disk"
        self._timers(turn)
        self._settle(turn)
        self.queues.commit(turn)
        if turn.out.token:
            self._syncing.append((turn.out.token, turn.mono))
        if self.routes.version < 0 and turn.out.stop is None:
            turn.out.stop = self._turned_away()
        return turn.out

    def _turned_away(self) -> str | None:
        """Why every name server refuses this broker (cluster key, protocol version): trying again
        is of no use. Once it was let in, one wrong name server must not end it."""
        refusals = [self.links.refusal(endpoint) for endpoint in self.servers.endpoints]
        return refusals[0].text if refusals[0] is not None and all(refusals) else None

    def _received(self, event: Received, turn: BrokerTurn) -> None:
        peer = event.peer
        if isinstance(peer, str):
            self.links.receive(peer, event.frames, turn)
            return
        if event.untaken:
            turn.untaken[peer] = event.untaken
        admitted = self.gate.admit(peer, event.frames, turn.out, turn.mono)
        if admitted is None:
            return
        session, message, batches = admitted
        serve = self._serves.get(type(message))
        if serve is not None:
            serve(session, message, batches, turn)
        elif message.id:
            text = f"a broker does not serve {type(message).__name__}: ask a name server"
            turn.refuse(peer, message.id, InvalidRequest(text, "UNKNOWN_TYPE"))

    def _synced(self, token: int, turn: BrokerTurn) -> None:
        while self._syncing and self._syncing[0][0] <= token:
            _, begun = self._syncing.popleft()
            self.stats.histograms["sync"].add(turn.mono - begun)
        for replica in self.queues.synced(token):
            if replica.leading is not None:
                self.producing.synced(replica, turn)
                self._recounts[replica.key] = replica
        self.fetching.synced(token)
        self.damages.synced(token)
        self.stopping.synced(token, turn)

    def _timers(self, turn: BrokerTurn) -> None:
        """Everything that goes by the clock; each part knows by itself whether it is time."""
        self.links.tick(turn)
        self.registration.step(turn)
        self.watcher.step(turn)
        self.proposals.step(turn)
        self.room.step(turn)
        self.damages.step(turn)
        self.returning.step(turn)
        self.upkeep.step(turn)
        self.releasing.step(turn)
        self.decisions.step(turn)
        self.deciding.step(turn)
        self.reports.step(turn)
        self.orphans.step(self.roles.led.values(), turn)
        self.checking.step(self.roles.led.values(), turn)
        self.pulling.expire(turn)
        self.told.expire(turn)
        self.coordinator.step(turn)
        self.desk.step(turn)
        self.gate.sweep(turn.mono)
        self.stopping.step(turn)

    def _settle(self, turn: BrokerTurn) -> None:
        """What the turn's events brought about, once per queue and in this order."""
        for replica in self._recounts.values():
            leading = replica.leading
            hw = leading.high_watermark(replica.synced) if leading is not None else None
            if hw is not None and replica.raise_hw(hw):
                self._moved[replica.key] = replica
            if replica.applied < replica.hw:
                self._to_apply[replica.key] = replica
            if replica.parked.count:
                self.releasing.arm(replica)
            self._decided(replica, turn)
        self._recounts.clear()
        for replica in self._moved.values():
            self.producing.hw_moved(replica, turn)
            self.pulling.hw_moved(replica, turn)
            self.feeder.hw_moved(replica, turn.mono)
            self.desk.hw_moved(replica, turn)
            self._to_index[replica.key] = replica
            self._to_apply[replica.key] = replica
            self.compacting.moved(replica)
        self._moved.clear()
        self.desk.flush(turn)
        self._apply(turn)
        self.pulling.step(turn)
        self.isr.step(turn)
        self.feeder.step(turn)
        self.fetching.step(turn)
        self.coordinator.requests.flush(turn)
        self.reports.flush(turn)
        self._index(turn)
        self.compacting.step(turn)
        self.scrub.step(turn)

    def _apply(self, turn: BrokerTurn) -> None:
        """Derive what entries below the HW say; once per queue and turn."""
        queues, self._to_apply = self._to_apply, {}
        for key, replica in queues.items():
            if self.queues.replicas.get(key) is not replica or replica.damage is not None:
                continue
            reach, more, decided = replica.hw, False, False
            if replica.parked.behind:
                try:
                    applied = replica.parked.apply(reach, self.queues.storage, turn.writes)
                except DataDamaged as error:
                    self.damages.found(replica, DamagedEntry(error.text, Position(replica.start)))
                    continue
                reach, more = applied.reach, applied.more
                decided = bool(applied.decided)
                if applied.changed:
                    self.queues.touch(replica)
                    self.releasing.applied(replica, applied)
            if replica.cursors.apply(reach, turn.writes):
                self.queues.touch(replica)
            replica.applied = reach
            if decided:
                self.compacting.moved(replica)
                self.pulling.hw_moved(replica, turn)
                self.desk.hw_moved(replica, turn)
            self._decided(replica, turn)
            if more:
                self._to_apply[key] = replica

    def _decided(self, replica: Replica, turn: BrokerTurn) -> None:
        """Decisions may go on in a queue, or are done."""
        parked = replica.parked
        if parked.done or parked.release is not None or len(self.deciding) or len(self.reports):
            self.deciding.arm(replica)
            self.reports.settle(replica, turn)

    def _index(self, turn: BrokerTurn) -> None:
        """Let the follow-on index go forward a little, after all answers."""
        left = INDEXED_AT_ONCE
        for key in list(islice(self._to_index, LOOKED_AT_ONCE)):
            if not left:
                break
            replica = self._to_index.pop(key)
            if self.queues.replicas.get(key) is not replica or replica.damage is not None:
                continue
            if replica.index.reach >= min(replica.hw, replica.written):
                continue
            left -= 1
            try:
                more = replica.index.advance(turn.writes, min(replica.hw, replica.written), 1)
            except (DataDamaged, DamagedBatch) as error:
                self.damages.found(replica, DamagedEntry(error.text, replica.index.reach))
                continue
            if more:
                self._to_index[key] = replica
        self._more = bool(self._to_index)

    def deadline(self) -> float | None:
        """Monotonic time of the next turn that is wanted without events; ≤ now: at once."""
        if self._more or self._to_apply:
            return float("-inf")
        return min(
            self.links.deadline(),
            self.registration.deadline(),
            self.watcher.deadline(),
            self.proposals.deadline(),
            self.room.deadline(),
            self.damages.deadline(),
            self.returning.deadline(),
            self.compacting.deadline(),
            self.scrub.deadline(),
            self.upkeep.next_at,
            self.releasing.deadline(),
            self.decisions.deadline(),
            self.deciding.deadline(),
            self.reports.deadline(),
            self.orphans.next_at,
            self.checking.deadline(),
            self.pulling.deadline(),
            self.told.deadline(),
            self.coordinator.deadline(),
            self.desk.deadline(),
            self.feeder.deadline(),
            self.fetching.deadline(),
            self.stopping.deadline(),
        )

    # ── what the parts tell each other ──────────────────────────────────────────────────────────

    def _recount(self, replica: Replica) -> None:
        self._recounts[replica.key] = replica

    def _hw_moved(self, replica: Replica) -> None:
        self._moved[replica.key] = replica

    def _lacking(self, replica: Replica) -> None:
        self.fetching.name_anew(replica)

    def _halt(self, replica: Replica) -> None:
        self.fetching.unfollow(replica)

    def _refetch(self, replica: Replica, turn: BrokerTurn) -> None:
        self.roles.refetch(replica, turn)

    def _position(self, replica: Replica, broker: str) -> None:
        """A follower's position was counted."""
        leading = replica.leading
        if leading is None:
            return
        self._recounts[replica.key] = replica
        if broker in leading.isr:
            return
        now = leading.followers[broker].seen_at
        period = self.config.out_of_sync_ms / 1000
        if leading.may_join(broker, replica.hw, replica.end, now, period, {broker: now}):
            self.isr.grow(replica, broker)

    def _heard_of(self, version: int, turn: BrokerTurn) -> None:
        self.watcher.heard_of(version, turn)

    def _unheard(self, now: float) -> list[str]:
        return self.feeder.unheard(now, self.roles.led)

    def _registered(self, turn: BrokerTurn) -> None:
        self.stats.count("registrations")
        self.fetching.renew(self.registration.instance_epoch)
        self.room.registered()
        self.damages.registered()
        if self.storage.suspect:
            tails = [
                QueueTail(*replica.key, replica.epochs.last, *replica.end)
                for replica in self.queues
                if replica.damage is None
            ]
            for at in range(0, len(tails), REPORTED_AT_ONCE):
                command = ReportTails(
                    self.config.id,
                    self.registration.instance_epoch,
                    tails[at : at + REPORTED_AT_ONCE],
                    turn.now.wall_ms,
                )
                self.proposals.propose(command, lambda _result, _later: None, turn)
        self.damages.step(turn)
        self.roles.apply_all(turn)
        self.compacting.configure(self.routes.topics, turn)

    def _fenced(self, turn: BrokerTurn) -> None:
        self.stats.count("fencings")
        self.returning.fenced()
        self.isr.forget()
        self.stopping.fenced()
        self.fetching.renew(-1)
        self.roles.resign(turn)
        self.reports.fenced()
        self.orphans.fenced()
        self.coordinator.fenced(turn)

    def _metadata(self, names: list[str], groups: list[str], turn: BrokerTurn) -> None:
        """Our copy of the metadata went forward."""
        self.gate.cluster_id = self.routes.cluster_id
        self.registration.lease.learned(self.routes.version)
        self.roles.apply(names, turn)
        self.compacting.configure(names, turn)
        self._learned_decisions(turn)
        self.fetching.moved(self.routes)
        self.isr.settle()
        self.told.changed(names, turn)
        self.coordinator.changed(groups, turn)

    def _learned_decisions(self, turn: BrokerTurn) -> None:
        for key, number in self.deciding.learned().items():
            replica = self.queues.replicas.get(key)
            if replica is not None and replica.leading is not None:
                # What was done before it was heard of has not been reported yet.
                replica.leading.reported = min(replica.leading.reported, number - 1)
                self._decided(replica, turn)
        self.reports.learned(turn)

    # ── requests ────────────────────────────────────────────────────────────────────────────────

    def _on_produce(
        self, peer: PeerSession, message: Produce, batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        grown = self.producing.produce(peer.address, message, batches, turn)
        if grown is not None:
            self.feeder.appended(grown)

    def _on_recall(
        self, peer: PeerSession, message: Recall, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        grown = self.recalling.recall(peer.address, message, turn)
        if grown is not None:
            self.feeder.appended(grown)

    def _on_end_half(
        self, peer: PeerSession, message: EndHalf, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        grown = self.ending.end(peer.address, message, turn)
        if grown is not None:
            self.feeder.appended(grown)

    def _on_pull(
        self, peer: PeerSession, message: Pull, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        self.pulling.pull(peer.address, message, turn)

    def _on_replicate(
        self, peer: PeerSession, message: Replicate, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        self.feeder.replicate(peer.address, peer.client_id, message, turn)

    def _on_offsets(
        self, peer: PeerSession, message: Offsets, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        self.pulling.offsets(peer.address, message, turn)

    def _on_offset_for_time(
        self, peer: PeerSession, message: OffsetForTime, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        self.pulling.offset_for_time(peer.address, message, turn)

    def _on_find_key(
        self, peer: PeerSession, message: FindKey, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        self.pulling.find_key(peer.address, message, turn)

    def _on_watch(
        self, peer: PeerSession, message: Watch, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        self.told.ask(peer.address, message, turn)

    @staticmethod
    def _on_plain(serve: Callable[[PeerAddress, Any, BrokerTurn], None]) -> _Serve:
        return lambda peer, message, _batches, turn: serve(peer.address, message, turn)

    @staticmethod
    def _on_group(serve: Callable[[PeerSession, Any, BrokerTurn], None]) -> _Serve:
        return lambda peer, message, _batches, turn: serve(peer, message, turn)

    @staticmethod
    def _on_subscription(serve: Callable[[PeerAddress, Any, BrokerTurn], None]) -> _Serve:
        return lambda peer, message, _batches, turn: serve(peer.address, message, turn)

    def _on_propose(
        self, peer: PeerSession, message: Propose, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        endpoint = self.servers.leader()
        text = "a broker takes no commands: ask the raft leader of the name servers"
        error = NotLeader(text, leader=self.routes.raft_leader, endpoint=endpoint)
        turn.refuse(peer.address, message.id, error)

    def _on_stats(
        self, peer: PeerSession, message: Stats, _batches: Sequence[Frame], turn: BrokerTurn
    ) -> None:
        table = self.stats.flat()
        led = self.roles.led.values()
        self.space.check(turn.mono)
        table.update(
            replicas=len(self.queues.replicas),
            leading=len(led),
            under_replicated=sum(
                len(r.leading.isr) < len(r.leading.replicas) for r in led if r.leading is not None
            ),
            damaged=len(self.damages),
            damaged_queues=" ".join(self.damages.names()[:NAMED_DAMAGES]),
            copies_lacking=self.compacting.copying(),
            stores_set_aside=self.stores_set_aside,
            sends_dropped=self.sends_dropped,
            sends_waiting_bytes=self.sends_waiting_bytes,
            connections_closed=self.connections_closed,
            parked=sum(replica.parked.count for replica in led),
            parked_bytes=sum(replica.parked.size for replica in led),
            parked_oldest_due_ms=self.releasing.oldest_due_ms(led),
            undecided=sum(replica.parked.undecided for replica in led),
            decisions=len(self.deciding),
            decisions_awaited=len(self.reports),
            half_checks_held=len(self.checking),
            transaction_timeout_ms=self.config.transaction_timeout_ms,
            half_checks_over_ms=self.config.half_check_after_ms
            + self.config.half_checks * self.config.half_check_every_ms,
            holds=len(self.pulling.holds),
            pulls_postponed=len(self.pulling.postponed),
            scans=len(self.pulling.scanning),
            watches=len(self.told),
            groups_coordinated=len(self.coordinator),
            members_coordinated=self.coordinator.sessions.members,
            heartbeats_held=len(self.coordinator.holds),
            subscriptions_served=len(self.desk.served),
            subscription_consumers=sum(len(each.seats) for each in self.desk.served.values()),
            sessions=len(self.gate),
            cache_bytes=self.queues.cache.size,
            free_bytes=self.space.free,
            disk_bytes=self.space.total,
            reserve_bytes=self.space.reserve,
            disk_full=int(self.space.full),
            lease=int(self.registration.lease.holds(turn.mono)),
            registered=int(self.registration.registered),
            instance_epoch=self.registration.instance_epoch,
            metadata_version=self.routes.version,
            refusal=self.registration.refusal,
        )
        table.update(replication_lag(self.queues))
        turn.answer(peer.address, StatsResult(message.id, self.config.id, "broker", table))
