"""Liveness of group members, as seen by their coordinator (G2, R13). This state is not replicated.

A member is due to expire after a session of silence, or when it drains for too long. A coordinator
grants every member a full period when it takes over a group, and when it could not listen for a
while.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from logboom.wire.group_messages import QueueStatus
from logboom.wire.group_routes import KnownGroup
from logboom.wire.group_view import GroupConfig, MemberView, OwnedQueue, QueueKey

Expired: TypeAlias = dict[str, list[tuple[str, int]]]
"""The members of each group that are due, with their epochs."""


@dataclass(slots=True)
class MemberSession:
    """One member."""

    epoch: int
    heard: float
    """Monotonic time at which it was heard, or could have been."""
    due: float = float("inf")
    """Time of its entry in the heap of deadlines; infinity if it has none."""
    draining: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """The queues that it has to give away, by topic id, queue and owner epoch, and since when."""
    status: list[QueueStatus] = field(default_factory=list)
    expiring: bool = False
    """Its expiry is proposed."""
    queues: list[OwnedQueue] = field(default_factory=list)
    leaving: bool = False
    """It or its process ends in an orderly way, so the messages that it was processing are not counted as
    failed."""


@dataclass(slots=True)
class CoordinatedGroup:
    """One group that this broker coordinates."""

    epoch: int
    """The coordinator's epoch."""
    told: int
    """Metadata version from which on members know the settings and the subscription."""
    config: GroupConfig
    subscribed: int
    """Version of the subscription."""
    fault: str = ""
    """Why the strategy leaves queues unassigned, as last logged."""
    sessions: dict[str, MemberSession] = field(default_factory=dict)
    ended: dict[QueueKey, tuple[str, int]] = field(default_factory=dict)
    """Queues whose last owner ended without leaving, with that member and its owner epoch."""


