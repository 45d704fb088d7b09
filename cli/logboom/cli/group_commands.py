"""`logboom group`: list, describe, alter, reset and delete consumer groups."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_client
from logboom.cli.group_tables import as_json, headline, member_rows, queue_row, reset_row, summary
from logboom.cli.options import when
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import Apply, Confirmed, GroupName, Output, ResetTarget, Servers
from logboom.client import Client
from logboom.client.group_arguments import assigned, offsets_of, subscription_of
from logboom.client.written_values import counted, duration_ms, queue_numbers
from logboom.wire.errors import InvalidRequest, Refused, UnknownResource
from logboom.wire.names import DLQ_PREFIX

app = App(name="group", help="Consumer groups: list, describe, alter, reset, delete.")


@app.command(name="list")
def list_groups(*, servers: Servers = None, output: Output = "table") -> None:
    """List the consumer groups.

    For example:

        logboom group list -o json
    """
    with open_client(servers) as boom:
        rows = [summary(group) for group in boom.admin.groups()]
    show(rows, ["name", "members", "topics", "mode", "coordinator", "state"], output)


@app.command
def describe(
    name: GroupName,
    *,
    servers: Servers = None,
    output: Annotated[
        Output, Parameter(help="table, or json, which `logboom group reset --file` takes.")
    ] = "table",
) -> None:
    """Show a group's members and, for each queue, how far it is, its lag and what holds it up.

    The lag counts the messages that match the group's filter. The age is that of the oldest message
    that is not finished. A ~ marks an estimate, where a filter has too many messages to count.

    For example:

        logboom group describe billing
    """
    with open_client(servers) as boom:
        group = boom.admin.describe_group(name)
    if output == "json":
        show_json(as_json(group))
        return
    print(headline(group))
    for topic, wanted in group.subscription.items():
        print(f"  {topic}: {'all messages' if wanted in ('', '*') else wanted}")
    if group.members:
        columns = ["member", "client", "queues", "room", "static", "silent"]
        show(member_rows(group), columns, output)
    columns = ["topic", "queue", "committed", "end", "lag", "age", "owner", "stuck"]
    show([queue_row(queue) for queue in group.queues], columns, output)


@app.command
def alter(
    name: GroupName,
    *,
    subscribe: Annotated[list[str] | None, Parameter(negative="")] = None,
    session: str | None = None,
    heartbeat: str | None = None,
    drain: str | None = None,
    max_attempts: int | None = None,
    retry: Literal["levels", "exponential"] | None = None,
    retry_first: str | None = None,
    retry_last: str | None = None,
    consume_timeout: str | None = None,
    strategy: str | None = None,
    assign: Annotated[list[str] | None, Parameter(negative="")] = None,
    rooms: str | None = None,
    virtual_nodes: int | None = None,
    start: str | None = None,
    when_slow: Literal["stay", "follower"] | None = None,
    paused: bool | None = None,
    create: Annotated[bool, Parameter(negative="")] = False,
    servers: Servers = None,
) -> None:
    """Change a group's settings or its subscription; what is not named stays.

    Members with another subscription adopt a new one, one after the other.

    For example:

        logboom group alter billing --session 30s --strategy averagely
        logboom group alter billing --paused       # and --no-paused to go on
        logboom group alter billing --subscribe 'orders=late || lost' --subscribe refunds
        logboom group alter billing --strategy by_config --assign a=orders/0-2 --assign b=orders/3
        logboom group alter billing --strategy machine_room --rooms north,south

    Parameters
    ----------
    subscribe
        A topic of the whole new subscription, with its filter: topic, topic=tags or
        'topic=tags WHERE price > 3'. Give it once per topic.
    session
        Silence after which a member is removed: 10s.
    heartbeat
        The time between a member's heartbeats: 3s.
    drain
        How long a member may take to release a queue: 30s.
    max_attempts
        Deliveries of a message before it becomes a dead letter.
    retry
        How long a failed message waits: levels, or exponential from --retry-first to --retry-last.
    retry_first
        exponential: the wait after the first failure.
    retry_last
        exponential: the longest wait.
    consume_timeout
        How long a handler may run before its message counts as failed.
    strategy
        How queues are allocated: sticky, averagely, averagely_by_circle, consistent_hash,
        by_config, machine_room, machine_room_nearby.
    assign
        by_config: the queues of one member, MEMBER=TOPIC/QUEUES; give it once per member and topic.
        All of them together are the new configuration. MEMBER is an instance name, or a member's
        id.
    rooms
        machine_room: the zones of brokers whose queues are consumed, comma-separated.
    virtual_nodes
        consistent_hash: the points of each member on the ring.
    start
        Where it begins in new topics: first, last, a time, or 1h for an hour ago; of a queue without
        a message since then, its end at that moment.
    when_slow
        Whether a consumer that is far behind reads from the leader or from a follower.
    paused
        Let its members finish the messages that they have and deliver no more, until --no-paused.
    create
        Create the group if it does not exist.
    """
    settings: dict[str, Any] = {
        "session_ms": None if session is None else duration_ms(session),
        "heartbeat_ms": None if heartbeat is None else duration_ms(heartbeat),
        "drain_ms": None if drain is None else duration_ms(drain),
        "max_attempts": max_attempts,
        "retry": retry,
        "retry_first_ms": None if retry_first is None else duration_ms(retry_first),
        "retry_last_ms": None if retry_last is None else duration_ms(retry_last),
        "consume_timeout_ms": None if consume_timeout is None else duration_ms(consume_timeout),
        "strategy": strategy,
        "start": None if start is None else when(start),
        "when_slow": when_slow,
        "paused": paused,
    }
    changed = {key: value for key, value in settings.items() if value is not None}
    options = {
        "config": None if assign is None else assigned(assign),
        "rooms": None if rooms is None else [room.strip() for room in rooms.split(",")],
        "virtual_nodes": virtual_nodes,
    }
    options = {key: value for key, value in options.items() if value is not None}
    if options:
        changed["options"] = options
    if not changed and subscribe is None and not create:
        raise InvalidRequest("nothing to change: give --session, --subscribe or another setting")
    wanted = None if subscribe is None else subscription_of(subscribe)
    with open_client(servers) as boom:
        boom.admin.alter_group(name, subscription=wanted, create=create, **changed)
    note(f"altered {name}")


@app.command
def reset(
    name: GroupName,
    *,
    to: ResetTarget[str | None] = None,
    offset: Annotated[list[str] | None, Parameter(negative="")] = None,
    shift: Annotated[int | None, Parameter(allow_leading_hyphen=True)] = None,
    from_group: str | None = None,
    file: Path | None = None,
    topic: str | None = None,
    queue: Annotated[str | None, Parameter(name=["--queue", "-q"])] = None,
    yes: Apply = False,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """Move a group's committed offsets. Without --yes it only shows what would be done.

    It works with members online (they continue at the new offsets) and offline. Its retries stay
    as they are, unless --topic or --file names them.

    For example:

        logboom group reset billing --to first
        logboom group reset billing --to 2026-11-21T10:00:00Z --topic orders --yes
        logboom group reset billing --offset orders/0=1200 --offset orders/1=1180
        logboom group reset billing --shift -100 --queue 0,3 --topic orders

    Parameters
    ----------
    offset
        topic/queue=offset; give it once per queue.
    shift
        This many messages forward, or back if negative.
    from_group
        To the offsets of this group.
    file
        To the offsets in a file that `logboom group describe -o json` wrote, or a JSON list of
        topic, queue and offset.
    topic
        Only this topic, even if the group does not read it yet.
    queue
        Only these queues of it: 0 or 0,3 or 2-5.
    """
    if sum(way is not None for way in (to, offset, shift, from_group, file)) != 1:
        ways = "--to, --offset, --shift, --from-group or --file"
        raise InvalidRequest(f"say where to, and say it once: with {ways}")
    target = None if to is None else when(to)
    with open_client(servers) as boom:
        lines = boom.admin.reset_offsets(
            name,
            target if offset is None else offsets_of(offset),
            shift=shift,
            from_group=from_group,
            file=file,
            topic=topic,
            queues=queue_numbers(queue),
            dry_run=not yes,
        )
    columns = ["topic", "queue", "committed", "target", "change", "first", "end"]
    refused = Counter(line.code for line in lines if line.code)
    show([reset_row(line) for line in lines], columns + ["code"] * bool(refused), output)
    if not yes:
        note("nothing was changed: this is the plan; say --yes to carry it out")
    elif refused:
        said = ", ".join(f"{code} {count} times" for code, count in refused.items())
        raise Refused(f"not all of it was done ({said}): see the table, then try again")
    else:
        note(f"reset {counted(len(lines), 'queue')} of {name}")


@app.command
def delete(
    name: GroupName,
    *,
    dead_letters: Annotated[bool, Parameter(negative="")] = False,
    yes: Confirmed = False,
    servers: Servers = None,
) -> None:
    """Forget a group that has no members, with its offsets and retries, also those that wait.

    Its dead letters stay, if there are any: `logboom dlq show` reads them, and `logboom topic
    delete %DLQ%billing` deletes them later.

    For example:

        logboom group delete billing --yes

    Parameters
    ----------
    dead_letters
        Delete its dead letters too.
    """
    refusal = f"deleting {name} cannot be undone: say --yes to do it"
    question = f"Forget {name} and how far it is?"
    if not (yes or confirmed(question, refusal, "nothing was deleted")):
        return
    with open_client(servers) as boom:
        kept = 0 if dead_letters else _dead_letters(boom, name)
        boom.admin.delete_group(name, dead_letters=not kept)
    note(f"deleted {name}" + (f"; {kept:,} dead letters stay in {DLQ_PREFIX}{name}" * bool(kept)))


def _dead_letters(boom: Client, group: str) -> int:
    try:
        bounds = boom.admin.offsets(DLQ_PREFIX + group)
    except UnknownResource:
        return 0  # broadcasting, or no such group, which the deletion reports
    return sum(end - first for first, end in bounds.values())
