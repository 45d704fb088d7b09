"""Plans for queues that have to be moved: repairs, other numbers of replicas, and drains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from logboom.metadata.planning.cluster_picture import (
    QUEUES_PER_SLICE,
    ClusterPicture,
    PlannedBroker,
    PlannedMoveOf,
    zones_of,
)
from logboom.metadata.planning.words import counted
from logboom.metadata.tables.cluster_state import Queue
from logboom.wire.operation_messages import MoveReason

REPAIR_DISK_SHARE: Final = 0.9
"""Share of a disk up to which it takes replicas that have to be somewhere."""
REMOVED_AT_ONCE: Final = 100
"""Moves of a round that copy nothing."""
WORK_IN_ALL: Final = 6_000
"""Work of a round for queues of one kind; the others wait for the next round."""
TRY_WORK: Final = 3
"""Work of planning for one queue; to examine one in the survey is 1."""
TRIED_FIRST: Final = WORK_IN_ALL // (2 * TRY_WORK)
"""Queues by which the next round begins further on."""
SEARCH_WORK: Final = 10
"""Work of the search for a destination."""


@dataclass(slots=True)
class MovePlan:
    """What a round has planned, and what keeps it from more."""

    moves: list[PlannedMoveOf] = field(default_factory=list)
    waits: dict[str, int] = field(default_factory=dict)
    """Reasons that end by themselves → number of queues."""
    stalls: dict[str, int] = field(default_factory=dict)
    """Reasons that somebody has to remove → number of queues."""

    def wait(self, why: str) -> None:
        """Note a reason that ends by itself."""
        self.waits[why] = self.waits.get(why, 0) + 1

    def stall(self, why: str) -> None:
        """Note a reason that does not end by itself."""
        self.stalls[why] = self.stalls.get(why, 0) + 1


def plan_repairs(
    picture: ClusterPicture,
    needs: Sequence[tuple[MoveReason, Queue]],
    plan: MovePlan,
    refused: dict[tuple[int, int], str],
    number: int = 0,
) -> Iterator[int]:
    """Plan moves for queues that need one; yield the work since the last yield.

    Args:
        refused: (topic id, queue) → why the name servers refused its last move; not tried again yet.
        number: of the round: where there are many queues, each round begins with others.
    """
    work = whole = removals = 0
    first = number * TRIED_FIRST % len(needs) if len(needs) > TRIED_FIRST else 0
    search = _Search(picture)
    for reason, queue in chain(needs[first:], needs[:first]):
        if work >= QUEUES_PER_SLICE:
            whole += work
            yield work
            work = 0
            if whole >= WORK_IN_ALL:
                plan.wait("other moves come first")
                return
        work += TRY_WORK
        if not picture.knows(queue.standing):
            continue
        if queue.topic.restoring:
            # What its leader has yet to get would be copied twice, and the restore waits for it.
            plan.wait("queues that are being restored are moved afterwards")
            continue
        refusal = refused.get((queue.topic.id, queue.index))
        if refusal is not None:
            plan.stall(refusal)
            continue
        searches = search.count
        move = _plan_one(search, reason, queue, plan)
        work += SEARCH_WORK * (search.count - searches)
        if move is None:
            continue
        if all(broker in queue.standing.replicas for broker in move.target):
            if removals >= REMOVED_AT_ONCE:
                plan.wait("other moves come first")
                continue
            removals += 1
        picture.begin(move)
        plan.moves.append(move)
    yield work


class _Search:
    """The search for destinations in one round. In it brokers only fill up, so what was found full
    stays so."""

    def __init__(self, picture: ClusterPicture) -> None:
        self.picture = picture
        self.count = 0
        """Searches that were made."""
        self._in_vain: dict[tuple[tuple[str, ...], tuple[str, ...], int, int], str] = {}

    def destination(
        self, queue: Queue, target: list[PlannedBroker], missing: int, least_zones: int, size: int
    ) -> tuple[PlannedBroker | None, str]:
        """Return the best broker for another replica; or None, and why there is none."""
        ids = tuple(broker.id for broker in target)
        key = (queue.standing.replicas, ids, missing, least_zones)
        why = self._in_vain.get(key)
        if why is not None:
            return None, why
        self.count += 1
        found, why = _destination(self.picture, queue, target, missing, least_zones, size)
        if found is None and not why.startswith(DISK):
            self._in_vain[key] = why
        return found, why


def _plan_one(
    search: _Search, reason: MoveReason, queue: Queue, plan: MovePlan
) -> PlannedMoveOf | None:
    """Plan the target of a queue in which nobody leaves and the wanted number is there."""
    standing, picture = queue.standing, search.picture
    before = picture.holders(standing.target)
    wanted = queue.topic.replicas or len(before)
    if standing.leader is None:
        plan.stall(f"queue {queue.topic.name}/{queue.index} has no leader to copy from")
        return None
    if reason != "repair" and len(standing.isr) < queue.need:
        plan.wait("queues below min_in_sync are repaired first")
        return None
    # Those that stay longest come first: the dead give their places before the drained.
    kept = [broker for broker in before if not broker.leaving]
    leaving = sorted(
        (broker for broker in before if broker.leaving), key=lambda broker: broker.gone
    )
    while len(kept) > wanted:
        kept.remove(_least_needed(kept, queue))
    size = picture.loads.size_bytes(queue)
    original = picture.holders(standing.original)
    least_zones = min(max(zones_of(before), zones_of(original)), wanted)
    target, why = list(kept), ""
    if len(target) < wanted and not _may_begin(picture, queue, plan):
        return None
    while len(target) < wanted:
        found, why = search.destination(queue, target, wanted - len(target), least_zones, size)
        if found is None:
            break
        target.append(found)
    # Who leaves stays for as long as nobody else is there.
    for broker in leaving:
        shares_host = broker.host and any(each.host == broker.host for each in target)
        if len(target) < min(wanted, len(before)) and not shares_host:
            target.append(broker)
    ids = _ordered(before, target)
    if ids == tuple(broker.id for broker in before):
        (plan.wait if why.startswith(BUSY) else plan.stall)(why or "nowhere to go")
        return None
    dead = next((broker for broker in target if not broker.alive), None)
    if dead is not None and reason != "repair":
        plan.wait(f"{dead.id} is dead, and a move ends once all of its target are in sync")
        return None
    if zones_of(target) < min(least_zones, len(target)):
        plan.stall(f"nowhere to go that keeps {counted(least_zones, 'zone')}")
        return None
    return PlannedMoveOf(queue, ids, reason, size)


BUSY: Final = "busy: "
"""Begins reasons that end with the moves under way."""
DISK: Final = "destination disk at "
"""Begins the reason that a disk has no room for a queue."""


def _may_begin(picture: ClusterPicture, queue: Queue, plan: MovePlan) -> bool:
    rules, leader = picture.rules, queue.standing.leader
    if picture.begun >= rules.moves_in_all:
        plan.wait(f"{BUSY}{counted(picture.begun, 'move')} at once are the most")
        return False
    if leader is not None and picture.brokers[leader].sources >= rules.moves_per_source:
        plan.wait(f"{BUSY}{counted(rules.moves_per_source, 'move')} from {leader} are under way")
        return False
    return True


def _least_needed(kept: list[PlannedBroker], queue: Queue) -> PlannedBroker:
    """Return the replica to give up: one whose zone has others, then one that is not in sync, then
    the fullest; the leader only if there is no choice."""
    standing = queue.standing
    zones = zones_of(kept)

    def wish(broker: PlannedBroker) -> tuple[bool, bool, bool, int, int, str]:
        others = [each for each in kept if each is not broker]
        return (
            zones_of(others) < zones,
            broker.id in standing.isr,
            broker.id == standing.leader,
            -broker.size_bytes,
            -broker.replicas,
            broker.id,
        )

    return min(kept, key=wish)


def _destination(
    picture: ClusterPicture,
    queue: Queue,
    target: list[PlannedBroker],
    missing: int,
    least_zones: int,
    size: int,
) -> tuple[PlannedBroker | None, str]:
    """Return the best broker for another replica; or None, and why there is none."""
    standing = queue.standing
    hosts = {broker.host for broker in target} - {""}
    zones = {broker.zone for broker in target}
    limit = picture.rules.moves_per_destination
    free: list[PlannedBroker] = []
    crowded = busy = disk = 0.0
    there = 0
    for broker in picture.brokers.values():
        if not broker.takes_replicas:
            continue
        there += 1
        if broker.id in standing.replicas or broker in target:
            continue
        if broker.host in hosts:
            continue
        if len(zones | {broker.zone}) + missing - 1 < least_zones:
            crowded += 1
        elif (share := broker.disk_share(size)) > REPAIR_DISK_SHARE:
            disk = max(disk, share)
        elif broker.incoming >= limit:
            busy += 1
        else:
            free.append(broker)
    if free:
        best = min(
            free,
            key=lambda each: (each.zone in zones, each.size_bytes, each.replicas, each.id),
        )
        return best, ""
    wanted = queue.topic.replicas or len(standing.target)
    if busy:
        return None, f"{BUSY}{counted(limit, 'move')} to each broker are under way"
    if disk:
        return None, f"{DISK}{disk:.0%}"
    if crowded:
        return None, f"nowhere to go that keeps {counted(least_zones, 'zone')}"
    return None, f"{counted(wanted, 'replica')}, {counted(there, 'broker')}: nowhere to go"


def _ordered(before: list[PlannedBroker], target: list[PlannedBroker]) -> tuple[str, ...]:
    """Return a target in the order of before, newcomers at the places of those that left."""
    new = [broker for broker in target if broker not in before]
    placed: list[PlannedBroker] = []
    for broker in before:
        if broker in target:
            placed.append(broker)
        elif new:
            placed.append(new.pop(0))
    return tuple(broker.id for broker in [*placed, *new])
