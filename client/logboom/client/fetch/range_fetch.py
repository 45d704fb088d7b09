"""The fetch of a bounded read: one queue, up to an offset."""

from __future__ import annotations

from typing import Final

from logboom.client.fetch.fetch_buffer import FetchBuffer, QueueFetch
from logboom.wire.view import TopicView

PULL_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one pull of a range asks for."""


class RangeFetch(QueueFetch):
    """One queue that is read up to `stop`, and no further."""

    __slots__ = ("reached", "stop")

    def __init__(
        self, topic: TopicView, queue: int, start: int, stop: int, inbox: FetchBuffer
    ) -> None:
        super().__init__(topic.name, queue, start, inbox, inbox.prefetch_bytes)
        self.topic_id = topic.id
        self.stop = stop
        self.reached = start
        """Offset after the last message that was put into the inbox; written by the core."""
        # Whoever gave us `stop` has seen the queue reach it: a node that does not know it yet is
        # waited for, it does not correct us (SAFETY Q8).
        self.max_offset = stop
        self.copies = True

    @property
    def full(self) -> bool:
        """Whether no more is to be fetched now."""
        return self.reached >= self.stop or super().full

    @property
    def wanted_messages(self) -> int:
        """How many messages are missing."""
        return max(1, self.stop - self.reached)

    @property
    def pull_bytes(self) -> int:
        """More than a consumer's: nobody waits for the first message, and each pull is a way there
        and back."""
        return PULL_BYTES

    def took(self, count: int, size: int) -> None:
        """The core puts `count` messages of `size` bytes into the inbox."""
        self.reached += count
        super().took(count, size)
