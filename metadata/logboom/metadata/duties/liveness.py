"""Liveness of brokers, as the Raft leader sees it. The state is not replicated.

Only its consequence, `FenceBroker`, is replicated. A leader that has just been elected, or was
stalled for longer than a lease, first gives every broker a full session, because the silence may
have been its own (see docs/SAFETY.md, Q11 and R13). Shorter stalls of its own are not counted, within
limits. While no live broker is heard at all, the cause is probably common to them, e.g. a starved
machine, and nobody could take over: their sessions last longer, within limits, and the first one that
is heard again gives the others a full session. Otherwise thousands of queues would change leaders to
no avail, and the work of that would keep their brokers silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from logboom.metadata.config import SESSION_TIMEOUT_S
from logboom.metadata.tables.cluster_state import BrokerRegistration

LATE_S: Final = 2.0
"""Seconds without a heartbeat after which a broker is late: it has missed one, and the next is due."""
COMMON_S: Final = 6.0
"""Seconds by which sessions are longer while all brokers are late."""
STALL_S: Final = 0.25
"""Seconds between two turns of the Raft leader that count as a stall, which is not counted."""


@dataclass(slots=True)
class _Session:
    instance_epoch: int
    heard_at: float
    """When it was heard last, later by the stalls of the Raft leader since."""
    forgiven_s: float = 0.0
    """Stalls since it was heard last."""

    @property
    def ends(self) -> float:
        return self.heard_at + SESSION_TIMEOUT_S


class Liveness:
    """Sessions of the live brokers."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._fencing: set[tuple[str, int]] = set()

    def grant_all(self, brokers: Iterable[BrokerRegistration], now: float) -> None:
        """Give every live broker a full session."""
        self._sessions = {b.id: _Session(b.instance_epoch, now) for b in brokers if b.alive}
        self._fencing.clear()

    def forgive(self, away_s: float, now: float) -> None:
        """Exclude the seconds for which the Raft leader was stalled, up to a session for each broker.

        A leader that is always slow still notices who is dead.
        """
        if away_s < STALL_S:
            return
        for session in self._sessions.values():
            room_s = max(0.0, min(away_s, SESSION_TIMEOUT_S - session.forgiven_s))
            session.forgiven_s += room_s
            session.heard_at = min(now, session.heard_at + room_s)

    def follow(self, brokers: Iterable[BrokerRegistration], now: float) -> None:
        """Follow a change of brokers: new registrations get a session, fenced ones lose theirs."""
        sessions: dict[str, _Session] = {}
        for broker in brokers:
            if broker.alive:
                known = self._sessions.get(broker.id)
                if known is None or known.instance_epoch != broker.instance_epoch:
                    self._renew_postponed(now)
                    known = _Session(broker.instance_epoch, now)
                sessions[broker.id] = known
        self._sessions = sessions

    def heard(self, broker: BrokerRegistration, now: float) -> bool:
        """Take a heartbeat of the current registration; False if it is already being fenced."""
        if (broker.id, broker.instance_epoch) in self._fencing:
            return False
        self._renew_postponed(now)
        self._sessions[broker.id] = _Session(broker.instance_epoch, now)
        return True

    def take_expired(self, now: float) -> list[tuple[str, int]]:
        """Return (broker, instance epoch) of sessions that have ended, each of them once."""
        latest = self._heard_latest()
        expired = [
            (broker, session.instance_epoch)
            for broker, session in self._sessions.items()
            if self._end(session, latest) <= now
            and (broker, session.instance_epoch) not in self._fencing
        ]
        self._fencing.update(expired)
        return expired

    def fence_ended(self, broker: str, instance_epoch: int, *, applied: bool) -> None:
        """Note that a fence was applied, or has failed and is to be tried again."""
        self._fencing.discard((broker, instance_epoch))
        known = self._sessions.get(broker)
        if applied and known is not None and known.instance_epoch == instance_epoch:
            del self._sessions[broker]

    def deadline(self) -> float | None:
        """Return when the next session ends that is not already being fenced."""
        latest = self._heard_latest()
        ends = [
            self._end(session, latest)
            for broker, session in self._sessions.items()
            if (broker, session.instance_epoch) not in self._fencing
        ]
        return min(ends, default=None)

    def _heard_latest(self) -> float:
        return max((session.heard_at for session in self._sessions.values()), default=0.0)

    def _end(self, session: _Session, latest: float) -> float:
        """Return when a session ends, if any broker was heard last at `latest`."""
        if len(self._sessions) > 1 and session.ends - latest >= LATE_S:
            return max(session.ends, latest + SESSION_TIMEOUT_S + COMMON_S)
        return session.ends

    def _renew_postponed(self, now: float) -> None:
        """Give full sessions to those that were spared because nobody was heard."""
        latest = self._heard_latest()
        for broker, session in self._sessions.items():
            spared = session.ends <= now < self._end(session, latest)
            if spared and (broker, session.instance_epoch) not in self._fencing:
                self._sessions[broker] = _Session(session.instance_epoch, now)
