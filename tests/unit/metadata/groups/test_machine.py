"""Consumer groups under everything that may happen, in any order, also late and twice.

What always holds: offsets go back by a reset alone and never beyond a seen end (P8); a queue has
one owner per owner epoch, and nobody gets it before the former owner released it or was fenced
(P9); queues that do not move are left alone; a restored state goes on exactly like the one it was
taken from; deltas lead to what the whole says; and once all is quiet the members have the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from logboom.metadata.groups.group_targets import targets_of
from logboom.metadata.raft.log_commands import (
    ENTRY_FORMAT,
    AnyLogCommand,
    LogEntry,
    decode_result,
    encode_entry,
)
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.consumer_groups import ConsumerGroup
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import (
    AlterTopic,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    RegisterBroker,
    StepDown,
)
from logboom.wire.group_commands import (
    AlterGroup,
    CommitOffsets,
    DeleteGroup,
    ExpireMembers,
    GroupCommits,
    JoinGroup,
    LeaveGroup,
    MemberCommits,
    QueueCommit,
    ReleaseQueues,
    ResetOffsets,
    SetStart,
    SetTarget,
)
from logboom.wire.group_routes import GroupRoutes
from logboom.wire.group_view import GroupConfig, GroupView, MemberView, QueueKey
from logboom.wire.names import RETRY_PREFIX
from logboom.wire.view import TopicConfig
from tests.thorough import examples
from tests.unit.metadata.groups.tables import codes
from tests.unit.metadata.state.states import Tables

GROUPS = ("h", "g", "f")
TOPICS = ("t", "u", "%RETRY%g")
SUBSCRIPTIONS = ({"t": "*"}, {"t": "*", "u": "late"}, {"u": "*"})
MEMBERS = ("m1", "m2", "m3", "m4")
INSTANCES = ("", "", "left")

Key: TypeAlias = tuple[int, int, int]
"""(group id, topic id, queue)."""
Holding: TypeAlias = tuple[str, int, int]
"""(member, member epoch, owner epoch)."""


@dataclass(slots=True)
class Before:
    """What was so before a command."""

    owners: dict[Key, Holding] = field(default_factory=dict)
    still: set[Key] = field(default_factory=set)
    """Queues that their owner shall keep."""
    committed: dict[Key, int] = field(default_factory=dict)


def look(state: StateMachine) -> Before:
    """The owners and offsets of all groups."""
    found = Before()
    for group in state.cluster.groups.by_name.values():
        for topic in group.topics.values():
            for queue, owner in enumerate(topic.owners):
                key = (group.id, topic.id, queue)
                found.committed[key] = topic.committed[queue]
                if owner is not None:
                    found.owners[key] = (owner.id, owner.epoch, topic.owner_epochs[queue])
                    if topic.targets[queue] is owner:
                        found.still.add(key)
    return found


def restored(state: StateMachine) -> StateMachine:
    """Another name server's state, from a snapshot of this one."""
    twin = StateMachine()
    twin.restore(state.snapshot())
    assert twin.snapshot() == state.snapshot()
    return twin


def derived(state: StateMachine) -> list[Any]:
    """Every index of the groups, in an order of its own."""
    groups = state.cluster.groups
    indexes: list[dict[Any, dict[ConsumerGroup, None]]] = [
        dict(groups.subscribers),
        dict(groups.keepers),
        dict(groups.coordinated),
    ]
    found: list[Any] = [
        sorted((key, sorted(g.name for g in named)) for key, named in index.items())
        for index in indexes
    ]
    found.append(sorted(group.name for group in groups.pending))
    for name, group in sorted(groups.by_name.items()):
        owned = sorted((m.id, m.name, m.version, sorted(m.owned)) for m in group.members.values())
        names = sorted((key, member.id) for key, member in group.names.items())
        found.append((name, owned, names, sorted(group.unstarted)))
    return found


