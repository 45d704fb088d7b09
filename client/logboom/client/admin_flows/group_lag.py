"""The description of a group, and its lag: for each queue the number of unfinished messages, their
age, and the cause.

The lag is the end, less what is committed, less what is finished above (`unfinished`). Messages that
the group's filter leaves out count until members have passed them. Lists, charts, metrics and the
description of one group all show this number.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.client.fetch.message_flows import EVERYTHING, offsets, pull
from logboom.client.flows import Flow
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.wire.errors import DamagedBatch, LogboomError
from logboom.wire.group_messages import MemberStatus, QueueStatus
from logboom.wire.group_owners import why_unowned
from logboom.wire.group_view import UNKNOWN_START, GroupConfig, GroupOffsets, GroupView, OwnedQueue

QUEUE_S: Final = 2.0
"""Seconds that a queue's leader has to answer."""
QUIET_BEATS: Final = 2
"""Heartbeats that a member may miss before its silence is reported."""


class GroupQueue(Struct, frozen=True):
    """A group's progress in one queue."""

    topic: str
    queue: int
    committed: int | None
    """Offset of the first unfinished message; None: the start is not known yet."""
    first: int | None
    """First offset of the queue; None: its leader did not answer."""
    end: int | None
    """The high watermark: the offset after the last message."""
    lag: int | None
    """Unfinished messages, those that its filter leaves out included."""
    age_ms: int | None
    """Age of the oldest unfinished message by its message time; None: there is none, or it is
    unknown."""
    owner: str
    """Id of the member that has the queue; "": none."""
    stuck: str
    """Short reason why a queue with a lag makes no progress, or why nobody gets it; "": unknown."""
    still_ms: int | None = None
    """How long this has lasted in ms, as the coordinator or the owner reported; None: they did not.
    """


class GroupMember(Struct, frozen=True):
    """One member of a group."""

    id: str
    client_id: str
    instance: str
    """Name of a static member; "" for others."""
    room: str
    epoch: int
    silent_ms: int | None
    """Time since its last heartbeat; None: the coordinator did not report it."""
    subscription_version: int
    queues: list[TopicQueue]


class GroupDescription(Struct, frozen=True):
    """The current state of one group."""

    name: str
    id: int
    config: GroupConfig
    subscription: dict[str, str]
    """Topic → filter text."""
    subscription_version: int
    coordinator: str
    """The broker that receives its heartbeats and commits."""
    coordinator_epoch: int
    group_epoch: int
    target_epoch: int
    """Smaller than `group_epoch` while an allocation is under way."""
    fault: str
    """Why the strategy could not allocate, or which queues it assigns to nobody; "" if to somebody.
    """
    members: list[GroupMember]
    queues: list[GroupQueue]


class GroupReport:
    """A group, joined with the report of its coordinator by queue."""

    def __init__(self, group: GroupView, told: list[MemberStatus] | None, wall_ms: int) -> None:
        self.group = group
        self.wall_ms = wall_ms
        self.broadcasting = group.config.mode == "broadcasting"
        """True if each member keeps its own offsets, so that the group has none, and no lag."""
        self.owners: dict[tuple[int, int], tuple[str, OwnedQueue]] = {
            (owned.topic_id, owned.queue): (member.id, owned)
            for member in group.members
            for owned in member.queues
        }
        self.status: dict[tuple[int, int], QueueStatus] = {}
        self.silent: dict[str, int] = {}
        for member in told or []:
            self.silent[member.member] = member.silent_ms
            for status in member.queues:
                key = (status.topic_id, status.queue)
                if self.owners.get(key, ("",))[0] == member.member:
                    self.status[key] = status

    def unowned(self, topic: str, key: tuple[int, int]) -> str:
        """Return why the strategy assigns a queue to none of the members; "" if it does."""
        group = self.group
        if self.broadcasting or key in self.owners or key in group.unstarted or group.config.paused:
            return ""
        if not group.members or group.target_epoch < group.group_epoch:
            return ""
        names = {member.instance or member.id for member in group.members}
        return why_unowned(group.config, names, topic, key[1])

    def stuck(self, key: tuple[int, int]) -> str:
        """Return why a queue with a lag makes no progress, as far as anybody reported."""
        if self.broadcasting:
            return ""
        if key in self.group.unstarted:
            return "where the group starts here is not known yet"
        if key not in self.owners:
            if not self.group.members:
                return "the group has no member"
            if self.group.config.paused:
                return "the group is paused"
            return self.group.fault or "no member has it"
        member, owned = self.owners[key]
        quiet = QUIET_BEATS * self.group.config.heartbeat_ms
        if self.silent.get(member, 0) > quiet:
            return f"its member has been silent for {seconds_text(self.silent[member])}"
        status = self.status.get(key)
        if status is not None:
            return f"{status.state} for {seconds_text(status.since_ms)}"
        return "it moves to another member" if owned.revoking else ""

    def still_ms(self, key: tuple[int, int]) -> int | None:
        """Return how long a queue has made no progress, as far as anybody reported."""
        if key not in self.owners:
            return None
        silent = self.silent.get(self.owners[key][0], 0)
        if silent > QUIET_BEATS * self.group.config.heartbeat_ms:
            return silent
        status = self.status.get(key)
        return None if status is None else status.since_ms


