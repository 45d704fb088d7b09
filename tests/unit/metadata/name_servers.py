"""Three name servers on a simulated network, and someone who asks them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec.structs import replace

from logboom.metadata.config import (
    NameServerConfig,
    NameServerListener,
    NameServerMember,
    listeners_of,
)
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft.raft_config import RaftConfig
from logboom.wire.actor import Effects, Event, Instant, Received
from logboom.wire.base import Request, WireMessage
from logboom.wire.commands import AnyCommand, CommandResult, RegisterBroker
from logboom.wire.errors import LogboomError
from logboom.wire.features import FEATURES, SOFTWARE
from logboom.wire.hello import Identity
from logboom.wire.messages import AnyMessage, Heartbeat, Propose, Proposed, Watch, WatchResult
from logboom.wire.session import Reply, Session
from logboom.wire.view import View
from tests.sim.world.network import Network
from tests.sim.world.process import Process
from tests.sim.world.raft_disk import SimulatedDisk
from tests.sim.world.scheduler import Clock, Scheduler
from tests.sim.world.trace import Trace

Who: TypeAlias = Literal["client", "broker", "operator"]
"""Who asks; an operator is a client with the cluster key."""
KEY = b"the key"
RAFT = RaftConfig(compact_entries=24, hash_every=4, snapshot_chunk_bytes=2048)


@dataclass(slots=True)
class Asked:
    """A request under way, and how it ended."""

    reply: Reply | None = None


class Asker:
    """A core that asks what it is told to ask."""

    def __init__(self, identity: Identity, rng: random.Random) -> None:
        self.identity = identity
        self.sessions: dict[str, Session] = {}
        self.wishes: list[tuple[str, WireMessage, float, Asked]] = []
        self._rng = rng

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn."""
        out = Effects()
        for endpoint, message, seconds, asked in self.wishes:
            session = self.sessions.get(endpoint)
            if session is None:
                session = Session(endpoint, self.identity, self._rng, now.mono)
                self.sessions[endpoint] = session
            session.request(message, (), asked, now.mono + seconds, out, now.mono)
        self.wishes.clear()
        replies: list[Reply] = []
        for event in events:
            assert isinstance(event, Received)
            assert isinstance(event.peer, str)
            replies += self.sessions[event.peer].receive(event.frames, out, now.mono)
        for session in self.sessions.values():
            replies += session.tick(out, now.mono)
        for reply in replies:
            reply.context.reply = reply
        return out

    def deadline(self) -> float | None:
        """What the sessions want."""
        due = [d for s in self.sessions.values() if (d := s.deadline()) is not None]
        return min(due, default=None)


