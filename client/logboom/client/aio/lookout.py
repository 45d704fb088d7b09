"""Waiting for new messages in many queues at once, with one held pull for each queue.

A held pull stays at its leader across several waits, so that waiting again costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from logboom.client.aio.bridge import Event
from logboom.client.calls import Answer, AskLeader
from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.client.io_thread import IoThread
from logboom.client.promise import Promise
from logboom.wire.base import WireMessage
from logboom.wire.messages import Pull, Pulled

HOLD_MS: Final = 10_000
"""Milliseconds for which a leader holds a pull."""
LOOK_AGAIN_S: Final = 1.0
"""Seconds after which a wait looks whether the client still runs."""
SLACK_S: Final = 3.0
"""Seconds beyond the hold after which an unanswered pull is sent again."""


class Lookout:
    """A wait for the first of several queues that has new messages; `Client.lookout` creates it.
    One task waits at a time."""

    def __init__(self, io: IoThread) -> None:
        self._io = io
        self._holds: dict[TopicQueue, tuple[int, Promise[Answer]]] = {}
        self._news = Event()

    async def wait(self, ends: Mapping[TopicQueue, int], timeout_s: float) -> bool:
        """Wait up to `timeout_s` for a message at or after one of the offsets.

        Return True if there may be one, which is also assumed of a queue that could not be asked.
        Return False if there is none.
        """
        deadline = time.monotonic() + timeout_s
        for place in self._holds.keys() - ends.keys():
            del self._holds[place]
        while True:
            self._io.check()
            self._news.clear()
            if any(self._look(place, offset) for place, offset in ends.items()):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await self._news.wait(min(left, LOOK_AGAIN_S))

    def _look(self, place: TopicQueue, offset: int) -> bool:
        """Return True if a queue may have new messages; else make sure that a pull is in flight."""
        known = self._holds.get(place)
        if known is not None and known[0] == offset:
            outcome = known[1]
            if not outcome.done:
                return False
            if outcome.error is not None or _tells(outcome.get(), offset):
                del self._holds[place]
                return True
        self._ask(place, offset)
        return False

    def _ask(self, place: TopicQueue, offset: int) -> None:
        topic, queue = place

        def message(left: int) -> WireMessage:
            # With a limit of one byte, the answer holds a single batch.
            return Pull(0, left, topic, queue, offset, 1, min(HOLD_MS, left), 1)

        call = AskLeader(topic, queue, message, HOLD_MS / 1000 + SLACK_S)
        self._holds[place] = (offset, call.outcome)
        call.outcome.add_callback(self._news.set)
        self._io.submit(call)


def _tells(answer: Answer, offset: int) -> bool:
    message = answer[0]
    return not isinstance(message, Pulled) or message.max_offset > offset
