"""One consumer group: how far it is in each queue and what holds it up, members, settings; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from logboom.client.admin_flows.group_lag import GroupDescription, GroupMember, GroupQueue
from logboom.client.admin_flows.offset_resets import OffsetReset
from logboom.client.written_values import duration_text
from logboom.console.consumer_survey import ConsumerHistory, QueuePlace
from logboom.console.pages.groups_page import LAG_HINT, LATE_MS, STATES, state_of
from logboom.console.widgets.chart_data import ChartModel, ChartSeries
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.group_view import GroupConfig
from logboom.wire.names import RETRY_PREFIX

MAX_LINES: Final = 6
"""Queues in the chart: those with the greatest lags."""


@dataclass(frozen=True, slots=True)
class StuckQueues:
    """A reason why queues make no progress, with the queues that have it."""

    reason: str
    queues: tuple[str, ...]
    lag: int
    longest_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupModel:
    """One group."""

    name: str
    state: str
    tone: Tone
    fault: str
    facts: tuple[tuple[str, str], ...]
    subscription: tuple[tuple[str, str, str], ...]
    """(topic, filter, where the topic is)."""
    stuck: tuple[StuckQueues, ...]
    chart: ChartModel
    queues: TableModel
    members: TableModel
    settings: TableModel
    paused: bool
    broadcasting: bool
    lag: int | None
    age_ms: int | None
    dead_letters: int | None
    """Dead letters that were not sent again; None: the group has no dead-letter topic."""
    dead_letters_url: str
    command: tuple[str, ...]
    """Words after `logboom` of the command that shows the same."""

    @property
    def is_late(self) -> bool:
        """True if the oldest unfinished message waits for long."""
        return (self.age_ms or 0) >= LATE_MS


def _topic_url(row: Row) -> str:
    return path_of("topics", row["topic"])


def _queue_age_tone(row: Row) -> Tone:
    return "warning" if (row["age_ms"] or 0) >= LATE_MS else ""


QUEUE_COLUMNS: Final = (
    TableColumn("topic", "Topic", "code", href=_topic_url),
    TableColumn("queue", "Queue", "count"),
    TableColumn("committed", "Committed", "count", wide_only=True),
    TableColumn("end", "End", "count", wide_only=True),
    TableColumn("lag", "Lag", "count", hint=LAG_HINT),
    TableColumn(
        "age_ms",
        "Oldest",
        "span",
        tone=_queue_age_tone,
        hint="Age of the oldest unfinished message",
    ),
    TableColumn("owner", "Member", "code", wide_only=True),
    TableColumn("stuck", "Stuck", tone=lambda row: "failed" if row["stuck"] else ""),
    TableColumn("still_ms", "For", "span", wide_only=True, hint="How long this has lasted"),
)
MEMBER_COLUMNS: Final = (
    TableColumn("member", "Member", "code"),
    TableColumn("client", "Client", "code", wide_only=True),
    TableColumn("queues", "Queues"),
    TableColumn("count", "Number", "count", wide_only=True),
    TableColumn(
        "silent_ms",
        "Last heard",
        "span",
        tone=lambda row: "warning" if row["is_silent"] else "",
        hint="Time since its last heartbeat",
    ),
    TableColumn("instance", "Static name", "code", wide_only=True),
    TableColumn("room", "Room", wide_only=True),
)
SETTING_COLUMNS: Final = (
    TableColumn("name", "Setting", "code"),
    TableColumn("value", "Value", tone=lambda row: "info" if row["changed"] else ""),
    TableColumn("default", "Default", wide_only=True),
    TableColumn("about", "What it means", wide_only=True),
)
ABOUT: Final[Mapping[str, str]] = {
    "session_ms": "Silence after which a member is removed",
    "heartbeat_ms": "Time between a member's heartbeats",
    "drain_ms": "How long a member may take to release a queue",
    "max_attempts": "Deliveries of a message before it becomes a dead letter",
    "retry": "How long a failed message waits: levels, or exponential",
    "retry_first_ms": "exponential: the wait after the first failure",
    "retry_last_ms": "exponential: the longest wait",
    "consume_timeout_ms": "How long a listener may run before its message counts as failed",
    "strategy": "How queues are given to members",
    "options": "Options of the strategy",
    "start": "Where it begins in queues that exist when it first subscribes",
    "when_slow": "Whether a consumer far behind reads from a follower",
    "mode": "clustering shares the queues; broadcasting: each member reads all of them",
    "paused": "Members finish what they have, and get no more",
}


def queue_row(queue: GroupQueue) -> dict[str, Any]:
    """Return what the page says of a queue."""
    return {
        "topic": queue.topic,
        "queue": queue.queue,
        "committed": queue.committed,
        "end": queue.end,
        "lag": queue.lag,
        "age_ms": queue.age_ms,
        "owner": queue.owner or None,
        "stuck": queue.stuck or None,
        "still_ms": queue.still_ms,
    }


def member_row(member: GroupMember, heartbeat_ms: int) -> dict[str, Any]:
    """Return what the page says of a member."""
    return {
        "member": member.id,
        "client": member.client_id,
        "queues": places_text(member.queues),
        "count": len(member.queues),
        "silent_ms": member.silent_ms,
        "is_silent": (member.silent_ms or 0) > 2 * heartbeat_ms,
        "instance": member.instance or None,
        "room": member.room or None,
    }


def places_text(places: Sequence[QueuePlace]) -> str:
    """Return queues in the form orders/0 1 2, refunds/4."""
    found: dict[str, list[str]] = {}
    for topic, queue in places:
        found.setdefault(topic, []).append(str(queue))
    return ", ".join(f"{topic}/{' '.join(queues)}" for topic, queues in found.items()) or "none"


def setting_rows(config: GroupConfig) -> list[dict[str, Any]]:
    """Return a row per setting."""
    values, defaults = msgspec.structs.asdict(config), msgspec.structs.asdict(GroupConfig())
    return [
        {
            "name": name,
            "value": setting_text(name, value),
            "default": setting_text(name, defaults[name]),
            "changed": value != defaults[name],
            "about": ABOUT.get(name, ""),
        }
        for name, value in values.items()
    ]


def setting_text(name: str, value: Any) -> str:
    """Return the value of a setting, a duration as the command line takes it."""
    if name == "options":
        told = msgspec.structs.asdict(value)
        return ", ".join(f"{key} {told[key]}" for key in told if told[key]) or "none"
    if name.endswith("_ms"):
        return duration_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def stuck_queues(queues: Sequence[GroupQueue]) -> tuple[StuckQueues, ...]:
    """Return the reasons why queues make no progress, those with the greatest lag first."""
    found: dict[str, list[GroupQueue]] = {}
    for each in queues:
        if each.stuck:
            found.setdefault(_reason(each.stuck), []).append(each)
    told = [
        StuckQueues(
            reason,
            tuple(f"{each.topic}/{each.queue}" for each in those),
            sum(each.lag or 0 for each in those),
            max((each.still_ms for each in those if each.still_ms is not None), default=None),
        )
        for reason, those in found.items()
    ]
    return tuple(sorted(told, key=lambda each: (-each.lag, each.reason)))


def _reason(stuck: str) -> str:
    """Return a reason without how long it has lasted, so that equal ones are told once."""
    return stuck.partition(" for ")[0]


def lag_chart(group: str, history: ConsumerHistory) -> ChartModel:
    """Return the lags of a group's queues over time, of those with the greatest."""
    lags = {
        place: values
        for place, values in history.queue_lags(group).items()
        # Retries are shown when there are any.
        if any(values) or place[0] != RETRY_PREFIX + group
    }
    by_size = sorted(
        lags, key=lambda place: (-max((v or 0 for v in lags[place]), default=0), place)
    )
    shown = by_size[:MAX_LINES]
    series = [ChartSeries(f"{topic}/{queue}", lags[topic, queue]) for topic, queue in shown]
    title = "Lag by queue"
    if len(lags) > MAX_LINES:
        title += f", the {MAX_LINES} greatest of {len(lags)}"
    return ChartModel("group-lag", title, "count", history.times_s(), series)


