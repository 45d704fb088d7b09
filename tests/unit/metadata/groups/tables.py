"""A replicated state with short words for the commands of consumer groups, for their tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logboom.metadata.groups.group_targets import targets_of
from logboom.metadata.tables.consumer_groups import ConsumerGroup, ConsumerGroupMember
from logboom.wire.commands import CommandResult
from logboom.wire.group_commands import (
    CommitOffsets,
    ExpireMembers,
    GroupCommits,
    JoinGroup,
    LeaveGroup,
    MemberCommits,
    QueueCommit,
    ReleaseQueues,
    SetStart,
)
from logboom.wire.group_view import GroupConfig, QueueKey
from tests.unit.metadata.state.states import Tables

END = 1000
"""End of every queue, as the members of these tests see it."""


class GroupTables(Tables):
    """Brokers a, b, c, topic t with some queues, and a group g that members may join."""

    def __init__(self, queues: int = 4) -> None:
        super().__init__()
        self.begin()
        for broker in "abc":
            self.register(broker)
        self.create(queues=queues)

    @property
    def group(self) -> ConsumerGroup:
        """Group g."""
        return self.state.cluster.groups.by_name["g"]

    def member(self, member: str) -> ConsumerGroupMember:
        """A member of g."""
        return self.group.members[member]

    def key(self, queue: int, topic: str = "t") -> QueueKey:
        """A queue as groups name it."""
        return self.state.cluster.topics[topic].id, queue

    def joining(
        self,
        member: str,
        subscription: dict[str, str] | None = None,
        *,
        config: GroupConfig | None = None,
        **changed: Any,
    ) -> JoinGroup:
        """The command of a member that joins by way of g's coordinator."""
        known = self.state.cluster.groups.by_name.get("g")
        values: dict[str, Any] = {
            "group": "g",
            "member": member,
            "instance": "",
            "client_id": f"client of {member}",
            "room": "",
            "subscription": {"t": "*"} if subscription is None else subscription,
            "replace": False,
            "config": config or GroupConfig(),
            "coordinator_epoch": known.coordinator_epoch if known else 0,
            "time_ms": 0,
        }
        return JoinGroup(**{**values, **changed})

    def join(self, member: str, *args: Any, **changed: Any) -> int:
        """A member joins g; its epoch."""
        value = self.done(self.joining(member, *args, **changed)).value
        assert isinstance(value, int)
        return value

    def allocate(self) -> None:
        """The raft leader works out g's target."""
        for part in targets_of(self.state.cluster, self.group, 0):
            self.done(part)

    def owned(self, member: str, *, revoking: bool | None = None) -> list[QueueKey]:
        """Queues of a member: all, those it has to release, or those it has not to."""
        held = self.member(member)
        topics = self.group.topics
        found = sorted(held.owned)
        if revoking is None:
            return found
        return [k for k in found if (topics[k[0]].targets[k[1]] is not held) == revoking]

    def last(
        self, key: QueueKey, offset: int, seen_end: int = END, ranges: bytes = b"", epoch: int = -1
    ) -> QueueCommit:
        """A commit under the queue's owner epoch, or another."""
        if epoch < 0:
            epoch = self.group.topics[key[0]].owner_epochs[key[1]]
        return QueueCommit(*key, epoch, offset, seen_end, ranges)

    def commit(self, member: str, *commits: QueueCommit, epoch: int = -1) -> list[str]:
        """Commit by way of the coordinator; the codes."""
        if epoch < 0:
            epoch = self.member(member).epoch
        of = MemberCommits(member, epoch, list(commits))
        g = self.group
        commits_of_g = GroupCommits("g", g.coordinator_epoch, [of])
        return codes(self.done(CommitOffsets(g.coordinator, [commits_of_g], 0)))

    def release(self, member: str, *lasts: QueueCommit) -> list[str]:
        """Commit and release; the codes."""
        epoch = self.member(member).epoch
        return codes(self.done(ReleaseQueues("g", member, epoch, list(lasts), 0)))

    def release_revoked(self, member: str, offset: int = 0) -> None:
        """A member releases all that it has to."""
        lasts = [self.last(key, offset) for key in self.owned(member, revoking=True)]
        assert not any(self.release(member, *lasts))

    def settle(self) -> None:
        """Allocate, and let everybody release what it has to."""
        self.allocate()
        for member in sorted(self.group.members):
            self.release_revoked(member)

    def leave(self, member: str, *lasts: QueueCommit) -> list[str]:
        """A member leaves."""
        epoch = self.member(member).epoch
        return codes(self.done(LeaveGroup("g", member, epoch, list(lasts), 0)))

    def expire(self, *members: str) -> list[str]:
        """The coordinator puts members out."""
        g = self.group
        out = [(name, self.member(name).epoch) for name in members]
        return codes(self.done(ExpireMembers("g", g.coordinator, g.coordinator_epoch, out, 0)))

    def start(self, starts: Iterable[tuple[QueueKey, int]]) -> list[str]:
        """The coordinator says where g begins."""
        named = [(*key, offset) for key, offset in starts]
        return codes(self.done(SetStart("g", self.group.coordinator_epoch, named, 0)))

    def committed(self, queue: int, topic: str = "t") -> int:
        """g's offset in a queue."""
        topic_id, number = self.key(queue, topic)
        return self.group.topics[topic_id].committed[number]


def codes(result: CommandResult) -> list[str]:
    """The codes per item."""
    assert isinstance(result.value, list)
    return result.value
