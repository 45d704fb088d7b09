"""A broker on the bench with real replicated tables behind its name server.

What the broker proposes waits until the test has it applied, or is applied at once; its WATCH is
answered from the tables. Brokers 2 and 3 are registered too, and are played by the test.
"""

from __future__ import annotations

from typing import Any

from logboom.metadata.groups.group_targets import targets_of
from logboom.metadata.raft.log_commands import ENTRY_FORMAT, LogEntry, decode_result, encode_entry
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.consumer_groups import ConsumerGroup
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import (
    AnyCommand,
    CommandResult,
    CreateTopic,
    FenceBroker,
    NewTerm,
    RegisterBroker,
)
from logboom.wire.errors import Refused
from logboom.wire.frames import Frame
from logboom.wire.group_commands import AlterGroup, DeleteGroup, QueueCommit
from logboom.wire.group_messages import (
    GroupAssigned,
    GroupCommit,
    GroupCommitted,
    GroupHeartbeat,
    GroupJoin,
    GroupJoined,
    GroupLeave,
    GroupRelease,
    QueueStatus,
)
from logboom.wire.group_view import GroupConfig, OwnedQueue
from logboom.wire.messages import (
    AnyMessage,
    Heartbeat,
    HeartbeatGranted,
    Propose,
    Proposed,
    Watch,
    WatchResult,
)
from logboom.wire.view import NameServerView, TopicConfig
from tests.unit.nodes.rig import ME, NAME_SERVER, Peer, Rig, Station

END = 1_000
"""What the members of these tests have seen of every queue."""
GROUP = "billing"


class GroupRig(Rig):
    """The broker, the tables, and words for members."""

    def __init__(self, queues: int = 4, brokers: int = 3) -> None:
        self.state = StateMachine()
        self.telling = True
        """Whether the broker hears of changes."""
        self.deciding = True
        """Whether its proposals are applied at once, and answered."""
        self.instances: dict[str, int] = {}
        self._starts = 0
        self.apply(NewTerm(1, "name-1", "cluster", 0))
        for number in range(2, brokers + 1):
            self.register(f"broker-{number}")
        super().__init__()
        self.create("flights", queues)

    # ── the name server ─────────────────────────────────────────────────────────────────────────

    def apply(self, command: Any, proposer: str = "", number: int = 0) -> CommandResult:
        """Apply a command, from anybody; targets of groups follow as a raft leader makes them."""
        entry = LogEntry(ENTRY_FORMAT, proposer, number, 0, command)
        result = decode_result(self.state.apply(encode_entry(entry)))
        assert result.code != "INTERNAL", result.text
        for group in list(self.state.cluster.groups.pending):
            for part in targets_of(self.state.cluster, group, 0):
                self.state.apply(encode_entry(LogEntry(ENTRY_FORMAT, "", 0, 0, part)))
        return result

    def done(self, command: Any) -> CommandResult:
        """Apply a command that must not be refused, and tell the broker."""
        result = self.apply(command)
        assert not result.code, result
        self.tell()
        return result

    def register(self, broker: str) -> None:
        """Another broker's process begins."""
        self._starts += 1
        command = RegisterBroker(
            broker, f"store of {broker}", f"{self._starts}", f"b{broker[-1]}:7711", "", False, 0
        )
        value = self.apply(command).value
        assert isinstance(value, int)
        self.instances[broker] = value

    def fence(self, broker: str) -> None:
        """The raft leader fences a broker; it is told in its next heartbeat."""
        known = self.state.cluster.brokers[broker]
        self.done(FenceBroker(broker, known.instance_epoch, self.state.cluster.term, 0))

    def create(self, topic: str, queues: int, replicas: int = 1) -> int:
        """Make a topic; its id."""
        value = self.done(CreateTopic(topic, queues, replicas, TopicConfig(), 0)).value
        assert isinstance(value, int)
        return value

    def serve(self, station: Station, message: AnyMessage, batches: list[Frame] | Any) -> None:
        """What the name server does with a request; other nodes' stations keep theirs."""
        if station.endpoint != NAME_SERVER:
            station.asked.append((message, batches))
            return
        match message:
            case Propose():
                self.commands.append((message, message.command))
                if self.deciding or isinstance(message.command, RegisterBroker):
                    self.decide_next()
            case Heartbeat():
                known = self.state.cluster.brokers.get(ME)
                if (
                    known is None
                    or known.instance_epoch != message.instance_epoch
                    or not known.alive
                ):
                    self.refuse(message, Refused("fenced", "FENCED"))
                elif self.granting:
                    self.reply(message, HeartbeatGranted(0, 2_000, self.state.cluster.version))
            case Watch():
                self.ns.asked.append((message, ()))
                self.tell()
            case _:
                station.asked.append((message, batches))

    def decide_next(self, *, answer: bool = True) -> AnyCommand:
        """Apply the oldest proposal that waits, and answer it unless the answer is lost."""
        message, command = self.commands.pop(0)
        result = self.apply(command, message.proposer, message.number)
        if answer:
            self.reply(message, Proposed(0, result))
        self.tell()
        return command

    def decide_all(self) -> None:
        """Apply and answer all proposals, and those that follow."""
        while self.commands:
            self.decide_next()

    def tell(self) -> None:
        """Answer the WATCH that waits, if there is news."""
        if not self.telling or not hasattr(self, "broker"):
            return
        version = self.state.cluster.version
        while self.ns.count(Watch):
            watch = self.ns.take(Watch)
            if watch.version >= version:
                self.ns.asked.append((watch, ()))
                return
            view = view_since(
                self.state.cluster,
                watch.version,
                None,
                [NameServerView("name-1", NAME_SERVER)],
                "name-1",
                watch.groups,
                watch.members_at,
            )
            self.reply(watch, WatchResult(0, view))

    @property
    def group(self) -> ConsumerGroup:
        """The group, as decided."""
        return self.state.cluster.groups.by_name[GROUP]

    def committed(self, queue: int, topic: str = "flights") -> int:
        """The group's offset in a queue."""
        return self.group.topics[self.state.cluster.topics[topic].id].committed[queue]

    def coordinate(self) -> None:
        """Bring the group to this broker: the others are fenced and begin anew."""
        if self.group.coordinator != ME:
            for broker in list(self.instances):
                self.fence(broker)
            for broker in list(self.instances):
                self.register(broker)
            self.tell()
        assert self.group.coordinator == ME

    def coordinate_or_create(self, config: GroupConfig | None = None) -> None:
        """The group, coordinated by this broker."""
        self.done(AlterGroup(GROUP, config or GroupConfig(), {"flights": "*"}, True, 0))
        for number in range(3):
            if self.group.coordinator == ME:
                return
            self.done(DeleteGroup(GROUP, 0))
            # Whoever has fewest groups is the next.
            self.done(AlterGroup(f"g{number}", None, {"flights": "*"}, True, 0))
            self.done(AlterGroup(GROUP, config or GroupConfig(), {"flights": "*"}, True, 0))
        assert self.group.coordinator == ME

    def answer_refused(self, message: Propose, code: str) -> None:
        """Answer a proposal as if the log had refused it."""
        version = self.state.cluster.version
        self.reply(message, Proposed(0, CommandResult(version, code, "refused by the test")))

    def member(self, name: str) -> Member:
        """A member that has not joined."""
        return Member(self, name)

    # ── members ─────────────────────────────────────────────────────────────────────────────────

    def join(self, member: str, **changed: Any) -> Member:
        """A member joins, and learns what it has."""
        found = Member(self, member)
        found.join(**changed)
        return found

    def leave_all(self, *members: Member) -> None:
        """Members leave without a last commit."""
        for member in members:
            member.leave()


