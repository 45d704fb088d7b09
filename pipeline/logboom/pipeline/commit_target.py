"""The mark by which a source tells a query's listener for which group to commit.

Spark does not pass options of a source to listeners. It does pass on the latest offset that a
source reports, unchanged, and does not store it, so that is where the mark is.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from logboom.pipeline.queue_offsets import Offsets, from_json
from logboom.pipeline.source_options import SourceOptions

MARK: Final = "commitGroup:"
"""The prefix of a mark's key. No topic name begins with it."""


class CommitTarget(NamedTuple):
    """The group to commit for, and its cluster."""

    group: str
    servers: str
    timeout_ms: int


def marked(latest: dict[str, Any], options: SourceOptions) -> dict[str, Any]:
    """Return the latest offsets, with a mark if the query commits for a group."""
    if not options.commit_group:
        return latest
    mark = {"servers": options.servers, "timeoutMs": options.timeout_ms}
    return {**latest, MARK + options.commit_group: mark}


def mark_of(latest: str | None) -> CommitTarget | None:
    """Return the mark in a source's latest offset, or None if it has no mark of ours."""
    for key, value in _object(latest).items():
        if key.startswith(MARK) and isinstance(value, dict):
            servers, timeout_ms = value.get("servers"), value.get("timeoutMs")
            if isinstance(servers, str) and isinstance(timeout_ms, int):
                return CommitTarget(key[len(MARK) :], servers, timeout_ms)
    return None


def reached(end: str | None) -> Offsets:
    """Return the offsets that a source has been read to."""
    return from_json(_object(end), "the progress of a query")


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        # Another source's, which may be any text.
        return {}
    return value if isinstance(value, dict) else {}
