"""Consumer groups: their list, one group, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from logboom.client.admin_flows.dead_letter_flows import DeadLetterSummary
from logboom.client.admin_flows.offset_resets import OffsetReset
from logboom.client.group_arguments import assigned, offsets_of, subscription_of
from logboom.client.written_values import (
    counted,
    duration_ms,
    duration_text,
    queue_numbers,
    reset_target,
)
from logboom.console.pages.group_page import (
    GroupModel,
    build_group,
    reset_facts,
    reset_table,
)
from logboom.console.pages.groups_page import GroupsModel, build_groups
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
from logboom.console.widgets.page_query import FormValues, path_of
from logboom.wire.errors import InvalidRequest, Refused, UnknownResource
from logboom.wire.group_view import GroupConfig
from logboom.wire.names import DLQ_PREFIX

STRATEGIES: Final = (
    "sticky",
    "averagely",
    "averagely_by_circle",
    "consistent_hash",
    "by_config",
    "machine_room",
    "machine_room_nearby",
)
NAME: Final = FormField("group", kind="hidden", required=True)


async def load_groups(request: PageRequest) -> GroupsModel:
    """Return the list, from the newest survey: no group is asked by itself."""
    survey = await request.cluster.consumers.survey()
    return build_groups(survey, request.cluster.consumers.history, request.query)


async def load_group(request: PageRequest) -> GroupModel:
    """Ask for one group."""
    name = request.parts["group"]
    admin = request.cluster.boom.admin
    group = await request.cluster.cached(f"group {name}", lambda: admin.describe_group(name))
    letters = await request.cluster.cached(f"dead of {name}", lambda: _dead_letters(request, name))
    return build_group(
        group,
        request.cluster.consumers.history,
        None if letters is None else letters.open,
        request.query,
    )


async def _dead_letters(request: PageRequest, group: str) -> DeadLetterSummary | None:
    """Return what the group has of dead letters; None: it has no topic for them."""
    try:
        return await request.cluster.boom.dead_letters.describe(group)
    except UnknownResource:
        return None


# ── settings ────────────────────────────────────────────────────────────────────────────────────

DURATIONS: Final = {
    "session": "session_ms",
    "heartbeat": "heartbeat_ms",
    "drain": "drain_ms",
    "retry_first": "retry_first_ms",
    "retry_last": "retry_last_ms",
    "consume_timeout": "consume_timeout_ms",
}
"""Field and option of a duration → its setting."""
PLAIN: Final = {
    "retry": "retry",
    "strategy": "strategy",
    "when_slow": "when_slow",
}
NUMBERS: Final = {"max_attempts": "max_attempts"}


def alter_form(config: GroupConfig, subscription: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the form of `group.alter`."""
    told: dict[str, str] = {
        **{field: duration_text(getattr(config, name)) for field, name in DURATIONS.items()},
        **{field: str(getattr(config, name)) for field, name in PLAIN.items()},
        **{field: str(getattr(config, name)) for field, name in NUMBERS.items()},
        "start": str(config.start),
        "rooms": ",".join(config.options.rooms),
        "virtual_nodes": str(config.options.virtual_nodes),
        "assign": "\n".join(
            f"{member}={topic}/{queue}"
            for member, queues in sorted(config.options.config.items())
            for topic, queue in queues
        ),
        "subscribe": "\n".join(
            f"{topic}={wanted}" if wanted not in ("", "*") else topic
            for topic, wanted in sorted(subscription.items())
        ),
    }
    return told