def build_group(
    group: GroupDescription,
    history: ConsumerHistory,
    dead_letters: int | None,
    query: PageQuery,
) -> GroupModel:
    """Return the page of a group.

    Args:
        dead_letters: those that were not sent again; None: there is no dead-letter topic.
    """
    broadcasting = group.config.mode == "broadcasting"
    own = [each for each in group.queues if each.topic != RETRY_PREFIX + group.name]
    known = [each.lag for each in group.queues if each.lag is not None]
    ages = [each.age_ms for each in group.queues if each.age_ms is not None]
    state = state_of(group)
    retries = sum(each.lag or 0 for each in group.queues if each not in own)
    facts = (
        ("Members", f"{len(group.members):,}"),
        ("Queues", f"{len(own):,}"),
        ("Waiting retries", f"{retries:,}"),
        ("Strategy", group.config.strategy),
        ("Mode", group.config.mode),
        ("Coordinator", group.coordinator or "none"),
        ("Group epoch", f"{group.group_epoch:,}"),
        ("Epoch of the allocation", f"{group.target_epoch:,}"),
    )
    return GroupModel(
        name=group.name,
        state=state,
        tone=STATES[state],
        fault=group.fault,
        facts=facts,
        subscription=tuple(
            (topic, "" if wanted in ("", "*") else wanted, path_of("topics", topic))
            for topic, wanted in sorted(group.subscription.items())
        ),
        stuck=stuck_queues(group.queues),
        chart=lag_chart(group.name, history),
        queues=build_table(
            QUEUE_COLUMNS,
            [queue_row(each) for each in group.queues],
            query,
            title="Queues",
            sort="-lag",
            empty="The group subscribes to no topic.",
        ),
        members=build_table(
            MEMBER_COLUMNS,
            [member_row(each, group.config.heartbeat_ms) for each in group.members],
            query,
            name="members",
            title="Members",
            sort="member",
            empty="The group has no members: nobody consumes.",
        ),
        settings=build_table(
            SETTING_COLUMNS,
            setting_rows(group.config),
            query,
            name="settings",
            title="Settings",
        ),
        paused=group.config.paused,
        broadcasting=broadcasting,
        lag=sum(known) if known else None,
        age_ms=max(ages, default=None),
        dead_letters=dead_letters,
        dead_letters_url=path_of("dead-letters", group.name),
        command=("group", "describe", group.name),
    )


