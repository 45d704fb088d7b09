"""Rules of batches that wait, broken on purpose: `tests.sim.broken` says who must notice."""

from __future__ import annotations

from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import ProducerWindows
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.parking import release_scheduler as parked_release
from logboom.nodes.parking import relocation as parked_carry
from logboom.nodes.replica import replica as replicas
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.parked_queue import ApplyResult, ParkedQueue
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replica_fetcher import ReplicaFetchers
from logboom.wire.head import BatchHead, ControlKind, peek
from tests.sim.breaks.queues import Patch


def retries_park_again(patch: Patch) -> None:
    """Q9: parked batches are missing from the windows of their producers."""
    add = ProducerWindows.add

    def unparked(
        self: ProducerWindows,
        head: BatchHead,
        at: Position,
        append_time_ms: int,
        hw: Position,
        *,
        parked: bool = False,
    ) -> None:
        if not parked:
            add(self, head, at, append_time_ms, hw)

    patch.setattr(ProducerWindows, "add", unparked)


def releases_before_the_hw(patch: Patch) -> None:
    """Q12: a new leader releases parked batches wherever its HW is."""

    def certain(replica: Replica, leading: Leadership) -> bool:
        return replica.damage is None and leading.enough_in_sync

    patch.setattr(parked_release, "is_certain", certain)
    patch.setattr(parked_carry, "is_certain", certain)


def parkings_run_ahead(patch: Patch) -> None:
    """Q12: parked rows are derived from all entries, even from those above the HW."""
    apply = ParkedQueue.apply

    def ahead(self: ParkedQueue, hw: Position, storage: Storage, writes: WriteSet) -> ApplyResult:
        noted = vars(self)["_noted"]
        if noted:
            last = noted[-1].at
            hw = max(hw, Position(last.offset, last.side + 1))
        return apply(self, hw, storage, writes)

    patch.setattr(ParkedQueue, "apply", ahead)


def bodies_are_not_compared(patch: Patch) -> None:
    """W2: a follower rebuilds a released batch from any batch that is parked, and compares no
    checksum."""

    def parked(_self: ReplicaFetchers, replica: Replica, _at: Position) -> bytes | None:
        waits = (e for e, _ in replica.tail.values() if peek(e).kind == ControlKind.PARKED)
        return next(waits, None)

    patch.setattr(ReplicaFetchers, "_parked", parked)
    patch.setattr(replicas, "validate_batch", peek)
