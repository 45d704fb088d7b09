"""The bytes that a broker stores of each user's topics, against the users' quotas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from logboom.wire.access.access_rules import is_node_user
from logboom.wire.errors import Unavailable
from logboom.wire.routes import Routes

COUNT_EVERY_S: Final = 1.0
"""Seconds between two counts of all queues; in between, only what is written is added."""


class StoredBytes:
    """The bytes of all topics on this broker by their owners, counted when they are asked for."""

    def __init__(self, routes: Routes, sizes: Callable[[], Iterable[tuple[str, int]]]) -> None:
        """Create it; `sizes` returns (topic, bytes) of each queue that this broker holds."""
        self._routes = routes
        self._sizes = sizes
        self._counted_at = float("-inf")
        self._stored: defaultdict[str, int] = defaultdict(int)

    def check(self, owner: str, size: int, now: float) -> None:
        """Check that a batch of `size` bytes may be written to a topic of a user, and count it.

        Raises:
            Unavailable: DISK_FULL, because the user's topics have too many bytes on this broker.
        """
        if is_node_user(owner):
            return
        limit = self._routes.access.quota_of(owner).stored_bytes
        if not limit:
            return
        if now - self._counted_at >= COUNT_EVERY_S:
            self._count(now)
        stored = self._stored[owner]
        if stored >= limit:
            text = (
                f"the topics of user {owner!r} have {stored} bytes on this broker, and its quota is "
                f"{limit}: delete some, shorten their retention, or raise the quota (`logboom quota "
                f"set {owner} --stored {2 * limit}`); writes then go on by themselves"
            )
            raise Unavailable(text, "DISK_FULL", user=owner, limit=limit, stored_bytes=stored)
        self._stored[owner] += size

    def _count(self, now: float) -> None:
        self._counted_at = now
        self._stored.clear()
        topics = self._routes.topics
        for name, size in self._sizes():
            topic = topics.get(name)
            if topic is not None and topic.owner:
                self._stored[topic.owner] += size
