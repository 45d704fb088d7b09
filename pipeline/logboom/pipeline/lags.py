"""Lags of consumer groups as rows. This module does not need Spark."""

from __future__ import annotations

from typing import Any

from logboom.client import Client


def group_lags(boom: Client, groups: list[str]) -> list[dict[str, Any]]:
    """Return a row per queue of each group.

    It has the committed offset, the end, the lag, and the age of the oldest waiting message in ms.
    """
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
