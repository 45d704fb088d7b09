"""Messages between the members of consumer groups, their coordinators and the queues' leaders.

They are part of `logboom.wire.messages.AnyMessage`. A member joins at its group's coordinator (any
broker, if the group is new), then keeps one GroupHeartbeat held there: the answer contains all its
queues whenever they change. Commits and releases go to the coordinator, too; pulls go to the
leaders.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from logboom.wire.base import Name, Request, WireMessage
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_view import GroupConfig, OwnedQueue, QueueKey

MAX_SUBSCRIBED: Final = 2_000
"""Maximum topics in a GroupJoin: more than a group may have, which the refusal then tells."""
MAX_STATUSES: Final = 1_024
"""Maximum queues in the status of a member that a coordinator keeps."""
MAX_MEMBERS_QUEUES: Final = 20_000
"""Maximum queues in a request of a member: in a status, a commit, a release, a farewell."""
MAX_STATE: Final = 128
"""Maximum length of a state in a status, in characters."""
MEMBERS_FRAME: Final = 1024 * 1024
"""Maximum length of such a request, in bytes."""

Commits: TypeAlias = Annotated[list[QueueCommit], Meta(max_length=MAX_MEMBERS_QUEUES)]


class QueueStatus(Struct, frozen=True, array_like=True, gc=False):
    """The state of a member's queue; sent only for queues that are not simply read."""

    topic_id: int
    queue: int
    state: Annotated[str, Meta(max_length=MAX_STATE)]
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
    subscription: Annotated[dict[str, str], Meta(max_length=MAX_SUBSCRIBED)]
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

    FRAME_BYTES: ClassVar[int] = MEMBERS_FRAME

    group: Name
    member: Name
    epoch: int
    seen: int
    """`version` of the last GroupAssigned that the member took; -1 if none."""
    wait_ms: int
    status: Annotated[list[QueueStatus], Meta(max_length=MAX_MEMBERS_QUEUES)] = msgspec.field(
        default_factory=list
    )


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
    proofs: list[bytes] = msgspec.field(default_factory=list)
    """For each of `queues`, the proof of its owner epoch, for pulls; empty from an older coordinator."""


class GroupRelease(Request, array_like=True):
    """Commit drained queues for the last time and release them; answered by GroupCommitted."""

    FRAME_BYTES: ClassVar[int] = MEMBERS_FRAME

    group: Name
    member: Name
    epoch: int
    releases: Commits


class GroupCommit(Request, array_like=True):
    """Commit offsets of owned queues; answered by GroupCommitted once it is in the log."""

    FRAME_BYTES: ClassVar[int] = MEMBERS_FRAME

    group: Name
    member: Name
    epoch: int
    queues: Commits


class GroupCommitted(WireMessage, array_like=True):
    """One code per queue, in order; "" is done.

    STALE_EPOCH, NOT_OWNER: another member owns the queue.
    """

    codes: list[str]


class GroupLeave(Request, array_like=True):
    """Leave the group, with the last commits; answered by GroupCommitted."""

    FRAME_BYTES: ClassVar[int] = MEMBERS_FRAME

    group: Name
    member: Name
    epoch: int
    releases: Commits
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
