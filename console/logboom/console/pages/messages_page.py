"""Messages of a topic: where to read, how the queues are merged, and the rows; pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from logboom.client.results import Message
from logboom.client.written_values import reset_target
from logboom.console.pages.topic_page import TopicHead
from logboom.console.widgets.data_table import TableColumn, TableModel, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.console.widgets.value_views import (
    MAX_ROW_BYTES,
    SHOW_AS,
    ValueView,
    asked_view,
    message_bytes,
    plain_text,
    row_bytes,
    short_bytes,
    short_text,
    shown_headers,
    view_value,
)
from logboom.wire.errors import InvalidRequest

Begin: TypeAlias = Literal["newest", "oldest", "offset", "time", "key"]
LIMITS: Final = (50, 100, 200, 500, 1_000)
KEEP_ROWS: Final = 1_000
"""Rows that a page which follows a topic keeps."""
MAX_DIGITS: Final = 18
"""Digits of an offset, a queue or a time; more need not fit into 64 bits."""
BEGIN_CHOICES: Final = (
    ("newest", "the newest"),
    ("oldest", "the oldest"),
    ("offset", "an offset"),
    ("time", "a time"),
    ("key", "a key"),
)
Bounds: TypeAlias = Mapping[int, tuple[int, int]]
"""Queue → (first offset, end)."""


@dataclass(frozen=True, slots=True)
class MessagesWish:
    """What a URL asks for."""

    begin: Begin
    at: str
    """The offset, time or key."""
    queue: int | None
    """None: all."""
    filter: str
    tags: str
    limit: int
    show_as: str
    live: bool
    after: Mapping[int, int]
    """Queue → offset to go on at, forward; of a link."""
    before: Mapping[int, int]
    """Queue → offset to read back from; of a link."""


@dataclass(frozen=True, slots=True)
class QueueRead:
    """A queue to read, from an offset to before another."""

    queue: int
    start: int
    stop: int
    backward: bool
    """True if the last messages are wanted, and not the first."""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message in the list."""

    message: Message
    href: str
    key: str
    tag: str
    value: ValueView
    size_bytes: int
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MessagesModel:
    """The messages that a URL asks for."""

    head: TopicHead
    wish: MessagesWish
    rows: tuple[MessageRow, ...]
    table: TableModel
    """The same for CSV and JSON."""
    newer_url: str
    older_url: str
    stream_url: str
    """Where new messages come from, if it is live."""
    follow_url: str
    stop_url: str
    note: str
    """What was not looked at, in words."""
    begins: tuple[tuple[str, str], ...] = BEGIN_CHOICES
    limits: tuple[int, ...] = LIMITS
    ways: tuple[str, ...] = SHOW_AS
    """Ways to show values."""
    keep_rows: int = KEEP_ROWS


@dataclass(frozen=True, slots=True)
class TailModel:
    """Messages that came while somebody looked."""

    rows: tuple[MessageRow, ...]
    """The newest first."""
    left_out: int
    """Messages that came besides, and are not shown."""


COLUMNS: Final = (
    TableColumn("time_ms", "Time", "time"),
    TableColumn("queue", "Queue", "count"),
    TableColumn("offset", "Offset", "count"),
    TableColumn("key", "Key", "code"),
    TableColumn("tag", "Tag"),
    TableColumn("headers", "Headers"),
    TableColumn("size_bytes", "Size", "bytes"),
    TableColumn("value", "Value", "code"),
)


def read_wish(query: PageQuery) -> MessagesWish:
    """Read what a URL asks for; what it does not say is as usual.

    Raises:
        InvalidRequest: the queue or a position is no number.
    """
    begin: Any = query.text("from", "newest")
    queue = query.text("queue")
    limit = query.number("limit", LIMITS[0])
    if queue and not _is_whole(queue):
        raise InvalidRequest(f"queue {queue[:60]!r}: queues are numbers")
    return MessagesWish(
        begin=begin if begin in get_args(Begin) else "newest",
        at=query.text("at"),
        queue=int(queue) if queue else None,
        filter=query.text("filter"),
        tags=query.text("tags"),
        limit=limit if limit in LIMITS else LIMITS[0],
        show_as=asked_view(query),
        live=query.text("live") == "1",
        after=read_positions(query.text("after")),
        before=read_positions(query.text("before")),
    )


