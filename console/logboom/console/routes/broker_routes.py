"""Brokers: their list, each of them, and what can be done with them."""

from __future__ import annotations

from collections.abc import Sequence

from logboom.client.move_plans import broker_of, plan_drain, plan_removal
from logboom.client.move_progress import moves_of
from logboom.client.written_values import bytes_text, counted
from logboom.console.pages.brokers_page import (
    BrokerModel,
    BrokersData,
    BrokersModel,
    broker_risks,
    build_broker,
    build_brokers,
    some_of,
)
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
from logboom.console.widgets.page_query import FormValues
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.messages import VersionsDescribed
from logboom.wire.operation_messages import ClusterDescribed

BROKER_FIELD = FormField("broker", kind="hidden", required=True)


async def described_cluster(request: PageRequest) -> ClusterDescribed:
    """Return brokers, moves and the planner, as pages show them."""
    return await request.cluster.cached("described", request.cluster.boom.admin.describe_cluster)


async def node_versions(request: PageRequest) -> VersionsDescribed | None:
    """Return the software of all nodes; None: not told to this user, or by an older release."""
    try:
        return await request.cluster.cached(
            "versions", request.cluster.boom.admin.versions, max_age_s=10.0
        )
    except LogboomError:
        return None


async def brokers_data(request: PageRequest) -> BrokersData:
    """Return what the cluster tells of its brokers."""
    admin = request.cluster.boom.admin
    return BrokersData(
        await described_cluster(request),
        await request.cluster.cached("brokers", admin.brokers),
        await node_versions(request),
    )


async def load_brokers(request: PageRequest) -> BrokersModel:
    """Ask for the list."""
    return build_brokers(await brokers_data(request), request.query)


async def load_broker(request: PageRequest) -> BrokerModel:
    """Ask for one broker."""
    return build_broker(
        await brokers_data(request),
        await topic_views(request),
        request.parts["broker"],
        request.cluster.history,
        request.query,
    )


# Maintenance.


