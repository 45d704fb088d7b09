"""Who of the members is alive, as their coordinator hears them (SAFETY G2, R13); soft state.

Silence for a session, or a drain beyond its limit, makes a member due to be expired. Whoever begins
to coordinate, or could not listen for a while, grants everybody a full period first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from logboom.wire.group_messages import QueueStatus
from logboom.wire.group_routes import KnownGroup
from logboom.wire.group_view import GroupConfig, MemberView, OwnedQueue, QueueKey

MOST_STATUSES: Final = 1024
"""Queues of which one member's words are kept."""

Expired: TypeAlias = dict[str, list[tuple[str, int]]]
"""Group → (member, epoch) of those that are due."""


@dataclass(slots=True)
class MemberSession:
    """One member."""

    epoch: int
    heard: float
    """When it was heard, or could have been, in monotonic seconds."""
    due: float = float("inf")
    """Of its entry in the heap of deadlines; infinity: it has none."""
    draining: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """(topic id, queue, owner epoch) → since when it has to give the queue away."""
    status: list[QueueStatus] = field(default_factory=list)
    expiring: bool = False
    """Its expiry is proposed."""
    queues: list[OwnedQueue] = field(default_factory=list)
    leaving: bool = False
    """It has said farewell: it does not end with what it has in its hands."""


@dataclass(slots=True)
class CoordinatedGroup:
    """One group that this broker coordinates."""

    epoch: int
    """Of the coordinator."""
    told: int
    """Metadata version from which on members know settings and subscription."""
    config: GroupConfig
    subscribed: int
    """Version of the subscription."""
    fault: str = ""
    """Why the strategy leaves queues alone, as last said in the log."""
    seats: dict[str, MemberSession] = field(default_factory=dict)
    ended: dict[QueueKey, tuple[str, int]] = field(default_factory=dict)
    """Queue whose last owner ended without leaving → (that member, its owner epoch)."""


