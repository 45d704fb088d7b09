"""Who may read a queue for a group: the greatest owner epoch that was seen of each.

Soft state, made anew with each role: it spares a member that lost its queue useless reading, and
its successor the competition. What it forgets, commits still refuse (`wire.group_messages`).
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.replica.replica import QueueKey
from logboom.wire.errors import InvalidRequest, NotLeader

MAX_OWNER_EPOCHS: Final = 100_000
"""Epochs remembered; past it those of the queue go that was asked for longest ago."""
LONGEST_NAME: Final = 120
"""Characters of a group's name."""


class OwnerEpochs:
    """Owner epochs by queue and group."""

    def __init__(self) -> None:
        self._seen: dict[QueueKey, dict[str, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, key: QueueKey, group: str, epoch: int) -> bool:
        """Let a member of `group` read; True if its epoch is newer than one before.

        Raises:
            NotLeader: STALE_EPOCH: a newer owner has read already.
            InvalidRequest: no group is called so.
        """
        if len(group) > LONGEST_NAME:
            text = f"a group's name has at most {LONGEST_NAME} characters, not {len(group)}"
            raise InvalidRequest(text, "INVALID_NAME")
        seen = self._seen.pop(key, {})
        self._seen[key] = seen
        known = seen.get(group)
        if known is None:
            seen[group] = epoch
            self._count += 1
            if self._count > MAX_OWNER_EPOCHS:
                self._forget_oldest()
            return False
        if epoch < known:
            raise stale_owner(group, known)
        seen[group] = epoch
        return epoch > known

    def forget(self, key: QueueKey) -> None:
        """The queue has another role here."""
        self._count -= len(self._seen.pop(key, ()))

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._seen))
        seen = self._seen[oldest]
        del seen[next(iter(seen))]
        self._count -= 1
        if not seen:
            del self._seen[oldest]


def stale_owner(group: str, epoch: int) -> NotLeader:
    """Another member of the group reads this queue now."""
    text = f"another member of group {group!r} has this queue now: stop reading it"
    return NotLeader(text, "STALE_EPOCH", group=group, owner_epoch=epoch)
