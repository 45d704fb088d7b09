"""A coordinator by script: it gives one member the queues that the test says, and remembers what it
was told."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.groups.member import (
    CloseMember,
    CommitMember,
    MemberOptions,
    MemberState,
    OpenMember,
)
from logboom.client.results import Message as Read
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch, validate_batch
from logboom.wire.frames import Frame
from logboom.wire.group_commands import QueueCommit
from logboom.wire.group_messages import (
    GroupAssigned,
    GroupCommit,
    GroupCommitted,
    GroupHeartbeat,
    GroupJoin,
    GroupJoined,
    GroupLeave,
    GroupRelease,
)
from logboom.wire.group_view import GroupConfig, OwnedQueue
from logboom.wire.messages import AnyMessage, Failure
from tests.unit.client.scripted import BROKERS, WALL_MS, Cluster


class GroupCluster(Cluster):
    """Nodes of a script with one group, "g", of topic "t"."""

    def __init__(self, seed: int = 1, queues: int = 2) -> None:
        super().__init__(seed)
        self.add_topic("t", queues)
        self.coordinator = BROKERS[1]
        self.coordinator_epoch = 3
        self.config_of_group = GroupConfig()
        self.subscription = {"t": "*"}
        self.subscription_version = 1
        self.assigned_version = 1
        self.owned: dict[int, OwnedQueue] = {}
        self.ended: set[int] = set()
        """Queues whose owner before ended without leaving."""
        self.epoch = 0
        """Of the member; 0: it is none."""
        self.commits: dict[int, QueueCommit] = {}
        self.log_of_commits: list[QueueCommit] = []
        self.releases: list[QueueCommit] = []
        self.leaves: list[list[QueueCommit]] = []
        self.stays: list[list[QueueCommit]] = []
        """The last commits of static members whose process ended."""
        self.joins: list[GroupJoin] = []
        self.proving = True
        """Whether the coordinator gives proofs of owner epochs."""
        self.codes: dict[int, str] = {}
        """Queue → what a commit or release of it is answered with."""
        self._held: list[tuple[float, str, GroupHeartbeat]] = []

    # The script.

    def give(self, queue: int, start: int = 0, ranges: bytes = b"", *, ended: bool = False) -> None:
        """The member gets a queue, or gets it anew; `ended`: from one that ended without leaving."""
        (self.ended.add if ended else self.ended.discard)(queue)
        self.assigned_version += 1
        epoch = self.assigned_version
        self.owned[queue] = OwnedQueue(self.topic_ids["t"], queue, epoch, start, ranges)

    def revoke(self, queue: int, *, revoking: bool = True) -> None:
        """The member shall drain a queue, or keep it after all."""
        self.assigned_version += 1
        self.owned[queue] = msgspec.structs.replace(self.owned[queue], revoking=revoking)

    def fence(self) -> None:
        """The member was silent for too long."""
        self.epoch += 1
        self.assigned_version += 1
        self.owned.clear()

    def alter(self, subscription: dict[str, str]) -> None:
        """Another subscription, by `group alter`."""
        self.assigned_version += 1
        self.subscription = subscription
        self.subscription_version += 1

    # The node.

    def _reply(
        self, endpoint: str, message: AnyMessage, batches: Sequence[Frame]
    ) -> tuple[WireMessage | None, Sequence[Frame]]:
        kinds = (GroupJoin, GroupHeartbeat, GroupCommit, GroupRelease, GroupLeave)
        if not isinstance(message, kinds):
            return super()._reply(endpoint, message, batches)
        if endpoint != self.coordinator:
            name = self.coordinator.split(":")[0]
            fields: dict[str, Any] = {"coordinator": name, "epoch": self.coordinator_epoch}
            text = "another broker coordinates"
            return Failure(0, "NOT_COORDINATOR", text, retryable=True, fields=fields), ()
        if isinstance(message, GroupJoin):
            return self._join(message), ()
        if message.epoch != self.epoch:
            return Failure(0, "STALE_EPOCH", "joined again since", retryable=True), ()
        match message:
            case GroupHeartbeat():
                if message.seen >= self.assigned_version:
                    self._held.append((self.now + message.wait_ms / 1000, endpoint, message))
                    return None, ()
                return self._assigned(), ()
            case GroupCommit(queues=commits):
                return GroupCommitted(0, [self._commit(each) for each in commits]), ()
            case GroupRelease(releases=releases):
                return GroupCommitted(0, [self._release(each) for each in releases]), ()
            case GroupLeave(releases=releases):
                codes = [self._commit(each) for each in releases]
                if message.stays:
                    self.stays.append(releases)
                    return GroupCommitted(0, codes), ()
                self.leaves.append(releases)
                self.epoch = 0
                self.owned.clear()
                return GroupCommitted(0, codes), ()

    def _join(self, message: GroupJoin) -> WireMessage:
        self.joins.append(message)
        if message.replace:
            self.subscription = message.subscription
        if message.subscription != self.subscription:
            text = 'the subscription is not that of group "g"'
            return Failure(0, "SUBSCRIPTION_MISMATCH", text, retryable=False)
        self.epoch = max(self.epoch, self.assigned_version) + 1
        self.assigned_version += 1
        for queue, owned in list(self.owned.items()):
            committed = self.commits.get(queue)
            start = owned.start if committed is None else committed.offset
            self.give(queue, start, b"" if committed is None else committed.ranges)
        return GroupJoined(0, self.epoch, self.config_of_group, self.subscription_version)

    def _assigned(self) -> GroupAssigned:
        return GroupAssigned(
            0,
            self.assigned_version,
            list(self.owned.values()),
            {self.topic_ids["t"]: "t"},
            self.subscription,
            self.subscription_version,
            self.config_of_group,
            [(owned.topic_id, queue) for queue, owned in self.owned.items() if queue in self.ended],
            [proof_of(owned) for owned in self.owned.values()] if self.proving else [],
        )

    def _commit(self, commit: QueueCommit) -> str:
        owned = self.owned.get(commit.queue)
        if commit.queue in self.codes:
            return self.codes[commit.queue]
        if owned is None:
            return "NOT_OWNER"
        if owned.owner_epoch != commit.owner_epoch:
            return "STALE_EPOCH"
        assert commit.offset <= commit.seen_end
        self.log_of_commits.append(commit)
        known = self.commits.get(commit.queue)
        if known is None or known.offset <= commit.offset:
            self.commits[commit.queue] = commit
        return ""

    def _release(self, commit: QueueCommit) -> str:
        code = self._commit(commit)
        if not code:
            self.releases.append(commit)
            del self.owned[commit.queue]
            self.assigned_version += 1
        return code

    def _answer_holds(self) -> None:
        super()._answer_holds()
        for item in list(self._held):
            when, endpoint, message = item
            if message.epoch != self.epoch:
                answer: WireMessage = Failure(message.id, "STALE_EPOCH", "fenced", retryable=True)
            elif self.assigned_version > message.seen or when <= self.now:
                answer = self._assigned()
                answer.id = message.id
            else:
                continue
            self._held.remove(item)
            if endpoint not in self.dead:
                self._answer(endpoint, answer)

    def run(self, seconds: float, until: Any = lambda: False) -> bool:
        """As `Cluster.run`, in steps that notice the script's changes."""
        end = self.now + seconds
        while self.now < end:
            if super().run(min(0.05, end - self.now), until):
                return True
        return bool(until())