def read_positions(text: str) -> dict[int, int]:
    """Return the offsets of "0:17,1:4" by queue.

    Raises:
        InvalidRequest: it is not such a list.
    """
    found: dict[int, int] = {}
    for part in filter(None, text.split(",")):
        queue, _, offset = part.partition(":")
        if not (_is_whole(queue) and _is_whole(offset)):
            raise InvalidRequest(f"{text[:60]!r} names no positions: 0:17,1:4 does")
        found[int(queue)] = int(offset)
    return found


def _is_whole(text: str) -> bool:
    """Return True for a whole number that fits into 64 bits."""
    return len(text) <= MAX_DIGITS and text.isdecimal()


def positions_text(positions: Mapping[int, int]) -> str:
    """Return offsets by queue as a link has them."""
    return ",".join(f"{queue}:{offset}" for queue, offset in sorted(positions.items()))


def plan_reads(wish: MessagesWish, bounds: Bounds, times: Mapping[int, int]) -> list[QueueRead]:
    """Return what to read of each queue.

    Args:
        times: queue → offset of the first message at the wished time, if it is a time.

    Raises:
        InvalidRequest: an offset is wished and none is given.
    """
    reads = []
    for queue, (first, end) in sorted(bounds.items()):
        if wish.after:
            if queue in wish.after:
                reads.append(QueueRead(queue, max(first, wish.after[queue]), end, backward=False))
        elif wish.before:
            if queue in wish.before:
                stop = min(end, wish.before[queue])
                reads.append(QueueRead(queue, first, stop, backward=True))
        elif wish.begin == "newest":
            reads.append(QueueRead(queue, first, end, backward=True))
        elif wish.begin == "oldest":
            reads.append(QueueRead(queue, first, end, backward=False))
        elif wish.begin == "time":
            reads.append(QueueRead(queue, times.get(queue, end), end, backward=False))
        else:
            if not _is_whole(wish.at):
                raise InvalidRequest(f"offset {wish.at[:60]!r}: write a whole number")
            start = min(max(first, int(wish.at)), end)
            reads.append(QueueRead(queue, start, end, backward=False))
    return [read for read in reads if read.start < read.stop]


def wished_time_ms(wish: MessagesWish, now_ms: int) -> int:
    """Return the time to begin at.

    Raises:
        InvalidRequest: it is no time.
    """
    is_too_long = wish.at.isdecimal() and not _is_whole(wish.at)
    found = "" if is_too_long else reset_target(wish.at, now_ms)
    if isinstance(found, str) or abs(found) >= 10**MAX_DIGITS:
        at = wish.at[:60]
        raise InvalidRequest(f"time {at!r}: write 2026-11-21T10:00:00Z, or 1h for an hour ago")
    return found


def merge_queues(
    found: Mapping[int, Sequence[Message]], limit: int, *, backward: bool
) -> list[Message]:
    """Return messages of several queues by their time, at most so many: the first, or the last if
    `backward`. Messages of one queue stay in order, whatever times their producers gave."""
    if backward:
        newest_first = heapq.merge(
            *(reversed(messages) for messages in found.values()),
            key=lambda message: (-message.timestamp_ms, -message.queue),
        )
        taken = [message for message, _ in zip(newest_first, range(limit), strict=False)]
        return taken[::-1]
    oldest_first = heapq.merge(
        *found.values(), key=lambda message: (message.timestamp_ms, message.queue)
    )
    return [message for message, _ in zip(oldest_first, range(limit), strict=False)]


