"""Messages between the members of consumer groups, their coordinators and the queues' leaders.

Part of `logboom.wire.messages.AnyMessage`. A member joins at its group's coordinator (any broker,
if the group is new), then keeps one GroupHeartbeat held there: the answer brings all its queues
whenever they change. Commits and releases go to the coordinator too; pulls go to the leaders.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from logboom.wire.base import Name, Request, WireMessage
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_view import GroupConfig, OwnedQueue, QueueKey


class QueueStatus(Struct, frozen=True, array_like=True, gc=False):
    """How a member fares with one of its queues; told only of queues that are not simply read."""

    topic_id: int
    queue: int
    state: str
    """Why nothing moves, in a few words: "paused", "full cache", "handler running", "not polled",
    "lock refused", "draining"."""
    since_ms: int
    """How long this has been so."""
    cached_messages: int = 0
    cached_bytes: int = 0


class GroupJoin(Request, array_like=True):
    """Become a member, or come again after being fenced; answered by GroupJoined.

    Errors: NOT_COORDINATOR (fields `coordinator`, which is in `leader` too, its `endpoint`, and
    `epoch`), SUBSCRIPTION_MISMATCH (fields name the difference), INVALID_FILTER (field `topic`
    besides), INSTANCE_TAKEN, INVALID_ARGUMENT, TOO_LARGE, UNAVAILABLE.
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
    """This process was a member before: its instance may be another's by now, which stays."""


class GroupJoined(WireMessage, array_like=True):
    """The member exists in `epoch`; its queues come with the first GroupHeartbeat."""

    epoch: int
    config: GroupConfig
    """The group's own."""
    subscription_version: int


class GroupHeartbeat(Request, array_like=True):
    """Proof of life, held up to `wait_ms` until what the member should know is newer than `seen`.

    The first of an epoch has `seen` -1 and is answered at once. Errors: NOT_COORDINATOR,
    UNKNOWN_MEMBER and STALE_EPOCH (join again; everything owned is lost), UNKNOWN_GROUP.
    """

    group: Name
    member: Name
    epoch: int
    seen: int
    """`version` of the last GroupAssigned that the member took; -1: of none."""
    wait_ms: int
    status: list[QueueStatus] = msgspec.field(default_factory=list)


class GroupAssigned(WireMessage, array_like=True):
    """All queues of the member as of `version`; a queue that is not listed is not its own."""

    version: int
    queues: list[OwnedQueue]
    """Each with its start, its owner epoch and whether it is to be drained and released."""
    topics: dict[int, str]
    """Names of the topics of these queues."""
    subscription: dict[str, str]
    """The group's; newer than what the member joined with: adopt it (join again with it)."""
    subscription_version: int
    config: GroupConfig
    ended: list[QueueKey] = msgspec.field(default_factory=list)
    """Queues whose owner before ended without leaving, as far as the coordinator knows."""


class GroupRelease(Request, array_like=True):
    """Last commits and release of drained queues (G1); answered by GroupCommitted."""

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
    """One code per queue, in order; "" is done. STALE_EPOCH, NOT_OWNER: the queue is another's."""

    codes: list[str]


class GroupLeave(Request, array_like=True):
    """Go in good order, with the last commits; answered by GroupCommitted."""

    group: Name
    member: Name
    epoch: int
    releases: list[QueueCommit]


class GroupStatus(Request, array_like=True):
    """What the members of a group last said of their queues; to its coordinator."""

    group: Name


class MemberStatus(Struct, frozen=True, array_like=True, gc=False):
    """One member as its coordinator sees it."""

    member: str
    silent_ms: int
    """Since its last heartbeat."""
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
