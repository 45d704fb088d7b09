"""What stands in a topic, read by an ordinary consumer."""

from __future__ import annotations

from logboom.client import Client, Message


def contents(boom: Client, topic: str) -> list[Message]:
    """All messages of a topic, each queue in order; what is one too many is among them."""
    ends = boom.admin.offsets(topic)
    total = sum(end - first for first, end in ends.values())
    found: list[Message] = []
    with boom.consumer(topic, queues=sorted(ends), start="first") as consumer:
        while len(found) < total:
            found += consumer.poll(5_000, 10.0)
        found += consumer.poll(5_000, 0.2)
    return found
