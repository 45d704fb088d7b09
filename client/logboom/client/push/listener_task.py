"""What one worker of a push consumer has taken: messages of one queue, and what came of them."""

from __future__ import annotations

from collections import deque

from logboom.client.push.process_queue import ProcessQueue
from logboom.client.results import Message
from logboom.wire.errors import InvalidRequest


class Later:
    """Returned by a listener: not now, again in `delay_s` seconds."""

    __slots__ = ("delay_s",)

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def __repr__(self) -> str:
        return f"Later({self.delay_s:g})"


class Done:
    """Returned by a listener of batches: the first `count` messages are done, the others come again
    (RocketMQ's ackIndex + 1), after `delay_s` seconds or as the group's retries say."""

    __slots__ = ("count", "delay_s")

    def __init__(self, count: int, delay_s: float | None = None) -> None:
        if count < 0:
            raise InvalidRequest(f"Done is told how many messages are done, not {count}")
        self.count = count
        self.delay_s = delay_s

    def __repr__(self) -> str:
        return f"Done({self.count})"


class Dead:
    """Returned by a listener: this will never work. To the dead letters at once (RocketMQ's delay
    level -1), with `cause`."""

    __slots__ = ("cause",)

    def __init__(self, cause: str = "the listener returned Dead()") -> None:
        self.cause = cause

    def __repr__(self) -> str:
        return f"Dead({self.cause!r})"


class Context:
    """What a listener may look at while it works; given to listeners of two parameters."""

    __slots__ = ("_work",)

    def __init__(self, work: ListenerTask) -> None:
        self._work = work

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the queue went to another member (or is about to), or the time is over.
        The result will not count, and the message is delivered again."""
        work = self._work
        return work.lane.holding.cancelled or id(work.current) in work.given_up


class ListenerTask:
    """Messages that a worker has taken from one lane.

    The worker takes them one by one from the left of `rest`, without a lock; others may take some
    from its right, under the member's lock.
    """

    __slots__ = ("began", "current", "failed", "given_up", "lane", "messages", "rest", "taken_at")

    def __init__(self, lane: ProcessQueue, messages: list[Message], now: float) -> None:
        self.lane = lane
        self.messages = messages
        self.rest = deque(messages)
        self.current: Message | None = None
        """What the listener has now."""
        self.taken_at = now
        self.began = now
        """When the listener got `current`."""
        self.failed: dict[int, tuple[float | None, str]] = {}
        """id of a message → (delay in seconds or None, cause)."""
        self.given_up: set[int] = set()
        """ids of messages whose listener took too long: its result does not count."""

    @property
    def stopped(self) -> bool:
        """Whether to hand out no more: the queue is being given away."""
        return self.lane.holding.state != "reading"

    def fail(self, message: Message, delay_s: float | None, cause: str) -> None:
        """The listener did not take it."""
        self.failed[id(message)] = (delay_s, cause)

    def give_up(self, count: int) -> list[Message]:
        """Let another worker have the last `count` messages; fewer if they are gone."""
        taken: list[Message] = []
        while len(taken) < count:
            try:
                taken.append(self.rest.pop())
            except IndexError:
                break
        if taken:
            del self.messages[-len(taken) :]
        return taken[::-1]

    def handled(self) -> list[Message]:
        """What the listener got, well or not."""
        left = len(self.rest)
        return self.messages[:-left] if left else self.messages
