"""A worker's task: messages of one queue and the results of the listener."""

from __future__ import annotations

from collections import deque

from logboom.client.push.process_queue import ProcessQueue
from logboom.client.results import Message
from logboom.wire.errors import InvalidRequest


class Later:
    """A listener's result: not now, retry in `delay_s` seconds."""

    __slots__ = ("delay_s",)

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def __repr__(self) -> str:
        return f"Later({self.delay_s:g})"


class Done:
    """A batch listener's result: the first `count` messages are done, the others are retried.

    As RocketMQ's ackIndex + 1. They are retried after `delay_s` seconds or the group's retry delay.
    """

    __slots__ = ("count", "delay_s")

    def __init__(self, count: int, delay_s: float | None = None) -> None:
        if count < 0:
            raise InvalidRequest(f"Done takes the number of finished messages, not {count}")
        self.count = count
        self.delay_s = delay_s

    def __repr__(self) -> str:
        return f"Done({self.count})"


class Dead:
    """A listener's result: this message will never succeed, so it becomes a dead letter at once.

    As RocketMQ's delay level -1; `cause` is kept with it.
    """

    __slots__ = ("cause",)

    def __init__(self, cause: str = "the listener returned Dead()") -> None:
        self.cause = cause

    def __repr__(self) -> str:
        return f"Dead({self.cause!r})"


class Context:
    """The context of a running listener, for listeners with two parameters."""

    __slots__ = ("_work",)

    def __init__(self, work: ListenerTask) -> None:
        self._work = work

    @property
    def cancelled(self) -> bool:
        """True if the listener should stop, because its result will not count.

        Its queue is moving to another member, or its time is over. The message is delivered again.
        """
        work = self._work
        return work.lane.holding.cancelled or id(work.current) in work.given_up


class ListenerTask:
    """Messages that a worker has taken from one queue.

    The worker takes them one by one from the left of `rest`, without a lock. Other workers may take
    some from its right, under the member's lock.
    """

    __slots__ = ("began", "current", "failed", "given_up", "lane", "messages", "rest", "taken_at")

    def __init__(self, lane: ProcessQueue, messages: list[Message], now: float) -> None:
        self.lane = lane
        self.messages = messages
        self.rest = deque(messages)
        self.current: Message | None = None
        """The message that the listener has now."""
        self.taken_at = now
        self.began = now
        """Time at which the listener received `current`."""
        self.failed: dict[int, tuple[float | None, str]] = {}
        """id of a message → (delay in seconds or None, cause)."""
        self.given_up: set[int] = set()
        """ids of messages whose listener took too long, so that its result does not count."""

    @property
    def stopped(self) -> bool:
        """True if nothing more may be handed out, because the queue is being released."""
        return self.lane.holding.state != "reading"

    def fail(self, message: Message, delay_s: float | None, cause: str) -> None:
        """Note that the listener failed on a message."""
        self.failed[id(message)] = (delay_s, cause)

    def give_up(self, count: int) -> list[Message]:
        """Give the last `count` messages to another worker; fewer if they are gone."""
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
        """Return the messages that the listener has received, whether it succeeded or not."""
        left = len(self.rest)
        return self.messages[:-left] if left else self.messages
