"""`logboom queue`: the replicas of single queues, their moves and leaders."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.move_wait import agreed, report, wait_for
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import (
    Confirmed,
    OperatorServers,
    Output,
    QueueNumber,
    Servers,
    TopicName,
    Wait,
    WaitTimeout,
)
from logboom.client import Client
from logboom.client.move_plans import broker_ids, move_text, plan_move, queue_of, target_of
from logboom.client.move_progress import moves_of, progress_text
from logboom.client.written_values import bytes_text
from logboom.wire.errors import Refused
from logboom.wire.operation_messages import ClusterDescribed
from logboom.wire.view import TopicView

app = App(name="queue", help="Queues and where their replicas are: list, move, cancel, elect.")


@app.command(name="list")
def list_queues(
    *,
    topic: Annotated[str, Parameter(name=["--topic", "-t"], help="Only of this topic.")] = "",
    moving: Annotated[bool, Parameter(negative="", help="Only queues that are moved.")] = False,
    servers: Servers = None,
    output: Output = "table",
) -> None:
    """List queues: leader, replicas, who is in sync, and how far moves are.

    In the column *move* `+broker-4 -broker-1` means that the queue gets a replica on broker-4, and
    then gives up that on broker-1.

    For example:

        logboom queue list --topic flights
        logboom queue list --moving
    """
    with open_client(servers) as boom:
        topics = [boom.admin.describe_topic(topic)] if topic else boom.admin.topics()
        described = boom.admin.describe_cluster(topic)
    rows = queue_rows(described, topics)
    if moving:
        rows = [row for row in rows if row["adding"] or row["removing"] or row["move"]]
    columns = ["topic", "queue", "leader", "replicas", "in_sync"]
    if topic:
        columns = [*columns[1:], "size"]
    if any(row["move"] for row in rows):
        columns += ["move", "progress"]
    if not rows and moving and output != "json":
        note("no queue is moved: `logboom balance status` says why")
        return
    show(rows, columns, output, least=("size", "in_sync", "progress"))


def queue_rows(described: ClusterDescribed, topics: list[TopicView]) -> list[dict[str, Any]]:
    """Return queues as rows; sizes are known if there is one topic, of which they were asked."""
    moves = {(each.topic, each.queue): each for each in described.moves}
    rows: list[dict[str, Any]] = []
    for topic in sorted(topics, key=lambda each: each.name):
        for number, queue in enumerate(topic.queues):
            move = moves.get((topic.name, number))
            # 0 stands for a size that is not known.
            size = described.sizes[number] or None if number < len(described.sizes) else None
            rows.append(
                {
                    "topic": topic.name,
                    "queue": number,
                    "leader": queue.leader or "no leader",
                    "replicas": target_of(queue),
                    "in_sync": queue.isr,
                    "adding": queue.adding,
                    "removing": queue.removing,
                    "size": None if size is None else bytes_text(size),
                    "size_bytes": size,
                    "move": move_text(queue) or None,
                    "progress": progress_text(move),
                    "reason": None if move is None else move.reason,
                    "done_bytes": None if move is None else move.done_bytes,
                    "total_bytes": None if move is None else move.total_bytes,
                    "bytes_per_s": None if move is None else move.bytes_per_s,
                    "produced_bytes_per_s": None if move is None else move.produced_bytes_per_s,
                    "left_s": None if move is None else move.left_s,
                    "stuck": None if move is None else move.stuck,
                }
            )
    return rows


@app.command
def move(
    topic: TopicName,
    queue: QueueNumber,
    *,
    replicas: Annotated[
        str,
        Parameter(
            name=["--replicas", "-r"], help="Brokers, comma-separated, the preferred leader first."
        ),
    ],
    force: Annotated[
        bool, Parameter(negative="", help="Also if it is then in fewer zones.")
    ] = False,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    yes: Confirmed = False,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Move a queue to the brokers that you name; replicas are added first and removed last.

    A move under way gets this target. To empty a broker, `logboom broker drain` is simpler. To even
    out brokers, so is `logboom balance run`.

    For example:

        logboom queue move flights 3 --replicas broker-1,broker-2,broker-4
        logboom queue move flights 3 --replicas broker-4,broker-1,broker-2 --yes --wait
    """
    target = broker_ids(replicas)
    with open_operator_client(servers) as boom:
        view = boom.admin.describe_topic(topic)
        described = boom.admin.describe_cluster(topic)
        plan = plan_move(described, view, queue, target, force=force)
        name = f"{topic} queue {queue}"
        if not agreed(plan, f"Move {name}?", "nothing was changed", yes=yes, output=output):
            return
        boom.admin.reassign(topic, queue, target, force)
        look = (
            f"see `logboom queue list --topic {topic} --moving`, end it with "
            f"`logboom queue cancel {topic} {queue}`"
        )
        if not wait:
            report(plan, "begun", f"{name} is moved: {look}", output)
            return
        wait_for(
            boom,
            f"moving {name}",
            lambda now: not moves_of(now.moves, topic=topic, queue=queue),
            lambda now: moves_of(now.moves, topic=topic, queue=queue),
            expected_bytes=plan.copied_bytes,
            timeout_s=timeout,
            goes_on=f"The move goes on: {look}",
        )
        _check_moved(boom, topic, queue, target)
    report(plan, "done", f"{name} is on {', '.join(target)}", output)