class Group:
    """Name servers name-1 to name-3, a client and a broker's identity that ask."""

    def __init__(
        self,
        seed: int = 1,
        size: int = 3,
        rebalance_after_s: float = 0.0,
        raft: RaftConfig = RAFT,
        administrators: Mapping[str, str] | None = None,
        initial_nodes: Mapping[str, str] | None = None,
    ) -> None:
        self.administrators = dict(administrators or {})
        """Those in the configurations of name servers that start."""
        self.initial_nodes = dict(initial_nodes or {})
        self._raft = raft
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, random.Random(seed))
        self.trace = Trace(lambda: self.scheduler.now)
        self.members = [
            NameServerMember(f"name-{n}", f"name-{n}:7701", f"name-{n}:7721")
            for n in range(1, size + 1)
        ]
        self.rebalance_after_s = rebalance_after_s
        self.disks: dict[str, SimulatedDisk] = {}
        self.processes: dict[str, Process] = {}
        self.ended: dict[str, str] = {}
        self.askers: dict[Who, tuple[Asker, Process]] = {}
        self._numbers = self._journals = 0
        for member in self.members:
            self.start(member.id)
        for asker in ("client", "broker", "operator"):
            self._add_asker(asker)

    # -- processes --------------------------------------------------------------------------

    def _process(self, name: str, core: NameServer | Asker) -> Process:
        clock = Clock(self.scheduler, 100.0, 1.0, 0)
        rng = random.Random(self.rng.random())
        network, scheduler, trace = self.network, self.scheduler, self.trace
        return Process(name, core, clock, scheduler, network, rng, trace, self._on_end)

    def _on_end(self, process: Process, reason: str) -> None:
        self.ended[process.name] = reason

    def _add_asker(self, who: Who) -> None:
        key = b"" if who == "client" else KEY
        identity = Identity(f"a {who}", "broker" if who == "broker" else "client", cluster_key=key)
        asker = Asker(identity, random.Random(self.rng.random()))
        self.askers[who] = (asker, self._process(f"asking-{who}", asker))

    def start(
        self,
        name: str,
        key: bytes = KEY,
        listeners: Sequence[NameServerListener] = (),
        copy_on: str = "",
    ) -> NameServer:
        """Start a name server from what its disk holds; unknown names join.

        Args:
            copy_on: start it once more, on this host, from a copy of its disk.
        """
        member = {m.id: m for m in self.members}.get(
            name, NameServerMember(name, f"{name}:7701", f"{name}:7721")
        )
        config = NameServerConfig(
            id=name,
            listen=member.endpoint,
            raft_listen=member.raft_endpoint,
            name_servers=self.members,
            administrators=self.administrators,
            initial_nodes=self.initial_nodes,
            rebalance_after_s=self.rebalance_after_s,
            listeners=[*listeners],
        )
        if name not in self.disks:
            self.wipe(name)
        disk = self.disks[name]
        if copy_on:
            disk, original = SimulatedDisk(disk.journal_id), disk
            disk.durable, disk.snapshot = deepcopy(original.durable), original.snapshot
            config = replace(config, listen=f"{copy_on}:7701", raft_listen=f"{copy_on}:7721")
        rng = random.Random(self.rng.random())
        now = Instant(100.0 + self.scheduler.now, 0)
        core = NameServer(config, disk, rng, key, now, self._raft)
        host = copy_on or name
        process = self.processes[host] = self._process(host, core)
        for each in listeners_of(config):
            self.network.listen(process, each.name, each.listen)
        return core

    def wipe(self, name: str) -> None:
        """Give a name server an empty folder; who is no founder joins with it."""
        self._journals += 1
        founder = any(member.id == name for member in self.members)
        self.disks[name] = SimulatedDisk(f"journal {self._journals}", joining=not founder)

    def kill(self, name: str) -> None:
        """Power loss: what was not synced is gone."""
        self.processes.pop(name).kill()
        self.disks[name].crash()

    def core(self, name: str) -> NameServer:
        """A name server that runs."""
        core = self.processes[name].core
        assert isinstance(core, NameServer)
        return core

    def cores(self) -> list[NameServer]:
        """The name servers that run."""
        return [self.core(name) for name in self.processes if name not in self.ended]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.run(self.scheduler.now + seconds)

    # -- asking -----------------------------------------------------------------------------

    def leader(self) -> str:
        """The raft leader that has begun its term; waits for it."""
        for _ in range(200):
            for name, process in self.processes.items():
                core = self.core(name)
                if core.raft.is_leader and core.serving and not process.paused:
                    return name
            self.run(0.05)
        raise AssertionError("no raft leader in 10 s")

    def followers(self) -> list[str]:
        """All but the raft leader."""
        leader = self.leader()
        return [name for name in self.processes if name != leader]

    def begin(
        self, name: str, message: WireMessage, kind: Who = "client", seconds: float = 5.0
    ) -> Asked:
        """Ask a name server without waiting for the answer."""
        asker, process = self.askers[kind]
        asked = Asked()
        asker.wishes.append((f"{name}:7701", message, seconds, asked))
        process.wake()
        return asked

    def wait(self, asked: Asked, seconds: float = 6.0) -> AnyMessage | LogboomError:
        """How a request ended."""
        self.scheduler.run(self.scheduler.now + seconds, lambda: asked.reply is not None)
        assert asked.reply is not None, "a request ends at its deadline the latest"
        answer = asked.reply.message or asked.reply.error
        assert answer is not None
        return answer

    def ask(self, name: str, message: Request, kind: Who = "client") -> AnyMessage | LogboomError:
        """Ask and wait."""
        return self.wait(self.begin(name, message, kind, message.timeout_ms / 1000))

    def propose(
        self, command: AnyCommand, kind: Who = "client", proposer: str = "", number: int = 0
    ) -> CommandResult:
        """Have a command applied by whoever leads."""
        answer = self.ask(self.leader(), Propose(0, 5_000, proposer, number, command), kind)
        assert isinstance(answer, Proposed), answer
        return answer.result

    def register(self, broker: str, features: int = FEATURES) -> int:
        """Register a broker; its instance epoch."""
        self._numbers += 1
        command = RegisterBroker(
            broker,
            f"store of {broker}",
            str(self._numbers),
            f"{broker}:7711",
            "",
            False,
            0,
            features=features,
        )
        value = self.propose(command, "broker").value
        assert isinstance(value, int)
        return value

    def heartbeat(
        self,
        broker: str,
        epoch: int,
        name: str = "",
        unheard: Sequence[str] = (),
        max_request_bytes: int = 0,
        features: int = FEATURES,
    ) -> AnyMessage | LogboomError:
        """Send a broker's heartbeat."""
        message = Heartbeat(
            0, 1_000, broker, epoch, list(unheard), max_request_bytes, SOFTWARE, features
        )
        return self.ask(name or self.leader(), message, "broker")

    def view(self, name: str, version: int = -1, wait_ms: int = 500) -> View:
        """Ask a name server for metadata."""
        answer = self.ask(name, Watch(0, wait_ms + 1_000, version, None, wait_ms))
        assert isinstance(answer, WatchResult), answer
        return answer.view
