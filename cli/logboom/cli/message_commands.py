"""`logboom message`: one message by its offset, or messages by their key."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.connection import open_client
from logboom.cli.message_format import as_row
from logboom.cli.options import ago_ms
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Output, Servers
from logboom.wire.errors import OffsetOutOfRange

app = App(name="message", help="Single messages: get by offset, find by key.")


@app.command
def get(
    topic: str, queue: int, offset: int, *, servers: Servers = None, output: Output = "table"
) -> None:
    """Show one message.

    For example:

        logboom message get flights 3 1200

    Parameters
    ----------
    topic
        Its topic.
    queue
        Its queue.
    offset
        Its offset.
    """
    with open_client(servers) as boom:
        result = boom.pull(topic, queue=queue, offset=offset, max_messages=1, wait_ms=0)
    if not result.messages:
        text = f"offset {offset} is not in {topic}/{queue}"
        held = f"which holds {result.min_offset} to {result.max_offset - 1}"
        if result.min_offset == result.max_offset:
            held = "which is empty"
        raise OffsetOutOfRange(f"{text}, {held}: choose one of these")
    row = as_row(result.messages[0])
    if output == "json":
        show_json(row)
        return
    for name, content in row.items():
        print(f"{name:<13} {content}")


@app.command
def find(
    topic: str,
    *,
    key: Annotated[str, Parameter(name=["--key", "-k"])],
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = 64,
    since: str | None = None,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Find the newest messages with a key, by the key index.

    For example:

        logboom message find flights --key UA --limit 10 -o json

    Parameters
    ----------
    topic
        The topic.
    key
        The key.
    limit
        At most this many messages, newest first; a note says if there are more.
    since
        Only messages up to this age: 10m, 1h, 2d.
    """
    with open_client(servers) as boom:
        found = boom.admin.find_messages(topic, key.encode(), limit=limit + 1)
    if since is not None:
        youngest = ago_ms(since, int(time.time() * 1000))
        found = [message for message in found if message.timestamp_ms >= youngest]
    show(
        [as_row(message) for message in found[:limit]],
        ["queue", "offset", "timestamp_ms", "key", "value"],
        output,
    )
    if len(found) > limit:
        note(f"there are more: raise --limit above {limit}")