def _check_moved(boom: Client, topic: str, queue: int, target: list[str]) -> None:
    """Raise Refused if a move has ended otherwise: somebody cancelled it, or gave another target."""
    now = boom.admin.describe_topic(topic).queues[queue]
    if set(now.replicas) != set(target):
        raise Refused(
            f"the move of {topic} queue {queue} was cancelled or replaced: it is on "
            f"{', '.join(now.replicas)}; `logboom balance status` may tell why"
        )


@app.command
def cancel(
    topic: TopicName,
    queue: QueueNumber,
    *,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Cancel the move of a queue: it has the replicas again that it had before.

    What the planner of the name servers began, such as a drain, it begins again: end its cause, for
    example with `logboom broker undrain`.

    For example:

        logboom queue cancel flights 3
    """
    with open_operator_client(servers) as boom:
        before = queue_of(boom.admin.describe_topic(topic), queue)
        moving = bool(before.adding or before.removing)
        if moving:
            boom.admin.cancel_reassign(topic, queue)
        now = boom.admin.describe_topic(topic).queues[queue]
    there = ", ".join(now.replicas)
    if output == "json":
        show_json({"topic": topic, "queue": queue, "cancelled": moving, "replicas": now.replicas})
    elif moving:
        note(f"cancelled: {topic} queue {queue} stays on {there}")
    else:
        note(f"{topic} queue {queue} is not moved: it is on {there}")


@app.command
def elect(
    topic: TopicName,
    queue: QueueNumber,
    *,
    prefer: Annotated[
        str, Parameter(name=["--prefer", "-p"], help="The broker that shall lead; it is in sync.")
    ] = "",
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Let another in-sync replica lead a queue; by default the first of its replicas.

    Leaders go back to the first of their replicas after some seconds: to change that for good, use
    `logboom queue move` with another order.

    For example:

        logboom queue elect flights 3
        logboom queue elect flights 3 --prefer broker-2
    """
    with open_operator_client(servers) as boom:
        before = queue_of(boom.admin.describe_topic(topic), queue).leader
        boom.admin.elect_leader(topic, queue, prefer or None)
        after = boom.admin.describe_topic(topic).queues[queue].leader
    if output == "json":
        show_json({"topic": topic, "queue": queue, "leader": after, "leader_before": before})
        return
    was = f"was {before or 'nobody'}" if before != after else "as before"
    note(f"{after or 'nobody'} leads {topic} queue {queue} ({was})")
