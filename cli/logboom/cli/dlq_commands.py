"""`logboom dlq`: list, show and resend the dead letters of groups and subscriptions.

The progress of resending a group's dead letters is the group's own offset in its
dead-letter topic, so that nobody sends them twice by mistake. For a subscription (named
topic%subscription here) it is a subscription of that topic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from logboom.cli.connection import open_client
from logboom.cli.group_tables import age_text
from logboom.cli.message_format import as_row
from logboom.cli.options import queue_numbers
from logboom.cli.output import counted, note, show
from logboom.cli.parameters import Apply, Count, DeadLetterOwner, Output, Servers
from logboom.client import Client, Message
from logboom.client.fetch.retry_copies import ATTEMPT_HEADER, CAUSE, ORIGIN
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX

app = App(name="dlq", help="Dead letters of groups and subscriptions: list, show, redrive.")

AT_ONCE: Final = 1_000
"""Messages per read, and per resend."""
REDRIVE: Final = "redrive"
"""The subscription that acknowledges those dead letters of a subscription that were resent."""
SHOWN: Final = 60
"""Characters shown of a value or a cause in a table."""


@app.command(name="list")
def list_groups(*, servers: Servers = None, output: Output = "table") -> None:
    """List the groups and subscriptions that gave up messages.

    For example:

        logboom dlq list -o json
    """
    with open_client(servers) as boom:
        names = [topic.name for topic in boom.admin.topics()]
        groups = [name.removeprefix(DLQ_PREFIX) for name in names if name.startswith(DLQ_PREFIX)]
        rows = [_summary(boom, group) for group in groups]
    found = [row for row in rows if row["messages"]]
    show(found, ["group", "messages", "open", "oldest"], output)


def _summary(boom: Client, group: str) -> dict[str, Any]:
    bounds = boom.admin.offsets(DLQ_PREFIX + group)
    begun = _begun(boom, group)
    starts = {queue: max(first, begun.get(queue, 0)) for queue, (first, _) in bounds.items()}
    ends = {queue: end for queue, (_, end) in bounds.items()}
    first = next(_read(boom, group, starts, ends), None)
    age_ms = None if first is None else max(0, time.time_ns() // 1_000_000 - first.timestamp_ms)
    return {
        "group": group,
        "messages": sum(end - first for first, end in bounds.values()),
        "open": sum(max(0, ends[queue] - starts[queue]) for queue in ends),
        "oldest": age_text(age_ms),
        "oldest_ms": age_ms,
    }


@app.command(name="show")
def show_messages(
    group: DeadLetterOwner,
    *,
    count: Count[int] = 20,
    again: Annotated[bool, Parameter(name="--all", negative="")] = False,
    servers: Servers = None,
    output: Annotated[Output, Parameter(help="table or json: the whole messages.")] = "table",
) -> None:
    """Show the dead letters of a group or subscription, where they come from and why they failed.

    For example:

        logboom dlq show billing
        logboom dlq show orders%billing
        logboom dlq show billing -o json | jq '.[].cause'

    Parameters
    ----------
    again
        Include those that were already sent again.
    """
    with open_client(servers) as boom:
        starts, ends = _open(boom, group, None, again=again)
        rows: list[dict[str, Any]] = []
        for message in _read(boom, group, starts, ends):
            if len(rows) == count:
                break
            rows.append(_row(message))
    if output == "table":
        for row in rows:
            row["cause"], row["value"] = str(row["cause"])[:SHOWN], str(row.get("value"))[:SHOWN]
    show(rows, ["queue", "offset", "origin", "attempts", "key", "value", "cause"], output)


def _row(message: Message) -> dict[str, Any]:
    headers = message.headers or {}
    return {
        **as_row(message),
        "origin": headers.get(ORIGIN, b"").decode("utf-8", "replace") or None,
        "attempts": int(headers[ATTEMPT_HEADER])
        if headers.get(ATTEMPT_HEADER, b"").isdigit()
        else None,
        "cause": headers.get(CAUSE, b"").decode("utf-8", "replace") or None,
    }


@app.command
def redrive(
    group: DeadLetterOwner,
    *,
    queue: Annotated[str | None, Parameter(name=["--queue", "-q"])] = None,
    count: Count[int | None] = None,
    again: Annotated[bool, Parameter(name="--all", negative="")] = False,
    yes: Apply = False,
    servers: Servers = None,
) -> None:
    """Send dead letters again to the group or subscription that gave them up, and to no other.

    Without --yes it only counts them. Members receive them as first deliveries. Dead letters that
    were already sent again are left out.

    For example:

        logboom dlq redrive billing
        logboom dlq redrive billing --count 10 --yes

    Parameters
    ----------
    queue
        Only these queues of its dead-letter topic: 0 or 0,3 or 2-5.
    again
        Include those that were already sent again.
    """
    if count is not None and count < 1:
        raise InvalidRequest(f"--count is 1 or more, not {count}")
    with open_client(servers) as boom:
        starts, ends = _open(boom, group, queue_numbers(queue), again=again)
        left = sum(max(0, ends[number] - starts[number]) for number in starts)
        left = left if count is None else min(left, count)
        if not yes:
            messages = counted(left, "message")
            note(f"{messages} would be sent to {group} again; say --yes to do it")
            return
        sent = _send_again(boom, group, starts, ends, left)
    note(f"sent {counted(sent, 'message')} to {group} again")


def _send_again(
    boom: Client, group: str, starts: dict[int, int], ends: dict[int, int], most: int
) -> int:
    """Send up to `most` messages, and return how many.

    The progress is recorded after each batch.
    """
    sent = 0
    known = _committed(boom, group)
    with boom.producer() as producer:
        for queue, start in starts.items():
            at, begun = start, known.get(queue, 0)
            while sent < most and at < ends[queue]:
                bunch = [
                    message
                    for message in _pulled(boom, group, queue, at, min(AT_ONCE, most - sent))
                    if message.offset < ends[queue]
                ]
                futures = [
                    producer.send(
                        RETRY_PREFIX + group,
                        message.value,
                        key=message.key,
                        tag=message.tag,
                        headers={**(message.headers or {}), ATTEMPT_HEADER: b"1"},
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in bunch
                ]
                for future in futures:
                    future.result()
                sent += len(bunch)
                at = bunch[-1].offset + 1 if bunch else ends[queue]
                if at > begun:
                    _remember(boom, group, queue, at)
    return sent


def _remember(boom: Client, group: str, queue: int, at: int) -> None:
    """Record that all dead letters of a queue below `at` were sent again."""
    topic = DLQ_PREFIX + group
    if "%" not in group:
        boom.admin.reset_offsets(group, {(topic, queue): at}, dry_run=False)
        return
    begun = _begun(boom, group)
    if queue not in begun:
        boom.subscribe(topic, subscription=REDRIVE, start="first").close()
        begun = _begun(boom, group)
    if at > begun[queue]:
        count = at - begun[queue]
        boom.admin.subscriptions.skip(
            topic, REDRIVE, count, queues=[queue], dry_run=False, force=True
        )


def _begun(boom: Client, group: str) -> dict[int, int]:
    """Return by queue up to where dead letters were sent again."""
    try:
        return _committed(boom, group)
    except UnknownResource:
        return {}  # the group was deleted, but not its dead letters


def _committed(boom: Client, group: str) -> dict[int, int]:
    """Return the same for a group that exists."""
    topic = DLQ_PREFIX + group
    if "%" not in group:
        committed = boom.admin.committed(group, topic)
        return {queue: offset for queue, offset in committed.items() if offset is not None}
    found = [e for e in boom.admin.subscriptions.all(topic) if e.state.name == REDRIVE]
    return {each.queue: each.state.floor for each in found}


def _open(
    boom: Client, group: str, queues: list[int] | None, *, again: bool
) -> tuple[dict[int, int], dict[int, int]]:
    """Return the first offset and the end of each queue that is to be read."""
    bounds = boom.admin.offsets(DLQ_PREFIX + group, queues)
    begun = {} if again else _begun(boom, group)
    starts = {queue: max(first, begun.get(queue, 0)) for queue, (first, _) in bounds.items()}
    return starts, {queue: end for queue, (_, end) in bounds.items()}


def _read(
    boom: Client, group: str, starts: dict[int, int], ends: dict[int, int]
) -> Iterator[Message]:
    for queue, start in starts.items():
        at = start
        while at < ends[queue]:
            found = _pulled(boom, group, queue, at, AT_ONCE)
            yield from (message for message in found if message.offset < ends[queue])
            at = found[-1].offset + 1 if found else ends[queue]


def _pulled(boom: Client, group: str, queue: int, at: int, most: int) -> list[Message]:
    return list(boom.pull(DLQ_PREFIX + group, queue, at, max_messages=most).messages)
