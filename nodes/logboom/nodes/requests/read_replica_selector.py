"""The choice of a replica for readers that are far behind (RocketMQ's 40 % rule)."""

from __future__ import annotations

from typing import Final

from logboom.nodes.config import BrokerConfig
from logboom.nodes.replica.replica import Replica
from logboom.wire.group_routes import GroupRoutes

SLOW_SHARE: Final = 0.4
"""Fraction of `memory_bytes` past which a reader's backlog is sent to a follower."""


class ReadReplicaSelector:
    """The followers that slow readers were sent to."""

    def __init__(self, config: BrokerConfig, groups: GroupRoutes) -> None:
        self._config = config
        self._groups = groups

    def suggest(self, replica: Replica, group: str, next_offset: int) -> str | None:
        """Suggest a follower for a reader that is far behind; one reader keeps the same follower."""
        if not self._config.follower_reads or not self._may_send_away(group):
            return None
        messages = max(1, replica.end.offset - replica.start)
        behind = (replica.hw.offset - next_offset) * replica.size // messages
        if behind <= SLOW_SHARE * self._config.memory_bytes:
            return None
        leading = replica.leading
        if leading is None:
            return self._config.id
        return next((broker for broker in leading.isr if broker != leading.me), None)

    def _may_send_away(self, group: str) -> bool:
        """Return True if a group lets its slow readers use followers; readers without a group may."""
        if not group:
            return True
        known = self._groups.groups.get(group)
        return known is not None and known.head.config.when_slow == "follower"