def seconds_text(milliseconds: int) -> str:
    """Format a duration, as in 90 s or 1.5 s."""
    return (
        f"{milliseconds / 1000:.0f} s" if milliseconds >= 10_000 else f"{milliseconds / 1000:.1f} s"
    )


def queues(standing: GroupReport, found: GroupOffsets, timeout: float) -> Flow[list[GroupQueue]]:
    """Report on all queues of one topic."""
    ranges = dict(found.ranges)
    lines = []
    for queue, committed in enumerate(found.committed):
        key = (found.topic_id, queue)
        patience = min(timeout, QUEUE_S)
        try:
            ends = yield from offsets(found.topic, [queue], patience)
            first, end = ends[queue]
            lag = age = None
            if not standing.broadcasting and committed != UNKNOWN_START:
                lag, at = unfinished(committed, ranges.get(queue, b""), first, end)
                if lag:
                    oldest = yield from _time_at(found.topic, queue, at, patience)
                    age = None if oldest is None else max(0, standing.wall_ms - oldest)
        except LogboomError as error:
            lines.append(_line(standing, found, queue, None, None, None, None, error.text))
            continue
        stuck = standing.unowned(found.topic, key)
        if not stuck and (lag is None or lag):
            stuck = standing.stuck(key)
        lines.append(_line(standing, found, queue, first, end, lag, age, stuck))
    return lines


def _line(
    standing: GroupReport,
    found: GroupOffsets,
    queue: int,
    first: int | None,
    end: int | None,
    lag: int | None,
    age: int | None,
    stuck: str,
) -> GroupQueue:
    committed = found.committed[queue]
    known = None if committed == UNKNOWN_START or standing.broadcasting else committed
    key = (found.topic_id, queue)
    owner = standing.owners.get(key, ("",))[0]
    still = standing.still_ms(key) if stuck else None
    return GroupQueue(found.topic, queue, known, first, end, lag, age, owner, stuck, still)


def unfinished(committed: int, ranges: bytes, first: int, end: int) -> tuple[int, int]:
    """Return how many messages of a queue a group has not finished, and where they begin.

    Args:
        committed: the offset of the first unfinished message.
        ranges: what is finished above, as members commit it.
        first: the first offset of the queue; nobody has to handle what retention has removed.
        end: its high watermark.
    """
    floor = max(committed, first)
    count = max(0, end - floor)
    if not (ranges and count):
        return count, floor
    try:
        progress = OffsetTracker(committed, ranges)
    except DamagedBatch:
        progress = OffsetTracker(committed)  # Of a later version.
    progress.finish(0, first)
    return progress.unfinished(end), progress.floor


def _time_at(topic: str, queue: int, offset: int, timeout: float) -> Flow[int | None]:
    """Return the message time of the first message from an offset on; None: there is none."""
    result = yield from pull(topic, queue, offset, 1, 0, EVERYTHING, timeout)
    return result.messages[0].timestamp_ms if result.messages else None
