"""Commands of consumer groups, part of `logboom.wire.commands.AnyCommand`.

Members talk to their group's coordinator, a broker, which proposes the commands. Epochs of the
member, of the owner of a queue, of the coordinator and of the group fence out stale senders (see
docs/SAFETY.md, R13 and G1). `SetTarget` is made by the Raft leader alone; `AlterGroup`,
`DeleteGroup` and `ResetOffsets` come from operators.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from logboom.wire.base import Command
from logboom.wire.group_view import GroupConfig

NOBODY: Final = 0xFFFF
"""In place of a member's index in a row of `SetTarget`: this queue has no owner."""


class QueueCommit(Struct, frozen=True, array_like=True, gc=False):
    """A member has finished everything before `offset` in a queue that it owns."""

    topic_id: int
    queue: int
    owner_epoch: int
    offset: int
    seen_end: int
    """Greatest end of the queue that the member's pulls have shown; a commit never goes beyond
    it."""
    ranges: bytes = b""
    """Finished ranges above `offset`."""


class JoinGroup(Command, frozen=True, array_like=True):
    """Add a member, or a member that joins again; the value is its epoch, which fences older ones.

    A group that does not exist is created, with `config`. A static member (`instance`) takes over
    from the former process of that name. One that comes `again` does not take its place back from
    its successor (INSTANCE_TAKEN), or two processes of one name would replace each other for ever.
    The subscription must be the group's own unless `replace` is set, which changes the group's.
    """

    group: str
    member: str
    instance: str
    client_id: str
    room: str
    subscription: dict[str, str]
    replace: bool
    config: GroupConfig
    coordinator_epoch: int
    """Epoch in which the proposing broker coordinates; 0 if it does not know the group."""
    time_ms: int
    again: bool = False
    """The process was a member before."""
    user: int = 0
    """`user_marks.mark_of` its user, for whom alone the member counts; 0: for everybody."""


class LeaveGroup(Command, frozen=True, array_like=True):
    """Remove a member that leaves, with its last commits; the value is a code per release."""

    group: str
    member: str
    epoch: int
    releases: list[QueueCommit]
    time_ms: int


class ExpireMembers(Command, frozen=True, array_like=True):
    """Remove members that were silent for a session or did not release in time; a code for each."""

    group: str
    coordinator: str
    coordinator_epoch: int
    members: list[tuple[str, int]]
    """(member, epoch)."""
    time_ms: int


class SetTarget(Command, frozen=True, array_like=True):
    """The owners of queues, as allocated for the group as of `group_epoch`.

    A large target comes in parts: each names some topics, and `last` ends them. With `fault` and no
    rows the strategy could not allocate, and nothing changes; with rows it left some queues
    unowned.
    """

    group: str
    group_epoch: int
    rows: list[tuple[int, bytes]]
    """(topic id, little-endian u16 per queue): the owner's index among the group's members, sorted
    by name (instance, or else id), or `NOBODY`."""
    last: bool
    fault: str
    time_ms: int


class ReleaseQueues(Command, frozen=True, array_like=True):
    """Commit for the last time and release; a code per queue. A refused queue stays owned."""

    group: str
    member: str
    epoch: int
    releases: list[QueueCommit]
    time_ms: int


class MemberCommits(Struct, frozen=True, array_like=True, gc=False):
    """Commits of one member."""

    member: str
    epoch: int
    queues: list[QueueCommit]


class GroupCommits(Struct, frozen=True, array_like=True, gc=False):
    """Commits of one group's members."""

    group: str
    coordinator_epoch: int
    members: list[MemberCommits]


class CommitOffsets(Command, frozen=True, array_like=True):
    """The commits that a coordinator has gathered from its groups.

    The value is a code per queue, in order; "" is done.
    """

    coordinator: str
    groups: list[GroupCommits]
    time_ms: int


class SetStart(Command, frozen=True, array_like=True):
    """Set the start of a group in queues that it never consumed; the first command wins."""

    group: str
    coordinator_epoch: int
    starts: list[tuple[int, int, int]]
    """(topic id, queue, offset)."""
    time_ms: int


class ResetOffsets(Command, frozen=True, array_like=True):
    """Move committed offsets, also back; owners continue from there in a new owner epoch.

    Value: a code per queue.
    """

    group: str
    offsets: list[tuple[int, int, int]]
    """(topic id, queue, offset)."""
    time_ms: int


class AlterGroup(Command, frozen=True, array_like=True):
    """Change settings or the subscription of a group, or create one.

    None leaves a value as it is.
    """

    group: str
    config: GroupConfig | None
    subscription: dict[str, str] | None
    create: bool
    """Create the group if it does not exist."""
    time_ms: int


class DeleteGroup(Command, frozen=True, array_like=True):
    """Delete a group without members, its offsets and its retries; its id is never used again."""

    group: str
    time_ms: int
    dead_letters: bool = False
    """Delete its dead letters, too."""


GroupCommand = (
    JoinGroup
    | LeaveGroup
    | ExpireMembers
    | SetTarget
    | ReleaseQueues
    | CommitOffsets
    | SetStart
    | ResetOffsets
    | AlterGroup
    | DeleteGroup
)
