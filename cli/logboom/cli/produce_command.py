"""`logboom produce`: lines in, messages out; a Unix filter."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from logboom.cli.connecting import open_client
from logboom.cli.message_format import NewMessage, read_headers, read_json, split_key
from logboom.cli.options import Servers, delay_s, time_ms
from logboom.cli.output import note
from logboom.cli.progress import progress
from logboom.wire.errors import InvalidRequest

_PROGRESS_EVERY: Final = 1_000
_IN_FLIGHT: Final = 100_000
"""Messages whose outcome is looked at late; the client bounds their bytes."""


def produce(
    topic: str,
    values: list[str] | None = None,
    /,
    *,
    key: Annotated[str | None, Parameter(name=["--key", "-k"])] = None,
    key_separator: Annotated[str | None, Parameter(name=["--key-separator", "-K"])] = None,
    json: Annotated[bool, Parameter(name=["--json", "-J"], negative="")] = False,
    queue: Annotated[int | None, Parameter(name=["--queue", "-q"])] = None,
    tag: str | None = None,
    header: Annotated[list[str] | None, Parameter(name=["--header", "-H"])] = None,
    count: Annotated[int | None, Parameter(name=["--count", "-c"])] = None,
    acks: Literal["none", "leader", "all"] = "all",
    compression: Annotated[
        Literal["none", "lz4", "zstd"], Parameter(name=["--compression", "-z"])
    ] = "none",
    delay: str | None = None,
    deliver_at: str | None = None,
    create: Annotated[bool, Parameter(negative="")] = False,
    servers: Servers = None,
) -> None:
    """Send each line of standard input, or each value given, as one message.

    It ends once all are acknowledged; how many is told on standard error.

        echo "UA:late" | logboom produce flights --key-separator :
        logboom produce flights '{"delay": 12}' --key UA --header source=tower
        logboom consume old --json --exit | logboom produce new --json
        logboom produce reminders "call back" --delay 15m

    Parameters
    ----------
    topic
        Where they go.
    values
        Messages; without any, the lines of standard input.
    key
        Key of every message: one key stays in one queue, in order.
    key_separator
        Each line is key, this, value; a line without it has no key.
    json
        Lines are JSON objects of key, value, tag, headers, timestamp_ms.
    queue
        Send to this queue, whatever the keys.
    tag
        Tag of every message.
    header
        name=value, once or more.
    count
        Stop after so many.
    acks
        When a message counts as sent: none, leader, all.
    compression
        none, lz4 or zstd.
    delay
        Nobody reads them before so long: 90s, 15m, 1h, at most 40d.
    deliver_at
        The same as a time: 2026-11-21T10:00:00Z.
    create
        Create the topic, with default settings, if it is not there.
    servers
        Any nodes, host:port, comma-separated.
    """
    if json and (key_separator is not None or key is not None):
        raise InvalidRequest("--json lines carry their own key: leave --key and --key-separator")
    due = None if deliver_at is None else _time_of(deliver_at)
    wait_s = None if delay is None else delay_s(delay)
    lines = [value.encode() for value in values] if values else _lines(sys.stdin.buffer)
    shared = NewMessage(
        None, None if key is None else key.encode(), tag, read_headers(header or [])
    )
    separator = None if key_separator is None else key_separator.encode().decode("unicode_escape")
    messages = _messages(lines, json, None if separator is None else separator.encode(), shared)
    sent = 0
    with (
        open_client(servers, create_topics=create) as boom,
        boom.producer(acks=acks, compression=compression) as producer,
        progress("sending", len(values) if values else count) as bar,
    ):
        waiting: deque[Any] = deque()
        for message in messages:
            if sent == count:
                break
            waiting.append(
                producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    tag=message.tag,
                    headers=message.headers,
                    timestamp_ms=message.timestamp_ms,
                    queue=queue,
                    delay_s=wait_s,
                    deliver_at=due,
                )
            )
            sent += 1
            if sent % _PROGRESS_EVERY == 0:
                bar.to(sent)
            while len(waiting) > _IN_FLIGHT or (waiting and waiting[0].done()):
                waiting.popleft().result()
        producer.flush()
        for future in waiting:
            future.result()
    note(f"sent {sent:,}")


def _time_of(text: str) -> int:
    found = time_ms(text)
    if found is None:
        raise InvalidRequest(f"--deliver-at {text!r} is no time: write 2026-11-21T10:00:00Z")
    return found


def _lines(stream: Iterable[bytes]) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n")


def _messages(
    lines: Iterable[bytes], json: bool, separator: bytes | None, shared: NewMessage
) -> Iterator[NewMessage]:
    for number, line in enumerate(lines, 1):
        if json:
            try:
                read = read_json(line)
            except InvalidRequest as error:
                raise InvalidRequest(f"line {number}: {error}") from None
            headers = {**(shared.headers or {}), **(read.headers or {})} or None
            yield read._replace(tag=read.tag or shared.tag, headers=headers)
        else:
            key, value = split_key(line, separator)
            yield shared._replace(key=shared.key if key is None else key, value=value)
