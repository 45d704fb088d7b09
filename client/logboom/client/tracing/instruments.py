"""Names of attributes, and the metrics of clients, under OpenTelemetry's names for messaging.

Without an SDK the instruments do nothing.
"""

from __future__ import annotations

from typing import Final

from opentelemetry import metrics

from logboom import __version__

SCOPE: Final = "logboom.client"
"""Name of the instrumentation scope."""
SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
SUBSCRIPTION: Final = "messaging.destination.subscription.name"
GROUP: Final = "messaging.consumer.group.name"
COUNT: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
OFFSET: Final = "logboom.offset"
ATTEMPT_NUMBER: Final = "logboom.attempt"
ORIGIN_PLACE: Final = "logboom.origin"
"""topic/queue/offset of the message that a retry or a dead letter is a copy of."""
OUTCOME: Final = "logboom.outcome"
"""What a listener returned, if the message is not finished by it."""
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Bounds of durations, in seconds."""


class Instruments:
    """The four metrics of a client."""

    def __init__(self) -> None:
        meter = metrics.get_meter(SCOPE, __version__)
        self.operation_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of sending a batch until it was acknowledged, or of one poll.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that were sent."
        )
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered."
        )
        self.process_duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of the handling of messages.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )


def operation(name: str, kind: str, topic: str) -> dict[str, str | int]:
    """Return the attributes of an operation."""
    attributes: dict[str, str | int] = {
        SYSTEM: "logboom",
        OPERATION_NAME: name,
        OPERATION_TYPE: kind,
    }
    if topic:
        attributes[DESTINATION] = topic
    return attributes