async def preview_maintenance(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what changes its leader, and what nobody else could lead."""
    admin = request.cluster.boom.admin
    broker = values.text("broker")
    described = await admin.describe_cluster()
    load = broker_of(described, broker)
    if _switch(values) == "off":
        return ActionPreview((("Leads then", counted(load.preferred, "queue")),))
    risks = broker_risks(await admin.brokers(), await admin.topics(), broker)
    stuck = [f"{each.topic}/{each.queue}" for each in risks if each.kind != "below-min-in-sync"]
    return ActionPreview(
        (("Gets another leader", counted(load.leading, "queue")), ("Mode now", load.mode)),
        warning=f"No other replica can lead {some_of(stuck)} while {broker} is down"
        if stuck
        else "",
    )


def _switch(values: FormValues) -> str:
    switch = values.text("switch")
    if switch not in ("on", "off"):
        raise InvalidRequest(f"maintenance is switched on or off, not {switch[:80]!r}")
    return switch


def _maintenance_question(values: FormValues) -> str:
    broker = values.text("broker")
    if _switch(values) == "on":
        return f"Take {broker} out of service until you put it back?"
    return f"Put {broker} back into service?"


async def set_maintenance(request: PageRequest, values: FormValues) -> ActionDone:
    """Take a broker out of service for some time, or put it back."""
    admin = request.cluster.boom.admin
    broker, switch = values.text("broker"), _switch(values)
    mode = broker_of(await admin.describe_cluster(), broker).mode
    if mode in ("draining", "drained"):
        remedy = "undrain it instead" if switch == "off" else "it leads nothing already"
        raise InvalidRequest(f"{broker} is {mode}: {remedy}")
    await admin.set_broker_mode(broker, "maintenance" if switch == "on" else "active")
    if switch == "on":
        return ActionDone(f"{broker} is in maintenance: its queues get other leaders.")
    return ActionDone(f"{broker} is active again; leaders come back to it in some seconds.")


MAINTENANCE = ConsoleAction(
    name="broker.maintenance",
    title="Maintenance of a broker",
    button="Set the mode",
    fields=(BROKER_FIELD, FormField("switch", kind="hidden", required=True)),
    command=lambda values: ("broker", "maintenance", _switch(values), values.text("broker")),
    question=_maintenance_question,
    preview=preview_maintenance,
    run=set_maintenance,
)


# Draining.


async def preview_drain(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what moves where."""
    admin = request.cluster.boom.admin
    plan = plan_drain(await admin.describe_cluster(), await admin.topics(), values.text("broker"))
    size = plan.facts["bytes"]
    return ActionPreview(
        (
            ("Moves away", counted(plan.facts["queues"], "replica")),
            ("Copied", "not known yet" if size is None else bytes_text(size)),
            ("Leads", counted(plan.facts["leads"], "queue")),
            ("Goes to", ", ".join(plan.facts["receivers"])),
        ),
        warning=plan.lines[-1] if plan.facts["stranded"] else "",
    )


async def drain(request: PageRequest, values: FormValues) -> ActionDone:
    """Begin to move all replicas of a broker to others."""
    admin = request.cluster.boom.admin
    broker = values.text("broker")
    described = await admin.describe_cluster()
    plan_drain(described, await admin.topics(), broker)
    if broker_of(described, broker).mode not in ("draining", "drained"):
        await admin.set_broker_mode(broker, "draining")
    return ActionDone(f"{broker} is draining: this page shows its moves, and “drained” at the end.")


DRAIN = ConsoleAction(
    name="broker.drain",
    title="Drain a broker",
    button="Drain the broker",
    fields=(BROKER_FIELD,),
    command=lambda values: ("broker", "drain", values.text("broker"), "--yes"),
    question=lambda values: f"Move all replicas of {values.text('broker')} to other brokers?",
    preview=preview_drain,
    run=drain,
)


async def undrain(request: PageRequest, values: FormValues) -> ActionDone:
    """Make a broker active that was draining or drained."""
    admin = request.cluster.boom.admin
    broker = values.text("broker")
    described = await admin.describe_cluster()
    if broker_of(described, broker).mode == "active":
        return ActionDone(f"{broker} is active already.")
    await admin.set_broker_mode(broker, "active")
    left = [each for each in moves_of(described.moves, broker=broker) if each.removing]
    more = (
        f" {counted(len(left), 'move')} from it still run: cancel them one by one." if left else ""
    )
    return ActionDone(f"{broker} is active again.{more}")


UNDRAIN = ConsoleAction(
    name="broker.undrain",
    title="Undrain a broker",
    button="Make it active",
    fields=(BROKER_FIELD,),
    command=lambda values: ("broker", "undrain", values.text("broker")),
    question=lambda values: f"Make {values.text('broker')} active again?",
    run=undrain,
)


# Removal.


async def preview_removal(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what the removal costs."""
    admin = request.cluster.boom.admin
    removal = plan_removal(
        await admin.describe_cluster(), await admin.topics(), values.text("broker")
    )
    facts = removal.plan.facts
    kept = facts["replicas"] - len(removal.lost) - len(removal.doubtful)
    size = facts["bytes"]
    return ActionPreview(
        (
            ("Replicas on it", str(facts["replicas"])),
            ("Size", "not known" if size is None else bytes_text(size)),
            ("Keep all messages", counted(kept, "queue")),
            ("Lose all messages", some_of(removal.lost) or "none"),
            ("May lose messages", some_of(removal.doubtful) or "none"),
        ),
        warning=". ".join(removal.plan.lines[1:]),
    )


async def remove_broker(request: PageRequest, values: FormValues) -> ActionDone:
    """Take a broker that does not run out of the cluster for good."""
    admin = request.cluster.boom.admin
    broker, accept = values.text("broker"), values.flag("accept_loss")
    removal = plan_removal(await admin.describe_cluster(), await admin.topics(), broker)
    if removal.loses and not accept:
        raise InvalidRequest(
            f"{'. '.join(removal.plan.lines[:-1])}. Nothing was removed: start {broker} and drain it, "
            "or accept the loss"
        )
    await admin.remove_broker(broker, accept_loss=accept)
    return ActionDone(f"{broker} is removed.", "/brokers")


def remove_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom broker remove`."""
    loss = ("--accept-loss",) if values.flag("accept_loss") else ()
    return ("broker", "remove", values.text("broker"), *loss, "--yes")


REMOVE = ConsoleAction(
    name="broker.remove",
    title="Remove a broker",
    button="Remove the broker",
    fields=(
        BROKER_FIELD,
        FormField(
            "accept_loss",
            "Accept the loss of messages",
            kind="checkbox",
            hint="Also if it alone holds messages, which are then lost for good. If none would be "
            "lost, this changes nothing.",
        ),
    ),
    command=remove_command,
    question=lambda values: f"Remove {values.text('broker')} from the cluster for good?",
    preview=preview_removal,
    run=remove_broker,
    danger=True,
)
SUBJECT = Subject(
    pages=(
        PageRoute("/brokers", load_brokers, "brokers.html"),
        PageRoute("/brokers/{broker}", load_broker, "broker.html"),
    ),
    actions=(MAINTENANCE, DRAIN, UNDRAIN, REMOVE),
    navigation=(NavigationEntry("Brokers", "/brokers", 70),),
)
