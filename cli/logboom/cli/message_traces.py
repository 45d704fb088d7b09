"""Texts of `logboom message trace`: the life of a message as lines, rows and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from logboom.cli.message_format import as_row
from logboom.client.admin_flows.message_life import MessageLife, MessageState
from logboom.client.written_values import counted

STATES: Final[dict[MessageState, str]] = {
    "stored": "stored",
    "removed": "removed by retention",
    "missing": "in the log no more, though its neighbours are",
    "not yet": "not stored yet",
}


def life_lines(life: MessageLife) -> Iterator[str]:
    """Yield the head and the steps of a life."""
    place = f"{life.topic}/{life.queue}/{life.offset}"
    yield f"{place}: {STATES[life.state]}; the queue holds {_bounds(life)}"
    if life.message is not None and life.origin is not None:
        message, origin = life.message, life.origin
        size = len(message.value or b"")
        yield f"{counted(size, 'byte')}, in a batch of {counted(origin.batch_messages, 'message')}"
        if origin.traceparent is not None:
            yield f"traceparent {origin.traceparent}"
    if life.events:
        yield ""
    for event in life.events:
        who = f" [{event.reader}]" if event.reader else ""
        yield f"{time_text(event.at_ms):<24}  {event.what:<11}{who} {event.text}".rstrip()


def _bounds(life: MessageLife) -> str:
    return "nothing" if life.first == life.end else f"{life.first} to {life.end - 1}"


def time_text(milliseconds: int | None) -> str:
    """Return a time in UTC, to the millisecond; "-" if it is not recorded."""
    if milliseconds is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)  # message times are the producer's, and may be anything
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def reader_rows(life: MessageLife) -> list[dict[str, Any]]:
    """Return a row per group and subscription."""
    return [msgspec.structs.asdict(each) for each in life.readers]


def life_json(life: MessageLife) -> dict[str, Any]:
    """Return the life as JSON values."""
    fields = msgspec.structs.asdict(life)
    fields["message"] = None if life.message is None else as_row(life.message)
    return {**fields, "place": f"{life.topic}/{life.queue}/{life.offset}"}
