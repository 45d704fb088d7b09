"""The parts of a broker, their dependencies, and the orders in which they work."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from logboom.nodes.broker_context import make_context
from logboom.nodes.cluster.metadata_watcher import MetadataWatcher
from logboom.nodes.cluster.room_reports import RoomReports
from logboom.nodes.compaction.compactor import Compactor
from logboom.nodes.config import BrokerConfig
from logboom.nodes.controlled_shutdown import ControlledShutdown
from logboom.nodes.groups.group_coordinator import GroupCoordinator
from logboom.nodes.log.storage import Storage
from logboom.nodes.maintenance import LogTrimmer, Maintenance
from logboom.nodes.parking.recall_handler import RecallHandler
from logboom.nodes.parking.release_scheduler import ReleaseScheduler
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.replication.isr_keeper import IsrKeeper
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.replication.scrubber import Scrubber
from logboom.nodes.requests.client_watch_handler import ClientWatchHandler
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.requests.pull_handler import PullHandler
from logboom.nodes.salvage.restored_queues import RestoredQueues
from logboom.nodes.settlement import HighWatermarks, LogApplier, LogIndexer
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
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.acceptor import Acceptor

DECISIONS_AT_ONCE: Final = 32
"""Commands about transactions that are in flight to the Raft leader."""


class BrokerParts:
    """All parts of one broker. It is the host of the broker's registration."""

    def __init__(
        self,
        config: BrokerConfig,
        storage: Storage,
        rng: random.Random,
        incarnation: str,
        cluster_key: bytes,
        plug_ins: Sequence[DispatchFilter],
    ) -> None:
        """Create all parts; see `logboom.nodes.broker.Broker`."""
        self.gate = Acceptor(config.id, cluster_key, rng)
        context = make_context(config, storage, rng, incarnation, cluster_key, self)
        self.context = context
        self.room = RoomReports(context.me, context.space, context.registration, context.proposals)
        self.watcher = MetadataWatcher(
            context.routes, context.links, context.servers, context.groups, self._learned
        )
        self.isr = IsrKeeper(context)
        self.damages = ReplicaRepair(
            context,
            lambda replica: self.fetching.unfollow(replica),
            lambda replica, turn: self.roles.refetch(replica, turn),
        )
        self.returning = RestoredQueues(context)
        found, refusal = self.damages.found, self.damages.refusal
        self.feeder = ReplicateHandler(context, self.isr.position_counted, found)
        appended = self.feeder.appended
        self.fetching = ReplicaFetchers(context, found)
        self.scrub = Scrubber(context, found)
        self.compacting = Compactor(context, found, self.fetching.name_anew)
        self.producing = ProduceHandler(context, refusal, appended)
        self.pulling = PullHandler(context, self.damages, self.compacting.broken)
        self.releasing = ReleaseScheduler(context, appended, found)
        self.deciding = DecisionExecutor(context, self.releasing, appended, found)
        self.decisions = context.make_proposals("decisions", DECISIONS_AT_ONCE)
        self.reports = DecisionReports(context, self.decisions, self.deciding)
        self.orphans = OrphanAborter(context, self.decisions, found)
        self.desk = SubscriptionService(context, appended, found, plug_ins)
        self.coordinator = GroupCoordinator(context, self.pulling)
        self.roles = ReplicaRoles(
            context, self.producing, self.pulling, self.feeder, self.fetching, self.damages
        )
        self.stopping = ControlledShutdown(context, self.roles, self.coordinator.__len__)
        trimmer = LogTrimmer(context, self.feeder, self.damages, self.compacting, self.desk.refresh)
        self.upkeep = Maintenance(
            context, self.feeder, self.producing, self.isr, self.fetching, trimmer
        )
        readers = (self.pulling.hw_moved, self.desk.hw_moved, self.compacting.hw_moved)
        self.applier = LogApplier(context, self.damages, self.releasing, self.reports, readers)
        self.indexer = LogIndexer(context, self.damages)
        self.watermarks = self._make_watermarks()
        self.services = self._order_services()
        self.settling = self._order_settling()

    def _make_watermarks(self) -> HighWatermarks:
        followers = (
            self.producing.hw_moved,
            self.pulling.hw_moved,
            self.feeder.hw_moved,
            self.desk.hw_moved,
            self.indexer.hw_moved,
            self.applier.hw_moved,
            self.compacting.hw_moved,
        )
        return HighWatermarks(
            self.context, self.producing, self.applier, self.releasing, self.reports, followers
        )

    def _order_services(self) -> tuple[Service, ...]:
        """Return all services, in the order in which the broker calls each of their methods."""
        context, appended = self.context, self.feeder.appended
        refusal = self.damages.refusal
        access = SubscriptionLookup(context, self.desk, refusal)
        return (
            # Requests that have timed out end before anything new is requested.
            context.links,
            context.registration,
            self.watcher,
            # Leaderships end and begin before everything that belongs to them.
            self.roles,
            context.proposals,
            self.room,
            self.damages,
            self.returning,
            self.upkeep,
            # Batches are released before the turn applies anything, so none of them can have ended
            # in the same turn.
            self.releasing,
            self.decisions,
            self.deciding,
            self.reports,
            self.orphans,
            HalfMessageChecker(context, self.damages.found),
            self.pulling,
            ClientWatchHandler(context.routes, context.lease.holds),
            self.coordinator,
            self.desk,
            # A shutdown closes what all others have left open.
            self.stopping,
            # These do nothing by the clock, or do it when the turn is settled.
            self.watermarks,
            self.applier,
            self.isr,
            self.feeder,
            self.fetching,
            self.indexer,
            self.compacting,
            self.scrub,
            self.producing,
            RecallHandler(context, self.producing, refusal, appended),
            EndHalfHandler(context, self.producing, self.releasing, self.damages, appended),
            UndecidedHandler(context, self.damages),
            SubscriptionHandler(access, self.desk, context.stats, self.pulling.offset_at),
            SubscriptionAdminHandler(access, self.desk, context.stats),
        )

    def _order_settling(self) -> tuple[Callable[[BrokerTurn], None], ...]:
        """Return the steps that settle a turn. Their order carries safety; see the comments."""
        return (
            # First, when all reports and syncs of the turn are known: each HW is counted once, and
            # acks, reads and followers go by it.
            self.watermarks.settle,
            # After the HWs, which let dispatchers deliver more. All changes of a queue's cursors
            # become one entry, before followers are answered, so that they get it at once.
            self.desk.flush,
            # After the HWs, since only entries below them are applied (Q12). Once per turn, since
            # staged rows can be read only in the next one.
            self.applier.apply,
            # After `apply`, which ends releases: readers see all of a transaction or nothing (T1).
            self.pulling.serve,
            # After all reports of the turn, which share one AlterIsr.
            self.isr.propose,
            # After everything that appends: each follower gets one answer, with every entry of the
            # turn and the HWs that were counted.
            self.feeder.answer,
            # After everything that appends to followed logs or truncates them: a position that is
            # sent is on disk, and belongs to the log as it is now (Q5).
            self.fetching.ask,
            # After `apply`, which completes decisions. The commits of the turn share one command,
            # and so do its reports.
            self.coordinator.requests.flush,
            self.reports.flush,
            # Last, after every answer. Compaction stages nothing for a queue whose rows this turn
            # has already changed.
            self.indexer.advance,
            self.compacting.advance,
            self.scrub.check,
        )

    # ── events that concern all ─────────────────────────────────────────────────────────────────

    def on_registered(self, turn: BrokerTurn) -> None:
        """Begin to work under a new instance epoch."""
        self.context.stats.count("registrations")
        self.fetching.renew(self.context.registration.instance_epoch)
        self.room.registered()
        # Damage is reported before any role is taken up again.
        self.damages.registered(turn)
        self.roles.apply_all(turn)
        self.compacting.configure(self.context.routes.topics, turn)

    def on_fenced(self, turn: BrokerTurn) -> None:
        """End all work under the instance epoch."""
        self.context.stats.count("fencings")
        for service in self.services:
            service.fenced(turn)

    def on_version(self, version: int, turn: BrokerTurn) -> None:
        """Ask elsewhere if the metadata is newer than what this broker was told."""
        self.watcher.heard_of(version, turn)

    def unheard(self, now: float) -> list[str]:
        """Return the brokers that should replicate from this one and are silent."""
        return self.feeder.unheard(now)

    def _learned(self, topics: list[str], groups: list[str], turn: BrokerTurn) -> None:
        """Follow the broker's copy of the metadata, which went forward."""
        self.gate.cluster_id = self.context.routes.cluster_id
        # Roles depend on the lease, so it comes first.
        self.context.lease.learned(self.context.routes.version)
        for service in self.services:
            service.learned(topics, groups, turn)
