"""Commands of consumer groups, part of `logboom.wire.commands.AnyCommand`.

Members talk to their group's coordinator, a broker, which proposes what has to be remembered. The
epochs fence: of the member, of the owner of a queue, of the coordinator, of the group (R13, G1).
`SetTarget` is made by the raft leader alone; `AlterGroup`, `DeleteGroup` and `ResetOffsets` are an
operator's.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from logboom.wire.base import Command
from logboom.wire.group_view import GroupConfig

NOBODY: Final = 0xFFFF
"""Instead of a member's place in a row of `SetTarget`: this queue has no owner."""


class QueueCommit(Struct, frozen=True, array_like=True, gc=False):
    """A member is done with all before `offset` in a queue that it has."""

    topic_id: int
    queue: int
    owner_epoch: int
    offset: int
    seen_end: int
    """Greatest end of the queue that the member's pulls showed; no commit goes beyond (G3)."""
    ranges: bytes = b""
    """Finished ranges above `offset`."""


class JoinGroup(Command, frozen=True, array_like=True):
    """A member comes, or comes again: value is its member epoch, the former one is fenced.

    A group that does not exist yet is made, with `config`. A static member (`instance`) takes over
    what the former process of that name had; one that comes `again` does not take it back from its
    successor: INSTANCE_TAKEN, or two of one name would throw each other out for ever. The
    subscription must be the group's own unless
    `replace` is set, which gives the group this one.
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
    """Under which the asking broker coordinates; 0 if it knows no such group."""
    time_ms: int
    again: bool = False
    """The process was a member before."""


class LeaveGroup(Command, frozen=True, array_like=True):
    """A member goes in good order, with its last commits; value is a code per release."""

    group: str
    member: str
    epoch: int
    releases: list[QueueCommit]
    time_ms: int


class ExpireMembers(Command, frozen=True, array_like=True):
    """Members were silent for a session, or did not release in time (G2); a code for each."""

    group: str
    coordinator: str
    coordinator_epoch: int
    members: list[tuple[str, int]]
    """(member, epoch)."""
    time_ms: int


class SetTarget(Command, frozen=True, array_like=True):
    """Who shall have which queue, as allocated for the group as it was at `group_epoch`.

    In parts if it is large: each names some topics, `last` ends them. `fault`: the strategy could
    not allocate, and without rows all stays as it is; or it gives some queues to nobody.
    """

    group: str
    group_epoch: int
    rows: list[tuple[int, bytes]]
    """(topic id, little-endian u16 per queue): the owner's place among the group's members, sorted
    by name (instance, or else id), or `NOBODY`."""
    last: bool
    fault: str
    time_ms: int


class ReleaseQueues(Command, frozen=True, array_like=True):
    """Last commit and release in one (G1); a code per queue, one that is refused stays owned."""

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
    """What a coordinator gathered from its groups; a code per queue, in order, "" = done."""

    coordinator: str
    groups: list[GroupCommits]
    time_ms: int


class SetStart(Command, frozen=True, array_like=True):
    """Where a group starts in queues that it never had; the first to say so wins."""

    group: str
    coordinator_epoch: int
    starts: list[tuple[int, int, int]]
    """(topic id, queue, offset)."""
    time_ms: int


class ResetOffsets(Command, frozen=True, array_like=True):
    """Move committed offsets, also back; owners go on from there in a new owner epoch.

    Value: a code per queue.
    """

    group: str
    offsets: list[tuple[int, int, int]]
    """(topic id, queue, offset)."""
    time_ms: int


class AlterGroup(Command, frozen=True, array_like=True):
    """Change settings or the subscription of a group, or make one. None leaves it as it is."""

    group: str
    config: GroupConfig | None
    subscription: dict[str, str] | None
    create: bool
    """Make the group if it does not exist."""
    time_ms: int


class DeleteGroup(Command, frozen=True, array_like=True):
    """Forget a group without members, its offsets and its retries; its id is never used again."""

    group: str
    time_ms: int
    dead_letters: bool = False
    """Delete its dead letters too."""


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