class GroupMachine(RuleBasedStateMachine):
    """Two groups, three topics, three brokers, five members, some of them static."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables()
        self.tables.begin()
        for broker in "abc":
            self.tables.register(broker)
        self.tables.create("t", queues=3)
        self.tables.create("u", queues=2)
        self.twin = restored(self.tables.state)
        self.epochs: dict[tuple[str, str], list[int]] = {}
        """(group, member) → every epoch it was ever told."""
        self.sent: list[tuple[AnyLogCommand, str, int, CommandResult]] = []
        self.holders: dict[tuple[Key, int], tuple[str, int]] = {}
        self.last_epochs: dict[Key, int] = {}
        self.mirrors = [GroupRoutes(), GroupRoutes("a")]
        self.numbers = self.turns = 0

    # ── the world ───────────────────────────────────────────────────────────────────────────────

    def group(self, name: str) -> ConsumerGroup | None:
        return self.tables.state.cluster.groups.by_name.get(name)

    def send(self, command: AnyLogCommand) -> CommandResult:
        """Propose a command, keep it for later, and judge what it did."""
        self.numbers += 1
        result = self.apply(command, "broker", self.numbers)
        self.sent.append((command, "broker", self.numbers, result))
        return result

    def apply(self, command: AnyLogCommand, proposer: str, number: int) -> CommandResult:
        before = look(self.tables.state)
        entry = encode_entry(LogEntry(ENTRY_FORMAT, proposer, number, 0, command))
        answer = self.tables.state.apply(entry)
        assert self.twin.apply(entry) == answer
        assert self.twin.snapshot() == self.tables.state.snapshot()
        result = decode_result(answer)
        assert result.code != "INTERNAL", result.text
        self.judge(command, before)
        self.watch()
        return result

    def judge(self, command: AnyLogCommand, before: Before) -> None:
        after = look(self.tables.state)
        for key, (member, epoch, owner_epoch) in after.owners.items():
            holder = self.holders.setdefault((key, owner_epoch), (member, epoch))
            assert holder == (member, epoch), "one owner per owner epoch (P9)"
            assert owner_epoch >= self.last_epochs.get(key, 0), "owner epochs never go back"
            self.last_epochs[key] = owner_epoch
        for key, held in before.owners.items():
            if key in after.committed and after.owners.get(key) != held:
                assert self.ended(command, key, held), f"{command} took {key} from {held}"
                if key in before.still and isinstance(command, SetTarget):
                    raise AssertionError("a target moves nothing by itself")
        for key, offset in before.committed.items():
            now = after.committed.get(key, offset)
            moved = isinstance(command, ResetOffsets) or (offset < 0 <= now)
            assert now >= offset or moved, "a committed offset went back (P8)"

    def ended(self, command: AnyLogCommand, key: Key, held: Holding) -> bool:
        """Whether this command may end an ownership: by its owner's word, or by fencing it."""
        member, epoch, owner_epoch = held
        match command:
            case ReleaseQueues() | LeaveGroup():
                lasts = {(c.topic_id, c.queue, c.owner_epoch) for c in command.releases}
                released = (*key[1:], owner_epoch) in lasts or isinstance(command, LeaveGroup)
                return (command.member, command.epoch) == (member, epoch) and released
            case ExpireMembers():
                return (member, epoch) in command.members
            case JoinGroup():
                group = self.group(command.group)
                assert group is not None
                # It came again, or another process took its place.
                gone = member not in group.members
                return gone or (command.member == member and group.members[member].epoch > epoch)
            case ResetOffsets():
                return key[1:] in {offset[:2] for offset in command.offsets}
            case _:
                return False

    def joining(self, name: str, member: str, instance: str, which: int, anew: bool) -> None:
        group = self.group(name)
        config = GroupConfig(start="last" if which == 1 else "first")
        command = JoinGroup(
            name,
            member,
            instance,
            "client",
            "",
            dict(SUBSCRIPTIONS[which]) if anew or group is None else dict(group.subscription),
            anew,
            config,
            group.coordinator_epoch if group is not None else 0,
            0,
        )
        result = self.send(command)
        if isinstance(result.value, int):
            self.epochs.setdefault((name, member), []).append(result.value)

    def lasts(self, name: str, member: str, dice: int) -> list[QueueCommit]:
        """Commits of what a member has, some under a wrong epoch or beyond the end."""
        group = self.group(name)
        held = group.members.get(member) if group is not None else None
        if group is None or held is None:
            return [QueueCommit(1, 0, 1, dice, dice)]
        commits: list[QueueCommit] = []
        for topic_id, queue in sorted(held.owned):
            topic = group.topics[topic_id]
            kept = topic.targets[queue] is held
            if kept and dice % 5:
                continue
            epoch = topic.owner_epochs[queue] - (dice % 11 == 0)
            offset = topic.committed[queue] + dice % 7 - 2
            end = offset if dice % 3 else offset - 1
            commits.append(QueueCommit(topic_id, queue, epoch, offset, end, b"r" * (dice % 3)))
        return commits

    def someone(self, name: str, dice: int) -> str:
        """Mostly a member of the group, sometimes one who is out."""
        group = self.group(name)
        members = sorted(group.members) if group is not None and dice % 8 else MEMBERS
        return members[dice % len(members)] if members else MEMBERS[0]

    def epoch_of(self, name: str, member: str, dice: int) -> int:
        known = self.epochs.get((name, member), [0])
        return known[-1] if dice % 6 else known[dice % len(known)]

    # ── what may happen ─────────────────────────────────────────────────────────────────────────

    @rule(
        name=st.sampled_from(GROUPS),
        member=st.sampled_from(MEMBERS),
        instance=st.sampled_from(INSTANCES),
        which=st.integers(0, 2),
        dice=st.integers(0, 9),
    )
    def join(self, name: str, member: str, instance: str, which: int, dice: int) -> None:
        self.joining(name, member, instance, which, dice == 0)

    @rule(name=st.sampled_from(GROUPS), dice=st.integers(0, 999))
    def leave(self, name: str, dice: int) -> None:
        member = self.someone(name, dice)
        epoch = self.epoch_of(name, member, dice)
        self.send(LeaveGroup(name, member, epoch, self.lasts(name, member, dice), 0))

    @rule(name=st.sampled_from(GROUPS), some=st.sets(st.sampled_from(MEMBERS)), dice=st.integers())
    def expire(self, name: str, some: set[str], dice: int) -> None:
        group = self.group(name)
        if group is not None:
            out = [(member, self.epoch_of(name, member, dice)) for member in sorted(some)]
            epoch = group.coordinator_epoch - (dice % 4 == 0)
            self.send(ExpireMembers(name, group.coordinator, epoch, out, 0))

    @rule(name=st.sampled_from(GROUPS), dice=st.integers(0, 3))
    def allocate(self, name: str, dice: int) -> None:
        group = self.group(name)
        if group is not None and group.members:
            # Some of it may be lost, or come after the group has changed (see `again`).
            for part in targets_of(self.tables.state.cluster, group, 0)[dice == 3 :]:
                self.send(part)

    @rule(name=st.sampled_from(GROUPS), dice=st.integers(0, 999))
    def release(self, name: str, dice: int) -> None:
        member = self.someone(name, dice)
        epoch = self.epoch_of(name, member, dice)
        self.send(ReleaseQueues(name, member, epoch, self.lasts(name, member, dice), 0))

    @rule(name=st.sampled_from(GROUPS), dice=st.integers(0, 999))
    def commit(self, name: str, dice: int) -> None:
        group, member = self.group(name), self.someone(name, dice)
        if group is not None:
            lasts = self.lasts(name, member, 5 * dice)
            of = [MemberCommits(member, self.epoch_of(name, member, dice), lasts)]
            groups = [GroupCommits(name, group.coordinator_epoch - (dice % 9 == 0), of)]
            self.send(CommitOffsets(group.coordinator, groups, 0))

    @rule(name=st.sampled_from(GROUPS), dice=st.integers(0, 9))
    def start(self, name: str, dice: int) -> None:
        group = self.group(name)
        if group is not None:
            starts = [(*key, 10 + dice) for key in list(group.unstarted)[: 1 + dice]]
            self.send(SetStart(name, group.coordinator_epoch, starts, 0))

    @rule(name=st.sampled_from(GROUPS), topic=st.integers(1, 3), offset=st.integers(0, 50))
    def reset(self, name: str, topic: int, offset: int) -> None:
        named = [(topic, queue, offset) for queue in range(offset % 3)]
        self.send(ResetOffsets(name, named, 0))

    @rule(
        name=st.sampled_from(GROUPS),
        which=st.integers(0, 2),
        strategy=st.integers(0, 9),
        dice=st.integers(0, 3),
    )
    def alter(self, name: str, which: int, strategy: int, dice: int) -> None:
        config = None
        if (strategy, dice) == (8, 0):
            self.send(DeleteGroup(name, 0))
        if strategy < 3:
            config = GroupConfig(strategy=("sticky", "averagely", "machine_room_nearby")[strategy])
        subscription = dict(SUBSCRIPTIONS[which]) if strategy == 9 else None
        if config is not None or subscription is not None:
            self.send(AlterGroup(name, config, subscription, dice == 0, 0))

    @rule(
        name=st.sampled_from(GROUPS),
        joining=st.booleans(),
        dice=st.integers(0, 999),
        releasing=st.integers(0, 3),
    )
    def move(self, name: str, joining: bool, dice: int, releasing: int) -> None:
        """A member comes, queues are allocated anew, and some members release theirs."""
        if joining:
            self.joining(name, MEMBERS[dice % 4], INSTANCES[dice % 3], dice % 3, anew=False)
        self.allocate(name, 0)
        for more in range(releasing):
            self.release(name, dice + more)
            self.commit(name, dice + more)

    @rule(topic=st.sampled_from(TOPICS), queues=st.integers(1, 6), dice=st.integers(0, 9))
    def change_topic(self, topic: str, queues: int, dice: int) -> None:
        if dice == 0:
            self.send(DeleteTopic(topic, 0))
        elif dice < 4:
            self.send(CreateTopic(topic, queues, 1, TopicConfig(), 0))
        else:
            self.send(AlterTopic(topic, queues, None, 0))

    @rule(broker=st.sampled_from("abc"), dice=st.integers(0, 5))
    def change_broker(self, broker: str, dice: int) -> None:
        epoch = self.tables.epochs[broker]
        if dice == 0:
            self.send(FenceBroker(broker, epoch, 1, 0))
        elif dice == 1:
            self.send(StepDown(broker, epoch, 0))
        else:
            self.numbers += 1
            where = f"{broker}.test:7711"
            command = RegisterBroker(broker, "store", f"{self.numbers}", where, "z", False, 0)
            value = self.send(command).value
            assert isinstance(value, int)
            self.tables.epochs[broker] = value

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), proposed_anew=st.booleans())
    def again(self, data: st.DataObject, proposed_anew: bool) -> None:
        """A command of some time ago comes again: sent again, or proposed by another as well."""
        age = data.draw(st.integers(1, min(len(self.sent), 60)))
        command, proposer, number, result = self.sent[-age]
        if proposed_anew:
            found = self.apply(command, "", 0)
            self.learn(command, found)
        else:
            before = self.tables.state.snapshot()
            assert self.apply(command, proposer, number) == result
            assert self.tables.state.snapshot() == before

    def learn(self, command: AnyLogCommand, result: CommandResult) -> None:
        if isinstance(command, JoinGroup) and isinstance(result.value, int):
            self.epochs.setdefault((command.group, command.member), []).append(result.value)
        if isinstance(command, RegisterBroker) and isinstance(result.value, int):
            self.tables.epochs[command.broker] = result.value

    @rule(swap=st.booleans())
    def restore(self, swap: bool) -> None:
        """A name server starts from a snapshot, and goes on beside the one that made it."""
        self.twin = restored(self.tables.state)
        assert derived(self.twin) == derived(self.tables.state)
        if swap:
            self.tables.state, self.twin = self.twin, self.tables.state

    def watch(self) -> None:
        """Followers ask for what changed: one of everything, one, less often, as a broker."""
        for every, mirror, broker in zip((1, 3), self.mirrors, ("", "a"), strict=True):
            self.turns += 1
            if self.turns % every == 0:
                follow(mirror, self.tables.state.cluster, broker)
                whole = GroupRoutes(broker)
                follow(whole, self.tables.state.cluster, broker)
                assert plain(mirror) == plain(whole)
                for name, known in mirror.groups.items():
                    unstarted = sorted(whole.groups[name].head.unstarted)
                    assert sorted(known.head.unstarted) == unstarted

    # ── what always holds ───────────────────────────────────────────────────────────────────────

    @invariant()
    def offsets_are_within_what_was_seen(self) -> None:
        for group in self.tables.state.cluster.groups.by_name.values():
            for topic in group.topics.values():
                pairs = zip(topic.committed, topic.seen_ends, strict=True)
                assert all(committed <= seen for committed, seen in pairs)

    @invariant()
    def nothing_is_left_lying(self) -> None:
        """A queue without owner has no target that could have it."""
        for group in self.tables.state.cluster.groups.by_name.values():
            for topic in group.topics.values():
                for owner, target, committed in zip(
                    topic.owners, topic.targets, topic.committed, strict=True
                ):
                    assert (owner is not None) <= (committed >= 0), "given without a start"
                    assert owner is not None or target is None or committed < 0
                    assert target is None or (group.members[target.id] is target)
                    assert owner is None or (group.members[owner.id] is owner)

    @invariant()
    def coordinators_live(self) -> None:
        cluster = self.tables.state.cluster
        for group in cluster.groups.by_name.values():
            assert group.coordinator in (cluster.alive or {""})

    def teardown(self) -> None:
        """When all is quiet, everybody has what the target says, as evenly as the strategy is."""
        for name in GROUPS:
            group = self.group(name)
            if group is not None:
                self.converge(group)

    def converge(self, group: ConsumerGroup) -> None:
        name = group.name
        starts = [(*key, 5) for key in group.unstarted]
        self.tables.done(SetStart(name, group.coordinator_epoch, starts, 0))
        if group in self.tables.state.cluster.groups.pending:
            for part in targets_of(self.tables.state.cluster, group, 0):
                self.tables.done(part)
        for member in list(group.members.values()):
            lasts = [
                QueueCommit(*key, group.topics[key[0]].owner_epochs[key[1]], 0, 0)
                for key in member.owned
                if group.topics[key[0]].targets[key[1]] is not member
            ]
            result = self.tables.done(ReleaseQueues(name, member.id, member.epoch, lasts, 0))
            assert not any(codes(result)), "what is revoked can be released"
        assert group not in self.tables.state.cluster.groups.pending
        own = self.tables.state.cluster.topics.get(RETRY_PREFIX + name)
        if group.members and not group.fault:
            wanted: set[QueueKey] = {
                (topic.id, queue)
                for topic in group.topics.values()
                if topic.subscribed
                for queue in range(len(topic))
            }
            assert {key for member in group.members.values() for key in member.owned} == wanted
            if group.config.strategy != "machine_room_nearby":
                self.check_evenness(group, own.id if own is not None else None)

    def check_evenness(self, group: ConsumerGroup, retries: int | None) -> None:
        """Each topic is spread evenly, and all together by the strategy that considers them all.

        Retries stay where they are, whatever else their owners have.
        """
        owned = [
            [topic for topic, _ in member.owned if topic != retries]
            for member in group.members.values()
        ]
        for topic in {topic for topics in owned for topic in topics}:
            assert is_even(topics.count(topic) for topics in owned)
        if group.config.strategy == "sticky":
            assert is_even(len(topics) for topics in owned)


