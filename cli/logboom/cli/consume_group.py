"""`logboom consume --group`: one member of a group that writes what it receives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, Literal

from logboom.cli.options import ago_ms
from logboom.client import Client, Message
from logboom.wire.errors import InvalidRequest

POLL_MESSAGES: Final = 1_000
POLL_S: Final = 0.5


def group_start(offset: str, since: str | None, now_ms: int) -> Literal["first", "last"] | int:
    """Return where a new group begins.

    Raises:
        InvalidRequest: it is an offset, at which a group cannot begin.
    """
    if since is not None:
        return ago_ms(since, now_ms)
    if offset == "first":
        return "first"
    if offset == "last":
        return "last"
    text = f"a new group begins at first, last or --since, not at {offset}"
    raise InvalidRequest(f"{text}: `logboom group reset` moves it to an offset")


def consume_as_member(
    boom: Client,
    topic: str,
    group: str,
    start: Literal["first", "last"] | int,
    tags: str | None,
    where: str | None,
    count: int | None,
    write: Callable[[Message], bytes],
    *,
    room: str,
    exit_at_end: bool,
) -> int:
    """Write messages and acknowledge them once they are written. Return how many were written."""
    out = sys.stdout.buffer
    written = 0
    with boom.consumer(
        topic, group=group, start=start, tags=tags, filter=where, room=room
    ) as consumer:
        while count is None or written < count:
            wanted = POLL_MESSAGES if count is None else min(POLL_MESSAGES, count - written)
            messages = consumer.poll(wanted, POLL_S)
            for message in messages:
                out.write(write(message))
            out.flush()
            consumer.ack(messages)
            written += len(messages)
            if exit_at_end and not messages:
                consumer.commit()
                if _caught_up(boom, group, topic):
                    break
    return written


def _caught_up(boom: Client, group: str, topic: str) -> bool:
    queues = boom.admin.describe_group(group).queues
    return all(queue.lag == 0 for queue in queues if queue.topic == topic)
