"""The events that follow from a queue's next replica set: elections, changes of the ISR, moves.

All of them pass through `ClusterState.place`, whatever command brings them about. Only the Raft leader
asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from logboom.wire.actor import Note, note
from logboom.wire.event_table import Plain

if TYPE_CHECKING:
    from logboom.metadata.tables.replica_set import Ids, ReplicaSet


class Placement(NamedTuple):
    """A queue that has its next replica set."""

    topic: str
    queue: int
    epoch: int
    needed: int
    """Copies that it needs in sync."""
    before: ReplicaSet
    after: ReplicaSet
    elected: bool
    """True if the epoch is new."""
    lacks: bool
    """True if the leader may lack what was committed."""


def is_visible(before: ReplicaSet, after: ReplicaSet) -> bool:
    """Return True if a change that is no election has events."""
    return (before.isr, before.replicas, before.adding) != (after.isr, after.replicas, after.adding)


def notes_on(placement: Placement) -> Iterator[Note]:
    """Yield what has happened to a queue."""
    before, after, epoch = placement.before, placement.after, placement.epoch
    where: dict[str, Plain] = {"topic": placement.topic, "queue": placement.queue}
    in_sync: list[Plain] = [*after.isr]
    if placement.elected and after.leader is None:
        text = "start a broker that was in sync: `logboom topic describe` names them"
        yield note(
            "leader_missing",
            **where,
            was=before.leader,
            epoch=epoch,
            in_sync=in_sync,
            text=text,
        )
    elif placement.elected:
        yield note(
            "unclean_election" if placement.lacks else "election",
            **where,
            leader=after.leader,
            was=before.leader,
            epoch=epoch,
            in_sync=in_sync,
        )
    if after.isr != before.isr:
        yield from _changes_of_isr(placement, where)
    if (after.replicas, after.moving) != (before.replicas, before.moving):
        yield from _moves(before, after, where)


def _changes_of_isr(placement: Placement, where: dict[str, Plain]) -> Iterator[Note]:
    before, after, needed = placement.before, placement.after, placement.needed
    in_sync: list[Plain] = [*after.isr]
    left, joined = _missing(before.isr, after.isr), _missing(after.isr, before.isr)
    if left:
        yield note("isr_shrunk", **where, left=left, in_sync=in_sync)
    if joined:
        yield note("isr_expanded", **where, joined=joined, in_sync=in_sync)
    if len(after.isr) < needed <= len(before.isr):
        yield note("too_few_in_sync", **where, in_sync=in_sync, needed=needed)


def _moves(before: ReplicaSet, after: ReplicaSet, where: dict[str, Plain]) -> Iterator[Note]:
    replicas: list[Plain] = [*after.target]
    if after.moving:
        if (after.target, after.adding) != (before.target, before.adding):
            added: list[Plain] = [*after.adding]
            removed: list[Plain] = [*after.removing]
            yield note("move_begun", **where, replicas=replicas, added=added, removed=removed)
    elif not before.moving:
        removed = _missing(before.replicas, after.replicas)
        yield note("replicas_changed", **where, replicas=replicas, removed=removed or None)
    elif {*after.replicas} == {*before.target}:
        yield note("move_completed", **where, replicas=replicas)
    else:
        yield note("move_cancelled", **where, replicas=replicas)


def _missing(ids: Ids, among: Ids) -> list[Plain]:
    return [each for each in ids if each not in among]
