"""`logboom broker`: the brokers of a cluster, their maintenance, draining and removal."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter
from msgspec.structs import asdict

from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.local_cluster import known_folders
from logboom.cli.move_wait import agreed, report, wait_for
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import (
    BrokerId,
    Confirmed,
    OperatorServers,
    Output,
    Servers,
    Wait,
    WaitTimeout,
)
from logboom.client import Client
from logboom.client.checks.check_result import list_some
from logboom.client.move_plans import (
    broker_of,
    move_text,
    plan_drain,
    plan_removal,
    target_of,
)
from logboom.client.move_progress import moves_of, progress_text
from logboom.client.written_values import bytes_text, counted
from logboom.deploy.detached import forget_node
from logboom.wire.errors import InvalidRequest, Refused, Unavailable
from logboom.wire.operation_messages import BrokerLoad, ClusterDescribed, QueueMoveState
from logboom.wire.view import TopicView

app = App(name="broker", help="Brokers: list, describe, maintenance, drain, undrain, remove.")
COLUMNS = ["broker", "state", "mode", "zone", "replicas", "leads", "size", "disk", "moves"]
LEAST: Final = ("zone", "moves", "disk", "leads", "size")
"""Columns that narrow terminals go without, the least important first."""
NAMED: Final = 10
"""Queues that a line names."""


@app.command(name="list")
def list_brokers(*, servers: Servers = None, output: Output = "table") -> None:
    """List the brokers: who is up, in which mode, and what each holds.

    For example:

        logboom broker list
        logboom broker list -o json
    """
    with open_client(servers) as boom:
        described = boom.admin.describe_cluster()
    rows = [broker_row(each) for each in described.brokers]
    # Without zones their column says nothing.
    columns = [name for name in COLUMNS if name != "zone" or any(row["zone"] for row in rows)]
    show(rows, columns, output, least=LEAST)


def broker_row(broker: BrokerLoad) -> dict[str, Any]:
    """Return a broker as a row: its fields, and some of them for people."""
    row = asdict(broker)
    moves = [(broker.moves_in, "in"), (broker.moves_out, "out")]
    return row | {
        "state": ("full" if broker.full else "up") if broker.alive else "down",
        "leads": broker.leading,
        "size": None if broker.size_bytes < 0 else bytes_text(broker.size_bytes),
        "disk": _disk_text(broker),
        "moves": ", ".join(f"{count} {way}" for count, way in moves if count) or None,
    }


def _disk_text(broker: BrokerLoad) -> str | None:
    if broker.disk_bytes <= 0:
        return None
    used = 1 - broker.free_bytes / broker.disk_bytes
    return f"{used:.0%} of {bytes_text(broker.disk_bytes)}"


@app.command
def describe(broker: BrokerId, *, servers: Servers = None, output: Output = "table") -> None:
    """Show one broker: its mode, its load, and the queues of which it has a replica.

    For example:

        logboom broker describe broker-2
    """
    with open_client(servers) as boom:
        described = boom.admin.describe_cluster()
        found = broker_of(described, broker)
        topics = boom.admin.topics()
        endpoint = _endpoint_of(boom, broker)
    row = broker_row(found) | {"endpoint": endpoint}
    queues = queue_rows_of(described, topics, broker)
    if output == "json":
        show_json({**row, "queues": queues})
        return
    for line in describe_lines(found, endpoint, queues):
        print(line)
    if queues:
        columns = ["topic", "queue", "role", "in_sync", "replicas", "move"]
        show(queues, columns, output, least=("move", "replicas"))


def _endpoint_of(boom: Client, broker: str) -> str:
    """Return where a broker listens.

    Raises:
        Unavailable: the node that was asked does not know it yet, or no more.
    """
    for each in boom.admin.brokers():
        if each.id == broker:
            return each.endpoint
    raise Unavailable(f"{broker} has just come or gone: try again")


def describe_lines(broker: BrokerLoad, endpoint: str, queues: list[dict[str, Any]]) -> list[str]:
    """Return what there is to say of one broker."""
    row = broker_row(broker)
    where = [f"zone {broker.zone}"] * bool(broker.zone) + [f"host {broker.host}"] * bool(
        broker.host
    )
    lines = [", ".join([f"{broker.broker} at {endpoint}: {row['state']}, {broker.mode}", *where])]
    holds = f"{counted(broker.replicas, 'replica')}, leads {counted(broker.leading, 'queue')}"
    lines.append(f"holds {holds}, {row['size'] or 'a size that is not known yet'}")
    if row["disk"]:
        lines.append(f"disk: {row['disk']} used, {bytes_text(broker.free_bytes)} free")
    if broker.in_bytes_per_s >= 0:
        came, went = bytes_text(broker.in_bytes_per_s), bytes_text(broker.out_bytes_per_s)
        lines.append(f"in the last 5 min: {came}/s written, {went}/s read")
    if broker.moves_in or broker.moves_out:
        came, went = (
            bytes_text(max(0, rate))
            for rate in (broker.moved_in_bytes_per_s, broker.moved_out_bytes_per_s)
        )
        lines.append(f"moves: {broker.moves_in} in ({came}/s), {broker.moves_out} out ({went}/s)")
    if broker.filling:
        lines.append("it is new and does not hold its share yet")
    alone = [f"{row['topic']}/{row['queue']}" for row in queues if row["alone"]]
    if alone:
        lines.append(f"only it is in sync: {list_some(alone, NAMED)}")
    return lines


def queue_rows_of(
    described: ClusterDescribed, topics: list[TopicView], broker: str
) -> list[dict[str, Any]]:
    """Return the queues of which a broker has, gets or loses a replica, as rows."""
    moves = {(each.topic, each.queue): each for each in described.moves}
    rows: list[dict[str, Any]] = []
    for topic in topics:
        for number, queue in enumerate(topic.queues):
            if broker not in queue.replicas:
                continue
            move = " ".join(
                filter(None, [move_text(queue), progress_text(moves.get((topic.name, number)))])
            )
            rows.append(
                {
                    "topic": topic.name,
                    "queue": number,
                    "role": "leader" if queue.leader == broker else "follower",
                    "in_sync": broker in queue.isr,
                    "replicas": queue.replicas,
                    "move": move or None,
                    "alone": queue.isr == [broker] and len(target_of(queue)) > 1,
                }
            )
    return rows


@app.command
def maintenance(
    switch: Annotated[Literal["on", "off"], Parameter(help="on or off.")],
    broker: BrokerId,
    *,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Take a broker out of service for some time, or put it back; its replicas stay where they are.

    In maintenance it leads no queue where another can, coordinates no group and gets no new replica.
    It goes on following, so that it is in sync when it is back. It survives restarts.
    `on --wait` waits until no queue has the broker as its leader that another could lead, `off --wait`
    until it is in sync in all its queues.

    For example:

        logboom broker maintenance on broker-2      # then stop it, mend it, start it
        logboom broker maintenance off broker-2
    """
    with open_operator_client(servers) as boom:
        before = broker_of(boom.admin.describe_cluster(), broker)
        if switch == "off" and before.mode in ("draining", "drained"):
            raise InvalidRequest(
                f"{broker} is {before.mode}: `logboom broker undrain {broker}` ends that"
            )
        if switch == "on" and before.mode in ("draining", "drained"):
            raise InvalidRequest(f"{broker} is {before.mode}, and so leads nothing already")
        boom.admin.set_broker_mode(broker, "maintenance" if switch == "on" else "active")
        if wait:
            ready = may_be_stopped if switch == "on" else is_in_sync
            wait_for(
                boom,
                f"{broker} is {'relieved' if switch == 'on' else 'back in sync'}",
                lambda now: (
                    (switch == "off" or is_kept_in_maintenance(broker, now))
                    and ready(broker, boom.admin.topics(), now)
                ),
                lambda now: moves_of(now.moves, broker=broker),
                timeout_s=timeout,
                goes_on=f"The mode stays: `logboom broker describe {broker}` shows its queues",
            )
        led = [
            f"{topic.name}/{number}"
            for topic in boom.admin.topics()
            for number, queue in enumerate(topic.queues)
            if queue.leader == broker
        ]
    if output == "json":
        mode = "maintenance" if switch == "on" else "active"
        facts = {"broker": broker, "mode": mode, "led_before": before.leading, "leads": led}
        show_json(facts)
        return
    for line in maintenance_lines(broker, before.leading, led, on=switch == "on"):
        note(line)


