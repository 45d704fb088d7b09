"""The fetch of a bounded read, which is one queue up to an offset."""

from __future__ import annotations

from typing import Final

from logboom.client.fetch.fetch_buffer import FetchBuffer, QueueFetch
from logboom.wire.view import TopicView

PULL_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of one pull of a range."""


class RangeFetch(QueueFetch):
    """A fetch of one queue up to `stop`, and no further."""

    __slots__ = ("reached", "stop")

    def __init__(
        self, topic: TopicView, queue: int, start: int, stop: int, inbox: FetchBuffer
    ) -> None:
        super().__init__(topic.name, queue, start, inbox, inbox.prefetch_bytes)
        self.topic_id = topic.id
        self.stop = stop
        self.reached = start
        """Offset after the last message that the core has put into the buffer."""
        # The caller has seen the queue reach `stop`, so a node that does not know it yet must not
        # correct the position: it is asked again (see docs/SAFETY.md, Q8).
        self.max_offset = stop
        self.copies = True

    @property
    def full(self) -> bool:
        """True if nothing more should be fetched now."""
        return self.reached >= self.stop or super().full

    @property
    def wanted_messages(self) -> int:
        """Number of messages that are missing."""
        return max(1, self.stop - self.reached)

    @property
    def pull_bytes(self) -> int:
        """Bytes of one pull: more than a consumer's, because nobody waits for the first message and
        each pull costs a round trip."""
        return PULL_BYTES

    def took(self, count: int, size: int) -> None:
        """Count messages that the core puts into the buffer."""
        self.reached += count
        super().took(count, size)
