"""`logboom message`: one message, its life, messages by their key, and delayed ones that wait."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import App, Parameter

from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_client, open_keyed_client
from logboom.cli.group_tables import age_text
from logboom.cli.message_format import as_row
from logboom.cli.message_traces import life_json, life_lines, reader_rows
from logboom.cli.options import ago_ms, check_count
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Confirmed, Count, OperatorServers, Output, Servers
from logboom.client.admin_flows.delayed_flows import delayed_place
from logboom.wire.errors import OffsetOutOfRange

app = App(
    name="message", help="Single messages: get by offset, trace their life, find by key, recall."
)


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
    check_count(limit, "--limit")
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


@app.command
def trace(
    topic: str,
    queue: int,
    offset: int,
    *,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Show the life of one message: who produced it and when, whether it waited for a time or a
    transaction, which groups and subscriptions finished or hold it, and its retries and dead
    letters.

    It ends with what cannot be known, for instance because retention has removed it. Retries that
    wait for their time are shown with the cluster key, or to a user with the right `admin cluster`.

    For example:

        logboom message trace orders 3 1200
        logboom message trace orders 3 1200 -o json | jq '.readers[] | {name, state}'

    Parameters
    ----------
    topic
        Its topic.
    queue
        Its queue.
    offset
        Its offset.
    """
    with open_keyed_client(servers) as boom:
        life = boom.admin.message_life(topic, queue, offset)
    if output == "json":
        show_json(life_json(life))
        return
    for line in life_lines(life):
        print(line)
    if life.readers:
        print()
        show(
            reader_rows(life),
            ["kind", "name", "state", "attempts", "holder", "detail"],
            output,
            least=["holder"],
        )
    if life.unknown:
        print("\nNot known:")
        for each in life.unknown:
            print(f"- {each}")


@app.command
def delayed(
    topic: str = "",
    *,
    count: Count[int] = 100,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """List the delayed messages that still wait, batch by batch, the next due first.

    What they hold is not shown: nobody reads a message before its time.

    For example:

        logboom message delayed
        logboom message delayed orders -o json

    Parameters
    ----------
    topic
        Only those of this topic.
    """
    with open_client(servers) as boom:
        found = boom.admin.delayed(topic, most=count)
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "place": delayed_place(each),
            "topic": each.topic,
            "queue": each.queue,
            "due_in": age_text(max(0, each.due_ms - now_ms)),
            "due_ms": each.due_ms,
            "bytes": each.size,
        }
        for each in found.batches
    ]
    show(rows, ["place", "due_in", "bytes"], output)
    if found.more:
        note(f"there are more: raise --count above {count}")


@app.command
def recall(place: str, *, yes: Confirmed = False, servers: Servers = None) -> None:
    """Take a delayed batch back, so that nobody ever reads it.

    For example:

        logboom message recall orders/0/17.2 --yes

    Parameters
    ----------
    place
        Where it waits, topic/queue/offset.side, as `logboom message delayed` lists it.
    """
    refusal = f"recalling {place} cannot be undone: say --yes to do it"
    if not (yes or confirmed(f"Take back {place} for good?", refusal, "nothing was recalled")):
        return
    with open_client(servers) as boom:
        done = boom.admin.recall(place)
    note(f"recalled {place}" if done else f"{place} was delivered before: nothing was recalled")
