"""The lag of a group: per queue how many messages it has still to do, how old the oldest is, and
why nothing moves.

Without a filter the count is exact: the end, less what is committed, less what is finished above.
With one the messages are counted, up to a bound; past it the rest is reckoned at the same rate.

What the admin tells of consumer groups: members, queues with their lag, resets.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from logboom.client.fetch.message_flows import EVERYTHING, offsets, pull
from logboom.client.flows import Flow
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.wire.errors import DamagedBatch, InvalidRequest, LogboomError
from logboom.wire.filters.filter import Filter
from logboom.wire.group_messages import MemberStatus, QueueStatus
from logboom.wire.group_owners import why_unowned
from logboom.wire.group_view import UNKNOWN_START, GroupConfig, GroupOffsets, GroupView, OwnedQueue

QUEUE_S: Final = 2.0
"""Seconds that a queue's leader gets to answer."""
COUNTED_PULLS: Final = 32
"""Pulls that the count of one queue through a filter may take."""
COUNTED_AT_ONCE: Final = 1 << 16
"""Messages that one of them brings at most."""
QUIET_BEATS: Final = 2
"""Heartbeats that a member may miss before its silence is named."""


class GroupReport:
    """A group with what its coordinator said, by queue."""

    def __init__(self, group: GroupView, told: list[MemberStatus] | None, wall_ms: int) -> None:
        self.group = group
        self.wall_ms = wall_ms
        self.broadcasting = group.config.mode == "broadcasting"
        """Each member keeps its own offsets: the group has none, and no lag."""
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
        """Why the strategy gives a queue to nobody of those who are there; "": it gives it."""
        group = self.group
        if self.broadcasting or key in self.owners or key in group.unstarted or group.config.paused:
            return ""
        if not group.members or group.target_epoch < group.group_epoch:
            return ""
        names = {member.instance or member.id for member in group.members}
        return why_unowned(group.config, names, topic, key[1])

    def stuck(self, key: tuple[int, int]) -> str:
        """Why a queue with a lag does not move, as far as anybody said."""
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
        """For how long a queue has stood still, as far as anybody said."""
        if key not in self.owners:
            return None
        silent = self.silent.get(self.owners[key][0], 0)
        if silent > QUIET_BEATS * self.group.config.heartbeat_ms:
            return silent
        status = self.status.get(key)
        return None if status is None else status.since_ms


def seconds_text(milliseconds: int) -> str:
    """90 s; 1.5 s."""
    return (
        f"{milliseconds / 1000:.0f} s" if milliseconds >= 10_000 else f"{milliseconds / 1000:.1f} s"
    )


def queues(standing: GroupReport, found: GroupOffsets, timeout: float) -> Flow[list[GroupQueue]]:
    """How the group fares in all queues of one topic."""
    try:
        wanted = Filter.read(standing.group.subscription.get(found.topic, ""))
    except InvalidRequest:
        wanted = EVERYTHING  # of a later version
    ranges = dict(found.ranges)
    lines = []
    for queue, committed in enumerate(found.committed):
        key = (found.topic_id, queue)
        progress = None
        if not standing.broadcasting:
            progress = _progress(committed, ranges.get(queue, b""))
        patience = min(timeout, QUEUE_S)
        try:
            ends = yield from offsets(found.topic, [queue], patience)
            first, end = ends[queue]
            lag, exact, age = None, True, None
            if progress is not None:
                lag, exact, oldest = yield from _count(
                    found.topic, queue, progress, (first, end), wanted, patience
                )
                age = None if oldest is None else max(0, standing.wall_ms - oldest)
        except LogboomError as error:
            lines.append(_line(standing, found, queue, None, None, None, True, None, error.text))
            continue
        stuck = standing.unowned(found.topic, key)
        if not stuck and (lag is None or lag):
            stuck = standing.stuck(key)
        lines.append(_line(standing, found, queue, first, end, lag, exact, age, stuck))
    return lines