def positions_after(
    shown: Sequence[Message], reads: Iterable[QueueRead], reached: Mapping[int, int]
) -> dict[int, int]:
    """Return where to go on forward: behind what was shown of each queue.

    Args:
        reached: queue → offset up to which it was looked through, if no message was found there.
    """
    found = {read.queue: reached.get(read.queue, read.start) for read in reads}
    for message in shown:
        found[message.queue] = message.offset + 1
    return found


def positions_before(
    shown: Sequence[Message], reads: Iterable[QueueRead], reached: Mapping[int, int]
) -> dict[int, int]:
    """Return where to read back from: before what was shown of each queue."""
    found = {read.queue: reached.get(read.queue, read.stop) for read in reads}
    for message in reversed(shown):
        found[message.queue] = message.offset
    return found


def message_row(message: Message, show_as: str = "auto", most: int = MAX_ROW_BYTES) -> MessageRow:
    """Return the row of a message; `most` bytes of its value are there to be opened."""
    return MessageRow(
        message=message,
        href=path_of("topics", message.topic, message.queue, message.offset),
        key=short_bytes(message.key),
        tag=short_text(message.tag or ""),
        value=view_value(message.value, show_as, most),
        size_bytes=message_bytes(message),
        headers=shown_headers(message.headers),
    )


def plain_row(row: MessageRow) -> dict[str, Any]:
    """Return a row for CSV and JSON."""
    return {
        "time_ms": row.message.timestamp_ms,
        "queue": row.message.queue,
        "offset": row.message.offset,
        "key": row.key or None,
        "tag": row.tag or None,
        "headers": "; ".join(f"{name}={value}" for name, value in row.headers) or None,
        "size_bytes": row.size_bytes,
        "value": plain_text(row.message.value),
    }


def build_messages(
    head: TopicHead,
    wish: MessagesWish,
    shown: Sequence[Message],
    query: PageQuery,
    *,
    newer: Mapping[int, int] | None = None,
    older: Mapping[int, int] | None = None,
    ends: Mapping[int, int] | None = None,
    note: str = "",
) -> MessagesModel:
    """Return the list of messages, the newest first.

    Args:
        newer: where to go on forward; None: nowhere.
        older: where to read back from; None: nowhere.
        ends: where a stream goes on, if the page follows the topic.
    """
    rows = tuple(
        message_row(message, wish.show_as, row_bytes(len(shown))) for message in reversed(shown)
    )
    table = build_table(COLUMNS, [plain_row(row) for row in rows], PageQuery(query.path, ""))
    stream = PageQuery(f"{head.path}/tail").url(
        queue=wish.queue,
        filter=wish.filter,
        tags=wish.tags,
        after=positions_text(ends or {}),
        **{"as": wish.show_as},
    )
    begins = {"before": None, "after": None, "format": None, "table": None}
    return MessagesModel(
        head=head,
        wish=wish,
        rows=rows,
        table=_with_urls(table, query),
        newer_url=query.url(after=positions_text(newer), before=None, live=None) if newer else "",
        older_url=query.url(before=positions_text(older), after=None, live=None) if older else "",
        stream_url=stream if wish.live else "",
        follow_url=query.url(**begins, live="1", **{"from": None, "at": None}),
        stop_url=query.url(**begins, live=None),
        note=note,
    )


def _with_urls(table: TableModel, query: PageQuery) -> TableModel:
    """Let the links of CSV and JSON ask for the same messages."""
    return replace(
        table,
        csv_url=query.url(format="csv", live=None),
        json_url=query.url(format="json", live=None),
    )


def build_tail(messages: Sequence[Message], left_out: int, show_as: str) -> TailModel:
    """Return what came, the newest first."""
    return TailModel(
        tuple(message_row(each, show_as, row_bytes(len(messages))) for each in reversed(messages)),
        left_out,
    )
