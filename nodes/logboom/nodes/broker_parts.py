"""The parts of a broker, their dependencies, and the orders in which they work."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logboom.nodes.broker_context import make_context
from logboom.nodes.cluster.contact_watch import ContactWatch
from logboom.nodes.cluster.metadata_watcher import MetadataWatcher
from logboom.nodes.cluster.room_reports import RoomReports
from logboom.nodes.compaction.compactor import Compactor
from logboom.nodes.config import BrokerConfig, listeners_of
from logboom.nodes.controlled_shutdown import ControlledShutdown
from logboom.nodes.copy_signer import CopySigner
from logboom.nodes.groups.group_coordinator import GroupCoordinator
from logboom.nodes.load_reports import LoadReports
from logboom.nodes.log.storage import Storage
from logboom.nodes.maintenance import LogTrimmer, Maintenance
from logboom.nodes.parking.delayed_handler import DelayedHandler
from logboom.nodes.parking.recall_handler import RecallHandler
from logboom.nodes.parking.release_scheduler import ReleaseScheduler
from logboom.nodes.quotas.throttle_service import ThrottleService
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.replication.isr_keeper import IsrKeeper
from logboom.nodes.replication.loss_reports import LossReports
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.replication.scrubber import Scrubber
from logboom.nodes.replication.tail_reports import TailReports
from logboom.nodes.requests.backup_handler import BackupHandler
from logboom.nodes.requests.client_watch_handler import ClientWatchHandler
from logboom.nodes.requests.copy_checks import CopyChecker
from logboom.nodes.requests.long_requests import LongRequests
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.requests.producer_shares import ProducerShares
from logboom.nodes.requests.pull_handler import PullHandler
from logboom.nodes.requests.restore_handler import RestoreHandler
from logboom.nodes.salvage.restored_queues import RestoredQueues
from logboom.nodes.settlement import HighWatermarks, LogApplier, LogIndexer
from logboom.nodes.subscriptions.entry_filter import DispatchFilter
from logboom.nodes.subscriptions.retry_topic_maker import RetryTopicMaker
from logboom.nodes.subscriptions.settlement_queue import SettlementQueue
from logboom.nodes.subscriptions.subscription_handler import (
    SubscriptionAdminHandler,
    SubscriptionHandler,
    SubscriptionLookup,
)
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.nodes.survey_handler import SurveyHandler
from logboom.nodes.transactions.decision_executor import DecisionExecutor
from logboom.nodes.transactions.decision_reports import DecisionReports
from logboom.nodes.transactions.half_message_handlers import EndHalfHandler, HalfMessageChecker
from logboom.nodes.transactions.orphan_aborter import OrphanAborter
from logboom.nodes.transactions.undecided_handler import UndecidedHandler
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.acceptor import Acceptor
from logboom.wire.authorizer import Authorizer
from logboom.wire.copy_receipts import ReceiptSigner
from logboom.wire.node_requirements import NodeKind, kinds_of
from logboom.wire.owner_proofs import OwnerProver
from logboom.wire.quotas.throttle import Throttle
from logboom.wire.routes import Routes

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
        self.acceptor = Acceptor(config.id, cluster_key, rng)
        context = make_context(config, storage, rng, incarnation, cluster_key, self.acceptor, self)
        self.context = context
        self.acceptor.authorizer = Authorizer(lambda: context.routes.access)
        self.acceptor.authorizer.kinds_of = partial(_node_kinds, context.routes)
        self._rights = 0
        """Number of changes of users and rules after which all that waits was checked again."""
        self._settings = context.routes.settings
        """The replicated settings that the context's have taken over."""
        self.contact_watch = ContactWatch(context.registration, context.links, context.servers)
        self.room_reports = RoomReports(
            context.me, context.space, context.registration, context.proposals
        )
        self.metadata_watcher = MetadataWatcher(
            context.routes,
            context.links,
            context.servers,
            context.groups,
            self._learned,
            encrypt=bool(config.credentials_file),
        )
        self.isr_keeper = IsrKeeper(context)
        self.repair = ReplicaRepair(
            context,
            lambda replica: self.fetchers.unfollow(replica),
            lambda replica: self.roles.refetch(replica),
        )
        self.tail_reports = TailReports(context)
        self.loss_reports = LossReports(context)
        self.restored_queues = RestoredQueues(context)
        found, refusal = self.repair.found, self.repair.refusal
        self.replicate_handler = ReplicateHandler(context, self.isr_keeper.position_counted, found)
        appended = self.replicate_handler.appended
        self.fetchers = ReplicaFetchers(context, found)
        self.load_reports = LoadReports(
            context.me,
            context.queues,
            context.space,
            context.stats,
            context.registration,
            context.links,
            context.servers,
            self.fetchers.gets_replicas,
        )
        self.scrubber = Scrubber(context, found)
        self.compactor = Compactor(context, found, self.fetchers.name_anew)
        self._signer = ReceiptSigner(cluster_key)
        copies = CopyChecker(context, self._signer)
        self._producers = ProducerShares(context, self.replicate_handler)
        self.produce_handler = ProduceHandler(context, copies, self._producers, refusal, appended)
        self._prover = OwnerProver(cluster_key)
        self.pull_handler = PullHandler(context, self.repair, self._prover, self.compactor.broken)
        self.release_scheduler = ReleaseScheduler(context, appended, found)
        self.decision_executor = DecisionExecutor(context, self.release_scheduler, appended, found)
        self.decisions = context.make_proposals("decisions", DECISIONS_AT_ONCE)
        self.decision_reports = DecisionReports(context, self.decisions, self.decision_executor)
        self.orphan_aborter = OrphanAborter(context, self.decisions, found)
        self.subscriptions = SubscriptionService(context, appended, found, plug_ins)
        self.throttle = Throttle(
            lambda: context.routes.access,
            self.acceptor.peer,
            self.acceptor.recheck,
            context.stats,
            self.subscriptions.keep_attached,
        )
        self.acceptor.postpones = self.throttle.postpones
        self.long_requests = LongRequests(self.acceptor)
        self.coordinator = GroupCoordinator(
            context, self.pull_handler, self._prover, self.long_requests
        )
        self.roles = ReplicaRoles(
            context,
            self.produce_handler,
            self.pull_handler,
            self.replicate_handler,
            self.fetchers,
            self.repair,
            self._roles_applied,
        )
        self.shutdown = ControlledShutdown(context, self.roles, self.coordinator.__len__)
        self.maintenance = self._make_maintenance()
        readers = (self.pull_handler.hw_moved, self.subscriptions.hw_moved, self.compactor.hw_moved)
        self.applier = LogApplier(
            context, self.repair, self.release_scheduler, self.decision_reports, readers
        )
        self.indexer = LogIndexer(context, self.repair)
        self.watermarks = self._make_watermarks()
        self.services = context.rights.services = self._order_services()
        self.settling = self._order_settling()

    def take_cluster_keys(self, keys: Sequence[bytes]) -> None:
        """Use the first of these cluster keys from now on, and accept each."""
        self.acceptor.take_cluster_keys(keys)
        self.context.links.identity.take_cluster_keys(keys)
        self._signer.take_cluster_keys(keys)
        self._prover.take_cluster_keys(keys)

    def _make_maintenance(self) -> Maintenance:
        context, handler, fetchers = self.context, self.replicate_handler, self.fetchers
        trimmer = LogTrimmer(
            context, handler, self.repair, self.compactor, self.subscriptions.refresh
        )
        return Maintenance(
            context,
            handler,
            self.produce_handler,
            self._producers,
            self.isr_keeper,
            fetchers,
            trimmer,
        )

    def _make_watermarks(self) -> HighWatermarks:
        followers = (
            self.produce_handler.hw_moved,
            self.pull_handler.hw_moved,
            self.replicate_handler.hw_moved,
            self.subscriptions.hw_moved,
            self.indexer.hw_moved,
            self.applier.hw_moved,
            self.compactor.hw_moved,
        )
        return HighWatermarks(
            self.context,
            self.produce_handler,
            self.applier,
            self.release_scheduler,
            self.decision_reports,
            followers,
        )

    def _order_services(self) -> tuple[Service, ...]:
        """Return all services, in the order in which the broker calls each of their methods."""
        context, appended = self.context, self.replicate_handler.appended
        refusal = self.repair.refusal
        access = SubscriptionLookup(context, self.subscriptions, refusal)
        return (
            # Requests that have timed out end before anything new is requested.
            context.links,
            context.rights,
            # Leaderships end and begin before everything that belongs to them; with the last of
            # them grants under newer metadata count, which the registration notes.
            self.roles,
            context.registration,
            self.metadata_watcher,
            context.proposals,
            self.contact_watch,
            self.room_reports,
            self.load_reports,
            self.repair,
            # Once roles have ended, so that the logs change no more.
            self.tail_reports,
            self.loss_reports,
            self.restored_queues,
            self.maintenance,
            # Batches are released before the turn applies anything, so none of them can have ended
            # in the same turn.
            self.release_scheduler,
            self.decisions,
            self.decision_executor,
            self.decision_reports,
            self.orphan_aborter,
            HalfMessageChecker(context, self.repair.found),
            self.pull_handler,
            ClientWatchHandler(
                context.routes,
                context.lease.holds,
                {each.name: each.security for each in listeners_of(context.config)},
                self.acceptor,
            ),
            self.coordinator,
            self.subscriptions,
            # A shutdown closes what all others have left open.
            self.shutdown,
            # These do nothing by the clock, or do it when the turn begins or is settled.
            ThrottleService(self.throttle),
            self.watermarks,
            self.applier,
            self.isr_keeper,
            self.replicate_handler,
            self.fetchers,
            self.indexer,
            self.compactor,
            self.scrubber,
            self.produce_handler,
            DelayedHandler(context, self.long_requests),
            RecallHandler(context, self.produce_handler, self.repair, appended),
            EndHalfHandler(
                context, self.produce_handler, self.release_scheduler, self.repair, appended
            ),
            self.long_requests,
            UndecidedHandler(context, self.repair, self.long_requests),
            BackupHandler(context, self.repair),
            RestoreHandler(context, self.produce_handler, self.replicate_handler),
            SubscriptionHandler(
                access, self.subscriptions, context.stats, self.pull_handler.offset_at
            ),
            SettlementQueue(access, self.subscriptions, self.long_requests),
            SubscriptionAdminHandler(context, access, self.subscriptions, self.long_requests),
            RetryTopicMaker(context, access),
            CopySigner(context, access, self.subscriptions, self._signer, self.repair.found),
            SurveyHandler(
                context,
                self.repair,
                self.subscriptions,
                self.pull_handler.end_of,
                self.long_requests,
            ),
        )

    def _order_settling(self) -> tuple[Callable[[BrokerTurn], None], ...]:
        """Return the steps that settle a turn, in the order in which they see each other's results.

        Each runs once, after all events, since staged rows can be read only in the next turn. None
        needs the order to be safe: every step goes by the HW, by what is readable and by what is
        staged. In another order, answers and reports would wait for the next turn.
        """
        return (
            # First, when all reports and syncs of the turn are known: each HW is counted once, and
            # acks, reads and followers go by it.
            self.watermarks.settle,
            # After the HWs, which let dispatchers deliver more. All changes of a queue's cursors
            # become one entry, before followers are answered, so that they get it at once.
            self.subscriptions.flush,
            # After the HWs, since only entries below them are applied (Q12).
            self.applier.apply,
            # After `apply`, which completes releases: what becomes readable is read at once. Until
            # then, `Replica.readable` ends before the release (T3).
            self.pull_handler.serve,
            # After all reports of the turn, which share one AlterIsr.
            self.isr_keeper.propose,
            # After everything that appends: each follower gets one answer, with every entry of the
            # turn and the HWs that were counted.
            self.replicate_handler.answer,
            # After everything that appends to followed logs or truncates them: a position that is
            # sent is on disk, and belongs to the log as it is now (Q5).
            self.fetchers.ask,
            # After `apply`, which completes decisions. The commits of the turn share one command,
            # and so do its reports.
            self.coordinator.requests.flush,
            self.decision_reports.flush,
            # Last, after every answer: this work can wait.
            self.indexer.advance,
            self.compactor.advance,
            self.scrubber.check,
        )

    # ── events that concern all ─────────────────────────────────────────────────────────────────

    def on_registered(self, turn: BrokerTurn) -> None:
        """Begin to work under a new instance epoch."""
        self.context.stats.count("registrations")
        self.fetchers.renew(self.context.registration.instance_epoch)
        self.room_reports.registered()
        self.loss_reports.registered()
        # Damage is reported before any role is taken up again.
        self.repair.registered(turn)
        self.roles.apply_all(turn)

    def on_fenced(self, turn: BrokerTurn) -> None:
        """End all work under the instance epoch."""
        self.context.stats.count("fencings")
        for service in self.services:
            service.fenced(turn)

    def on_version(self, version: int, turn: BrokerTurn) -> None:
        """Ask elsewhere if the metadata is newer than what this broker was told."""
        self.metadata_watcher.heard_of(version, turn)

    def unheard(self, now: float) -> list[str]:
        """Return the brokers that should replicate from this one and are silent."""
        return self.replicate_handler.unheard(now)

    def opened(self) -> int:
        """Return how many of the replicas that the metadata gives this broker are open."""
        return self.roles.opened

    def _roles_applied(self, topics: list[str], turn: BrokerTurn) -> None:
        """Follow changes of topics whose queues have their roles."""
        self.fetchers.note_moves(topics)
        self.compactor.configure(topics, turn)
        self.isr_keeper.settle()
        self.tail_reports.report(topics, turn)

    def _learned(self, topics: list[str], groups: list[str], turn: BrokerTurn) -> None:
        """Follow the broker's copy of the metadata, which went forward."""
        self.acceptor.cluster_id = self.context.routes.cluster_id
        settings = self.context.routes.settings
        if settings is not self._settings:
            self._settings = settings
            self.context.settings.follow((each.scope, each.name, each.value) for each in settings)
        # What came with the loss of a right is not told any more.
        if self._rights != self.context.routes.access.changes:
            self._rights = self.context.routes.access.changes
            self.context.rights.begin()
        for service in self.services:
            service.learned(topics, groups, turn)


def _node_kinds(routes: Routes, node: str) -> tuple[NodeKind, ...]:
    """Return what a node may be, as far as this broker knows."""
    is_name_server = any(each.id == node for each in routes.name_servers)
    return kinds_of(is_broker=node in routes.brokers, is_name_server=is_name_server)