class MemberSessions:
    """All groups that this broker coordinates."""

    def __init__(self) -> None:
        self.circles: dict[str, CoordinatedGroup] = {}
        self._due: list[tuple[float, str, str]] = []

    @property
    def members(self) -> int:
        """How many members are looked after."""
        return sum(len(circle.seats) for circle in self.circles.values())

    def begin(self, known: KnownGroup, now: float) -> None:
        """Coordinate a group from now on, or in a new epoch: everybody has a full session (R13)."""
        head = known.head
        self.circles[head.name] = CoordinatedGroup(
            head.coordinator_epoch, head.version, head.config, head.subscription_version, head.fault
        )
        for member in known.members.values():
            self.seat(head.name, member, now)

    def end(self, group: str) -> None:
        """Another coordinates this group, or it is gone."""
        self.circles.pop(group, None)

    def configure(self, known: KnownGroup, now: float) -> None:
        """Settings or subscription changed; members are to be told."""
        head = known.head
        circle = self.circles[head.name]
        circle.told, circle.config = head.version, head.config
        circle.subscribed = head.subscription_version
        for name, seat in circle.seats.items():
            self._schedule(head.name, circle, name, seat, now)

    def seat(self, group: str, member: MemberView, now: float) -> None:
        """A member came or changed."""
        circle = self.circles[group]
        seat = circle.seats.get(member.id)
        if seat is None or seat.epoch != member.epoch:
            seat = circle.seats[member.id] = MemberSession(member.epoch, now)
            # It was taken for dead, and was not.
            alive = [key for key, (name, _) in circle.ended.items() if name == member.id]
            for key in alive:
                del circle.ended[key]
        seat.queues = member.queues
        before = seat.draining
        seat.draining = {
            place: before.get(place, now)
            for place in (
                (queue.topic_id, queue.queue, queue.owner_epoch)
                for queue in member.queues
                if queue.revoking
            )
        }
        self._schedule(group, circle, member.id, seat, now)

    def unseat(self, group: str, member: str) -> None:
        """A member is gone."""
        circle = self.circles[group]
        seat = circle.seats.pop(member, None)
        for queue in () if seat is None else seat.queues:
            key = (queue.topic_id, queue.queue)
            if seat is not None and seat.leaving:
                circle.ended.pop(key, None)
            else:
                circle.ended[key] = (member, queue.owner_epoch)

    def left(self, group: str, member: str, epoch: int) -> None:
        """A member says farewell."""
        circle = self.circles.get(group)
        seat = None if circle is None else circle.seats.get(member)
        if seat is not None and seat.epoch == epoch:
            seat.leaving = True

    def released(self, group: str, queues: Iterable[QueueKey]) -> None:
        """An owner gives queues away in good order."""
        circle = self.circles.get(group)
        for key in queues if circle is not None and circle.ended else ():
            self.circles[group].ended.pop(key, None)

    def ended(self, group: str, queues: Iterable[OwnedQueue]) -> list[QueueKey]:
        """Which of these had an owner before that ended without leaving."""
        known = self.circles[group].ended
        if not known:
            return []
        keys = [(queue.topic_id, queue.queue, queue.owner_epoch) for queue in queues]
        return [key[:2] for key in keys if key[:2] in known and known[key[:2]][1] < key[2]]

    def heard(self, group: str, member: str, epoch: int, now: float) -> MemberSession | None:
        """A request of a member came; None if this is not its epoch."""
        circle = self.circles.get(group)
        seat = None if circle is None else circle.seats.get(member)
        if seat is None or seat.epoch != epoch:
            return None
        seat.heard = now
        return seat

    def grant(self, now: float) -> None:
        """Nobody could be heard for a while: begin anew with everybody (R13)."""
        for group, circle in self.circles.items():
            for name, seat in circle.seats.items():
                seat.heard = now
                seat.draining = dict.fromkeys(seat.draining, now)
                self._schedule(group, circle, name, seat, now)

    def spare(self, group: str, member: str, epoch: int, now: float) -> None:
        """A member's expiry was refused: it has a full period before the next."""
        circle = self.circles.get(group)
        seat = None if circle is None else circle.seats.get(member)
        if circle is not None and seat is not None and seat.epoch == epoch:
            seat.expiring = False
            seat.heard = now
            seat.draining = dict.fromkeys(seat.draining, now)
            self._schedule(group, circle, member, seat, now)

    def drop_all(self) -> None:
        """Expiries that were proposed are forgotten."""
        for circle in self.circles.values():
            for seat in circle.seats.values():
                seat.expiring = False

    def take_due(self, now: float) -> Expired:
        """Members that are to be expired now; each is named once."""
        found: Expired = {}
        while self._due and self._due[0][0] <= now:
            when, group, name = heapq.heappop(self._due)
            circle = self.circles.get(group)
            seat = None if circle is None else circle.seats.get(name)
            if circle is None or seat is None or seat.due != when:
                continue
            seat.due = float("inf")
            if seat.expiring:
                continue
            if self._deadline_of(circle, seat) <= now:
                seat.expiring = True
                found.setdefault(group, []).append((name, seat.epoch))
            else:
                self._schedule(group, circle, name, seat, now)
        return found

    def deadline(self) -> float:
        """When `take_due` is wanted next."""
        return self._due[0][0] if self._due else float("inf")

    @staticmethod
    def _deadline_of(circle: CoordinatedGroup, seat: MemberSession) -> float:
        due = seat.heard + circle.config.session_ms / 1000
        if seat.draining:
            due = min(due, min(seat.draining.values()) + circle.config.drain_ms / 1000)
        return due

    def _schedule(
        self, group: str, circle: CoordinatedGroup, name: str, seat: MemberSession, now: float
    ) -> None:
        """Have an entry in the heap that is not after the seat's deadline; the one of each is
        looked at when it comes up, so that being heard costs nothing."""
        wanted = max(self._deadline_of(circle, seat), now)
        if wanted < seat.due and not seat.expiring:
            seat.due = wanted
            heapq.heappush(self._due, (wanted, group, name))
