"""How far consumer groups are behind, as rows; needs no Spark."""

from __future__ import annotations

from typing import Any

from logboom.client import Client


def group_lags(boom: Client, groups: list[str]) -> list[dict[str, Any]]:
    """One row a queue of each group: committed offset, end, lag, and the age of what waits, in ms."""
    names = groups or [group.name for group in boom.admin.groups()]
    return [
        {
            "group": name,
            "topic": queue.topic,
            "queue": queue.queue,
            "committed": queue.committed,
            "end": queue.end,
            "lag": queue.lag,
            "age_ms": queue.age_ms,
        }
        for name in names
        for queue in boom.admin.describe_group(name).queues
    ]
