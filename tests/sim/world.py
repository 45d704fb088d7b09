"""A whole cluster in one process, from one seed: name servers, brokers and clients.

Cores are the real ones, with the real PySyncObj; sockets, disks and clocks are simulated. A run has
three acts: the cluster comes up and topics are created; producers and readers work while `Faults`
strike; everything is healed, and then all that was sent must be acknowledged, all that was
acknowledged be read and every replica be alike.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from logboom.metadata.config import NameServerConfig, NameServerMember
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft_config import RaftConfig
from logboom.nodes.broker import Broker
from logboom.nodes.config import BrokerConfig
from logboom.wire.actor import Address, Call, Core
from logboom.wire.routes import Routes
from tests.sim.network import Frames, Host, Network
from tests.sim.process import Process
from tests.sim.raft_disk import SimulatedDisk
from tests.sim.scheduler import Clock, Scheduler
from tests.sim.storage import SimulatedStorage
from tests.sim.trace import BrokenProperty, Trace

Kind: TypeAlias = Literal["name-server", "broker", "client"]
CLUSTER_KEY = b"the key of a simulated cluster"
RAFT = RaftConfig(compact_entries=24, hash_every=4, snapshot_chunk_bytes=2048)
"""Small thresholds: compaction and snapshots happen within seconds."""
LOOK_EVERY = 8
"""States are compared at applied indexes that are multiples of this."""
_PRODUCED = b"\xa8produced"
_PROPOSED = b"\xa8proposed"


@dataclass(slots=True, eq=False)
class Machine:
    """A computer: its clock and disks outlive the processes that run on it."""

    name: str
    kind: Kind
    clock: Clock
    listeners: dict[str, str]
    build: Callable[[], Core]
    storage: SimulatedStorage | None = None
    journal: SimulatedDisk | None = None
    process: Process | None = None
    starts: int = 0


class CountingDisk(SimulatedDisk):
    """A name server's disk that notes its snapshots."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def save_snapshot(self, data: bytes) -> None:
        """Keep the snapshot, and count it."""
        super().save_snapshot(data)
        self._trace.count("snapshots")