def is_even(counts: Iterable[int]) -> bool:
    """True if no two counts differ by more than one."""
    found = list(counts)
    return max(found) - min(found) <= 1


def follow(mirror: GroupRoutes, cluster: ClusterState, broker: str) -> None:
    """Take a delta, or the whole."""
    mirror.update(view_since(cluster, mirror.version, None, [], None, None, broker))


def plain(mirror: GroupRoutes) -> dict[str, tuple[GroupView, dict[str, MemberView]]]:
    """What a follower knows, but for offsets: commits are no news."""
    found = {}
    for name, known in mirror.groups.items():
        head = replace(known.head, full=False, members=[], gone=[], unstarted=[])
        members = {
            member.id: replace(
                member, queues=[replace(queue, start=0, ranges=b"") for queue in member.queues]
            )
            for member in known.members.values()
        }
        found[name] = (head, members)
    return found


GroupMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=50, deadline=None, print_blob=True
)
TestGroups = GroupMachine.TestCase


def test_only_sticky_levels_the_sum_over_topics() -> None:
    for strategy, sizes in ((0, [3, 3]), (1, [4, 2])):
        machine = GroupMachine()
        machine.change_topic(topic="u", queues=3, dice=4)
        machine.alter(name="g", which=0, strategy=strategy, dice=0)
        machine.join(name="g", member="m1", instance="", which=0, dice=0)
        machine.join(name="g", member="m2", instance="", which=1, dice=0)
        machine.teardown()
        group = machine.group("g")
        assert group is not None
        found = [len([key for key in m.owned if key[0] < 3]) for m in group.members.values()]
        assert found == sizes
