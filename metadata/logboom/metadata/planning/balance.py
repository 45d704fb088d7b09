"""Plans that even out bytes, replicas and led queues of brokers.

A move is planned only between two brokers whose difference is beyond the hysteresis, and only if the
sum of the squared shares falls by it. The sum cannot fall for ever, so moves end and nothing goes to
and fro. Changes of the preferred leader copy nothing and do not change that sum; they go by a sum of
their own. A queue never gets fewer zones, nor two replicas on a host.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from logboom.metadata.planning.cluster_picture import (
    QUEUES_PER_SLICE,
    ClusterPicture,
    PlannedBroker,
    PlannedMoveOf,
    zones_of,
)
from logboom.metadata.planning.repairs import MovePlan
from logboom.metadata.planning.words import counted
from logboom.metadata.tables.cluster_state import ClusterState, Queue

SPREAD_SHARE: Final = 0.1
"""Difference of two brokers in bytes, as a share of the mean, up to which they count as even."""
SPREAD_REPLICAS: Final = 2
"""The same in replicas, and in led queues."""
SPREAD_BYTES: Final = 1024 * 1024
"""Difference in bytes that is never worth a move."""
REPLICA_WEIGHT: Final = 0.25
"""Weight of the evenness of replicas, with that of bytes at 1."""
BALANCE_DISK_SHARE: Final = 0.8
"""Share of a disk up to which it takes replicas for balance."""
CHOICE_WORK: Final = 40
"""Work of choosing a move; to examine a queue in the survey is 1."""
TRIED_PER_CHOICE: Final = 64
"""Queues of a broker that are tried for one move."""
DONORS_TRIED: Final = 8
"""Brokers that are tried for one move."""
REORDERED_AT_ONCE: Final = 20
"""Changes of a preferred leader in one round, so that not all producers are redirected at once."""


@dataclass(slots=True)
class _Donor:
    """A broker and the queues that it may give, by size."""

    broker: PlannedBroker
    sizes: list[int] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)


@dataclass(slots=True)
class BalanceLimits:
    """How much a plan may hold."""

    most: int
    """Maximum number of moves that copy data, those under way included."""
    per_source: int
    per_destination: int
    most_reordered: int = REORDERED_AT_ONCE
    only_filling: bool = True
    """True if only new brokers may get replicas."""
    settled_after_s: float = 0.0
    most_planned: int = 1_000
    """Maximum number of moves in the plan."""
    examined: int = 1_000_000
    """Maximum number of queues to look at."""
    skipped: int = 0
    """Queues that earlier plans have looked at in vain."""


class Balance:
    """One plan of balance. `steps` makes it, in slices."""

    def __init__(
        self, picture: ClusterPicture, cluster: ClusterState, limits: BalanceLimits
    ) -> None:
        self._picture = picture
        self._cluster = cluster
        self._limits = limits
        self.plan = MovePlan()
        self.filled: list[str] = []
        """New brokers that have their share."""
        self.more = False
        """True if there are queues left to look at."""
        self._donors: dict[str, _Donor] = {}
        self._moved: dict[Queue, tuple[str, ...]] = {}
        """Targets that this plan has given, so that a queue is moved once."""
        self._limited: set[str] = set()
        """Receivers that would get more, but for the limits of what moves at once."""
        self._work = 0
        even = [each for each in picture.brokers.values() if each.alive and not each.leaving]
        self._leaders = {each.id for each in picture.brokers.values() if each.takes_replicas}
        """Brokers that may lead more. Led queues are evened out among all of them, also where only a
        new broker gets replicas, since that moves no data."""
        leading = [picture.brokers[broker].preferred for broker in self._leaders]
        self._least_preferred = min(leading, default=0)
        self._mean_bytes = sum(each.size_bytes for each in even) / max(1, len(even))
        self._mean_replicas = max(1.0, sum(each.replicas for each in even) / max(1, len(even)))

    def steps(self) -> Iterator[int]:
        """MovePlan; yield the number of queues examined since the last yield."""
        receivers = self._receivers()
        yield from self._collect(receivers)
        if self._donors:
            for by_bytes in (True, False):
                yield from self._even_out(receivers, by_bytes=by_bytes)
            yield from self._even_leaders()
        if not self.plan.moves and not self.more:
            self.filled = [
                broker.id
                for broker in receivers
                if broker.filling and not broker.incoming and broker.id not in self._limited
            ]

    def _receivers(self) -> list[PlannedBroker]:
        found: list[PlannedBroker] = []
        for broker in self._picture.brokers.values():
            if self._limits.only_filling and not broker.filling:
                continue
            if not broker.takes_replicas:
                if broker.filling:
                    self.plan.wait(f"{broker.id} takes no replicas now")
            elif broker.back_s < self._limits.settled_after_s and not broker.filling:
                minutes = self._limits.settled_after_s / 60
                self.plan.wait(f"{broker.id} is back for less than {minutes:.0f} min")
            else:
                found.append(broker)
        return found

    def _collect(self, receivers: Sequence[PlannedBroker]) -> Iterator[int]:
        """List the queues of each broker that has more than a receiver by the hysteresis, by size.

        At most `limits.examined` queues are looked at, from the one on at which an earlier plan,
        which found nothing, has ended.
        """
        skip, left = self._limits.skipped, self._limits.examined
        for giver in self._givers(receivers):
            registration = self._cluster.brokers.get(giver.id)
            if registration is None:
                continue  # It was removed since this plan began.
            queues = registration.queues
            if skip >= len(queues):
                skip -= len(queues)
                continue
            taken = list(islice(queues, skip, skip + left))
            self.more = skip + len(taken) < len(queues)
            skip = 0
            left -= len(taken)
            donor = self._donors[giver.id] = _Donor(giver)
            sized: list[tuple[int, int, int, Queue]] = []
            for queue in taken:
                if self._work >= QUEUES_PER_SLICE:
                    yield self._work
                    self._work = 0
                self._work += 1
                standing = queue.standing
                if standing.moving or standing.leader is None:
                    continue
                if self._picture.knows(standing):
                    size = self._picture.loads.size_bytes(queue)
                    sized.append((size, queue.topic.id, queue.index, queue))
            # Two queues never have the same ids, so they are not compared themselves.
            sized.sort()
            donor.sizes = [each[0] for each in sized]
            donor.queues = [each[3] for each in sized]
            yield self._work
            self._work = 0
            if left <= 0:
                self.more = True
                break

    def _givers(self, receivers: Sequence[PlannedBroker]) -> list[PlannedBroker]:
        """Return the brokers that may give something: those in a receiver's zone first, since their
        moves keep the zones, and the fullest of these."""
        found: list[tuple[bool, float, str, PlannedBroker]] = []
        for giver in self._picture.brokers.values():
            if giver.id not in self._cluster.brokers:
                continue
            takers = [
                taker
                for taker in receivers
                if taker is not giver
                and (
                    self._differ(giver, taker, by_bytes=True)
                    or self._differ(giver, taker, by_bytes=False)
                )
            ]
            leads_more = giver.preferred - self._least_preferred > SPREAD_REPLICAS
            if takers or (receivers and leads_more):
                far = all(taker.zone != giver.zone for taker in takers)
                full = giver.size_bytes / max(1.0, self._mean_bytes)
                full += giver.replicas / self._mean_replicas
                found.append((far, -full, giver.id, giver))
        return [each[3] for each in sorted(found, key=lambda each: each[:3])]

    # ── bytes and replicas ──────────────────────────────────────────────────────────────────────

    def _even_out(self, receivers: Sequence[PlannedBroker], *, by_bytes: bool) -> Iterator[int]:
        open_receivers = list(receivers)
        while open_receivers and len(self.plan.moves) < self._limits.most_planned:
            receiver = min(
                open_receivers,
                key=lambda each: (each.size_bytes if by_bytes else each.replicas, each.id),
            )
            move = self._move_to(receiver, by_bytes=by_bytes)
            if move is None:
                open_receivers.remove(receiver)
            else:
                self._begin(move)
            if self._work >= QUEUES_PER_SLICE:
                yield self._work
                self._work = 0

    def _move_to(self, receiver: PlannedBroker, *, by_bytes: bool) -> PlannedMoveOf | None:
        """Return the move that evens out a receiver and a broker that has more; None if there is none."""
        donors = [
            donor
            for donor in self._donors.values()
            if donor.broker is not receiver
            and self._differ(donor.broker, receiver, by_bytes=by_bytes)
        ]
        self._work += CHOICE_WORK + len(self._donors)
        if not donors or not self._may_get_more(receiver):
            return None
        # Those of its own zone first: moves from others have to keep each queue in as many zones.
        donors.sort(
            key=lambda each: (
                each.broker.zone != receiver.zone,
                -(each.broker.size_bytes if by_bytes else each.broker.replicas),
                each.broker.id,
            )
        )
        for donor in donors[:DONORS_TRIED]:
            found = self._choose(donor, receiver, by_bytes=by_bytes)
            if found is not None:
                return found
        return None

    def _may_get_more(self, receiver: PlannedBroker) -> bool:
        limits = self._limits
        if receiver.incoming >= limits.per_destination:
            self.plan.wait(f"{counted(limits.per_destination, 'move')} to each broker at once")
        elif self._picture.begun >= limits.most:
            self.plan.wait(f"{counted(limits.most, 'move')} at once are the most")
        else:
            return True
        self._limited.add(receiver.id)
        return False

    def _differ(self, giver: PlannedBroker, taker: PlannedBroker, *, by_bytes: bool) -> bool:
        """Return True if two brokers differ by more than the hysteresis."""
        if not by_bytes:
            return giver.replicas - taker.replicas > SPREAD_REPLICAS
        difference = giver.size_bytes - taker.size_bytes
        return difference > max(SPREAD_SHARE * self._mean_bytes, SPREAD_BYTES)

    def _gain(self, giver: PlannedBroker, taker: PlannedBroker, size: int) -> float:
        """Return by how much the sum of the squared shares falls with a move."""
        mean = max(1.0, self._mean_bytes)
        of_bytes = size * (giver.size_bytes - taker.size_bytes - size) / mean**2
        replicas = giver.replicas - taker.replicas - 1
        return of_bytes + REPLICA_WEIGHT * replicas / self._mean_replicas**2

    def _choose(
        self, donor: _Donor, receiver: PlannedBroker, *, by_bytes: bool
    ) -> PlannedMoveOf | None:
        """Choose the queue whose move evens two brokers out best."""
        giver = donor.broker
        difference = giver.size_bytes - receiver.size_bytes
        count = len(donor.sizes)
        # By bytes from half of the difference downwards, then upwards: larger ones help less.
        middle = bisect_right(donor.sizes, difference // 2) if by_bytes else 0
        tried = 0
        for place in chain(range(middle - 1, -1, -1), range(middle, count)):
            queue, size = donor.queues[place], donor.sizes[place]
            self._work += 2
            if queue in self._moved:
                continue
            tried += 1
            if tried > TRIED_PER_CHOICE:
                break
            if self._gain(giver, receiver, size) <= 0:
                continue
            if by_bytes:
                helps = 0 < size < difference
            else:
                helps = 2 * size - difference <= SPREAD_SHARE * self._mean_bytes
            if not helps:
                continue
            target = self._target(queue, giver, receiver)
            if target is not None and self._has_room(receiver, queue, size):
                del donor.sizes[place], donor.queues[place]
                return PlannedMoveOf(queue, target, "balance", size)
        return None

    def _has_room(self, receiver: PlannedBroker, queue: Queue, size: int) -> bool:
        share = receiver.disk_share(size)
        leader = queue.standing.leader
        if share > BALANCE_DISK_SHARE:
            self.plan.stall(f"destination disk at {share:.0%}")
        elif leader is not None and (
            self._picture.brokers[leader].sources >= self._limits.per_source
        ):
            self.plan.wait(f"{counted(self._limits.per_source, 'move')} from each broker at once")
        else:
            return True
        self._limited.add(receiver.id)
        return False

    def _target(
        self, queue: Queue, giver: PlannedBroker, receiver: PlannedBroker
    ) -> tuple[str, ...] | None:
        """Return the target with a receiver in place of a giver, if zones and hosts allow it."""
        standing = queue.standing
        if standing.moving:
            return None  # Somebody has begun a move since this plan looked at it.
        if receiver.id in standing.replicas or giver.id not in standing.replicas:
            return None
        if not self._picture.knows(standing) or standing.leader is None:
            return None
        before = self._picture.holders(standing.replicas)
        after = [receiver if broker is giver else broker for broker in before]
        others = [broker for broker in before if broker is not giver]
        if receiver.host and any(broker.host == receiver.host for broker in others):
            return None
        if zones_of(after) < zones_of(before):
            return None
        return self._led(after, giver if before[0] is giver else None)

    @staticmethod
    def _led(after: list[PlannedBroker], giver: PlannedBroker | None) -> tuple[str, ...]:
        """Put the broker first that is to lead: the one with fewest, if the first one left."""
        first = after[0]
        least = min(after, key=lambda each: (each.preferred, each is not first))
        if giver is not None or first.preferred - least.preferred > SPREAD_REPLICAS:
            first = least
        return (first.id, *(each.id for each in after if each is not first))

    def _begin(self, move: PlannedMoveOf) -> None:
        self._moved[move.queue] = move.target
        self._picture.begin(move)
        self.plan.moves.append(move)

    # ── leaders ─────────────────────────────────────────────────────────────────────────────────

    def _even_leaders(self) -> Iterator[int]:
        """Make others the preferred leaders of queues where one broker has too many."""
        brokers = self._picture.brokers
        reordered = 0
        for donor in sorted(
            self._donors.values(), key=lambda each: (-each.broker.preferred, each.broker.id)
        ):
            for queue in donor.queues:
                if self._work >= QUEUES_PER_SLICE:
                    yield self._work
                    self._work = 0
                self._work += 1
                if reordered >= self._limits.most_reordered or (
                    len(self.plan.moves) >= self._limits.most_planned
                ):
                    return
                target = queue.standing.target
                if target[0] != donor.broker.id or queue in self._moved:
                    continue
                least = min(
                    (brokers[each] for each in target[1:] if each in self._leaders),
                    key=lambda each: (each.preferred, each.id),
                    default=None,
                )
                if least is None or least.id not in queue.standing.isr:
                    continue
                if donor.broker.preferred - least.preferred > SPREAD_REPLICAS:
                    order = (least.id, *(each for each in target if each != least.id))
                    self._begin(PlannedMoveOf(queue, order, "balance", 0))
                    reordered += 1
        if self._work:
            yield self._work
            self._work = 0
