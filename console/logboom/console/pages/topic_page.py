"""A topic: its queues and replicas, its settings, its groups; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.admin_flows.group_lag import unfinished
from logboom.client.written_values import bytes_text, counted, duration_text
from logboom.console.pages.groups_page import LAG_HINT, STATES, state_of
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.group_view import UNKNOWN_START
from logboom.wire.survey_messages import GroupSurvey
from logboom.wire.view import QueueView, TopicConfig, TopicView


@dataclass(frozen=True, slots=True)
class TopicTab:
    """A part of a topic's pages."""

    title: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class TopicHead:
    """What every page of a topic begins with."""

    name: str
    path: str
    tabs: tuple[TopicTab, ...]
    queues: int
    state: str
    tone: Tone


TABS: Final = (
    ("Messages", ""),
    ("Queues", "/queues"),
    ("Groups", "/groups"),
    ("Settings", "/settings"),
)


def build_head(topic: TopicView, tab: str) -> TopicHead:
    """Return the head of a page of a topic; `tab` is the title of the current one."""
    path = path_of("topics", topic.name)
    tabs = tuple(TopicTab(title, f"{path}{part}", title == tab) for title, part in TABS)
    state, tone = topic_state(topic)
    return TopicHead(topic.name, path, tabs, len(topic.queues), state, tone)


def topic_state(topic: TopicView) -> tuple[str, Tone]:
    """Return the state of a topic in a few words, and its colour."""
    leaderless = sum(queue.leader is None for queue in topic.queues)
    behind = sum(not is_in_sync(queue) for queue in topic.queues)
    if topic.restoring:
        return "being restored", "info"
    if leaderless:
        return f"{counted(leaderless, 'queue')} without a leader", "failed"
    if behind:
        return f"{counted(behind, 'queue')} out of sync", "warning"
    return "in sync", "ok"


def is_in_sync(queue: QueueView) -> bool:
    """True if all replicas that a queue has for good are in its ISR."""
    if len(queue.isr) >= len(queue.replicas):
        return True
    return {*queue.replicas} - {*queue.adding} <= {*queue.isr}


# Queues.


@dataclass(frozen=True, slots=True)
class QueuesModel:
    """The queues of a topic and their replicas."""

    head: TopicHead
    facts: tuple[tuple[str, str], ...]
    table: TableModel


def _leader_tone(row: Row) -> Tone:
    return "failed" if row["leader"] is None else ""


def _sync_tone(row: Row) -> Tone:
    if row["in_sync"] <= 1 < row["of"]:
        return "failed"
    return "ok" if row["in_sync"] == row["of"] else "warning"


QUEUE_COLUMNS: Final = (
    TableColumn("queue", "Queue", "count"),
    TableColumn("leader", "Leader", "code", tone=_leader_tone),
    TableColumn("replicas", "Replicas", "text", hint="The first is the preferred leader."),
    TableColumn("isr", "In sync", "badge", tone=_sync_tone),
    TableColumn("start", "First offset", "count", wide_only=True),
    TableColumn("end", "End offset", "count"),
    TableColumn("messages", "Messages", "count"),
    TableColumn("size_bytes", "Size", "bytes", hint="Bytes of one replica."),
    TableColumn("epoch", "Leader epoch", "count", wide_only=True),
    TableColumn("move", "Move", "text", wide_only=True),
)


def build_queues(
    topic: TopicView,
    offsets: Mapping[int, tuple[int, int]],
    sizes: Sequence[int],
    query: PageQuery,
) -> QueuesModel:
    """Return the queues of a topic.

    Args:
        offsets: queue → (first offset, end), of those that answered.
        sizes: bytes of one replica by queue; empty: not known.
    """
    rows = [
        _queue_row(number, queue, offsets.get(number), sizes)
        for number, queue in enumerate(topic.queues)
    ]
    total = sum(row["messages"] or 0 for row in rows)
    size = sum(row["size_bytes"] or 0 for row in rows)
    facts = (
        ("Queues", f"{len(rows):,}"),
        ("Messages", f"{total:,}"),
        ("Stored", f"{bytes_text(size)} a replica" if sizes else "not known"),
        ("Leaders", _spread(queue.leader for queue in topic.queues)),
    )
    table = build_table(QUEUE_COLUMNS, rows, query, sort="queue")
    return QueuesModel(build_head(topic, "Queues"), facts, table)


def _queue_row(
    number: int, queue: QueueView, bounds: tuple[int, int] | None, sizes: Sequence[int]
) -> dict[str, Any]:
    move = [f"+{name}" for name in queue.adding] + [f"-{name}" for name in queue.removing]
    return {
        "queue": number,
        "leader": queue.leader,
        "replicas": list(queue.replicas),
        "isr": f"{len(queue.isr)} of {len(queue.replicas)}",
        "in_sync": len(queue.isr),
        "of": len(queue.replicas),
        "start": bounds[0] if bounds else None,
        "end": bounds[1] if bounds else None,
        "messages": bounds[1] - bounds[0] if bounds else None,
        "size_bytes": sizes[number] if number < len(sizes) else None,
        "epoch": queue.leader_epoch,
        "move": " ".join(move) or None,
    }


def _spread(leaders: Iterable[str | None]) -> str:
    counts: dict[str, int] = {}
    for leader in leaders:
        name = leader or "nobody"
        counts[name] = counts.get(name, 0) + 1
    some = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{name} {count}" for name, count in some[:6]) + (" …" if some[6:] else "")


# Settings.


