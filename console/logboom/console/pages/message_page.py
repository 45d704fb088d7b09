"""One message: its parts, and its life; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logboom.client.admin_flows.message_life import LifeEvent, MessageLife, ReaderLife
from logboom.console.pages.topic_page import TopicHead
from logboom.console.widgets.data_table import Tone
from logboom.console.widgets.formats import count_text, size_text, span_text, time_text
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.console.widgets.value_views import (
    MAX_ROW_BYTES,
    ValueView,
    ViewLink,
    as_text,
    asked_view,
    message_bytes,
    short_text,
    shown_headers,
    view_links,
    view_value,
)

MAX_AGAIN_BYTES = 32_768
"""Bytes of a message that a form is filled with, to send it again."""
EVENT_TONES: Mapping[str, Tone] = {
    "finished": "ok",
    "retry": "warning",
    "retry waits": "warning",
    "dead letter": "failed",
    "removed": "failed",
    "redrive": "info",
}
READER_TONES: Mapping[str, Tone] = {
    "finished": "ok",
    "held": "info",
    "waits": "warning",
    "retries": "warning",
    "dead letter": "failed",
}
STATE_TEXTS = {
    "stored": "",
    "removed": "Retention has removed this message.",
    "missing": "There is no message at this offset: compaction has removed it, or the offset was "
    "taken by an entry of the system.",
    "not yet": "This offset is not written yet.",
}


@dataclass(frozen=True, slots=True)
class LifeStep:
    """An event of the life, as it is shown."""

    event: LifeEvent
    tone: Tone


@dataclass(frozen=True, slots=True)
class LifeReader:
    """A group or subscription, as it is shown."""

    reader: ReaderLife
    tone: Tone
    href: str


@dataclass(frozen=True, slots=True)
class MessageModel:
    """One message."""

    head: TopicHead
    queue: int
    offset: int
    state: str
    """What stands in the place of a message that is not there."""
    facts: tuple[tuple[str, str], ...]
    key: ValueView | None
    value: ValueView | None
    views: tuple[ViewLink, ...]
    headers: tuple[tuple[str, str], ...]
    previous_url: str
    next_url: str
    download_url: str
    steps: tuple[LifeStep, ...]
    readers: tuple[LifeReader, ...]
    unknown: tuple[str, ...]
    again: Mapping[str, str]
    """Fields of the form that sends it again; empty if it is no text."""


def build_message(head: TopicHead, life: MessageLife, query: PageQuery) -> MessageModel:
    """Return one message with its life."""
    message = life.message
    return MessageModel(
        head=head,
        queue=life.queue,
        offset=life.offset,
        state=STATE_TEXTS[life.state],
        facts=_facts(life),
        key=None
        if message is None or message.key is None
        else view_value(message.key, most=MAX_ROW_BYTES),
        value=None if message is None else view_value(message.value, asked_view(query)),
        views=view_links(query),
        headers=shown_headers(None if message is None else message.headers),
        previous_url=path_of("topics", life.topic, life.queue, life.offset - 1)
        if life.offset > life.first
        else "",
        next_url=path_of("topics", life.topic, life.queue, life.offset + 1)
        if life.offset + 1 < life.end
        else "",
        download_url=query.url(format="raw") if message and message.value is not None else "",
        steps=tuple(LifeStep(event, EVENT_TONES.get(event.what, "")) for event in life.events),
        readers=tuple(
            LifeReader(
                reader,
                READER_TONES.get(reader.state, ""),
                path_of("groups", reader.name)
                if reader.kind == "group"
                else path_of("subscriptions", life.topic, reader.name),
            )
            for reader in life.readers
        ),
        unknown=tuple(life.unknown),
        again=_again(life),
    )


def _facts(life: MessageLife) -> tuple[tuple[str, str], ...]:
    message, origin = life.message, life.origin
    facts: list[tuple[str, str]] = []
    if message is not None:
        facts += [
            ("Message time", time_text(message.timestamp_ms)),
            ("Size", size_text(message_bytes(message))),
            ("Tag", short_text(message.tag or "none")),
        ]
    if origin is not None:
        who = "without an id"
        if origin.producer_id is not None:
            who = f"{origin.producer_id}, epoch {origin.producer_epoch}"
        facts += [
            ("Stored", time_text(origin.stored_ms)),
            ("Producer", who),
            ("Sequence", count_text(origin.sequence)),
            (
                "Batch",
                f"{origin.batch_messages} from {origin.batch_first:,}, {size_text(origin.batch_bytes)}",
            ),
            ("Leader epoch", str(origin.leader_epoch)),
        ]
        if origin.traceparent:
            facts.append(("Trace", short_text(origin.traceparent)))
    if life.waited is not None:
        waited = life.waited
        spent = None if waited.parked_ms is None else waited.released_ms - waited.parked_ms
        facts.append(("Waited", f"{waited.kind}, {span_text(spent)}"))
    return tuple(facts)


def _again(life: MessageLife) -> dict[str, str]:
    """Return what the form that sends a message again is filled with, if all of it is text."""
    message = life.message
    if message is None or message_bytes(message) > MAX_AGAIN_BYTES:
        return {}
    texts = [as_text(part) for part in (message.key or b"", message.value or b"")]
    headers = {name: as_text(value) for name, value in (message.headers or {}).items()}
    if None in texts or None in headers.values():
        return {}
    return {
        "key": texts[0] or "",
        "value": texts[1] or "",
        "no_value": "on" if message.value is None else "",
        "tag": message.tag or "",
        "headers": "\n".join(f"{name}={value}" for name, value in headers.items()),
    }