class World:
    """Machines, the network between them and true time."""

    def __init__(
        self, seed: int, name_servers: int = 3, brokers: int = 3, *, scrub_every_s: float = 3_600.0
    ) -> None:
        self.seed = seed
        self._scrub_every_s = scrub_every_s
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now)
        self.network = Network(self.scheduler, random.Random(self.rng.random()))
        self.network.on_arrival = self._arrived
        self.on_ack: Callable[[str], None] = lambda _broker: None
        """Called with the node's name when a client gets its ack."""
        self.observer = Routes()
        """The metadata as some client knows it."""
        self.machines: dict[str, Machine] = {}
        self._leaders: dict[int, str] = {}
        self._states: dict[int, tuple[str, bytes]] = {}
        self._looked: dict[str, int] = {}
        self._members = [
            NameServerMember(f"name-{n}", f"name-{n}:7701", f"name-{n}:7721")
            for n in range(1, name_servers + 1)
        ]
        for member in self._members:
            self._add_name_server(member)
        for number in range(1, brokers + 1):
            self._add_broker(f"broker-{number}", f"zone-{number % 2}")

    # -- building ---------------------------------------------------------------------------

    def _add_name_server(self, member: NameServerMember) -> None:
        journal = CountingDisk(self.trace)
        config = NameServerConfig(
            id=member.id,
            listen=member.endpoint,
            raft_listen=member.raft_endpoint,
            name_servers=self._members,
            create=True,
        )

        def build() -> Core:
            rng = random.Random(self.rng.random())
            return NameServer(config, journal, rng, CLUSTER_KEY, machine.clock.instant(), RAFT)

        listeners = {"main": member.endpoint, "raft": member.raft_endpoint}
        machine = self.add(member.id, "name-server", listeners, build)
        machine.journal = journal

    def _add_broker(self, name: str, zone: str) -> None:
        storage = SimulatedStorage(self.rng.randbytes(8).hex())
        storage.on_cut = lambda: self.trace.count("cuts")
        config = BrokerConfig(
            id=name,
            name_servers=[member.endpoint for member in self._members],
            listen=f"{name}:7711",
            advertise=f"{name}:7711",
            zone=zone,
            scrub_every_s=self._scrub_every_s,
        )

        def build() -> Core:
            rng = random.Random(self.rng.random())
            return Broker(config, storage, rng, rng.randbytes(8).hex(), CLUSTER_KEY)

        machine = self.add(name, "broker", {"main": f"{name}:7711"}, build)
        machine.storage = storage

    def add(
        self, name: str, kind: Kind, listeners: dict[str, str], build: Callable[[], Core]
    ) -> Machine:
        """A machine with a clock of its own; `build` makes its core at each start."""
        clock = Clock(
            self.scheduler,
            zero=self.rng.uniform(10, 100_000),
            speed=self.rng.uniform(0.995, 1.005),
            wall_ahead_ms=self.rng.randint(-5_000, 5_000),
        )
        machine = self.machines[name] = Machine(name, kind, clock, listeners, build)
        return machine

    def nodes(self, kind: Kind | None = None) -> list[Machine]:
        """Name servers and brokers, or one kind."""
        wanted = ("name-server", "broker") if kind is None else (kind,)
        return [machine for machine in self.machines.values() if machine.kind in wanted]

    # -- starting and ending ----------------------------------------------------------------

    def start(self, name: str) -> Process:
        """Start a process on a machine, from what its disks hold."""
        machine = self.machines[name]
        assert machine.process is None, f"{name} runs"
        machine.starts += 1
        self._looked.pop(name, None)
        self.trace.note(name, "starts")
        process = Process(
            name,
            machine.build(),
            machine.clock,
            self.scheduler,
            self.network,
            random.Random(self.rng.random()),
            self.trace,
            self._ended,
            machine.storage,
        )
        process.lost_power = lambda _process: self.kill(name)
        if machine.kind == "name-server":
            process.after_turn = lambda: self._look_at_name_server(name)
        machine.process = process
        for listener, endpoint in machine.listeners.items():
            self.network.listen(process, listener, endpoint)
        return process

    def kill(self, name: str) -> None:
        """The machine loses its power, or (a third) only the process is killed."""
        machine = self.machines[name]
        if machine.process is None:
            return
        machine.process.kill()
        machine.process = None
        lost = 0
        if machine.storage is not None:
            lost = machine.storage.crash(self.rng, power=self.rng.random() < 0.67)
        if machine.journal is not None:
            lost = machine.journal.crash()
        self.trace.note(name, f"is killed, {lost} writes lost")
        self.trace.count("crashes")

    def stop(self, name: str) -> None:
        """Ask a node to stop in good order; it starts again afterwards."""
        process = self.machines[name].process
        if process is not None:
            self.trace.note(name, "is asked to stop")
            process.deliver(Call("stop"))

    def _ended(self, process: Process, reason: str) -> None:
        self.trace.note(process.name, f"ended: {reason or 'in good order'}")
        if reason:
            raise BrokenProperty("nodes run", f"{process.name} ended: {reason}")
        machine = self.machines[process.name]
        machine.process = None
        self.trace.count("graceful stops")
        if machine.storage is not None:
            machine.storage.crash(self.rng, power=False)
        self.scheduler.after(self.rng.uniform(0.1, 2.0), lambda: self.boot(process.name))

    def boot(self, name: str) -> None:
        """Start the machine's process unless it runs."""
        if self.machines[name].process is None:
            self.start(name)

    def leads(self, machine: Machine) -> bool:
        """Whether a node leads the raft group or some queue, as far as `observer` was told."""
        observer = self.observer
        return machine.name == observer.raft_leader or any(
            queue.leader == machine.name
            for topic in observer.topics.values()
            for queue in topic.queues
        )

    # -- looking on -------------------------------------------------------------------------

    def _arrived(self, host: Host, peer: Address, frames: Frames) -> None:
        self.trace.mix(host.name.encode(), *frames)
        if isinstance(peer, str) and frames and frames[0][1:10] in (_PRODUCED, _PROPOSED):
            machine = self.machines[host.name]
            if machine.kind == "client":
                self.on_ack(peer.partition(":")[0])

    def _look_at_name_server(self, name: str) -> None:
        """One raft leader per term; equal states at equal applied index."""
        core = self.name_server(name)
        assert core is not None
        raft = core.raft
        if raft.is_leader and raft.term not in self._leaders:
            self._leaders[raft.term] = name
            self.trace.count("raft elections")
            self.trace.note(name, f"leads the raft group in term {raft.term}")
        if raft.is_leader and self._leaders[raft.term] != name:
            other = self._leaders[raft.term]
            raise BrokenProperty("one raft leader per term", f"{raft.term}: {other}, {name}")
        index = raft.applied_index
        if index % LOOK_EVERY == 0 and self._looked.get(name) != index:
            self._looked[name] = index
            self._compare_state(name, index, core)

    def _compare_state(self, name: str, index: int, core: NameServer) -> None:
        """Hold a name server's state against the first one seen at this applied index."""
        digest = hashlib.blake2b(core.state.snapshot(), digest_size=8).digest()
        other, expected = self._states.setdefault(index, (name, digest))
        if digest != expected:
            raise BrokenProperty(
                "states are equal at equal index", f"{other} and {name} differ at {index}"
            )

    def compare_name_servers(self) -> bool:
        """Compare those that run now; whether all have applied equally much."""
        running = [
            (m.name, core) for m in self.nodes("name-server") if (core := self.name_server(m.name))
        ]
        for name, core in running:
            self._compare_state(name, core.raft.applied_index, core)
        return len({core.raft.applied_index for _, core in running}) == 1

    def name_server(self, name: str) -> NameServer | None:
        """The core of a name server that runs."""
        process = self.machines[name].process
        if process is None:
            return None
        assert isinstance(process.core, NameServer)
        return process.core

    def broker(self, name: str) -> Broker | None:
        """The core of a broker that runs."""
        process = self.machines[name].process
        if process is None:
            return None
        assert isinstance(process.core, Broker)
        return process.core