RESET_COLUMNS: Final = (
    TableColumn("topic", "Topic", "code"),
    TableColumn("queue", "Queue", "count"),
    TableColumn("committed", "Committed", "count"),
    TableColumn("target", "New offset", "count"),
    TableColumn(
        "change",
        "Change",
        "count",
        tone=lambda row: "warning" if (row["change"] or 0) > 0 else "",
    ),
    TableColumn("first", "First", "count", wide_only=True),
    TableColumn("end", "End", "count", wide_only=True),
)


def reset_table(lines: Sequence[OffsetReset], query: PageQuery) -> TableModel:
    """Return the plan of a reset."""
    rows = [
        {
            **msgspec.structs.asdict(line),
            "change": None if line.committed is None else line.target - line.committed,
        }
        for line in lines
    ]
    return build_table(RESET_COLUMNS, rows, query, name="plan", empty="No queue would be moved.")


def reset_facts(lines: Sequence[OffsetReset]) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return what a plan comes to, and a warning, or ""."""
    moved = [line for line in lines if line.committed is not None]
    forward = sum(max(0, line.target - (line.committed or 0)) for line in moved)
    back = sum(max(0, (line.committed or 0) - line.target) for line in moved)
    unchanged = sum(line.target == line.committed for line in lines)
    facts = (
        ("Queues", f"{len(lines):,}, {unchanged:,} of them as they are"),
        ("Read again", f"{back:,} messages"),
        ("Passed over", f"{forward:,} messages"),
    )
    warning = ""
    if forward:
        warning = f"The group would never see the {forward:,} messages that it passes over."
    return facts, warning
