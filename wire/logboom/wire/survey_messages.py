"""Questions of monitoring: all queues, all groups, many append times, a page per answer.

They are part of `logboom.wire.messages.AnyMessage`. To ask queue by queue and group by group would
be tens of thousands of requests in a large cluster, every few seconds. An answer holds no more than
its node makes in a few milliseconds. What the asking user may not describe is left out.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct, field

from logboom.wire.base import Name, Request, WireMessage
from logboom.wire.group_view import GroupOffsets, GroupSummary

MAX_SURVEYED: Final = 500
"""Maximum number of queues in one QueuesSurveyed, and of groups in one GroupsSurveyed."""
MAX_SURVEYED_OFFSETS: Final = 4_000
"""Committed offsets in one GroupsSurveyed after which no further group is added."""
MAX_PLACES: Final = 100
"""Maximum number of places in one FindAppendTimes."""


class SurveyQueues(Request, array_like=True):
    """Describe the queues that this broker leads, in the order of (topic id, queue).

    Answered by QueuesSurveyed. Queues whose end the broker cannot tell yet are left out.
    """

    after: tuple[int, int] = (-1, -1)
    """(topic id, queue): continue after this one, which the previous answer has reached."""
    limit: int = MAX_SURVEYED


class CursorSurvey(Struct, frozen=True, array_like=True, gc=False):
    """A subscription in one queue."""

    name: str
    floor: int
    """All messages below are acknowledged."""
    unacked: int
    """Messages that are not acknowledged, delivered or not."""
    held: int
    """Messages that consumers hold."""
    consumers: list[str] = field(default_factory=list)
    """Names of those attached."""


class QueueSurvey(Struct, frozen=True, array_like=True, gc=False):
    """A queue, as its leader knows it."""

    topic_id: int
    queue: int
    start: int
    """First offset."""
    end: int
    """The high watermark."""
    size_bytes: int
    """Bytes of its log."""
    cursors: list[CursorSurvey] = field(default_factory=list)
    """Its subscriptions, by name."""
    topic: str = ""
    """Name of the topic."""
    ahead_ms: int = 0
    """How far its newest append time lies ahead of the leader's clock. The clock was ahead before."""


class QueuesSurveyed(WireMessage, array_like=True):
    """Answer to SurveyQueues."""

    queues: list[QueueSurvey]
    reached: tuple[int, int] | None
    """Where to continue after; None: there are no more."""


class SurveyGroups(Request, array_like=True):
    """Describe all groups with their offsets, by name; served by the Raft leader, linearizable."""

    after: Name = ""
    """Continue after this group, the last of the previous answer."""
    limit: int = MAX_SURVEYED


class GroupSurvey(Struct, frozen=True, array_like=True, gc=False):
    """A group and its offsets."""

    summary: GroupSummary
    offsets: list[GroupOffsets]


class GroupsSurveyed(WireMessage, array_like=True):
    """Answer to SurveyGroups."""

    groups: list[GroupSurvey]
    more: bool


class FindAppendTimes(Request, array_like=True):
    """Find the times at which the messages at these places were stored; to the queues' leader."""

    places: Annotated[list[tuple[int, int, int]], Meta(max_length=MAX_PLACES)]
    """(topic id, queue, offset)."""


class AppendTimesFound(WireMessage, array_like=True):
    """Answer to FindAppendTimes."""

    times_ms: list[int]
    """Time of each place, in order, in ms since 1970 by the leader's clock; -1: this broker does not
    lead the queue, or there is no such message. Fewer than the places if to read more would take too
    long: ask again for the rest."""


SurveyMessage = (
    SurveyQueues
    | QueuesSurveyed
    | SurveyGroups
    | GroupsSurveyed
    | FindAppendTimes
    | AppendTimesFound
)
