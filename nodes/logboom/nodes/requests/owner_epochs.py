"""The owner epochs of a queue's readers: the greatest one seen for each group.

They are not replicated, and start empty with each role. They save a member that has lost its queue
from useless reads, and its successor from the competition. Epochs that were forgotten are still
checked by commits (`wire.group_messages`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.nodes.replica.replica import QueueKey
from logboom.wire.errors import InvalidRequest, NotLeader

MAX_OWNER_EPOCHS: Final = 100_000
"""Epochs remembered; past it, those of the least recently requested queue are dropped."""
LONGEST_NAME: Final = 120
"""Maximum length of a group's name, in characters."""


class OwnerEpochs:
    """Owner epochs by queue and group."""

    def __init__(self) -> None:
        self._seen: dict[QueueKey, dict[str, int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, key: QueueKey, group: str, epoch: int, is_real: Callable[[], bool]) -> bool:
        """Let a member of `group` read; True if its epoch is newer than an earlier one.

        A new epoch that is not certainly real (`is_real`) is not kept, so it locks nobody out (G7).

        Raises:
            NotLeader: STALE_EPOCH: a newer owner has read already.
            InvalidRequest: this is not a valid group name.
        """
        if len(group) > LONGEST_NAME:
            text = f"a group's name has at most {LONGEST_NAME} characters, not {len(group)}"
            raise InvalidRequest(text, "INVALID_NAME")
        known = self._seen.get(key, {}).get(group)
        if known is not None and epoch < known:
            raise stale_owner(group, known)
        if epoch != known and not is_real():
            return False
        seen = self._seen.pop(key, {})
        self._seen[key] = seen
        seen[group] = epoch
        if known is None:
            self._count += 1
            if self._count > MAX_OWNER_EPOCHS:
                self._forget_oldest()
        return known is not None and epoch > known

    def forget(self, key: QueueKey) -> None:
        """Forget a queue, whose role has changed here."""
        self._count -= len(self._seen.pop(key, ()))

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._seen))
        seen = self._seen[oldest]
        del seen[next(iter(seen))]
        self._count -= 1
        if not seen:
            del self._seen[oldest]


def stale_owner(group: str, epoch: int) -> NotLeader:
    """Build the error for a member whose queue has a newer owner in the group."""
    text = f"another member of group {group!r} has this queue now: stop reading it"
    return NotLeader(text, "STALE_EPOCH", group=group, owner_epoch=epoch)