class Member:
    """A member played by the test."""

    def __init__(self, rig: GroupRig, name: str) -> None:
        self.rig = rig
        self.name = name
        number = len(rig.peers)
        self.peer: Peer = rig.client(f"client {number} of {name}")
        self.held: Peer = rig.client(f"heart {number} of {name}")
        """For heartbeats: so that other answers do not mix with theirs."""
        self.epoch = -1
        self.seen = -1
        self.queues: dict[int, OwnedQueue] = {}
        """By number, of the topic "flights"."""
        self.assigned: GroupAssigned | None = None

    def joining(self, **changed: Any) -> GroupJoin:
        """The request to join."""
        values: dict[str, Any] = {
            "instance": "",
            "room": "",
            "subscription": {"flights": "*"},
            "replace": False,
            "config": GroupConfig(),
        }
        return GroupJoin(0, 5_000, GROUP, self.name, **{**values, **changed})

    def join(self, **changed: Any) -> GroupJoined:
        """Join by way of this broker."""
        self.peer.ask(self.joining(**changed))
        self.rig.settle()
        answer = self.peer.answer()
        assert isinstance(answer, GroupJoined)
        self.epoch, self.seen = answer.epoch, -1
        return answer

    def beat(
        self, wait_ms: int = 0, status: list[QueueStatus] | None = None
    ) -> GroupAssigned | None:
        """A heartbeat; what it is told at once, None if it is held."""
        message = GroupHeartbeat(
            0, 5_000, GROUP, self.name, self.epoch, self.seen, wait_ms, status or []
        )
        self.held.ask(message)
        return self.told() if self.held.replies else None

    def told(self) -> GroupAssigned:
        """Take the answer to a heartbeat."""
        answer = self.held.answer()
        assert isinstance(answer, GroupAssigned)
        self.seen, self.assigned = answer.version, answer
        flights = self.rig.state.cluster.topics["flights"].id
        self.queues = {q.queue: q for q in answer.queues if q.topic_id == flights}
        return answer

    @property
    def kept(self) -> list[int]:
        """Queues that it need not give away."""
        return sorted(number for number, queue in self.queues.items() if not queue.revoking)

    @property
    def revoked(self) -> list[int]:
        """Queues that it has to give away."""
        return sorted(number for number, queue in self.queues.items() if queue.revoking)

    def last(self, queue: int, offset: int, **changed: Any) -> QueueCommit:
        """A commit of a queue that it has."""
        owned = self.queues[queue]
        values: dict[str, Any] = {"owner_epoch": owned.owner_epoch, "seen_end": END, "ranges": b""}
        values.update(changed)
        return QueueCommit(owned.topic_id, queue, offset=offset, **values)

    def ask_commit(self, *commits: QueueCommit) -> None:
        """Commit; the answer is not awaited."""
        self.peer.ask(GroupCommit(0, 5_000, GROUP, self.name, self.epoch, list(commits)))

    def commit(self, *commits: QueueCommit) -> list[str]:
        """Commit; the codes."""
        self.ask_commit(*commits)
        self.rig.settle()
        return self.codes()

    def release(self, *releases: QueueCommit) -> list[str]:
        """Release; the codes."""
        self.peer.ask(GroupRelease(0, 5_000, GROUP, self.name, self.epoch, list(releases)))
        self.rig.settle()
        return self.codes()

    def leave(self, *releases: QueueCommit, stays: bool = False) -> list[str]:
        """Leave, or end and stay a static member; the codes."""
        self.peer.ask(GroupLeave(0, 5_000, GROUP, self.name, self.epoch, list(releases), stays))
        self.rig.settle()
        return self.codes()

    def codes(self) -> list[str]:
        """The codes that came."""
        answer = self.peer.answer()
        assert isinstance(answer, GroupCommitted)
        return answer.codes
