"""Options of a push consumer: RocketMQ's thresholds under its names, each with its unit."""

from __future__ import annotations

from dataclasses import dataclass

from logboom.wire.errors import InvalidRequest

NO_BOUND = -1
MAX_BATCH = 100_000
"""Maximum number of messages that a batch listener may request."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """Options for handing messages to a listener; checked by `validate`."""

    threads: int = 20
    """Maximum number of concurrent listeners (consumeThreadMax); with asyncio: tasks."""
    orderly: bool = False
    """One message at a time and in order per queue; a failure suspends the queue."""
    batch: int = 1
    """1: the listener gets one message. More: a list of up to this many
    (consumeMessageBatchMaxSize)."""
    pull_threshold_for_queue: int = 1_000
    """Maximum number of messages of one queue that wait here or are being handled."""
    pull_threshold_size_for_queue: int = 100 * 1024 * 1024
    """Maximum bytes of one queue that wait here or are being handled."""
    pull_threshold_for_topic: int = NO_BOUND
    """Maximum number of messages of one topic, shared equally by its queues here, in place of
    `pull_threshold_for_queue`; -1: not used."""
    pull_threshold_size_for_topic: int = NO_BOUND
    """The same in bytes."""
    consume_concurrently_max_span: int = 2_000
    """Maximum offsets between the oldest unfinished message of a queue and the newest fetched; not
    orderly."""
    suspend_current_queue_ms: int = 1_000
    """orderly: time for which a queue waits after a failure, 10 to 30,000 ms."""
    orderly_max_attempts: int = 0
    """orderly: attempts after which a message becomes a dead letter; 0: it is retried for ever, and
    its queue waits for it."""
    await_termination_s: float = 30.0
    """Seconds that `close` waits for running listeners (awaitTerminationMillisWhenShutdown)."""

    @property
    def has_topic_bound(self) -> bool:
        """True if queues of one topic share a threshold."""
        return self.pull_threshold_for_topic != NO_BOUND or (
            self.pull_threshold_size_for_topic != NO_BOUND
        )

    def validate(self) -> None:
        """Check the options.

        Raises:
            InvalidRequest: an option is invalid.
        """
        if not 1 <= self.threads <= 1_000:
            raise InvalidRequest(f"threads must be 1 to 1000, not {self.threads}")
        if not 1 <= self.batch <= MAX_BATCH:
            raise InvalidRequest(f"batch must be 1 to {MAX_BATCH}, not {self.batch}")
        if not 10 <= self.suspend_current_queue_ms <= 30_000:
            text = (
                f"suspend_current_queue_ms must be 10 to 30000, not {self.suspend_current_queue_ms}"
            )
            raise InvalidRequest(text)
        for name in (
            "pull_threshold_for_queue",
            "pull_threshold_size_for_queue",
            "consume_concurrently_max_span",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("pull_threshold_for_topic", "pull_threshold_size_for_topic"):
            if getattr(self, name) < 1 and getattr(self, name) != NO_BOUND:
                raise InvalidRequest(f"{name} must be 1 or more, or -1, not {getattr(self, name)}")
        if self.orderly_max_attempts < 0 or self.await_termination_s < 0:
            raise InvalidRequest("orderly_max_attempts and await_termination_s must be 0 or more")
