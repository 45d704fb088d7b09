"""The rules Q10 to Q14 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pytest
from rocksdict import DBRecoveryMode

from logboom.client.fetch.fetcher import Fetcher
from logboom.client.subscriptions.subscribed_queue import SubscribedQueue
from logboom.metadata.duties.liveness import Liveness
from logboom.metadata.state import broker_commands, leadership_commands, loss_commands
from logboom.metadata.tables import cluster_state, replica_set
from logboom.nodes import replica_roles
from logboom.nodes.cluster.lease import Lease
from logboom.nodes.cluster.registration import Registration
from logboom.nodes.disk import rocks_storage
from logboom.nodes.disk.committer import Committer
from logboom.nodes.disk.data_folder import DataFolder
from logboom.nodes.disk.journal_records import JournalReplay
from logboom.nodes.disk.write_journal import WriteJournal
from logboom.nodes.log import index, index_rows
from logboom.nodes.log.keys import Position
from logboom.nodes.replica import replica
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.replication import loss_reports, replicate_handler
from logboom.wire.actor import Synced
from tests.sim.world.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from logboom.nodes.disk.journal_records import JournalEntry, SegmentHeader
    from logboom.nodes.log.keys import Position as At
    from logboom.nodes.log.log_state import LogState
    from logboom.nodes.log.storage import Operation, WriteSet
    from logboom.nodes.log.tail_cache import TailCache
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.commands import LossEnd
    from logboom.wire.head import BatchHead
    from tests.sim.breaks.queues import Patch


def the_end_is_written_later(patch: Patch) -> None:
    """Q10: family `state` describes the log as it was one turn earlier."""
    stage = replica.Replica.stage_record
    record = replica.Replica.record
    before: WeakKeyDictionary[Replica, LogState] = WeakKeyDictionary()

    def late(self: Replica, writes: WriteSet, windows_every: int = 4 << 20) -> None:
        with pytest.MonkeyPatch.context() as now:
            now.setattr(replica.Replica, "record", lambda it: before.get(it, record(it)))
            stage(self, writes, windows_every)
        before[self] = record(self)

    patch.setattr(replica.Replica, "stage_record", late)


def append_time_follows_the_clock(patch: Patch) -> None:
    """Q10: the append time is the wall clock's, even if that was set back."""
    append = replica.Replica.append_batch

    def plain(
        self: Replica,
        batch: bytes,
        head: BatchHead,
        wall_ms: int,
        writes: WriteSet,
        cache: TailCache,
    ) -> replica.AppendResult:
        self.append_time_ms = 0
        return append(self, batch, head, wall_ms, writes, cache)

    patch.setattr(replica.Replica, "append_batch", plain)


def leases_never_end(patch: Patch) -> None:
    """Q11: a leader whose lease has expired still answers the ends of its queues."""
    patch.setattr(Lease, "holds", lambda self, _now: self.until > float("-inf"))


def roles_change_all_at_once(patch: Patch) -> None:
    """Q11: a broker gives thousands of queues their roles in one turn, without a heartbeat."""
    patch.setattr(replica_roles, "QUEUES_AT_ONCE", 1 << 30)


def answers_look_at_all_news(patch: Patch) -> None:
    """Q11: a leader looks at everything that a follower may have to be told in each turn."""
    patch.setattr(replicate_handler, "GATHERED_AT_ONCE", 1 << 30)


def a_silence_of_all_fences_all(patch: Patch) -> None:
    """Q11: a session counts only what is heard of its own broker, whoever else is silent."""
    patch.setattr(Liveness, "_end", lambda _self, session, _latest: session.ends)


def new_metadata_counts_at_once(patch: Patch) -> None:
    """Q11: metadata counts as known before all replicas have their roles by it."""
    advance = vars(ReplicaRoles)["_advance"]

    def early(self: ReplicaRoles, turn: BrokerTurn) -> None:
        advance(self, turn)
        vars(self)["_applied"].reach(vars(self)["_routes"].version)

    patch.setattr(ReplicaRoles, "_advance", early)


