"""`logboom dlq`: list, show and resend the dead letters of groups and subscriptions."""

from __future__ import annotations

import base64
import binascii
import math
import time
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from logboom.cli.connection import open_client
from logboom.cli.group_tables import age_text
from logboom.cli.message_format import as_row
from logboom.cli.options import check_count
from logboom.cli.output import note, show
from logboom.cli.parameters import Apply, Count, DeadLetterOwner, Output, Servers
from logboom.cli.progress_bar import progress
from logboom.client.admin_flows.dead_letter_flows import (
    DeadLetter,
    DeadLetterSummary,
    QueueOffset,
    owners_of,
)
from logboom.client.written_values import counted, queue_numbers
from logboom.console.widgets.value_views import preview, short_bytes, short_text
from logboom.wire.errors import InvalidRequest

app = App(name="dlq", help="Dead letters of groups and subscriptions: list, show, redrive.")

SHOWN: Final = 60
"""Characters shown of a key, a value or a cause in a table."""


@app.command(name="list")
def list_groups(*, servers: Servers = None, output: Output = "table") -> None:
    """List the groups and subscriptions that gave up messages.

    For example:

        logboom dlq list -o json
    """
    with open_client(servers) as boom:
        owners = owners_of(topic.name for topic in boom.admin.topics())
        rows = [_summary_row(boom.dead_letters.describe(owner)) for owner in owners]
    found = [row for row in rows if row["messages"]]
    show(found, ["group", "messages", "open", "oldest"], output)


def _summary_row(found: DeadLetterSummary) -> dict[str, Any]:
    age_ms = None
    if found.oldest_ms is not None:
        age_ms = max(0, time.time_ns() // 1_000_000 - found.oldest_ms)
    return {
        "group": found.owner,
        "messages": found.messages,
        "open": found.open,
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
    check_count(count, "--count")
    with open_client(servers) as boom:
        letters = boom.dead_letters.read(group, count=count, again=again)
    rows = [table_row(each) if output == "table" else _row(each) for each in letters]
    show(rows, ["queue", "offset", "origin", "attempts", "key", "value", "cause"], output)


def table_row(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as a table shows it: the beginning of what others wrote."""
    message = letter.message
    return {
        "queue": message.queue,
        "offset": message.offset,
        "origin": short_text(letter.origin) or None,
        "attempts": letter.attempts,
        "key": short_bytes(message.key)[:SHOWN] or None,
        "value": preview(message.value)[:SHOWN],
        "cause": short_text(letter.cause)[:SHOWN] or None,
    }


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        **as_row(letter.message),
        "origin": letter.origin or None,
        "attempts": letter.attempts,
        "cause": letter.cause or None,
    }


@app.command
def redrive(
    group: DeadLetterOwner,
    *,
    queue: Annotated[str | None, Parameter(name=["--queue", "-q"])] = None,
    count: Count[int | None] = None,
    at: Annotated[list[str] | None, Parameter(negative="")] = None,
    value: str | None = None,
    value_base64: str | None = None,
    cause: str | None = None,
    rate: float = 0,
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
        logboom dlq redrive billing --rate 50 --yes
        logboom dlq redrive billing --at 0/17 --value '{"price": 3}' --yes
        logboom dlq redrive billing --cause "bank is closed" --yes

    Parameters
    ----------
    queue
        Only these queues of its dead-letter topic: 0 or 0,3 or 2-5.
    at
        Exactly this one, queue/offset as `logboom dlq show` has them; give it once for each. One
        that lies behind others stays in the list, since only the first of a queue move on.
    value
        The value that the message gets instead of its own; with one --at.
    value_base64
        The same for a value that is no text, in base64.
    cause
        Only those whose cause has this text in it; others that lie between them stay in the list.
    rate
        At most so many messages per second.
    again
        Include those that were already sent again.
    """
    if count is not None:
        check_count(count, "--count")
    # What the cluster would refuse is refused without --yes too.
    if not 0 <= rate < math.inf:
        raise InvalidRequest(f"--rate is 0 or more messages per second, not {rate:g}")
    chosen = [_place(text) for text in at or ()]
    new_value = _new_value(value, value_base64)
    if chosen and cause is not None:
        raise InvalidRequest("say --at or --cause, not both")
    if chosen and (queue is not None or count is not None):
        raise InvalidRequest("say --at, or --queue and --count, not both")
    if new_value is not None and len(chosen) != 1:
        raise InvalidRequest("a new value is for one dead letter: say --at once")
    with open_client(servers) as boom:
        if chosen:
            for place in chosen:
                boom.dead_letters.get(group, *place)
            left = len(set(chosen))
        else:
            left = boom.dead_letters.count(
                group, queues=queue_numbers(queue), again=again, cause=cause
            )
            left = left if count is None else min(left, count)
        if not yes:
            messages = counted(left, "message")
            note(f"{messages} would be sent to {group} again; say --yes to do it")
            return
        with progress("redrive", left) as bar:
            sent = boom.dead_letters.redrive(
                group,
                queues=queue_numbers(queue),
                count=count,
                chosen=chosen,
                value=new_value,
                cause=cause,
                again=again,
                per_s=rate,
                on_sent=bar.to,
            )
    note(f"sent {counted(sent, 'message')} to {group} again")


def _new_value(text: str | None, encoded: str | None) -> bytes | None:
    """Return the value that a dead letter gets, or None for its own.

    Raises:
        InvalidRequest: both are given, or it is no base64.
    """
    if encoded is None:
        return None if text is None else text.encode()
    if text is not None:
        raise InvalidRequest("say --value or --value-base64, not both")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"--value-base64 is no base64: {error}") from None


def _place(text: str) -> QueueOffset:
    """Return queue and offset of "0/17".

    Raises:
        InvalidRequest: it is not of this form.
    """
    queue, _, offset = text.partition("/")
    if not (queue.isdecimal() and offset.isdecimal()):
        raise InvalidRequest(f"{text!r} names no dead letter: write queue/offset, e.g. 0/17")
    return int(queue), int(offset)
