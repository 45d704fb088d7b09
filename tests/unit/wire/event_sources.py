"""Which kinds of nodes write an event."""

from __future__ import annotations

from collections.abc import Mapping

from logboom.wire.event_table import EventSource, LogEvent


def written_by(event: LogEvent, kind: str) -> bool:
    """Return True if nodes of a kind write an event."""
    sources: Mapping[EventSource, tuple[str, ...]] = {
        "node": ("broker", "name-server"),
        "broker": ("broker",),
        "name server": ("name-server",),
        "raft leader": ("name-server",),
    }
    return kind in sources[event.source]
