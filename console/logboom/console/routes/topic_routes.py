"""Topics: their list, queues, settings and groups, and what can be done with them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from logboom.client.written_values import duration_ms, duration_text, size_bytes
from logboom.console.consumer_survey import ConsumerSurvey
from logboom.console.pages.topic_page import (
    QueuesModel,
    SettingsModel,
    TopicGroupsModel,
    build_queues,
    build_settings,
    build_topic_groups,
)
from logboom.console.pages.topics_page import TopicRows, TopicsModel, build_topics, topic_rows
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
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.survey_messages import GroupSurvey
from logboom.wire.view import TopicView

STALE_S: Final = 20.0
"""Seconds for which the list of topics is shown as it was, while it is asked for anew."""
MANY_TOPICS: Final = 2_000
"""Topics from which on nobody waits for a survey."""


async def topic_views(request: PageRequest, stale_s: float = 0.0) -> Sequence[TopicView]:
    """Return all topics; `stale_s` as `ClusterAccess.cached` has it."""
    admin = request.cluster.boom.admin
    return await request.cluster.cached("topics", admin.topics, stale_s=stale_s)


async def topic_view(request: PageRequest, name: str) -> TopicView:
    """Return one topic.

    Raises:
        UnknownResource: there is no such topic.
    """
    admin = request.cluster.boom.admin
    return await request.cluster.cached(f"topic {name}", lambda: admin.describe_topic(name))


async def queue_bounds(request: PageRequest, topic: TopicView) -> Mapping[int, tuple[int, int]]:
    """Return (first offset, end) by queue; queues without a leader are left out."""
    led = [number for number, queue in enumerate(topic.queues) if queue.leader is not None]
    admin = request.cluster.boom.admin

    async def ask() -> dict[int, tuple[int, int]]:
        answers = await request.cluster.together(
            [admin.offsets(topic.name, [queue]) for queue in led]
        )
        return {queue: bounds for answer in answers for queue, bounds in answer.items()}

    return await request.cluster.cached(f"offsets {topic.name}", ask, 1.0)


async def newest_survey(request: PageRequest, topics: int) -> ConsumerSurvey | None:
    """Return the newest survey; None if there is none yet of so many topics that it takes seconds.

    Raises:
        LogboomError: the cluster does not answer.
    """
    consumers = request.cluster.consumers
    return consumers.history.newest if topics > MANY_TOPICS else await consumers.survey()


async def group_surveys(request: PageRequest) -> Sequence[GroupSurvey]:
    """Return all groups with their offsets."""
    return await request.cluster.cached("groups", request.cluster.boom.admin.survey_groups, 5.0)


async def load_topics(request: PageRequest) -> TopicsModel:
    """Ask for the list."""

    async def make() -> TopicRows:
        topics = await topic_views(request, STALE_S)
        survey = None
        # Who may not see groups, or no leader tells it: the list goes without.
        with contextlib.suppress(LogboomError):
            survey = await newest_survey(request, len(topics))
        return topic_rows(topics, survey.stocks if survey else {})

    rows = await request.cluster.cached("rows of topics", make, stale_s=STALE_S)
    return build_topics(rows, request.query)


async def load_queues(request: PageRequest) -> QueuesModel:
    """Ask for the queues of a topic."""
    topic = await topic_view(request, request.parts["topic"])
    bounds = await queue_bounds(request, topic)
    return build_queues(topic, bounds, await _sizes(request, topic), request.query)


async def _sizes(request: PageRequest, topic: TopicView) -> Sequence[int]:
    """Return the bytes of each queue; empty if the Raft leader does not tell them, or not to this
    user."""
    admin = request.cluster.boom.admin
    try:
        described = await request.cluster.cached(
            f"sizes {topic.name}", lambda: admin.describe_cluster(topic.name), 10.0
        )
    except LogboomError:
        return ()
    return described.sizes


async def load_settings(request: PageRequest) -> SettingsModel:
    """Ask for the settings of a topic."""
    return build_settings(await topic_view(request, request.parts["topic"]), request.query)


async def load_topic_groups(request: PageRequest) -> TopicGroupsModel:
    """Ask for the groups of a topic."""
    topic = await topic_view(request, request.parts["topic"])
    bounds = await queue_bounds(request, topic)
    return build_topic_groups(topic, await group_surveys(request), bounds, request.query)


# Create and alter.

SETTING_FIELDS: Final = (
    FormField(
        "retention",
        "Retention",
        default="7d",
        hint="How long messages are kept: 90s, 15m, 1h, 7d, ever.",
    ),
    FormField(
        "retention_bytes",
        "Retention by size",
        default="any",
        hint="How much each queue keeps: 64m, 10g, any.",
    ),
    FormField(
        "min_in_sync",
        "Minimum in sync",
        "number",
        default="0",
        hint="Copies that an acks=all write needs; 0: a majority of the replicas.",
    ),
    FormField(
        "max_message", "Largest message", default="4m", hint="Value, key and headers together."
    ),
    FormField(
        "compaction",
        "Compaction",
        "select",
        default="off",
        choices=(("off", "off"), ("on", "on: keep the latest message of each key")),
    ),
    FormField(
        "unclean_election",
        "Elect replicas that lack messages when no other is alive",
        "checkbox",
        hint="This loses messages.",
    ),
)
SETTING_NAMES: Final = tuple(each.name for each in SETTING_FIELDS)
OPTIONS: Final = (
    "queues",
    "replicas",
    *(each.name for each in SETTING_FIELDS if each.kind != "checkbox"),
)
"""Fields that are options with a value on the command line."""
CREATE_FIELDS: Final = (
    FormField(
        "name",
        "Name",
        required=True,
        hint="1 to 127 of A-Z a-z 0-9 . _ % | -",
        placeholder="flights",
    ),
    FormField(
        "queues",
        "Queues",
        "number",
        default="4",
        hint="More queues allow more consumers in parallel.",
    ),
    FormField(
        "replicas",
        "Replicas",
        "number",
        default="0",
        hint="Copies of each queue; 0: 3, or as many as there are brokers.",
    ),
    *SETTING_FIELDS,
)
ALTER_FIELDS: Final = (
    FormField("topic", kind="hidden", required=True),
    FormField(
        "queues", "Queues", "number", hint="It can only grow. Keys may move to other queues."
    ),
    FormField(
        "replicas",
        "Replicas",
        "number",
        hint="The name servers add or remove some, queue by queue.",
    ),
    *SETTING_FIELDS,
    *(FormField(f"was_{name}", kind="hidden") for name in ("queues", "replicas", *SETTING_NAMES)),
)


def create_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom topic create`: what is not as usual."""
    usual = {field.name: field.default for field in CREATE_FIELDS}
    words = ["topic", "create", values.text("name") or "NAME"]
    words += _option_words({name: values.text(name) for name in OPTIONS}, usual)
    if values.flag("unclean_election"):
        words.append("--unclean-election")
    return words


