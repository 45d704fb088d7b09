"""`logboom consume`: write messages to standard output, one line each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated

from cyclopts import Parameter

from logboom.cli.connection import open_client
from logboom.cli.consume_group import POLL_MESSAGES, POLL_S, consume_as_member, group_start
from logboom.cli.message_format import as_json, compile_format
from logboom.cli.options import ago_ms
from logboom.cli.output import note
from logboom.cli.parameters import QueueNumbers, Servers
from logboom.client import Client, Consumer, Message
from logboom.client.written_values import queue_numbers
from logboom.wire.errors import InvalidRequest, UnknownResource


def consume(
    topic: str,
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g"])] = None,
    room: str | None = None,
    queue: QueueNumbers = None,
    offset: Annotated[str, Parameter(name=["--offset", "-o"], allow_leading_hyphen=True)] = "first",
    since: str | None = None,
    tags: str | None = None,
    where: Annotated[str | None, Parameter(name=["--filter"])] = None,
    exit_at_end: Annotated[bool, Parameter(name=["--exit", "-e"], negative="")] = False,
    count: Annotated[int | None, Parameter(name=["--count", "-c"])] = None,
    line_format: Annotated[str, Parameter(name=["--format", "-f"])] = "%s\\n",
    json: Annotated[bool, Parameter(name=["--json", "-J"], negative="")] = False,
    compacted: Annotated[bool, Parameter(negative="")] = False,
    servers: Servers = None,
) -> None:
    """Write a topic's messages to standard output, and go on as new ones come.

    For example:

        logboom consume flights
        logboom consume flights -o -10 -e   # the last 10 of each queue, then exit
        logboom consume flights --since 1h --json | jq .key
        logboom consume flights --tags 'late || lost' --filter "price > 3 AND region IS NOT NULL"
        logboom consume flights --group billing   # shares the queues, goes on where the group was
        logboom consume prices --compacted -e   # the latest of each key
        logboom consume flights -f '%t[%q]@%o %k: %v\\n'

    Parameters
    ----------
    topic
        The topic to read.
    group
        Join this consumer group: messages are committed once they are written. Where to
        begin applies only to a new group.
    room
        With --group: the location of this member, for the strategy machine_room_nearby.
    offset
        Where to begin in each queue: first, last, an offset, or -N for the last N.
    since
        Begin at messages of this age: 10m, 1h, 2d; in a queue that has none so young, at its end.
        Overrides --offset.
    tags
        Only messages with one of these tags: 'late || lost'.
    where
        Only messages whose headers match this condition, SQL-92 style: "price > 3 AND region =
        'eu'".
    exit_at_end
        Exit at the end, instead of waiting for new messages.
    count
        Exit after this many messages.
    line_format
        %s value, %k key, %t topic, %q queue, %o offset, %T timestamp, %g tag, %h headers, %S and
        %K lengths of value and key; \\n \\t \\xHH.
    json
        One JSON object per line.
    compacted
        For a compacted topic: only the latest message of each key, as far as the brokers have
        compacted, then everything. This includes messages that retention has removed.
    """
    write = as_json if json else compile_format(line_format)
    end_of_line = b"\n" if json else b""
    if count is not None and count < 0:
        raise InvalidRequest(f"--count {count}: write a number of messages, or leave it")
    if group is not None and queue is not None:
        raise InvalidRequest("a group gives its members their queues: say --group or --queue")
    if group is None and room is not None:
        raise InvalidRequest("a room is that of a group's member: say --group too")
    if group is not None and compacted:
        raise InvalidRequest("a group reads every message: say --group or --compacted")
    with open_client(servers) as boom:
        if group is not None:
            begin = group_start(offset, since, int(time.time() * 1000))
            written = consume_as_member(
                boom,
                topic,
                group,
                begin,
                tags,
                where,
                count,
                lambda m: write(m) + end_of_line,
                room=room or "",
                exit_at_end=exit_at_end,
            )
            _told(written)
            return
        offsets = _offsets(boom, topic, queue_numbers(queue))
        if compacted:
            # Compacted messages have offsets below the first offset of the log.
            offsets = {number: (0, end) for number, (_, end) in offsets.items()}
        starts = _starts(boom, topic, offsets, offset, since)
        ends = {n: end for n, (_, end) in offsets.items()} if exit_at_end else None
        with boom.consumer(
            topic,
            queues=list(offsets),
            start="first",
            tags=tags,
            filter=where,
            read_compacted=compacted,
        ) as consumer:
            for number, start in starts.items():
                consumer.seek(topic, number, start)
            written = _copy(consumer, starts, ends, count, lambda m: write(m) + end_of_line)
    _told(written)


def _told(written: int) -> None:
    if sys.stderr.isatty():
        note(f"read {written:,}")


def _offsets(boom: Client, topic: str, queues: list[int] | None) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of each queue to read."""
    known = len(boom.admin.describe_topic(topic).queues)
    wanted = list(range(known)) if queues is None else queues
    for number in wanted:
        if number >= known:
            text = f"topic {topic} has queues 0 to {known - 1}, not {number}"
            raise UnknownResource(text, "UNKNOWN_QUEUE")
    return boom.admin.offsets(topic, wanted)


def _starts(
    boom: Client,
    topic: str,
    offsets: Mapping[int, tuple[int, int]],
    offset: str,
    since: str | None,
) -> dict[int, int]:
    """Return the offset at which to begin in each queue."""
    if since is not None:
        at = ago_ms(since, int(time.time() * 1000))
        return {n: boom.admin.offset_for_time(topic, n, at) for n in offsets}
    if offset == "first":
        return {n: first for n, (first, _) in offsets.items()}
    if offset == "last":
        return {n: end for n, (_, end) in offsets.items()}
    try:
        number = int(offset)
    except ValueError:
        text = f"{offset!r} is no place to begin: say first, last, an offset, or -N for the last N"
        raise InvalidRequest(text) from None
    if number < 0 or offset.startswith("-"):
        return {n: max(first, end + number) for n, (first, end) in offsets.items()}
    for n, (first, end) in offsets.items():
        if not first <= number <= end:
            text = f"offset {number} is not in queue {n}, which holds {first} to {end}"
            raise InvalidRequest(f"{text}: choose another, or one queue with --queue")
    return dict.fromkeys(offsets, number)


def _copy(
    consumer: Consumer,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None,
    count: int | None,
    write: Callable[[Message], bytes],
) -> int:
    """Write messages until the end or the count is reached, and return how many were written."""
    out = sys.stdout.buffer
    written = 0
    at = dict(starts)
    topic = consumer.queues[0][0]
    while count is None or written < count:
        if ends is not None and all(at[n] >= end for n, end in ends.items()):
            break
        wanted = POLL_MESSAGES if count is None else min(POLL_MESSAGES, count - written)
        messages = consumer.poll(wanted, POLL_S)
        for queue in at if not messages else ():
            # A filter may have skipped all messages.
            at[queue] = max(at[queue], consumer.position(topic, queue) or 0)
        for message in messages:
            at[message.queue] = message.offset + 1
            if ends is not None and message.offset >= ends[message.queue]:
                continue
            out.write(write(message))
            written += 1
        out.flush()
    return written