def _changed(values: FormValues) -> dict[str, str]:
    """Return the fields that differ from what the form began with."""
    try:
        before = msgspec.json.decode(values.text("was") or "{}", type=dict[str, str])
    except msgspec.MsgspecError:
        before = {}
    return {
        each.name: values.raw(each.name).strip()
        for each in ALTER_FIELDS
        if each.kind != "hidden"
        and each.name in values
        and values.raw(each.name).strip() != before.get(each.name, "")
    }


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def alter_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom group alter`, with what was changed alone."""
    words = ["group", "alter", values.text("group")]
    for name, text in _changed(values).items():
        option = "--" + name.replace("_", "-")
        parts = _lines(text) if name in ("subscribe", "assign") else [text]
        for part in parts:
            words += [option, part]
    return words


def alter_settings(values: FormValues, now_ms: int) -> dict[str, Any]:
    """Return the settings that a form changes, for `admin.alter_group`.

    Raises:
        InvalidRequest: a value is invalid, or nothing is changed.
    """
    changed = _changed(values)
    settings: dict[str, Any] = {
        name: duration_ms(changed[field]) for field, name in DURATIONS.items() if field in changed
    }
    settings |= {name: changed[field] for field, name in PLAIN.items() if field in changed}
    for field, name in NUMBERS.items():
        if field in changed:
            settings[name] = values.number(field)
    if "start" in changed:
        settings["start"] = reset_target(changed["start"], now_ms)
    options: dict[str, Any] = {}
    if "rooms" in changed:
        options["rooms"] = [room.strip() for room in changed["rooms"].split(",") if room.strip()]
    if "virtual_nodes" in changed:
        options["virtual_nodes"] = values.number("virtual_nodes")
    if "assign" in changed:
        options["config"] = assigned(_lines(changed["assign"]))
    if options:
        settings["options"] = options
    if "subscribe" in changed:
        settings["subscription"] = subscription_of(_lines(changed["subscribe"]))
    if not settings:
        raise InvalidRequest("nothing is changed: change a field first")
    return settings


async def prefill_alter(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Return the settings as they are."""
    group = await request.cluster.boom.admin.describe_group(values.text("group"))
    told = alter_form(group.config, group.subscription)
    return {**told, "was": msgspec.json.encode(told).decode()}


async def alter_group(request: PageRequest, values: FormValues) -> ActionDone:
    """Change settings."""
    name = values.text("group")
    await request.cluster.boom.admin.alter_group(name, **alter_settings(values, request.now_ms))
    return ActionDone(f"{name} is changed.", path_of("groups", name))


ALTER_FIELDS: Final = (
    NAME,
    FormField("was", kind="hidden"),
    FormField(
        "subscribe",
        "Subscription",
        "textarea",
        hint="A topic per line, with its filter: orders=late || lost, or orders=* WHERE price > 3.",
    ),
    FormField("strategy", "Strategy", "select", choices=tuple((s, s) for s in STRATEGIES)),
    FormField(
        "assign",
        "Queues by member",
        "textarea",
        hint="For by_config, a line per member and topic: member-1=orders/0-3.",
    ),
    FormField("rooms", "Rooms", hint="For machine_room: zones of brokers, comma-separated."),
    FormField("virtual_nodes", "Points on the ring", "number", hint="For consistent_hash."),
    FormField("max_attempts", "Deliveries before a dead letter", "number"),
    FormField(
        "retry",
        "Waits between deliveries",
        "select",
        choices=(("levels", "levels: 10 s to 2 h"), ("exponential", "exponential")),
    ),
    FormField("retry_first", "First wait", hint="For exponential: 5s, 1m."),
    FormField("retry_last", "Longest wait", hint="For exponential."),
    FormField("consume_timeout", "Time for a listener", hint="Then its message counts as failed."),
    FormField("session", "Session", hint="Silence after which a member is removed."),
    FormField("heartbeat", "Heartbeat", hint="Time between heartbeats of a member."),
    FormField("drain", "Drain", hint="How long a member may take to release a queue."),
    FormField(
        "start",
        "Start in new topics",
        hint="first, last, 2026-11-21T10:00:00Z, or 1h for an hour ago.",
    ),
    FormField(
        "when_slow",
        "A consumer that is far behind",
        "select",
        choices=(("stay", "reads from the leader"), ("follower", "reads from a follower")),
    ),
)
ALTER_GROUP: Final = ConsoleAction(
    name="group.alter",
    title="Settings of a group",
    button="Change the settings",
    fields=ALTER_FIELDS,
    command=alter_command,
    question=lambda values: (
        f"Change {', '.join(_changed(values)) or 'nothing'} of {values.text('group')}?"
    ),
    prefill=prefill_alter,
    run=alter_group,
)


async def _set_paused(request: PageRequest, name: str, *, paused: bool) -> None:
    await request.cluster.boom.admin.alter_group(name, paused=paused)


async def pause_group(request: PageRequest, values: FormValues) -> ActionDone:
    """Pause a group."""
    name = values.text("group")
    await _set_paused(request, name, paused=True)
    return ActionDone(f"{name} is paused: its members finish what they have.")


async def resume_group(request: PageRequest, values: FormValues) -> ActionDone:
    """Let a group go on."""
    name = values.text("group")
    await _set_paused(request, name, paused=False)
    return ActionDone(f"{name} goes on.")


PAUSE_GROUP: Final = ConsoleAction(
    name="group.pause",
    title="Pause a group",
    button="Pause the group",
    fields=(NAME,),
    command=lambda values: ("group", "alter", values.text("group"), "--paused"),
    question=lambda values: (
        f"Pause {values.text('group')}? Its members finish the messages that they have, and get no "
        "more."
    ),
    run=pause_group,
)
RESUME_GROUP: Final = ConsoleAction(
    name="group.resume",
    title="Resume a group",
    button="Resume the group",
    fields=(NAME,),
    command=lambda values: ("group", "alter", values.text("group"), "--no-paused"),
    question=lambda values: f"Let the members of {values.text('group')} go on?",
    run=resume_group,
)


async def create_group(request: PageRequest, values: FormValues) -> ActionDone:
    """Create a group before its first member joins."""
    name = values.text("group")
    admin = request.cluster.boom.admin
    start = reset_target(values.text("start") or "first", request.now_ms)
    subscription = subscription_of(_lines(values.raw("subscribe")))
    if name in [each.name for each in await admin.groups()]:
        raise InvalidRequest(f"there is a group {name!r} already: change its settings")
    await admin.alter_group(name, subscription=subscription, create=True, start=start)
    return ActionDone(f"{name} is created.", path_of("groups", name))


def create_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom group alter --create`."""
    words = ["group", "alter", values.text("group") or "NAME", "--create"]
    for line in _lines(values.raw("subscribe")):
        words += ["--subscribe", line]
    return [*words, "--start", values.text("start") or "first"]


CREATE_GROUP: Final = ConsoleAction(
    name="group.create",
    title="Create a group",
    button="Create the group",
    fields=(
        FormField("group", "Name", required=True),
        FormField(
            "subscribe",
            "Subscription",
            "textarea",
            required=True,
            hint="A topic per line, with its filter: orders=late || lost, or orders=* WHERE price > 3.",
        ),
        FormField(
            "start",
            "Start",
            default="first",
            hint="first, last, a time such as 2026-11-21T10:00:00Z, or 1h for an hour ago.",
        ),
    ),
    command=create_command,
    question=lambda values: (
        f"Create {values.text('group')}? A group is also created by its first consumer."
    ),
    run=create_group,
)


# ── offsets ─────────────────────────────────────────────────────────────────────────────────────

WAYS: Final = (
    ("first", "the first message"),
    ("last", "the end"),
    ("time", "a message time"),
    ("shift", "so many messages forward or back"),
    ("group", "the offsets of another group"),
    ("offsets", "these offsets"),
)


def reset_arguments(values: FormValues, now_ms: int) -> dict[str, Any]:
    """Return the arguments of `admin.reset_offsets`.

    Raises:
        InvalidRequest: a value is missing or invalid.
    """
    said = values.raw("target").strip()
    found: dict[str, Any] = {
        "topic": values.text("topic") or None,
        "queues": queue_numbers(values.text("queues") or None),
    }
    match values.text("way"):
        case "first" | "last" as end:
            return {**found, "to": end}
        case "time":
            if not said:
                raise InvalidRequest("say which time: 2026-11-21T10:00:00Z, or 1h for an hour ago")
            return {**found, "to": reset_target(said, now_ms)}
        case "shift":
            return {**found, "shift": _whole(said)}
        case "group":
            if not said:
                raise InvalidRequest("say whose offsets: write the name of a group")
            return {**found, "from_group": said}
        case "offsets":
            return {**found, "to": offsets_of(said.split())}
        case other:
            raise InvalidRequest(f"{other!r} is no way to reset offsets")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is no number of messages: write 100 or -100") from None


def reset_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom group reset`."""
    words = ["group", "reset", values.text("group")]
    said = values.raw("target").strip()
    match values.text("way"):
        case "first" | "last" as end:
            words += ["--to", end]
        case "time":
            words += ["--to", said]
        case "shift":
            words += ["--shift", said]
        case "group":
            words += ["--from-group", said]
        case _:
            for part in said.split():
                words += ["--offset", part]
    if topic := values.text("topic"):
        words += ["--topic", topic]
    if queues := values.text("queues"):
        words += ["--queue", queues]
    return [*words, "--yes"]