def alter_command(values: FormValues) -> Sequence[str]:
    """Return the words of `logboom topic alter`: what differs from before.

    Raises:
        InvalidRequest: nothing does.
    """
    was = {name: values.text(f"was_{name}") for name in OPTIONS}
    words = _option_words({name: values.text(name) for name in OPTIONS}, was)
    if values.flag("unclean_election") != values.flag("was_unclean_election"):
        no = "" if values.flag("unclean_election") else "no-"
        words.append(f"--{no}unclean-election")
    if not words:
        raise InvalidRequest("nothing is changed yet")
    return ["topic", "alter", values.text("topic"), *words, "--yes"]


def _option_words(values: Mapping[str, str], usual: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for name, value in values.items():
        if value and value != usual.get(name):
            words += [f"--{name.replace('_', '-')}", value]
    return words


def _settings(values: FormValues, names: Sequence[str]) -> dict[str, Any]:
    """Return settings as the admin takes them.

    Raises:
        InvalidRequest: a value cannot be read.
    """
    read: dict[str, Any] = {}
    for name in names:
        match name:
            case "retention":
                read["retention_ms"] = duration_ms(values.text(name))
            case "retention_bytes":
                read[name] = size_bytes(values.text(name))
            case "max_message":
                read["max_message_bytes"] = size_bytes(values.text(name))
            case "min_in_sync":
                read[name] = values.number(name)
            case "compaction":
                read[name] = values.text(name) == "on"
            case _:
                read[name] = values.flag(name)
    return read


async def create_topic(request: PageRequest, values: FormValues) -> ActionDone:
    """Create a topic."""
    name = values.text("name")
    await request.cluster.boom.admin.create_topic(
        name,
        queues=values.number("queues", 4),
        replicas=values.number("replicas", 0),
        **_settings(values, SETTING_NAMES),
    )
    return ActionDone(f"{name} is created.", path_of("topics", name))


async def prefill_alter(request: PageRequest, values: FormValues) -> Mapping[str, str]:
    """Return the present settings of a topic."""
    topic = await request.cluster.boom.admin.describe_topic(values.text("topic"))
    config = topic.config
    now = {
        "queues": str(len(topic.queues)),
        "replicas": str(topic.replicas or ""),
        "retention": duration_text(config.retention_ms),
        "retention_bytes": written_size(config.retention_bytes),
        "min_in_sync": str(config.min_in_sync),
        "max_message": written_size(config.max_message_bytes),
        "compaction": "on" if config.compaction else "off",
        "unclean_election": "on" if config.unclean_election else "",
    }
    return now | {f"was_{name}": value for name, value in now.items()}


def written_size(size: int) -> str:
    """Return a size as `size_bytes` reads it: 4m, 1536k, any."""
    if size < 0:
        return "any"
    for unit, of in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if size and size % of == 0:
            return f"{size // of}{unit}"
    return str(size)


async def preview_alter(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what the change of a topic does beyond its settings."""
    warning = []
    if values.text("queues") != values.text("was_queues"):
        warning.append(
            "Keys may move to other queues: order within a key is kept from then on only."
        )
    if values.text("replicas") != values.text("was_replicas"):
        warning.append("Replicas are added or removed queue by queue, which copies data.")
    if values.flag("unclean_election") and not values.flag("was_unclean_election"):
        warning.append("Acknowledged messages can be lost from then on.")
    return ActionPreview(warning=" ".join(warning))


async def alter_topic(request: PageRequest, values: FormValues) -> ActionDone:
    """Change what differs from before."""
    changed = [
        name
        for name in SETTING_NAMES
        if (
            values.flag(name) != values.flag(f"was_{name}")
            if name == "unclean_election"
            else values.text(name) != values.text(f"was_{name}")
        )
    ]
    queues = values.text("queues") != values.text("was_queues")
    replicas = values.text("replicas") != values.text("was_replicas")
    name = values.text("topic")
    await request.cluster.boom.admin.alter_topic(
        name,
        queues=values.number("queues") if queues else None,
        replicas=values.number("replicas") if replicas else None,
        **_settings(values, changed),
    )
    return ActionDone(f"{name} is altered.", f"{path_of('topics', name)}/settings")


# Delete.


async def delete_topic(request: PageRequest, values: FormValues) -> ActionDone:
    """Delete a topic."""
    name = values.text("topic")
    await request.cluster.boom.admin.delete_topic(name)
    return ActionDone(f"{name} is deleted.", "/topics")


async def preview_delete(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what is lost."""
    topic = await topic_view(request, values.text("topic"))
    bounds = await queue_bounds(request, topic)
    groups = [
        group.summary.name
        for group in await group_surveys(request)
        if topic.name in group.summary.topics
    ]
    readers = ", ".join(groups[:8]) + (" …" if groups[8:] else "")
    messages = sum(end - first for first, end in bounds.values())
    facts = (
        ("Messages", f"{messages:,}"),
        ("Queues", f"{len(topic.queues):,}"),
        ("Groups that subscribe to it", readers or "none"),
    )
    return ActionPreview(facts, warning="This cannot be undone.")


ACTIONS: Final = (
    ConsoleAction(
        name="topic.create",
        title="Create a topic",
        button="Create the topic",
        fields=CREATE_FIELDS,
        command=create_command,
        question=lambda values: f"Create {values.text('name')}?",
        run=create_topic,
    ),
    ConsoleAction(
        name="topic.alter",
        title="Change a topic",
        button="Change the topic",
        fields=ALTER_FIELDS,
        command=alter_command,
        question=lambda values: f"Change {values.text('topic')}?",
        run=alter_topic,
        prefill=prefill_alter,
        preview=preview_alter,
    ),
    ConsoleAction(
        name="topic.delete",
        title="Delete a topic",
        button="Delete the topic",
        fields=(FormField("topic", kind="hidden", required=True),),
        command=lambda values: ("topic", "delete", values.text("topic"), "--yes"),
        question=lambda values: f"Delete {values.text('topic')} with all its messages?",
        run=delete_topic,
        preview=preview_delete,
        danger=True,
    ),
)
SUBJECT = Subject(
    pages=(
        PageRoute("/topics", load_topics, "topics.html"),
        PageRoute("/topics/{topic}/queues", load_queues, "topic_queues.html"),
        PageRoute("/topics/{topic}/settings", load_settings, "topic_settings.html"),
        PageRoute("/topics/{topic}/groups", load_topic_groups, "topic_groups.html"),
    ),
    actions=ACTIONS,
    navigation=(NavigationEntry("Topics", "/topics", 20),),
)
