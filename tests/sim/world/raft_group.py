"""A raft group under a test's hand: nothing moves unless the test moves it, in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from random import Random

import msgspec

from logboom.metadata.raft.raft_config import RaftConfig, SubmitOutcome
from logboom.metadata.raft.raft_frames import Frame, decode, encode
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.raft_state import RaftCallbacks
from tests.sim.world.raft_disk import SimulatedDisk

STEP_S = 0.01


class Member:
    """One node, its disk and its state: the list of commands applied."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk = SimulatedDisk()
        self.items: list[bytes] = []
        self.node: RaftNode
        self.outcomes: list[SubmitOutcome] = []
        self.restores = 0

    def apply(self, command: bytes) -> bytes:
        self.items.append(command)
        return b"done " + command

    def restore(self, state: bytes) -> None:
        self.items = msgspec.msgpack.decode(state, type=list[bytes])
        self.restores += 1

    def submit(self, *commands: bytes) -> None:
        for command in commands:
            self.node.submit(command, self.outcomes.append)


class Group:
    """Members whose frames wait in `wires[sender, receiver]` until delivered."""

    def __init__(
        self,
        *names: str,
        config: RaftConfig | None = None,
        founders: tuple[str, ...] = (),
        told: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.time = 100.0
        self.config = config or RaftConfig()
        self.founders = founders or names
        self.told = told or {}
        """Founders as somebody was told them, who was told others."""
        self.members = {name: Member(name) for name in names}
        self.wires: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.sessions: defaultdict[frozenset[str], int] = defaultdict(int)
        for name in names:
            self.open(name)
        for name in names:
            for other in names:
                if name < other:
                    self.connect(name, other)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def open(self, name: str) -> RaftNode:
        """Start a node on its disk, without connections."""
        member = self.members[name]
        member.items = []
        member.node = RaftNode(
            name,
            self.told.get(name, self.founders),
            member.disk,
            RaftCallbacks(
                # Looked up at each call, so that a test can replace it.
                apply=lambda command: member.apply(command),
                snapshot=lambda: msgspec.msgpack.encode(member.items),
                restore=member.restore,
                clock=lambda: self.time,
            ),
            Random(name),
            self.config,
        )
        return member.node

    def connect(self, one: str, other: str) -> None:
        """A fresh session between two members; what was on the wire is lost."""
        pair = frozenset((one, other))
        self.sessions[pair] += 1
        self.wires[one, other], self.wires[other, one] = [], []
        self.members[one].node.peer_up(other, self.sessions[pair])
        self.members[other].node.peer_up(one, self.sessions[pair])

    def cut(self, one: str, other: str) -> None:
        """Both ends see the connection break."""
        self.wires[one, other], self.wires[other, one] = [], []
        self.members[one].node.peer_down(other)
        self.members[other].node.peer_down(one)

    def isolate(self, name: str) -> None:
        """Cut a member off from all others."""
        for other in self.members:
            if other != name:
                self.cut(name, other)

    def rejoin(self, name: str) -> None:
        """Connect a member to all others."""
        for other in self.members:
            if other != name:
                self.connect(name, other)

    def crash(self, name: str) -> None:
        """Power loss, then a start; the others see its connections break and come back."""
        for other in self.members:
            if other != name:
                self.wires[name, other], self.wires[other, name] = [], []
                self.members[other].node.peer_down(name)
        self.members[name].disk.crash()
        self.open(name)
        self.rejoin(name)

    # -- moving -----------------------------------------------------------------------------

    def turn(self, name: str) -> None:
        """Tick, sync, put the outbox on the wires."""
        node = self.members[name].node
        node.tick(self.time)
        node.sync()
        for peer, frame in node.take_outbox():
            self.wires[name, peer].append(frame)

    def deliver(self, sender: str, receiver: str, count: int | None = None) -> int:
        """Hand over what waits on one wire; how many frames that were."""
        wire = self.wires[sender, receiver]
        frames, self.wires[sender, receiver] = wire[:count], wire[len(wire[:count]) :]
        for frame in frames:
            assert self.members[receiver].node.receive(sender, frame)
        return len(frames)

    def say(self, sender: str, receiver: str, frame: Frame) -> list[Frame]:
        """Hand over one made-up frame; what the receiver answers at the end of its turn."""
        node = self.members[receiver].node
        assert node.receive(sender, encode(frame))
        node.sync()
        answers = []
        for peer, data in node.take_outbox():
            if peer == sender:
                answers.append(decode(data))
            else:
                self.wires[receiver, peer].append(data)
        return answers

    def step(self) -> None:
        """A moment of a healthy group: every frame arrives, everybody takes a turn."""
        self.time += STEP_S
        for sender, receiver in list(self.wires):
            self.deliver(sender, receiver)
        for name in self.members:
            self.turn(name)

    def settle(self, seconds: float = 1.0) -> None:
        """Let a healthy group run."""
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def elect(self, name: str) -> Member:
        """Run until this member leads, the others holding still."""
        for _ in range(300):
            self.time += STEP_S
            self.turn(name)
            for other in self.members:
                self.deliver(name, other)
                if other != name and self.wires[other, name] == []:
                    self._answer(other, name)
                self.deliver(other, name)
            if self.members[name].node.is_leader:
                self.settle(0.3)
                return self.members[name]
        raise AssertionError(f"{name} was not elected")

    def _answer(self, name: str, asker: str) -> None:
        """Let a member answer without a tick of its own, so that it does not stand."""
        node = self.members[name].node
        node.sync()
        for peer, frame in node.take_outbox():
            if peer == asker:
                self.wires[name, peer].append(frame)

    def leader(self) -> Member:
        """The one member that leads."""
        (leader,) = [member for member in self.members.values() if member.node.is_leader]
        return leader