def changes_put_versions_off(patch: Patch) -> None:
    """Q11: a version counts only once nothing is left of what has changed since."""
    apply = ReplicaRoles.apply

    def together(self: ReplicaRoles, names: Iterable[str], turn: BrokerTurn) -> None:
        apply(self, names, turn)
        parts = vars(self)
        known = vars(ReplicaRoles)["_known"]
        parts["_pending"].update({name: known(self, name) for name in parts["_later"]})
        parts["_later"].clear()

    patch.setattr(ReplicaRoles, "apply", together)


def new_queues_hold_up_versions(patch: Patch) -> None:
    """Q11: a version counts only once all replicas that it brings are open."""
    patch.setattr(ReplicaRoles, "_sort_out", lambda _self, names: [*names])


def leases_from_the_answer(patch: Patch) -> None:
    """Q11: the lease counts from the arrival of the grant, not from sending the heartbeat."""
    beaten = vars(Registration)["_beaten"]

    def late(
        self: Registration, endpoint: str, _sent: float, epoch: int, reply: object, turn: BrokerTurn
    ) -> None:
        beaten(self, endpoint, turn.mono, epoch, reply, turn)

    patch.setattr(Registration, "_beaten", late)


def state_runs_ahead(patch: Patch) -> None:
    """Q12: the index takes entries that are not below the HW."""
    advance = index.QueueIndex.advance

    def ahead(self: index.QueueIndex, writes: WriteSet, _hw: At, blocks: int = 4) -> bool:
        return advance(self, writes, Position(1 << 60), blocks)

    patch.setattr(index.QueueIndex, "advance", ahead)


def lookups_begin_again(patch: Patch) -> None:
    """Q12: a lookup by time that was broken off begins where it began."""
    look = index.QueueIndex.offset_for_time

    def again(
        self: index.QueueIndex,
        time_ms: int,
        log_start: int,
        hw: At,
        writes: WriteSet | None = None,
    ) -> tuple[int, int]:
        self._passed.clear()
        return look(self, time_ms, log_start, hw, writes)

    patch.setattr(index.QueueIndex, "offset_for_time", again)


def runs_are_later_than_told(patch: Patch) -> None:
    """Q12: the greatest time of a run of blocks is too low."""
    put = index_rows.put_run

    def last(
        writes: WriteSet,
        topic_id: int,
        queue: int,
        level: int,
        first_offset: int,
        run: index_rows.TimedRun,
    ) -> None:
        run = run._replace(greatest_ms=run.greatest_ms - 1)
        put(writes, topic_id, queue, level, first_offset, run)

    patch.setattr(index_rows, "put_run", last)


def suspects_are_trusted(patch: Patch) -> None:
    """Q13: a broker whose log was damaged stays in its ISRs."""

    def stay(s: replica_set.ReplicaSet, _need: int, broker: str) -> replica_set.ReplicaSet:
        return s

    patch.setattr(broker_commands, "_doubt", stay)


def logs_open_in_the_default_mode(patch: Patch) -> None:
    """Q13: the damaged write-ahead log of an older store is silently opened up to the damage (and the
    count of synced writes, which would reveal it, is off)."""
    modes = SimpleNamespace(
        tolerate_corrupted_tail_records=DBRecoveryMode.point_in_time,
        point_in_time=DBRecoveryMode.point_in_time,
    )
    patch.setattr(rocks_storage, "DBRecoveryMode", modes)
    patch.setattr(DataFolder, "synced", lambda _self: 0)


def journals_prove_nothing(patch: Patch) -> None:
    """Q13: a damaged journal is silently replayed up to the damage (and the count of synced writes,
    which would reveal it, is off)."""
    take = JournalReplay.take

    def unproven(
        self: JournalReplay, header: SegmentHeader, content: bytes
    ) -> Iterator[tuple[int, list[Operation]]]:
        yield from take(self, header, content)
        self.proven = 0

    patch.setattr(JournalReplay, "take", unproven)
    patch.setattr(DataFolder, "synced", lambda _self: 0)


