"""The mark by which a source tells a query's listener for which group to commit.

Spark does not pass options of a source to listeners. It does pass on the latest offset that a
source reports, unchanged, and does not store it, so that is where the mark is: the name of one more
topic, which has no queues. So exporters of lags, which go through queues and their offsets, find
nothing there.
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
    target = CommitTarget(options.commit_group, options.servers, options.timeout_ms)
    return {**latest, MARK + json.dumps(target): {}}


def mark_of(latest: str | None) -> CommitTarget | None:
    """Return the mark in a source's latest offset, or None if it has no mark of ours."""
    for key in _object(latest):
        if key.startswith(MARK):
            match _parsed(key[len(MARK) :]):
                case [str() as group, str() as servers, int() as timeout_ms]:
                    return CommitTarget(group, servers, timeout_ms)
    return None


def reached(end: str | None) -> Offsets:
    """Return the offsets that a source has been read to."""
    return from_json(_object(end), "the progress of a query")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # Another source's, which may be any text.
        return None


def _object(text: str | None) -> dict[str, Any]:
    value = _parsed(text) if text else {}
    return value if isinstance(value, dict) else {}
