"""Liveness of brokers, as the Raft leader sees it. The state is not replicated.

Only its consequence, `FenceBroker`, is replicated. A leader that has just been elected, or was
stalled for longer than a lease, first gives every broker a full session, because the silence may
have been its own (see docs/SAFETY.md, Q11 and R13).
"""

from __future__ import annotations

from collections.abc import Iterable

from logboom.metadata.config import SESSION_TIMEOUT_S
from logboom.metadata.tables.cluster_state import BrokerRegistration


class Liveness:
    """Sessions of the live brokers."""

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[int, float]] = {}
        """Broker → (instance epoch, end of its session)."""
        self._fencing: set[tuple[str, int]] = set()

    def grant_all(self, brokers: Iterable[BrokerRegistration], now: float) -> None:
        """Give every live broker a full session."""
        self._sessions = {
            b.id: (b.instance_epoch, now + SESSION_TIMEOUT_S) for b in brokers if b.alive
        }
        self._fencing.clear()

    def follow(self, brokers: Iterable[BrokerRegistration], now: float) -> None:
        """Follow a change of brokers: new registrations get a session, fenced ones lose theirs."""
        sessions: dict[str, tuple[int, float]] = {}
        for broker in brokers:
            if broker.alive:
                known = self._sessions.get(broker.id)
                if known is None or known[0] != broker.instance_epoch:
                    known = (broker.instance_epoch, now + SESSION_TIMEOUT_S)
                sessions[broker.id] = known
        self._sessions = sessions

    def heard(self, broker: BrokerRegistration, now: float) -> bool:
        """Take a heartbeat of the current registration; False if it is already being fenced."""
        if (broker.id, broker.instance_epoch) in self._fencing:
            return False
        self._sessions[broker.id] = (broker.instance_epoch, now + SESSION_TIMEOUT_S)
        return True

    def take_expired(self, now: float) -> list[tuple[str, int]]:
        """Return (broker, instance epoch) of sessions that have ended, each of them once."""
        expired = [
            (broker, epoch)
            for broker, (epoch, ends) in self._sessions.items()
            if ends <= now and (broker, epoch) not in self._fencing
        ]
        self._fencing.update(expired)
        return expired

    def fence_ended(self, broker: str, instance_epoch: int, *, applied: bool) -> None:
        """Note that a fence was applied, or has failed and is to be tried again."""
        self._fencing.discard((broker, instance_epoch))
        known = self._sessions.get(broker)
        if applied and known is not None and known[0] == instance_epoch:
            del self._sessions[broker]

    def deadline(self) -> float | None:
        """Return when the next session ends that is not already being fenced."""
        ends = [
            end
            for broker, (epoch, end) in self._sessions.items()
            if (broker, epoch) not in self._fencing
        ]
        return min(ends, default=None)