class MemberSessions:
    """All groups that this broker coordinates."""

    def __init__(self) -> None:
        self.groups: dict[str, CoordinatedGroup] = {}
        self._due: list[tuple[float, str, str]] = []

    @property
    def members(self) -> int:
        """Number of members of all groups."""
        return sum(len(coordinated.sessions) for coordinated in self.groups.values())

    def begin(self, known: KnownGroup, now: float) -> None:
        """Start to coordinate a group, or continue in a new epoch.

        Every member gets a full session (R13).
        """
        head = known.head
        self.groups[head.name] = CoordinatedGroup(
            head.coordinator_epoch, head.version, head.config, head.subscription_version, head.fault
        )
        for member in known.members.values():
            self.add_member(head.name, member, now)

    def end(self, group: str) -> None:
        """Stop coordinating a group, which has another coordinator or no longer exists."""
        self.groups.pop(group, None)

    def configure(self, known: KnownGroup, now: float) -> None:
        """Follow changed settings or a changed subscription, of which members must be informed."""
        head = known.head
        coordinated = self.groups[head.name]
        coordinated.told, coordinated.config = head.version, head.config
        coordinated.subscribed = head.subscription_version
        for name, session in coordinated.sessions.items():
            self._schedule(head.name, coordinated, name, session, now)

    def add_member(self, group: str, member: MemberView, now: float) -> None:
        """Follow a member that came or changed."""
        coordinated = self.groups[group]
        session = coordinated.sessions.get(member.id)
        if session is None or session.epoch != member.epoch:
            session = coordinated.sessions[member.id] = MemberSession(member.epoch, now)
            # It was considered dead, but is alive.
            alive = [key for key, (name, _) in coordinated.ended.items() if name == member.id]
            for key in alive:
                del coordinated.ended[key]
        session.queues = member.queues
        before = session.draining
        session.draining = {
            place: before.get(place, now)
            for place in (
                (queue.topic_id, queue.queue, queue.owner_epoch)
                for queue in member.queues
                if queue.revoking
            )
        }
        self._schedule(group, coordinated, member.id, session, now)

    def remove_member(self, group: str, member: str) -> None:
        """Remove a member that is gone."""
        coordinated = self.groups[group]
        session = coordinated.sessions.pop(member, None)
        for queue in () if session is None else session.queues:
            key = (queue.topic_id, queue.queue)
            if session is not None and session.leaving:
                coordinated.ended.pop(key, None)
            else:
                coordinated.ended[key] = (member, queue.owner_epoch)

    def left(self, group: str, member: str, epoch: int) -> None:
        """Note that a member is leaving, or that its process ends in an orderly way."""
        coordinated = self.groups.get(group)
        session = None if coordinated is None else coordinated.sessions.get(member)
        if session is not None and session.epoch == epoch:
            session.leaving = True

    def released(self, group: str, queues: Iterable[QueueKey]) -> None:
        """Note that an owner releases queues in an orderly way."""
        coordinated = self.groups.get(group)
        for key in queues if coordinated is not None and coordinated.ended else ():
            self.groups[group].ended.pop(key, None)

    def ended(self, group: str, queues: Iterable[OwnedQueue]) -> list[QueueKey]:
        """Return those of the given queues whose last owner ended without leaving."""
        known = self.groups[group].ended
        if not known:
            return []
        keys = [(queue.topic_id, queue.queue, queue.owner_epoch) for queue in queues]
        return [key[:2] for key in keys if key[:2] in known and known[key[:2]][1] < key[2]]

    def heard(self, group: str, member: str, epoch: int, now: float) -> MemberSession | None:
        """Note that a member is alive. Return None if the epoch is not its current one."""
        coordinated = self.groups.get(group)
        session = None if coordinated is None else coordinated.sessions.get(member)
        if session is None or session.epoch != epoch:
            return None
        session.heard = now
        return session

    def grant(self, now: float) -> None:
        """Grant every member a full session, since none could be heard for a while (R13)."""
        for group, coordinated in self.groups.items():
            for name, session in coordinated.sessions.items():
                session.heard = now
                session.draining = dict.fromkeys(session.draining, now)
                self._schedule(group, coordinated, name, session, now)

    def spare(self, group: str, member: str, epoch: int, now: float) -> None:
        """Give a member a full period before its next expiry, since this one was rejected."""
        coordinated = self.groups.get(group)
        session = None if coordinated is None else coordinated.sessions.get(member)
        if coordinated is not None and session is not None and session.epoch == epoch:
            session.expiring = False
            session.heard = now
            session.draining = dict.fromkeys(session.draining, now)
            self._schedule(group, coordinated, member, session, now)

    def drop_all(self) -> None:
        """Forget the expiries that were proposed."""
        for coordinated in self.groups.values():
            for session in coordinated.sessions.values():
                session.expiring = False

    def take_due(self, now: float) -> Expired:
        """Return the members that are to be expired now. Each is returned once."""
        found: Expired = {}
        while self._due and self._due[0][0] <= now:
            when, group, name = heapq.heappop(self._due)
            coordinated = self.groups.get(group)
            session = None if coordinated is None else coordinated.sessions.get(name)
            if coordinated is None or session is None or session.due != when:
                continue
            session.due = float("inf")
            if session.expiring:
                continue
            if self._deadline_of(coordinated, session) <= now:
                session.expiring = True
                found.setdefault(group, []).append((name, session.epoch))
            else:
                self._schedule(group, coordinated, name, session, now)
        return found

    def deadline(self) -> float:
        """Return when `take_due` is wanted next."""
        return self._due[0][0] if self._due else float("inf")

    @staticmethod
    def _deadline_of(coordinated: CoordinatedGroup, session: MemberSession) -> float:
        due = session.heard + coordinated.config.session_ms / 1000
        if session.draining:
            due = min(due, min(session.draining.values()) + coordinated.config.drain_ms / 1000)
        return due

    def _schedule(
        self,
        group: str,
        coordinated: CoordinatedGroup,
        name: str,
        session: MemberSession,
        now: float,
    ) -> None:
        """Ensure that the heap has an entry no later than the member's deadline.

        The deadline is checked again when that entry comes up, so a heartbeat costs nothing.
        """
        wanted = max(self._deadline_of(coordinated, session), now)
        if wanted < session.due and not session.expiring:
            session.due = wanted
            heapq.heappush(self._due, (wanted, group, name))
