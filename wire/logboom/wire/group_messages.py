"""Messages between the members of consumer groups, their coordinators and the queues' leaders.

They are part of `logboom.wire.messages.AnyMessage`. A member joins at its group's coordinator (any
broker, if the group is new), then keeps one GroupHeartbeat held there: the answer contains all its
queues whenever they change. Commits and releases go to the coordinator, too; pulls go to the
leaders.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from logboom.wire.base import Name, Request, WireMessage
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_view import GroupConfig, OwnedQueue, QueueKey


class QueueStatus(Struct, frozen=True, array_like=True, gc=False):
    """The state of a member's queue; sent only for queues that are not simply read."""

    topic_id: int
    queue: int
    state: str
    """Why there is no progress, in a few words: "paused", "full cache", "handler running", "not
    polled", "lock refused", "draining"."""
    since_ms: int
    """Duration of this state."""
    cached_messages: int = 0
    cached_bytes: int = 0


class GroupJoin(Request, array_like=True):
    """Join a group, or join again after being fenced; answered by GroupJoined.

    Errors: NOT_COORDINATOR (fields `coordinator`, which is in `leader` too, its `endpoint`, and
    `epoch`), SUBSCRIPTION_MISMATCH (fields name the difference), INVALID_FILTER (also with field
    `topic`), INSTANCE_TAKEN, INVALID_ARGUMENT, TOO_LARGE, UNAVAILABLE.
    """

    group: Name
    member: Name
    """Chosen by the client, new for each process."""
    instance: Name
    """Name of a static member; "" for others."""
    room: Name
    subscription: dict[str, str]
    """Topic → filter text ("" or "*": everything)."""
    replace: bool
    """Give the group this subscription if it has another."""
    config: GroupConfig
    """Used only if the group is new."""
    again: bool = False
    """This process was a member before. If another process has taken over its instance, that one
    stays."""


class GroupJoined(WireMessage, array_like=True):
    """The member exists in `epoch`; its queues follow with the first GroupHeartbeat."""

    epoch: int
    config: GroupConfig
    """The group's own."""
    subscription_version: int


class GroupHeartbeat(Request, array_like=True):
    """A sign of life, held up to `wait_ms` until there is news for the member beyond `seen`.

    The first of an epoch has `seen` -1 and is answered at once. Errors: NOT_COORDINATOR,
    UNKNOWN_MEMBER and STALE_EPOCH (join again; everything owned is lost), UNKNOWN_GROUP.
    """

    group: Name
    member: Name
    epoch: int
    seen: int
    """`version` of the last GroupAssigned that the member took; -1 if none."""
    wait_ms: int
    status: list[QueueStatus] = msgspec.field(default_factory=list)


class GroupAssigned(WireMessage, array_like=True):
    """All queues of the member as of `version`; it does not own any others."""

    version: int
    queues: list[OwnedQueue]
    """Each with its start, its owner epoch and whether it is to be drained and released."""
    topics: dict[int, str]
    """Names of the topics of these queues."""
    subscription: dict[str, str]
    """The group's subscription. If it is newer than the member's, the member joins again with
    it."""
    subscription_version: int
    config: GroupConfig
    ended: list[QueueKey] = msgspec.field(default_factory=list)
    """Queues whose previous owner ended without leaving, as far as the coordinator knows."""


class GroupRelease(Request, array_like=True):
    """Commit drained queues for the last time and release them; answered by GroupCommitted."""

    group: Name
    member: Name
    epoch: int
    releases: list[QueueCommit]


class GroupCommit(Request, array_like=True):
    """Commit offsets of owned queues; answered by GroupCommitted once it is in the log."""

    group: Name
    member: Name
    epoch: int
    queues: list[QueueCommit]


class GroupCommitted(WireMessage, array_like=True):
    """One code per queue, in order; "" is done.

    STALE_EPOCH, NOT_OWNER: another member owns the queue.
    """

    codes: list[str]


class GroupLeave(Request, array_like=True):
    """Leave the group, with the last commits; answered by GroupCommitted."""

    group: Name
    member: Name
    epoch: int
    releases: list[QueueCommit]
    stays: bool = False
    """The process ends, but the member keeps its queues until its next process joins, or it expires.
    Coordinators that do not know this let it leave."""


class GroupStatus(Request, array_like=True):
    """Ask a group's coordinator for the last reports of the members on their queues."""

    group: Name


class MemberStatus(Struct, frozen=True, array_like=True, gc=False):
    """A member, as seen by its coordinator."""

    member: str
    silent_ms: int
    """Time since its last heartbeat."""
    queues: list[QueueStatus]


class GroupStatusResult(WireMessage, array_like=True, tag="groupstatustold"):
    """Answer to GroupStatus."""

    members: list[MemberStatus]


GroupMessage = (
    GroupJoin
    | GroupJoined
    | GroupHeartbeat
    | GroupAssigned
    | GroupRelease
    | GroupCommit
    | GroupCommitted
    | GroupLeave
    | GroupStatus
    | GroupStatusResult
)