@dataclass(frozen=True, slots=True)
class SettingLine:
    """A setting: its value, its default, and what it does."""

    name: str
    title: str
    value: str
    default: str
    changed: bool
    """True if it is not the default."""
    text: str


@dataclass(frozen=True, slots=True)
class SettingsModel:
    """The settings of a topic."""

    head: TopicHead
    facts: tuple[tuple[str, str], ...]
    lines: tuple[SettingLine, ...]
    table: TableModel


def _size_or_any(value: Any) -> str:
    return "any" if value < 0 else bytes_text(value)


def _switch(value: Any) -> str:
    return "on" if value else "off"


def _rate(value: Any) -> str:
    return "no limit" if value <= 0 else f"{value:,}/s"


SETTINGS: Final[Sequence[tuple[str, str, Callable[[Any], str], str]]] = (
    (
        "retention_ms",
        "Retention",
        duration_text,
        "How long messages are kept, by the time at which they were stored.",
    ),
    ("retention_bytes", "Retention by size", _size_or_any, "How much each queue keeps."),
    (
        "min_in_sync",
        "Minimum in sync",
        lambda value: str(value) if value else "majority",
        "Copies that an acks=all write needs.",
    ),
    (
        "max_message_bytes",
        "Largest message",
        bytes_text,
        "Value, key and headers together.",
    ),
    (
        "compaction",
        "Compaction",
        _switch,
        "Keep the latest message of each key for readers of the compacted topic.",
    ),
    (
        "delete_retention_ms",
        "Retention of tombstones",
        duration_text,
        "How long compaction keeps a tombstone after it has left the log.",
    ),
    (
        "unclean_election",
        "Unclean election",
        _switch,
        "Elect a replica that lacks messages when no other is alive; this loses messages.",
    ),
    (
        "dispatch_messages_per_s",
        "Dispatch rate",
        _rate,
        "Messages that each queue delivers to all its subscriptions.",
    ),
    (
        "dispatch_bytes_per_s",
        "Dispatch rate in bytes",
        lambda value: "no limit" if value <= 0 else f"{bytes_text(value)}/s",
        "The same in bytes of stored batches.",
    ),
)
SETTING_COLUMNS: Final = (
    TableColumn("name", "Setting", "code"),
    TableColumn("value", "Value"),
    TableColumn("default", "Default"),
)


def build_settings(topic: TopicView, query: PageQuery) -> SettingsModel:
    """Return the settings of a topic."""
    usual = TopicConfig()
    lines = tuple(
        SettingLine(
            name,
            title,
            shown(getattr(topic.config, name)),
            shown(getattr(usual, name)),
            getattr(topic.config, name) != getattr(usual, name),
            text,
        )
        for name, title, shown, text in SETTINGS
    )
    facts = (
        ("Id", str(topic.id)),
        ("Queues", f"{len(topic.queues):,}"),
        ("Replicas of each", str(topic.replicas or "not told")),
        ("Owner", topic.owner or "nobody"),
        ("Changed at metadata version", f"{topic.version:,}"),
    )
    rows = [{"name": line.name, "value": line.value, "default": line.default} for line in lines]
    table = build_table(SETTING_COLUMNS, rows, query)
    return SettingsModel(build_head(topic, "Settings"), facts, lines, table)


# Groups.


@dataclass(frozen=True, slots=True)
class TopicGroupsModel:
    """The groups that read a topic."""

    head: TopicHead
    table: TableModel


NO_MEMBER: Final = "no member"


def _state_tone(row: Row) -> Tone:
    return "warning" if row["state"] == NO_MEMBER else STATES[row["state"]]


GROUP_COLUMNS: Final = (
    TableColumn("group", "Group", "code", href=lambda row: path_of("groups", row["group"])),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("members", "Members", "count"),
    TableColumn("lag", "Lag", "count", hint=LAG_HINT),
    TableColumn("most_lag", "Most in a queue", "count", wide_only=True),
    TableColumn("mode", "Mode", wide_only=True),
    TableColumn("coordinator", "Coordinator", "code", wide_only=True),
)


def build_topic_groups(
    topic: TopicView,
    groups: Sequence[GroupSurvey],
    offsets: Mapping[int, tuple[int, int]],
    query: PageQuery,
) -> TopicGroupsModel:
    """Return the groups that have read a topic, or subscribe to it."""
    rows = [
        _group_row(group, topic, offsets)
        for group in groups
        if topic.name in group.summary.topics
        or any(each.topic_id == topic.id for each in group.offsets)
    ]
    table = build_table(GROUP_COLUMNS, rows, query, sort="-lag", empty="No group reads this topic.")
    return TopicGroupsModel(build_head(topic, "Groups"), table)


def _group_row(
    group: GroupSurvey, topic: TopicView, offsets: Mapping[int, tuple[int, int]]
) -> dict[str, Any]:
    summary = group.summary
    own = next((each for each in group.offsets if each.topic_id == topic.id), None)
    ranges = {} if own is None else dict(own.ranges)
    lags = [
        unfinished(at, ranges.get(queue, b""), *offsets[queue])[0]
        for queue, at in enumerate([] if own is None else own.committed)
        if at != UNKNOWN_START and queue in offsets and summary.mode != "broadcasting"
    ]
    return {
        "group": summary.name,
        # Of a topic's groups one that is empty is no news: somebody should read it.
        "state": NO_MEMBER if (state := state_of(summary)) == "empty" else state,
        "members": summary.member_count,
        "lag": sum(lags) if lags else None,
        "most_lag": max(lags, default=None),
        "mode": summary.mode,
        "coordinator": summary.coordinator,
    }