def may_be_stopped(broker: str, topics: list[TopicView], described: ClusterDescribed) -> bool:
    """Return True if a broker leads no queue that another active replica in sync could lead."""
    able = {each.broker for each in described.brokers if each.alive and each.mode == "active"}
    return not any(
        queue.leader == broker and able.intersection(queue.isr) - {broker}
        for topic in topics
        for queue in topic.queues
    )


def is_kept_in_maintenance(broker: str, described: ClusterDescribed) -> bool:
    """Return True while a broker is in maintenance, so that waiting for its relief makes sense.

    Raises:
        Refused: somebody has given it another mode.
    """
    mode = broker_of(described, broker).mode
    if mode != "maintenance":
        raise Refused(f"{broker} is {mode} now: its maintenance was ended while it was waited for")
    return True


def is_drained(broker: str, described: ClusterDescribed) -> bool:
    """Return True if a broker is drained, and False while it is draining.

    Raises:
        Refused: it is neither, because somebody has ended the draining.
    """
    mode = broker_of(described, broker).mode
    if mode not in ("draining", "drained"):
        raise Refused(f"{broker} is {mode} now: the draining was ended while it was waited for")
    return mode == "drained"


def is_in_sync(broker: str, topics: list[TopicView], _: ClusterDescribed) -> bool:
    """Return True if a broker is in sync in every queue that has a replica on it."""
    return all(
        broker in queue.isr
        for topic in topics
        for queue in topic.queues
        if broker in queue.replicas and broker not in queue.adding
    )