def _line(
    standing: GroupReport,
    found: GroupOffsets,
    queue: int,
    first: int | None,
    end: int | None,
    lag: int | None,
    exact: bool,
    age: int | None,
    stuck: str,
) -> GroupQueue:
    committed = found.committed[queue]
    known = None if committed == UNKNOWN_START or standing.broadcasting else committed
    key = (found.topic_id, queue)
    owner = standing.owners.get(key, ("",))[0]
    still = standing.still_ms(key) if stuck else None
    return GroupQueue(found.topic, queue, known, first, end, lag, exact, age, owner, stuck, still)


def _progress(committed: int, ranges: bytes) -> OffsetTracker | None:
    if committed == UNKNOWN_START:
        return None
    try:
        return OffsetTracker(committed, ranges)
    except DamagedBatch:
        return OffsetTracker(committed)


def _count(
    topic: str,
    queue: int,
    progress: OffsetTracker,
    bounds: tuple[int, int],
    wanted: Filter,
    timeout: float,
) -> Flow[tuple[int, bool, int | None]]:
    """(messages to do, whether all were counted, message time of the first of them)."""
    first, end = bounds
    progress.finish(0, first)  # what retention took is nobody's to do
    if progress.floor >= end:
        return 0, True, None
    if wanted.takes_all:
        result = yield from pull(topic, queue, progress.floor, 1, 0, wanted, timeout)
        oldest = result.messages[0].timestamp_ms if result.messages else None
        return progress.unfinished(end), True, oldest
    count, at, oldest = 0, progress.floor, None
    for _ in range(COUNTED_PULLS):
        result = yield from pull(topic, queue, at, COUNTED_AT_ONCE, 0, wanted, timeout)
        for message in result.messages:
            if message.offset < end and not progress.is_finished(message.offset):
                count += 1
                oldest = message.timestamp_ms if oldest is None else oldest
        if result.next_offset <= at or result.next_offset >= end:
            return count, True, oldest
        at = result.next_offset
    seen = max(1, at - progress.floor)
    return count * (end - progress.floor) // seen, False, oldest


TopicQueue: TypeAlias = tuple[str, int]
"""(topic, queue)."""


class GroupQueue(Struct, frozen=True):
    """How a group fares in one queue."""

    topic: str
    queue: int
    committed: int | None
    """Offset of the first message that is not finished; None: where it starts is not known yet."""
    first: int | None
    """First offset that the queue holds; None: it did not say."""
    end: int | None
    """The high watermark: the offset after the last message."""
    lag: int | None
    """Messages that the group wants and has not finished, those above `committed` included."""
    lag_exact: bool
    """False: with a filter only the beginning was counted, the rest reckoned from it."""
    age_ms: int | None
    """Age of the oldest of them by its message time; None: there is none, or it is not known."""
    owner: str
    """Id of the member that has the queue; "": nobody."""
    stuck: str
    """Why nothing moves although there is a lag, or why nobody gets the queue, in a few words; "":
    nothing says so."""
    still_ms: int | None = None
    """For how long it has been so, in ms, as its coordinator or its owner said; None: they did not."""


class GroupMember(Struct, frozen=True):
    """One member of a group."""

    id: str
    client_id: str
    instance: str
    """Name of a static member; "" for others."""
    room: str
    epoch: int
    silent_ms: int | None
    """Since its last heartbeat; None: the coordinator did not say."""
    subscription_version: int
    queues: list[TopicQueue]


class GroupDescription(Struct, frozen=True):
    """One group as it is now."""

    name: str
    id: int
    config: GroupConfig
    subscription: dict[str, str]
    """Topic → filter text."""
    subscription_version: int
    coordinator: str
    """Broker that takes its heartbeats and commits."""
    coordinator_epoch: int
    group_epoch: int
    target_epoch: int
    """Smaller than `group_epoch`: an allocation is under way."""
    fault: str
    """Why the strategy could not allocate, or which queues it gives to nobody; "" if to somebody."""
    members: list[GroupMember]
    queues: list[GroupQueue]


class OffsetReset(Struct, frozen=True):
    """One line of a plan to reset offsets, or of what was done."""

    topic: str
    queue: int
    committed: int | None
    """Before; None: it was not known."""
    target: int
    """After."""
    first: int
    end: int
    """What the queue holds."""
    code: str = ""
    """Why it was refused, of `logboom.wire.errors`; "": it was not."""
