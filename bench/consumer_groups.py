"""A consumer group of 1,000 members and 10,000 queues in the name server's state, in this process.

It measures what a Raft leader computes outside apply, and what every name server needs to apply it.
Processor time is used instead of wall time, because the loop of a name server does nothing else
meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared
from bench.references import PYTHON_CPU
from logboom.metadata.groups.group_targets import targets_of
from logboom.metadata.raft.log_commands import AnyLogCommand, decode_result, encode_entry, entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.commands import CreateTopic, NewTerm, RegisterBroker
from logboom.wire.group_commands import (
    CommitOffsets,
    ExpireMembers,
    GroupCommits,
    JoinGroup,
    MemberCommits,
    QueueCommit,
)
from logboom.wire.group_view import GroupConfig
from logboom.wire.view import TopicConfig

if TYPE_CHECKING:
    from logboom.metadata.tables.consumer_groups import ConsumerGroup

QUEUES_PER_TOPIC = 1_000
COMMITTED = 1_000
"""Offsets in one command."""
ALLOCATED: Final = {"sticky": 21.0, "averagely": 11.0, "consistent_hash": 73.0}
APPLIED: Final = 2.0


class GroupStateBench:
    """A state with a group, and the durations of its commands."""

    def __init__(self, members: int, queues: int, strategy: str) -> None:
        self.state = StateMachine()
        self.apply(NewTerm(1, "name-1", "bench", 0))
        for broker in ("a", "b", "c"):
            self.apply(RegisterBroker(broker, broker, broker, f"{broker}:7711", "z", False, 0))
        self.topics = [f"t{number}" for number in range(queues // QUEUES_PER_TOPIC)]
        for topic in self.topics:
            self.apply(CreateTopic(topic, QUEUES_PER_TOPIC, 3, TopicConfig(), 0))
        self.config = GroupConfig(strategy=strategy)
        self.joining = max(self.join(f"member-{number}") for number in range(members))

    @property
    def group(self) -> ConsumerGroup:
        """The group."""
        return self.state.cluster.groups.by_name["g"]

    def apply(self, command: AnyLogCommand) -> float:
        """Apply a command as it comes out of the log; seconds."""
        entry = encode_entry(entry_of("", 0, 0, command))
        began = time.process_time()
        result = self.state.apply(entry)
        took = time.process_time() - began
        assert not decode_result(result).code, decode_result(result).text
        return took

    def join(self, member: str) -> float:
        """Let a member join, and return the seconds."""
        known = self.state.cluster.groups.by_name.get("g")
        epoch = known.coordinator_epoch if known else 0
        topics = dict.fromkeys(self.topics, "*")
        joining = JoinGroup("g", member, "", "me", "", topics, False, self.config, epoch, 0)
        return self.apply(joining)

    def rebalance(self) -> tuple[float, float]:
        """Allocate and apply the target, and return the seconds of both."""
        began = time.process_time()
        parts = targets_of(self.state.cluster, self.group, 0)
        computed = time.process_time() - began
        return computed, max(self.apply(part) for part in parts)

    def commit(self) -> float:
        """Apply a command with many offsets, and return the seconds."""
        group = self.group
        of: list[MemberCommits] = []
        count = 0
        for member in group.members.values():
            queues: list[QueueCommit] = []
            for topic_id, queue in list(member.owned)[: COMMITTED - count]:
                topic = group.topics[topic_id]
                offset = topic.committed[queue] + 100
                epoch = topic.owner_epochs[queue]
                queues.append(QueueCommit(topic_id, queue, epoch, offset, offset))
            of.append(MemberCommits(member.id, member.epoch, queues))
            count += len(queues)
        groups = [GroupCommits("g", group.coordinator_epoch, of)]
        return self.apply(CommitOffsets(group.coordinator, groups, 0))

    def expire(self, count: int) -> float:
        """Let this many members expire at once, and return the seconds."""
        group = self.group
        out = [(member.id, member.epoch) for member in list(group.members.values())[:count]]
        return self.apply(ExpireMembers("g", group.coordinator, group.coordinator_epoch, out, 0))


def rows(members: int, queues: int) -> list[Figure]:
    """Return all figures for a group of this size."""
    found: list[Figure] = []
    for strategy in ("sticky", "averagely", "consistent_hash"):
        bench = GroupStateBench(members, queues, strategy)

        def once(_: int, bench: GroupStateBench = bench) -> list[float]:
            computed, applied = bench.rebalance()
            joining = bench.join("one-more")
            again, moved = bench.rebalance()
            spent = (max(computed, again), max(applied, moved), max(bench.joining, joining))
            return [1_000 * seconds for seconds in spent]

        allocated, applied, joined = PYTHON_CPU.beside(1, once)
        name = f"group, {members:,} members x {queues:,} queues, {strategy}"
        found += [
            compared(f"{name}: allocate", allocated, "ms", ALLOCATED[strategy], "less"),
            compared("  … apply the target", applied, "ms", APPLIED, "less"),
            compared("  … apply a join", joined, "ms", APPLIED, "less"),
        ]
    (committed,) = PYTHON_CPU.beside(20, lambda _: [1_000 * bench.commit()])
    began = time.process_time()
    snapshot = bench.state.snapshot()
    snapped = time.process_time() - began
    (expired,) = PYTHON_CPU.beside(1, lambda _: [1_000 * bench.expire(members // 2)])
    found += [
        compared(f"  … apply {COMMITTED:,} offsets", committed, "ms", APPLIED, "less"),
        compared("  … expire half of the members", expired, "ms", APPLIED, "less"),
        Figure("  … snapshot", 1_000 * snapped, "ms"),
        Figure("  … its size per queue", len(snapshot) / queues, "B"),
    ]
    return found