def maintenance_lines(broker: str, led_before: int, led: list[str], *, on: bool) -> list[str]:
    """Return what maintenance has changed; `led` are the queues that it still leads."""
    if not on:
        return [f"{broker} is active again; leaders come back to it in some seconds"]
    given = counted(max(0, led_before - len(led)), "queue")
    lines = [f"{broker} is in maintenance: {given} got another leader"]
    if led:
        lines.append(
            f"WARNING: no other replica can lead {list_some(led, NAMED)}: they have no leader while "
            f"{broker} is down"
        )
    return [*lines, f"end it with `logboom broker maintenance off {broker}`"]


@app.command
def drain(
    broker: BrokerId,
    *,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    yes: Confirmed = False,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Move all replicas of a broker to others, queue by queue, before it leaves the cluster.

    Each queue has all its copies all the time. The name servers plan the moves, and go on after any
    restart. A broker that is down is drained too, from the other replicas of its queues.

    For example:

        logboom broker drain broker-2               # shows what moves, asks, begins
        logboom broker drain broker-2 --yes --wait  # until it holds nothing
        logboom broker list                         # its mode is then: drained
        logboom broker undrain broker-2             # changed your mind
    """
    with open_operator_client(servers) as boom:
        described = boom.admin.describe_cluster()
        plan = plan_drain(described, boom.admin.topics(), broker)
        if not agreed(plan, f"Drain {broker}?", "nothing was changed", yes=yes, output=output):
            return
        if broker_of(described, broker).mode not in ("draining", "drained"):
            boom.admin.set_broker_mode(broker, "draining")
        look = (
            f"see `logboom broker describe {broker}` and `logboom queue list --moving`, "
            f"end it with `logboom broker undrain {broker}`"
        )
        if not wait:
            report(plan, "begun", f"{broker} is draining: {look}", output)
            return
        wait_for(
            boom,
            f"draining {broker}",
            lambda now: is_drained(broker, now),
            lambda now: moves_of(now.moves, broker=broker),
            expected_bytes=plan.copied_bytes,
            timeout_s=timeout,
            goes_on=f"The draining goes on: {look}",
        )
    text = f"{broker} holds no replica: stop it, then `logboom broker remove {broker}`"
    report(plan, "done", text, output)


@app.command
def undrain(
    broker: BrokerId,
    *,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Make a broker active that was draining or drained. Moves from it that have begun go on.

    With --wait it returns once these have ended.

    For example:

        logboom broker undrain broker-2
    """
    with open_operator_client(servers) as boom:
        described = boom.admin.describe_cluster()
        before = broker_of(described, broker).mode
        if before != "active":
            boom.admin.set_broker_mode(broker, "active")
        if wait:
            wait_for(
                boom,
                f"moves from {broker}",
                lambda now: not _leaving(now, broker),
                lambda now: _leaving(now, broker),
                timeout_s=timeout,
                goes_on="They go on: see `logboom queue list --moving`",
            )
            described = boom.admin.describe_cluster()
    moves = len(_leaving(described, broker))
    if output == "json":
        show_json({"broker": broker, "mode": "active", "mode_before": before, "moves": moves})
        return
    note(f"{broker} is active {'already' if before == 'active' else 'again'}")
    if moves:
        note(
            f"{counted(moves, 'move')} from it still run: `logboom queue list --moving` shows "
            "them, `logboom queue cancel` ends one"
        )


def _leaving(described: ClusterDescribed, broker: str) -> list[QueueMoveState]:
    """Return the moves that take a replica from a broker."""
    return [each for each in described.moves if broker in each.removing]


@app.command
def remove(
    broker: BrokerId,
    *,
    accept_loss: Annotated[
        bool,
        Parameter(
            negative="", help="Also if it alone holds messages, which are then lost for good."
        ),
    ] = False,
    wait: Wait = False,
    timeout: WaitTimeout = 0.0,
    yes: Confirmed = False,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Take a broker that does not run out of the cluster for good, and say what that costs.

    It need not be drained: queues with another copy in sync keep all their messages, and get another
    replica if there is a broker for it. A queue whose only copy it has loses its messages, which
    is refused without --accept-loss. --wait waits until these queues have all their copies again.
    A broker of a cluster on this machine is not started again; its folder stays.

    For example:

        logboom broker remove broker-2              # says what it costs, and asks
        logboom broker remove broker-2 --accept-loss --yes
    """
    with open_operator_client(servers) as boom:
        topics = boom.admin.topics()
        removal = plan_removal(boom.admin.describe_cluster(), topics, broker)
        plan = removal.plan
        if removal.loses and not accept_loss:
            raise InvalidRequest(
                f"{'. '.join(plan.lines[:-1])}. Nothing was removed: start {broker} and "
                f"`logboom broker drain {broker}`, or say --accept-loss"
            )
        question = f"Remove {broker} for good?"
        if not agreed(plan, question, "nothing was removed", yes=yes, output=output):
            return
        endpoint = _endpoint_of(boom, broker)
        name_servers = {each.endpoint for each in boom.admin.name_servers()}
        boom.admin.remove_broker(broker, accept_loss=accept_loss)
        folder = forget_node(broker, endpoint, name_servers, known_folders())
        if wait:
            held = {each.name for each in topics if any(broker in q.replicas for q in each.queues)}
            wait_for(
                boom,
                f"replacing {broker}",
                lambda _: have_all_copies([t for t in boom.admin.topics() if t.name in held]),
                lambda now: [each for each in now.moves if each.topic in held],
                expected_bytes=plan.facts["bytes"] or 0,
                timeout_s=timeout,
                goes_on=f"{broker} is removed; `logboom balance status` tells what moves",
            )
    text = f"removed {broker}; `logboom balance status` tells what moves now"
    if folder is not None:
        text += f". Its folder {folder} is needed no more: delete it when you like"
    report(plan, "done", text, output)


def have_all_copies(topics: list[TopicView]) -> bool:
    """Return True if each queue has as many replicas in sync as its topic wants."""
    return all(
        len(queue.isr) >= max(1, topic.replicas) and not queue.adding and not queue.removing
        for topic in topics
        for queue in topic.queues
    )