async def _plan(request: PageRequest, values: FormValues, *, dry_run: bool) -> list[OffsetReset]:
    return await request.cluster.boom.admin.reset_offsets(
        values.text("group"), **reset_arguments(values, request.now_ms), dry_run=dry_run
    )


async def preview_reset(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return the plan."""
    lines = await _plan(request, values, dry_run=True)
    facts, warning = reset_facts(lines)
    return ActionPreview(facts, reset_table(lines, request.query), warning)


async def reset_group(request: PageRequest, values: FormValues) -> ActionDone:
    """Carry the plan out."""
    name = values.text("group")
    lines = await _plan(request, values, dry_run=False)
    refused = sorted({line.code for line in lines if line.code})
    if refused:
        done = sum(not line.code for line in lines)
        raise Refused(
            f"{done} of {counted(len(lines), 'queue')} were reset, the others refused with "
            f"{', '.join(refused)}: try again"
        )
    return ActionDone(f"{counted(len(lines), 'queue')} of {name} were reset.")


RESET_GROUP: Final = ConsoleAction(
    name="group.reset",
    title="Reset the offsets of a group",
    button="Reset the offsets",
    fields=(
        NAME,
        FormField("way", "To", "select", default="first", choices=WAYS),
        FormField(
            "target",
            "Which",
            hint="A time (2026-11-21T10:00:00Z, or 1h for an hour ago), a number of messages (-100), a "
            "group, or offsets (orders/0=1200 orders/1=1180). Nothing for the first message and for "
            "the end.",
        ),
        FormField(
            "topic", "Only this topic", hint="Its retries stay as they are unless you name them."
        ),
        FormField("queues", "Only these queues of it", placeholder="0,3 or 2-5"),
    ),
    command=reset_command,
    question=lambda values: (
        f"Reset {values.text('group')} as above? It works with members online: they go on at the new "
        "offsets."
    ),
    preview=preview_reset,
    run=reset_group,
    danger=True,
)


# ── deletion ────────────────────────────────────────────────────────────────────────────────────


def delete_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom group delete`."""
    letters = ["--dead-letters"] if values.flag("dead_letters") else []
    return ("group", "delete", values.text("group"), *letters, "--yes")


async def preview_delete(request: PageRequest, values: FormValues) -> ActionPreview:
    """Return what would be forgotten."""
    name = values.text("group")
    group = await request.cluster.boom.admin.describe_group(name)
    letters = await _dead_letters(request, name)
    lag = sum(each.lag or 0 for each in group.queues)
    kept = "deleted too" if values.flag("dead_letters") else f"kept in {DLQ_PREFIX}{name}"
    facts = [
        ("Queues whose offsets are forgotten", f"{len(group.queues):,}"),
        ("Unfinished messages", f"{lag:,}"),
    ]
    if letters is not None:
        facts.append(("Dead letters", f"{letters.messages:,}, {kept}"))
    warning = ""
    if group.members:
        warning = (
            f"It has {counted(len(group.members), 'member')}: stop them first, or the deletion is "
            "refused."
        )
    return ActionPreview(tuple(facts), warning=warning)


async def delete_group(request: PageRequest, values: FormValues) -> ActionDone:
    """Forget a group. Its dead letters stay, if there are any."""
    name = values.text("group")
    found = None if values.flag("dead_letters") else await _dead_letters(request, name)
    # Also those that were sent again.
    stored = found.messages if found is not None else 0
    await request.cluster.boom.admin.delete_group(name, dead_letters=not stored)
    kept = f"; {counted(stored, 'dead letter')} stay in {DLQ_PREFIX}{name}" if stored else ""
    return ActionDone(f"{name} is deleted{kept}.", "/groups")


DELETE_GROUP: Final = ConsoleAction(
    name="group.delete",
    title="Delete a group",
    button="Delete the group",
    fields=(NAME, FormField("dead_letters", "Delete its dead letters too", "checkbox")),
    command=delete_command,
    question=lambda values: f"Forget {values.text('group')} and how far it is?",
    preview=preview_delete,
    run=delete_group,
    danger=True,
)

SUBJECT: Final = Subject(
    pages=(
        PageRoute("/groups", load_groups, "groups.html"),
        PageRoute("/groups/{group}", load_group, "group.html"),
    ),
    actions=(ALTER_GROUP, PAUSE_GROUP, RESUME_GROUP, CREATE_GROUP, RESET_GROUP, DELETE_GROUP),
    navigation=(NavigationEntry("Groups", "/groups", 30),),
)
