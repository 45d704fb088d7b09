"""The replica matrix, moves of queues, leaders, and balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logboom.client.balance_report import share_rows
from logboom.client.move_plans import broker_ids, plan_move, plan_rows, queue_of, target_of
from logboom.client.written_values import bytes_text, counted
from logboom.console.pages.replicas_page import ReplicasModel, build_replicas
from logboom.console.routes.broker_routes import described_cluster
from logboom.console.routes.topic_routes import topic_views
from logboom.console.site import (
    ActionDone,
    ActionPreview,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.data_table import TableColumn, build_table
from logboom.console.widgets.page_query import FormValues, PageQuery
from logboom.wire.errors import InvalidRequest, Refused
from logboom.wire.operation_messages import MOVES_IN_ALL

QUEUE_FIELDS = (
    FormField("topic", kind="hidden", required=True),
    FormField("queue", kind="hidden", required=True),
)
BALANCE_MODES = (
    ("off", "off: move nothing for balance"),
    ("new-broker", "new-broker: only fill brokers that are new"),
    ("continuous", "continuous: keep all brokers even"),
)


async def load_replicas(request: PageRequest) -> ReplicasModel:
    """Ask for the matrix."""
    return build_replicas(
        await described_cluster(request), await topic_views(request), request.query
    )


def _queue(values: FormValues) -> tuple[str, int]:
    return values.text("topic"), values.number("queue")


def _name(values: FormValues) -> str:
    topic, queue = _queue(values)
    return f"{topic} queue {queue}"


# Leaders.


async def preview_election(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say who leads, and who could."""
    topic, number = _queue(values)
    queue = queue_of(await request.cluster.boom.admin.describe_topic(topic), number)
    return ActionPreview(
        (
            ("Leads now", queue.leader or "nobody"),
            ("In sync", ", ".join(queue.isr)),
            ("Then", values.text("prefer") or "the first of its replicas that is in sync"),
        )
    )


