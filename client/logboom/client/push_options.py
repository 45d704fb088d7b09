"""How a push consumer runs: RocketMQ's thresholds under its names, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

from logboom.wire.errors import InvalidRequest

NO_BOUND = -1
MAX_BATCH = 100_000
"""Messages that a batch listener may ask for at once."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """How messages are handed to a listener; checked by `validate`."""

    threads: int = 20
    """Listeners that run at once at most (consumeThreadMax); of asyncio: tasks."""
    orderly: bool = False
    """One at a time and in order per queue; a failure suspends the queue."""
    batch: int = 1
    """1: the listener gets one message. More: a list of up to so many
    (consumeMessageBatchMaxSize)."""
    pull_threshold_for_queue: int = 1_000
    """Messages of one queue that may wait here or be handled."""
    pull_threshold_size_for_queue: int = 100 * 1024 * 1024
    """Bytes of one queue that may wait here or be handled."""
    pull_threshold_for_topic: int = NO_BOUND
    """Messages of one topic, in equal parts for the queues of it that are here: instead of
    `pull_threshold_for_queue`; -1: that counts."""
    pull_threshold_size_for_topic: int = NO_BOUND
    """The same in bytes."""
    consume_concurrently_max_span: int = 2_000
    """Offsets between the oldest unfinished message of a queue and the newest fetched; not
    orderly."""
    suspend_current_queue_ms: int = 1_000
    """orderly: how long a queue waits after a failure, 10 to 30,000 ms."""
    orderly_max_attempts: int = 0
    """orderly: attempts after which a message is sent to the dead letters; 0: it is tried for ever,
    and its queue waits for it."""
    await_termination_s: float = 30.0
    """How long `close` waits for running listeners (awaitTerminationMillisWhenShutdown)."""

    @property
    def has_topic_bound(self) -> bool:
        """Whether queues of one topic share a threshold."""
        return self.pull_threshold_for_topic != NO_BOUND or (
            self.pull_threshold_size_for_topic != NO_BOUND
        )

    def validate(self) -> None:
        """Raises InvalidRequest for what cannot work."""
        if not 1 <= self.threads <= 1_000:
            raise InvalidRequest(f"threads is 1 to 1000, not {self.threads}")
        if not 1 <= self.batch <= MAX_BATCH:
            raise InvalidRequest(f"batch is 1 to {MAX_BATCH}, not {self.batch}")
        if not 10 <= self.suspend_current_queue_ms <= 30_000:
            text = f"suspend_current_queue_ms is 10 to 30000, not {self.suspend_current_queue_ms}"
            raise InvalidRequest(text)
        for name in (
            "pull_threshold_for_queue",
            "pull_threshold_size_for_queue",
            "consume_concurrently_max_span",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} is 1 or more, not {getattr(self, name)}")
        for name in ("pull_threshold_for_topic", "pull_threshold_size_for_topic"):
            if getattr(self, name) < 1 and getattr(self, name) != NO_BOUND:
                raise InvalidRequest(f"{name} is 1 or more, or -1, not {getattr(self, name)}")
        if self.orderly_max_attempts < 0 or self.await_termination_s < 0:
            raise InvalidRequest("orderly_max_attempts and await_termination_s are 0 or more")
