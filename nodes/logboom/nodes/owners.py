"""Who may read a queue for a group: the greatest owner epoch that was seen of each.

Soft state, made anew with each role: it spares a member that lost its queue useless reading, and
its successor the competition. What it forgets, commits still refuse (`wire.group_messages`).
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.replica import QueueKey
from logboom.wire.errors import NotLeader

MOST_GROUPS: Final = 1_000
"""Groups remembered of one queue; past it the one that asked longest ago is forgotten."""


class Owners:
    """Owner epochs by queue and group."""

    def __init__(self) -> None:
        self._seen: dict[QueueKey, dict[str, int]] = {}

    def admit(self, key: QueueKey, group: str, epoch: int) -> bool:
        """Let a member of `group` read; True if its epoch is newer than all before.

        Raises:
            NotLeader: STALE_EPOCH: a newer owner has read already.
        """
        seen = self._seen.setdefault(key, {})
        known = seen.pop(group, -1)
        seen[group] = max(known, epoch)
        if len(seen) > MOST_GROUPS:
            del seen[next(iter(seen))]
        if epoch < known:
            raise stale_owner(group, known)
        return 0 <= known < epoch

    def forget(self, key: QueueKey) -> None:
        """The queue has another role here."""
        self._seen.pop(key, None)


def stale_owner(group: str, epoch: int) -> NotLeader:
    """Another member of the group reads this queue now."""
    text = f"another member of group {group!r} has this queue now: stop reading it"
    return NotLeader(text, "STALE_EPOCH", group=group, owner_epoch=epoch)
