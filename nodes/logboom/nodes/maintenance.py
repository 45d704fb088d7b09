"""Periodic work: ISR shrinks, retention, idle producers, and requests that have timed out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.compactor import Compactor
from logboom.nodes.log.keys import Position
from logboom.nodes.log.log_state import LogState
from logboom.nodes.log.retention import KnownAge, RetentionPolicy, plan_removal, stage_removal
from logboom.nodes.parking.relocation import ParkedRelocator
from logboom.nodes.replica.entry_reader import DamagedEntry, entries
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.isr_keeper import IsrKeeper
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.requests.producer_shares import ProducerShares
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.actor import note
from logboom.wire.errors import DamagedBatch, DataDamaged

ROUND_INTERVAL_S: Final = 0.5
"""Seconds between two rounds."""
LOOKED_AT_ONCE: Final = 512
"""Queues that one turn of a round looks at; some milliseconds."""
WINDOWS_AT_ONCE: Final = 5_000
"""Producers that a turn looks at, in whole queues, when a round looks for idle ones."""
SLICE_INTERVAL_S: Final = 0.02
"""Seconds between two such turns, so that rounds over thousands of queues leave time for the rest."""
STALL_S: Final = 1.5
"""Seconds without a turn that count as a stall of this loop, for which nobody else is blamed."""
SHARE: Final = 256
"""Queues that one round checks for retention."""
PRODUCERS_EVERY: Final = 600.0
"""Seconds between two scans for idle producers."""
EXPIRED_AT_ONCE: Final = 10_000
"""Producers of a queue that one scan forgets."""
SURELY_IDLE: Final = 3_600.0
"""Seconds for which a producer must be found idle before it is forgotten. If the wall clock is set
forward, all producers look idle, and active ones send again within this time."""


@dataclass(slots=True)
class _Round:
    """A round under way."""

    left: Iterator[Replica]
    """Queues led when it began that were not looked at yet."""
    next_at: float
    """Monotonic time of the next round."""
    found: dict[tuple[QueueKey, int, Position], float] | None
    """The idle producers that were known before, if it looks for them; None: it does not."""

    def take_share(self) -> tuple[list[Replica], bool]:
        """Return the queues to look at in this turn, and True if there may be others."""
        share: list[Replica] = []
        windows = 0
        for replica in self.left:
            share.append(replica)
            windows += len(replica.windows) if self.found is not None else 0
            if len(share) >= LOOKED_AT_ONCE or windows >= WINDOWS_AT_ONCE:
                return share, True
        return share, False


class Maintenance(Service):
    """The periodic rounds over the queues that this broker leads."""

    def __init__(
        self,
        context: BrokerContext,
        replicate_handler: ReplicateHandler,
        produce_handler: ProduceHandler,
        producers: ProducerShares,
        isr: IsrKeeper,
        fetchers: ReplicaFetchers,
        trimmer: LogTrimmer,
    ) -> None:
        self._config = context.config
        self._settings = context.settings
        self._queues = context.queues
        self._links = context.links
        self._servers = context.servers
        self._stats = context.stats
        self._replicate_handler = replicate_handler
        self._produce_handler = produce_handler
        self._producers = producers
        self._isr = isr
        self._fetchers = fetchers
        self._trimmer = trimmer
        self.next_at = float("-inf")
        """Monotonic time of the next slice, or of the next round."""
        self._round: _Round | None = None
        self._last_turn = float("inf")
        self._producers_at = float("inf")
        self._idle: dict[tuple[QueueKey, int, Position], float] = {}
        """Idle producers of a queue, with the end of their last batch, and since when they have
        been idle."""

    def returned(self, turn: BrokerTurn) -> None:
        """Grant everybody the time for which this loop was stalled. Call this first in each turn.

        Only the stall itself is granted: a peer that was silent before has that much less time
        left.
        """
        now = turn.mono
        away = now - self._last_turn
        if away > STALL_S:
            self._stats.count("absences")
            turn.out.notes.append(note("loop_stalled", seconds=round(away, 1)))
            self._replicate_handler.forgive(now, away)
            for replica in self._queues.led.values():
                assert replica.leading is not None
                for progress in replica.leading.followers.values():
                    progress.forgive(now, away)
        self._last_turn = now

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        return self.next_at

    def step(self, turn: BrokerTurn) -> None:
        """Run the next slice of a round, if it is time."""
        if turn.mono < self.next_at:
            return
        if self._round is None:
            self._round = self._begin_round(turn)
        share, more = self._round.take_share()
        self._look_at(share, turn)
        if self._round.found is not None:
            self._expire_producers(share, self._round.found, turn)
        if more:
            self.next_at = turn.mono + SLICE_INTERVAL_S
            return
        self.next_at = max(self._round.next_at, turn.mono + SLICE_INTERVAL_S)
        self._round = None
        self._trimmer.step(turn)
        self._hang_up(turn)

    def _begin_round(self, turn: BrokerTurn) -> _Round:
        found = None
        if self._producers_at == float("inf"):
            self._producers_at = turn.mono + PRODUCERS_EVERY
        if turn.mono >= self._producers_at:
            self._producers_at = turn.mono + PRODUCERS_EVERY
            found, self._idle = self._idle, {}
        return _Round(iter([*self._queues.led.values()]), turn.mono + ROUND_INTERVAL_S, found)

    def _look_at(self, replicas: Sequence[Replica], turn: BrokerTurn) -> None:
        """Forget producers that wait no longer, and shrink and grow the ISRs."""
        heard = self._replicate_handler.heard()
        period = self._config.out_of_sync_ms / 1000
        for replica in replicas:
            leading = replica.leading
            if leading is None:
                continue
            self._produce_handler.expire(leading, turn.mono)
            if len(leading.isr) > 1:
                slow = leading.laggards(replica.end, turn.mono, period, heard)
                if slow:
                    self._isr.shrink(replica, slow)
            if len(leading.isr) < len(leading.replicas):
                self._grow(replica, leading, heard, turn.mono, period)

    def _grow(
        self,
        replica: Replica,
        leading: Leadership,
        heard: dict[str, float],
        now: float,
        period: float,
    ) -> None:
        """Ask again to add followers that are caught up and have nothing new to report.

        An earlier request was rejected, or another change was in progress.
        """
        for broker in leading.followers:
            alive = now - heard.get(broker, float("-inf")) < period
            if alive and leading.may_join(broker, replica.hw, replica.end, now, period, heard):
                self._isr.grow(replica, broker)

    def _hang_up(self, turn: BrokerTurn) -> None:
        self._links.keep_only({*self._servers.endpoints, *self._fetchers.endpoints()}, turn)

    def _expire_producers(
        self,
        replicas: Sequence[Replica],
        found: dict[tuple[QueueKey, int, Position], float],
        turn: BrokerTurn,
    ) -> None:
        """Forget the producers of some queues that were found idle before, for long enough."""
        expiry_ms = self._settings.producer_expiry_ms
        before_ms = turn.now.wall_ms - expiry_ms
        for replica in replicas:
            if not replica.may_append:
                continue
            gone: list[int] = []
            # A clock that was ahead gave times of the future: how old these are, only ours can tell.
            unsure = replica.windows.ahead(turn.now.wall_ms)
            for producer, last in (replica.windows.idle(before_ms) | unsure).items():
                idle = (replica.key, producer, last)
                self._idle[idle] = since = found.get(idle, turn.mono)
                idle_s = max(SURELY_IDLE, expiry_ms / 1000 if producer in unsure else 0.0)
                if turn.mono - since >= idle_s and len(gone) < EXPIRED_AT_ONCE:
                    gone.append(producer)
            if gone:
                self._producers.forget(replica, gone, turn)


class LogTrimmer:
    """Retention: removes the old entries of all queues, some queues at a time."""

    def __init__(
        self,
        context: BrokerContext,
        replicate_handler: ReplicateHandler,
        repair: ReplicaRepair,
        compactor: Compactor,
        retell: Callable[[Replica, BrokerTurn], None],
    ) -> None:
        """Create a trimmer; `retell` writes complete cursors where older ones block retention."""
        self._settings = context.settings
        self._queues = context.queues
        self._routes = context.routes
        self._stats = context.stats
        self._replicate_handler = replicate_handler
        self._repair = repair
        self._compactor = compactor
        self._relocator = ParkedRelocator(context, replicate_handler.appended)
        self._retell = retell
        self._ages: dict[QueueKey, KnownAge] = {}
        """Of logs whose append times lie in the future."""
        self._checked_at = float("-inf")
        """When the last check began."""
        self._to_trim: list[QueueKey] = []
        self._copying = False
        """Compaction has not copied all that it keeps of the queue that is trimmed now."""

    def step(self, turn: BrokerTurn) -> None:
        """Check the next queues, if it is time."""
        every_s = self._settings.retention_check_ms / 1000
        if not self._to_trim and turn.mono >= self._checked_at + every_s:
            self._checked_at = turn.mono
            self._to_trim = list(self._queues.replicas)
            self._ages = {key: age for key, age in self._ages.items() if key in self._queues.led}
        share, self._to_trim = self._to_trim[:SHARE], self._to_trim[SHARE:]
        for key in share:
            replica = self._queues.replicas.get(key)
            if replica is None or replica.damage is not None:
                continue
            more = self._forget_tombstones(replica, turn)
            self._copying = False
            if self._trim(replica, turn) or more or self._copying:
                self._to_trim.append(key)

    def _forget_tombstones(self, replica: Replica, turn: BrokerTurn) -> bool:
        """Remove tombstones that compaction has kept long enough; True if there may be more."""
        try:
            return self._compactor.forget_tombstones(replica, turn)
        except DataDamaged as error:
            self._compactor.broken(replica, error, turn)
            return False

    def _trim(self, replica: Replica, turn: BrokerTurn) -> bool:
        """Trim a log by the topic's retention, or a follower's by its leader's log start."""
        topic = self._routes.topics.get(replica.topic)
        limit = min(replica.readable, replica.applied).offset
        if topic is None or replica.restoring or replica.role == "none" or limit <= replica.start:
            return False
        if replica.role == "leader":
            ms, size = topic.config.retention_ms, topic.config.retention_bytes
            if ms < 0 and size < 0:
                return False
            aged = self._aged_offset(replica, ms, turn)
            keep = RetentionPolicy(None if ms < 0 else ms, None if size < 0 else size, aged)
        else:
            limit, keep = min(limit, replica.leader_start), RetentionPolicy(None, 0)
            if limit <= replica.start:
                return False
        try:
            limit = min(limit, replica.parked.limit(replica.applied, self._queues.storage))
            limit = min(limit, replica.cursors.limit(replica.applied))
            if replica.role == "leader":
                self._retell(replica, turn)
            uncertain = 0
            if replica.role == "leader" and keep.max_bytes is not None:
                above = entries(replica, self._queues.storage, replica.hw, replica.end)
                uncertain = sum(len(entry) for entry, _ in above)
            record = self._expire(replica, keep, limit, uncertain, turn)
            if record is not None:
                start = Position(record.start)
                replica.parked.trim(start, turn.writes, self._queues.storage)
                replica.borrowing.trim(start, turn.writes, self._queues.storage)
            carried = record is None and self._relocator.relocate(replica, keep, turn)
        except DamagedEntry as error:
            self._repair.found(replica, error)
            return False
        except (DataDamaged, DamagedBatch) as error:
            self._repair.found(replica, DamagedEntry(error.text, Position(replica.start)))
            return False
        if record is None:
            return carried
        replica.trimmed(record.start, record.size)
        self._queues.touch(replica)
        self._stats.count("trims")
        if replica.role == "leader":
            self._replicate_handler.hw_moved(replica, turn)
            self._retell(replica, turn)
        return True

    def _aged_offset(self, replica: Replica, max_age_ms: int, turn: BrokerTurn) -> int:
        """Return an offset before which all is too old, where append times lie in the future."""
        if max_age_ms < 0 or replica.append_time_ms <= turn.now.wall_ms:
            self._ages.pop(replica.key, None)
            return 0
        age = self._ages.setdefault(replica.key, KnownAge())
        return age.see(replica.hw.offset, max_age_ms, turn.mono)

    def _expire(
        self, replica: Replica, keep: RetentionPolicy, limit: int, uncertain: int, turn: BrokerTurn
    ) -> LogState | None:
        """Remove what has expired, once compaction has copied what it keeps."""

        def reckon(limit: int) -> LogState | None:
            return plan_removal(
                self._queues.storage,
                *replica.key,
                replica.record(),
                keep=keep,
                limit=limit,
                wall_ms=turn.now.wall_ms,
                uncertain=uncertain,
            )

        record = reckon(limit)
        if record is None:
            return None
        try:
            room, self._copying = self._compactor.make_room(replica, record.start, turn)
            if room < record.start:
                record = reckon(room) if room > replica.start else None
            if record is None:
                return None
        except DataDamaged as error:
            self._compactor.broken(replica, error, turn)
            return None
        stage_removal(turn.writes, *replica.key, record, replica.index)
        return record