def proof_of(owned: OwnedQueue) -> bytes:
    """What the script takes for the proof of an owner epoch."""
    return b"proof of %d" % owned.owner_epoch


class Reader:
    """A member of group "g" and its caller."""

    def __init__(self, cluster: GroupCluster, *, join: bool = True, **options: Any) -> None:
        self.cluster = cluster
        found = FindTopic("t", 5.0)
        cluster.call(found)
        assert cluster.run(5, lambda: found.outcome.done)
        self.rings = 0
        given = MemberOptions("g", "m-1", options.pop("subscription", {"t": "*"}), **options)
        self.member = MemberState(given, FetchBuffer(1 << 25, self._ring), contextlib.nullcontext())
        failures = FailedMessages(self.member, lambda: cluster.now)
        self.intake = GroupFetchCollector(self.member, cluster.call, failures)
        self.opened = OpenMember(self.member, 5.0)
        if join:
            cluster.call(self.opened)
            assert cluster.run(6, lambda: self.opened.outcome.done)
            self.opened.outcome.get()

    def _ring(self) -> None:
        self.rings += 1

    def read(self, count: int, seconds: float = 15.0) -> list[Read]:
        """The next `count` messages; fewer if they do not come."""
        taken: list[Read] = []

        def enough() -> bool:
            taken.extend(self.intake.take(count - len(taken), self.cluster.now))
            return len(taken) == count

        self.cluster.run(seconds, enough)
        return taken

    def commit(self) -> None:
        """Commit and wait; raises what it came to."""
        call = CommitMember(self.member)
        self.cluster.call(call)
        assert self.cluster.run(40, lambda: call.outcome.done)
        call.outcome.get()

    def close(self, timeout: float, *, leave: bool = False) -> None:
        """End the membership and wait."""
        call = CloseMember(self.member, timeout, leave)
        self.cluster.call(call)
        assert self.cluster.run(timeout + 10, lambda: call.outcome.done)
        call.outcome.get()


def fill(cluster: Cluster, queue: int, first: int, count: int, batch: int = 3, **more: Any) -> None:
    """Store values first, first + 1, … in batches."""
    for start in range(first, first + count, batch):
        stop = min(start + batch, first + count)
        values = [b"%06d" % n for n in range(start, stop)]
        entry = encode_batch(values, now_ms=WALL_MS, **more)
        cluster.log("t", queue).append(entry, validate_batch(entry, stamped=False))
    cluster.wake_pulls()


def numbers(messages: Sequence[Read]) -> list[int]:
    """The values as numbers."""
    return [int(message.value or b"-1") for message in messages]
