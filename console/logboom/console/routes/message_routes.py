"""Messages: their list, one of them with its life, those that come, and producing."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client import Message
from logboom.client.written_values import counted, duration_ms
from logboom.console.pages.message_page import MessageModel, build_message
from logboom.console.pages.messages_page import (
    MessagesModel,
    MessagesWish,
    QueueRead,
    build_messages,
    build_tail,
    merge_queues,
    plan_reads,
    positions_after,
    positions_before,
    positions_text,
    read_wish,
    wished_time_ms,
)
from logboom.console.pages.topic_page import TopicHead, build_head
from logboom.console.routes.topic_routes import queue_bounds, topic_view
from logboom.console.site import (
    ActionDone,
    ConsoleAction,
    FileAnswer,
    FormField,
    PageRequest,
    PageRoute,
    StreamedPiece,
    StreamRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues, path_of
from logboom.console.widgets.value_views import trimmed
from logboom.wire.errors import InvalidRequest, UnknownResource

MAX_PULLS: Final = 12
"""Requests for one queue of one page; what is then not found is left to the next page."""
MAX_SCANNED: Final = 50_000
"""Messages of a queue that one page looks through for those that match."""
TAIL_S: Final = 0.5
"""Seconds between two pieces of a stream of messages."""
TAIL_ROWS: Final = 100
"""Messages of one piece; if more came, the newest are shown."""
TAIL_BACKLOG: Final = 2_000
"""Messages of a queue that a stream goes back for, after a broken connection."""
TAIL_BYTES: Final = 2 * 1024 * 1024
"""Bytes that a stream reads ahead."""


@dataclass(frozen=True, slots=True)
class QueueFound:
    """What was found in one queue."""

    messages: Sequence[Message]
    reached: int
    """Forward: the offset before which everything was looked at; backward: from which on."""


async def load_messages(request: PageRequest) -> MessagesModel:
    """Ask for the messages that the URL names."""
    wish = read_wish(request.query)
    topic = await topic_view(request, request.parts["topic"])
    head = build_head(topic, "Messages")
    if wish.queue is not None and wish.queue >= len(topic.queues):
        raise UnknownResource(
            f"{topic.name} has no queue {wish.queue}: it has {len(topic.queues)}", "UNKNOWN_QUEUE"
        )
    if wish.begin == "key" and wish.at and not (wish.after or wish.before or wish.live):
        return await _load_by_key(request, wish, head)
    bounds = await queue_bounds(request, topic)
    if wish.queue is not None:
        bounds = {queue: each for queue, each in bounds.items() if queue == wish.queue}
    times: Mapping[int, int] = {}
    if wish.begin == "time" and not (wish.after or wish.before or wish.live):
        times = await _offsets_at(request, topic.name, wished_time_ms(wish, request.now_ms), bounds)
    if wish.begin == "key" and not (wish.at or wish.live):
        return build_messages(head, wish, (), request.query)
    reads = plan_reads(wish, bounds, times)
    found = dict(
        zip(
            (read.queue for read in reads),
            await request.cluster.together(
                [_read(request, topic.name, read, wish) for read in reads]
            ),
            strict=True,
        )
    )
    backward = bool(reads) and reads[0].backward
    merged = merge_queues(
        {queue: each.messages for queue, each in found.items()}, wish.limit, backward=backward
    )
    newer, older = _positions(reads, found, merged, bounds, backward=backward)
    if wish.live:
        ends = {queue: end for queue, (_, end) in bounds.items()}
        return build_messages(head, wish, merged, request.query, ends=ends)
    note = ""
    if len(merged) < wish.limit and (older if backward else newer):
        note = "Not all messages were looked through: go on with the links below."
    missing = len(topic.queues) - len(bounds) if wish.queue is None else 0
    if missing:
        note = f"{counted(missing, 'queue')} without a leader cannot be read now. {note}"
    return build_messages(head, wish, merged, request.query, newer=newer, older=older, note=note)


def _positions(
    reads: Sequence[QueueRead],
    found: Mapping[int, QueueFound],
    merged: Sequence[Message],
    bounds: Mapping[int, tuple[int, int]],
    *,
    backward: bool,
) -> tuple[dict[int, int], dict[int, int]]:
    """Return where newer messages begin and older ones end; empty where there are none."""
    # What was read and not shown is read again; only where nothing is left over was all looked at.
    shown: dict[int, int] = {}
    for message in merged:
        shown[message.queue] = shown.get(message.queue, 0) + 1
    reached = {
        queue: each.reached
        for queue, each in found.items()
        if shown.get(queue, 0) == 0 and not each.messages
    }
    if backward:
        older = positions_before(merged, reads, reached)
        older = {queue: at for queue, at in older.items() if at > bounds[queue][0]}
        newer = {read.queue: read.stop for read in reads if read.stop < bounds[read.queue][1]}
        if newer:
            newer = {read.queue: read.stop for read in reads}
        return newer, older
    newer = positions_after(merged, reads, reached)
    newer = {queue: at for queue, at in newer.items() if at < bounds[queue][1]}
    older = {read.queue: read.start for read in reads if read.start > bounds[read.queue][0]}
    return newer, older


async def _load_by_key(request: PageRequest, wish: MessagesWish, head: TopicHead) -> MessagesModel:
    admin = request.cluster.boom.admin
    messages = await admin.find_messages(head.name, wish.at.encode(), wish.queue, wish.limit)
    messages.sort(key=lambda message: (message.timestamp_ms, message.queue, message.offset))
    found = [trimmed(each) for each in messages[-wish.limit :]]
    return build_messages(head, wish, found, request.query)


async def _offsets_at(
    request: PageRequest, topic: str, at_ms: int, bounds: Mapping[int, tuple[int, int]]
) -> Mapping[int, int]:
    admin = request.cluster.boom.admin
    found = await request.cluster.together(
        [admin.offset_for_time(topic, queue, at_ms) for queue in bounds]
    )
    return dict(zip(bounds, found, strict=True))


async def _read(
    request: PageRequest, topic: str, read: QueueRead, wish: MessagesWish
) -> QueueFound:
    if not read.backward:
        return await _read_on(request, topic, read, wish)
    # Wider and wider parts before the end, until enough of it matches.
    width, upper = wish.limit, read.stop
    found: deque[Message] = deque()
    while upper > read.start and len(found) < wish.limit and read.stop - upper < MAX_SCANNED:
        lower = max(read.start, upper - width)
        part = await _read_on(
            request, topic, QueueRead(read.queue, lower, upper, backward=False), wish, whole=True
        )
        found.extendleft(reversed(part.messages))
        upper, width = lower, width * 4
    return QueueFound(list(found)[-wish.limit :], upper)


async def _read_on(
    request: PageRequest,
    topic: str,
    read: QueueRead,
    wish: MessagesWish,
    *,
    whole: bool = False,
) -> QueueFound:
    """Read forward, until enough matches; `whole`: to the end of the range."""
    at, found = read.start, list[Message]()
    pulls = 0
    while at < read.stop and (whole or len(found) < wish.limit):
        if not whole and (pulls >= MAX_PULLS or at - read.start >= MAX_SCANNED):
            break
        pulls += 1
        most = read.stop - at if whole else wish.limit - len(found)
        pulled = await request.cluster.boom.pull(
            topic,
            read.queue,
            at,
            max_messages=most,
            tags=wish.tags or None,
            filter=wish.filter or None,
        )
        found += [trimmed(each) for each in pulled.messages if each.offset < read.stop]
        # Of what is read back from the end only the last ones are shown.
        del found[: -wish.limit]
        if pulled.next_offset <= at:
            break
        at = pulled.next_offset
    return QueueFound(found, min(at, read.stop))


async def load_message(request: PageRequest) -> MessageModel | FileAnswer:
    """Ask for one message and its life, or for its value as a file."""
    parts = request.parts
    name, queue, offset = parts["topic"], int(parts["queue"]), int(parts["offset"])
    admin = request.cluster.boom.admin
    if request.query.text("format") == "raw":
        message = await admin.get_message(name, queue, offset)
        return FileAnswer(message.value or b"", f"{name}-{queue}-{offset}.bin")
    topic = await topic_view(request, name)
    life = await admin.message_life(name, queue, offset)
    return build_message(build_head(topic, "Messages"), life, request.query)


async def follow(request: PageRequest) -> AsyncIterator[StreamedPiece]:
    """Yield messages as they come, the newest of each half second.

    It goes on behind the messages that the browser has, unless these are too many.
    """
    wish = read_wish(request.query)
    topic = await topic_view(request, request.parts["topic"])
    bounds = await queue_bounds(request, topic)
    queues = [*range(len(topic.queues))] if wish.queue is None else [wish.queue]
    positions = tail_starts(queues, wish.after, bounds)
    async with request.cluster.boom.consumer(
        topic.name,
        queues=queues,
        start="last",
        tags=wish.tags or None,
        filter=wish.filter or None,
        prefetch_bytes=TAIL_BYTES,
    ) as consumer:
        for queue, offset in positions.items():
            await consumer.seek(topic.name, queue, offset)
        while True:
            if wish.tags or wish.filter:
                messages = await consumer.poll(10_000, TAIL_S)
                came = len(messages)
                positions |= {message.queue: message.offset + 1 for message in messages}
            else:
                # Only what is shown is decoded.
                batches = await consumer.poll_columns(TAIL_S)
                came = sum(len(batch) for batch in batches)
                positions |= {batch.queue: batch.columns.next_offset for batch in batches}
                messages = []
                for batch in reversed(batches):
                    if len(messages) >= TAIL_ROWS:
                        break
                    messages[:0] = batch.messages()[-TAIL_ROWS:]
            shown = messages[-TAIL_ROWS:]
            if shown:
                model = build_tail(shown, came - len(shown), wish.show_as)
                yield StreamedPiece(model, "message_rows.html", positions_text(positions))
            await request.cluster.pause(TAIL_S)


def tail_starts(
    queues: Sequence[int], after: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """Return where a stream goes on: behind what the browser has, unless that is far back.

    Args:
        bounds: (first offset, end) by queue. A queue without a leader has none: it goes on where
            the browser is, else at the end that it has when it has a leader again.
    """
    starts = {}
    for queue in queues:
        if queue not in bounds:
            if queue in after:
                starts[queue] = after[queue]
            continue
        first, end = bounds[queue]
        starts[queue] = min(max(after.get(queue, end), first, end - TAIL_BACKLOG), end)
    return starts


# Producing.


def read_headers(text: str) -> dict[str, bytes]:
    """Return the headers of lines name=value.

    Raises:
        InvalidRequest: a line is none, or a name occurs twice.
    """
    found: dict[str, bytes] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"header {line[:60]!r}: write name=value")
        if name.strip() in found:
            raise InvalidRequest(f"header {name.strip()!r} is there twice")
        found[name.strip()] = value.encode()
    return found


def produce_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom produce`.

    Raises:
        InvalidRequest: a header cannot be read.
    """
    headers = read_headers(values.raw("headers"))
    topic, value = values.text("topic"), values.raw("value")
    words = ["produce", topic]
    if values.flag("no_value") or "\n" in value or value.startswith("-"):
        line: dict[str, Any] = {"value": None if values.flag("no_value") else value}
        if values.text("key"):
            line["key"] = values.text("key")
        words += [json.dumps(line, ensure_ascii=False), "--json"]
    else:
        words.append(value)
        if values.text("key"):
            words += ["--key", values.text("key")]
    if values.text("tag"):
        words += ["--tag", values.text("tag")]
    for name, content in headers.items():
        words += ["--header", f"{name}={content.decode()}"]
    if values.text("queue"):
        words += ["--queue", str(values.number("queue"))]
    if values.text("delay"):
        words += ["--delay", values.text("delay")]
    return words