async def prefill_election(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Propose a replica in sync that does not lead."""
    topic, number = _queue(values)
    queue = queue_of(await request.cluster.boom.admin.describe_topic(topic), number)
    able = [each for each in queue.replicas if each in queue.isr and each != queue.leader]
    return {"prefer": able[0]} if able else {}


async def elect_leader(request: PageRequest, values: FormValues) -> ActionDone:
    """Let another in-sync replica lead a queue."""
    admin = request.cluster.boom.admin
    topic, number = _queue(values)
    before = queue_of(await admin.describe_topic(topic), number).leader
    await admin.elect_leader(topic, number, values.text("prefer") or None)
    after = queue_of(await admin.describe_topic(topic), number).leader
    was = f"was {before or 'nobody'}" if before != after else "as before"
    return ActionDone(f"{after or 'Nobody'} leads {_name(values)} ({was}).")


def elect_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom queue elect`."""
    topic, number = _queue(values)
    prefer = values.text("prefer")
    return ("queue", "elect", topic, str(number), *(("--prefer", prefer) if prefer else ()))


ELECT = ConsoleAction(
    name="queue.elect",
    title="Elect another leader of a queue",
    button="Elect the leader",
    fields=(
        *QUEUE_FIELDS,
        FormField(
            "prefer",
            "Broker that shall lead",
            hint="A replica in sync; empty: the first of its replicas. Leaders go back to the first of "
            "their replicas after some seconds: to change that for good, move the queue with another "
            "order.",
        ),
    ),
    command=elect_command,
    question=lambda values: f"Elect another leader of {_name(values)}?",
    prefill=prefill_election,
    preview=preview_election,
    run=elect_leader,
)


# Moves.


async def prefill_move(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Fill in the brokers that have the queue now."""
    topic, number = _queue(values)
    queue = queue_of(await request.cluster.boom.admin.describe_topic(topic), number)
    return {"replicas": ", ".join(target_of(queue))}


async def preview_move(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what is copied where, or why it cannot be."""
    admin = request.cluster.boom.admin
    topic, number = _queue(values)
    plan = plan_move(
        await admin.describe_cluster(topic),
        await admin.describe_topic(topic),
        number,
        broker_ids(values.text("replicas")),
        force=values.flag("force"),
    )
    facts = plan.facts
    return ActionPreview(
        (
            ("On now", ", ".join(facts["before"])),
            ("Then on", ", ".join(facts["after"])),
            ("Added", ", ".join(facts["adding"]) or "none"),
            ("Given up at the end", ", ".join(facts["removing"]) or "none"),
            (
                "Copied",
                bytes_text(facts["bytes"]) if facts["bytes"] else "nothing, or not known yet",
            ),
            ("Zones", f"{facts['zones_before']} → {facts['zones_after']}"),
        )
    )


async def move_queue(request: PageRequest, values: FormValues) -> ActionDone:
    """Move a queue to the brokers that are named."""
    admin = request.cluster.boom.admin
    topic, number = _queue(values)
    target, force = broker_ids(values.text("replicas")), values.flag("force")
    described = await admin.describe_cluster(topic)
    plan_move(described, await admin.describe_topic(topic), number, target, force=force)
    await admin.reassign(topic, number, target, force)
    return ActionDone(f"{_name(values)} is moved to {', '.join(target)}.")


def move_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom queue move`."""
    topic, number = _queue(values)
    target = ",".join(broker_ids(values.text("replicas")))
    force = ("--force",) if values.flag("force") else ()
    return ("queue", "move", topic, str(number), "--replicas", target, *force, "--yes")


MOVE = ConsoleAction(
    name="queue.move",
    title="Move a queue",
    button="Move the queue",
    fields=(
        *QUEUE_FIELDS,
        FormField(
            "replicas",
            "Brokers",
            required=True,
            placeholder="broker-1, broker-2, broker-3",
            hint="Separated by commas, the preferred leader first. Replicas are added first, and the "
            "others are given up once all of these are in sync.",
        ),
        FormField("force", "Also if it is then in fewer zones", kind="checkbox"),
    ),
    command=move_command,
    question=lambda values: f"Move {_name(values)}?",
    prefill=prefill_move,
    preview=preview_move,
    run=move_queue,
)


async def cancel_move(request: PageRequest, values: FormValues) -> ActionDone:
    """Give a queue the replicas back that it had before its move."""
    admin = request.cluster.boom.admin
    topic, number = _queue(values)
    before = queue_of(await admin.describe_topic(topic), number)
    if not before.adding and not before.removing:
        return ActionDone(f"{_name(values)} is not moved: it is on {', '.join(before.replicas)}.")
    await admin.cancel_reassign(topic, number)
    now = queue_of(await admin.describe_topic(topic), number)
    return ActionDone(f"Cancelled: {_name(values)} stays on {', '.join(now.replicas)}.")


CANCEL = ConsoleAction(
    name="queue.cancel",
    title="Cancel a move",
    button="Cancel the move",
    fields=QUEUE_FIELDS,
    command=lambda values: ("queue", "cancel", values.text("topic"), str(values.number("queue"))),
    question=lambda values: (
        f"Cancel the move of {_name(values)}? What the planner began, such as a drain, it begins again: "
        "end its cause first."
    ),
    run=cancel_move,
)


# Balance.


async def prefill_balance(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Fill in the mode of now."""
    rows = await request.cluster.boom.admin.list_settings()
    return {
        row.name.removeprefix("balance_"): row.value for row in rows if row.name == "balance_mode"
    }


def _mode(values: FormValues) -> str:
    mode = values.text("mode")
    if mode not in dict(BALANCE_MODES):
        raise InvalidRequest(
            f"{mode[:80]!r} is no mode of balance: {', '.join(dict(BALANCE_MODES))}"
        )
    return mode


async def set_balance(request: PageRequest, values: FormValues) -> ActionDone:
    """Set when replicas move for balance."""
    mode = _mode(values)
    await request.cluster.boom.admin.alter_settings({"balance_mode": mode})
    return ActionDone(f"balance_mode is {mode}.")


def balance_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom balance on` or `off`."""
    mode = _mode(values)
    return ("balance", "off") if mode == "off" else ("balance", "on", "--mode", mode)


BALANCE_MODE = ConsoleAction(
    name="balance.set",
    title="Balance of brokers",
    button="Set the mode",
    fields=(
        FormField(
            "mode",
            "Mode",
            kind="select",
            choices=BALANCE_MODES,
            default="new-broker",
            hint="Repairs and drains go on in every mode, and so do moves that have begun.",
        ),
    ),
    command=balance_command,
    question=lambda values: f"Set the balance mode to {_mode(values)}?",
    prefill=prefill_balance,
    run=set_balance,
)
PLAN_COLUMNS = (
    TableColumn("topic", "Topic", "code"),
    TableColumn("queue", "Queue", "count"),
    TableColumn("change", "Change", "code"),
    TableColumn("copied", "Copied"),
    TableColumn("zones", "Zones"),
)


async def preview_balance(request: PageRequest, values: FormValues) -> ActionPreview:
    """Plan what would move."""
    planned = await request.cluster.boom.admin.plan_balance()
    copied = sum(max(0, each.copied_bytes) for each in planned.moves)
    shares = tuple(
        (row["broker"], f"{row['size']}, {row['replicas']} replicas, {row['to_lead']} to lead")
        for row in share_rows(planned)
    )
    table = build_table(
        PLAN_COLUMNS,
        plan_rows(planned),
        PageQuery(""),
        title=f"{counted(len(planned.moves), 'move')}, {bytes_text(copied)} to copy",
        empty="There is nothing to move.",
    )
    return ActionPreview(shares, table, "; ".join(planned.reasons))


async def run_balance(request: PageRequest, values: FormValues) -> ActionDone:
    """Begin the first moves of a plan, as many as may be under way."""
    admin = request.cluster.boom.admin
    planned = await admin.plan_balance()
    if not planned.moves:
        return ActionDone("There is nothing to move.", "/brokers")
    under_way = len((await admin.describe_cluster()).moves)
    first = planned.moves[: max(0, MOVES_IN_ALL - under_way)]
    begun = sum(not code for code in await admin.carry_out(first))
    if first and not begun:
        raise Refused(
            "no move has begun, the queues or brokers have changed since they were planned: try again"
        )
    waiting = len(planned.moves) - begun
    more = (
        f" {waiting} wait, since {MOVES_IN_ALL} may be under way at once: run it again later, or set "
        "the mode to continuous."
        if waiting
        else ""
    )
    return ActionDone(f"{counted(begun, 'move')} begun.{more}", "/brokers")


BALANCE_RUN = ConsoleAction(
    name="balance.run",
    title="Even out all brokers once",
    button="Begin the moves",
    command=lambda values: ("balance", "run", "--yes"),
    question=lambda values: f"Begin these moves, {MOVES_IN_ALL} at once?",
    preview=preview_balance,
    run=run_balance,
)
SUBJECT = Subject(
    pages=(PageRoute("/replicas", load_replicas, "replicas.html"),),
    actions=(ELECT, MOVE, CANCEL, BALANCE_MODE, BALANCE_RUN),
    navigation=(NavigationEntry("Replicas", "/replicas", 72),),
)