def segments_are_used_again_at_once(patch: Patch) -> None:
    """Q13: a segment of the journal is used again although RocksDB has not flushed what is in it."""
    write = WriteJournal.write

    def hasty(
        self: WriteJournal, entries: Sequence[JournalEntry], _flushed: Callable[[], int]
    ) -> None:
        write(self, entries, lambda: entries[-1].number)

    patch.setattr(WriteJournal, "write", hasty)


def manifests_are_believed(patch: Patch) -> None:
    """Q14: RocksDB opens whatever its MANIFEST still lists, and removes all other files."""
    patch.setattr(rocks_storage, "_missing", lambda *_, **__: "")


def the_damaged_stay(patch: Patch) -> None:
    """Q14: a replica that reports damage is marked, and stays in the ISR."""

    def marked(s: replica_set.ReplicaSet, broker: str, _need: int) -> replica_set.ReplicaSet:
        return replica_set.intern_replica_set(
            s.replicas, s.leader, s.isr, s.eligible, s.suspect, {*s.damaged, broker}, s.lost
        )

    patch.setattr(leadership_commands, "damage", marked)


def commits_outlive_their_log(patch: Patch) -> None:
    """Q15: the end of a loss is noted, and the commits of groups stay where they are."""
    patch.setattr(loss_commands, "cut_commits", lambda *_: 0)


def a_new_disk_leads_unnoticed(patch: Patch) -> None:
    """Q15: a leader that was in the ISR counts as complete, whatever became of its store."""
    may_lack = replica_set.may_lack

    def trusting(s: replica_set.ReplicaSet, after: replica_set.ReplicaSet) -> bool:
        return after.leader not in s.isr and may_lack(s, after)

    for module in (broker_commands, cluster_state):
        patch.setattr(module, "may_lack", trusting)


def losses_are_reported_before_the_sync(patch: Patch) -> None:
    """Q15: a leader reports an end that is not on its disk yet."""
    ends = loss_reports.LossReports._ends  # noqa: SLF001 - the break calls the method that it replaces

    def early(self: loss_reports.LossReports, key: tuple[int, int]) -> list[LossEnd]:
        held = self._queues.replicas.get(key)
        if held is None:
            return []
        with pytest.MonkeyPatch.context() as now:
            now.setattr(held, "synced", held.end)
            return ends(self, key)

    patch.setattr(loss_reports.LossReports, "_ends", early)


def readers_outlive_their_log(patch: Patch) -> None:
    """Q15: a reader stays where it was when its queue has lost what it had read."""
    patch.setattr(Fetcher, "_follow_losses", lambda *_: None)


def acknowledgements_outlive_their_log(patch: Patch) -> None:
    """Q15: a subscriber keeps what it knows of messages that are lost."""
    patch.setattr(SubscribedQueue, "cut", lambda *_: None)


def lost_stores_are_forgotten(patch: Patch) -> None:
    """Q3: nobody remembers which store a queue had before its only replica came without it."""
    patch.setattr(broker_commands, "_held_alone", lambda *_: False)


def committers_tell_too_early(patch: Patch) -> None:
    """Q1: the real committer reports `Synced` first and syncs afterwards."""
    sync = vars(Committer)["_sync"]

    def told(self: Committer, token: int, size: int) -> bool:
        vars(self)["_done"].append(Synced(token))
        return bool(sync(self, token, size))

    patch.setattr(Committer, "_sync", told)


def committers_go_on(patch: Patch) -> None:
    """Q14: the real committer goes on syncing after an fsync has failed."""
    sync = vars(Committer)["_sync"]

    def goes_on(self: Committer, token: int, size: int) -> bool:
        sync(self, token, size)
        return True

    patch.setattr(Committer, "_sync", goes_on)


def failed_syncs_are_repeated(patch: Patch) -> None:
    """Q14: an fsync that failed is repeated, and then succeeds."""
    done = vars(Process)["_sync_done"]

    def again(self: Process, token: int, mark: int) -> None:
        if self.running and self.storage is not None and self.storage.refuses:
            self.storage.sync_failed(mark, vars(self)["_rng"])
        done(self, token, mark)

    patch.setattr(Process, "_sync_done", again)