async def produce(request: PageRequest, values: FormValues) -> ActionDone:
    """Send one message."""
    topic = values.text("topic")
    delay = values.text("delay")
    async with request.cluster.boom.producer() as producer:
        sent = await producer.send(
            topic,
            None if values.flag("no_value") else values.raw("value").encode(),
            key=values.text("key").encode() or None,
            tag=values.text("tag") or None,
            headers=read_headers(values.raw("headers")) or None,
            queue=values.number("queue") if values.text("queue") else None,
            delay_s=duration_ms(delay) / 1000 if delay else None,
        )
    if sent.offset < 0:
        return ActionDone(f"It is stored, and delivered in {delay}.", path_of("topics", topic))
    place = f"{sent.topic}/{sent.queue}/{sent.offset}"
    return ActionDone(f"{place} is stored.", path_of("topics", sent.topic, sent.queue, sent.offset))


PRODUCE: Final = ConsoleAction(
    name="message.produce",
    title="Produce a message",
    button="Produce",
    fields=(
        FormField("topic", kind="hidden", required=True),
        FormField("key", "Key", hint="Messages of a key stay in one queue, in order."),
        FormField("value", "Value", "textarea", placeholder='{"flight": "UA 1545"}'),
        FormField(
            "no_value",
            "No value",
            "checkbox",
            hint="A tombstone: it deletes the key in a compacted topic.",
        ),
        FormField(
            "headers",
            "Headers",
            "textarea",
            hint="One a line: name=value.",
            placeholder="source=tower",
            rows=3,
        ),
        FormField("tag", "Tag"),
        FormField("queue", "Queue", "number", hint="Empty: that of the key, or any."),
        FormField(
            "delay", "Delay", hint="Deliver it only after this time: 90s, 15m, 1h, at most 40d."
        ),
    ),
    command=produce_command,
    question=lambda values: f"Send this message to {values.text('topic')}?",
    run=produce,
)
SUBJECT = Subject(
    pages=(
        PageRoute("/topics/{topic}", load_messages, "messages.html"),
        PageRoute("/topics/{topic}/{queue:int}/{offset:int}", load_message, "message.html"),
    ),
    streams=(StreamRoute("/topics/{topic}/tail", follow),),
    actions=(PRODUCE,),
)
