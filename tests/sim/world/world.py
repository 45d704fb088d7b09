"""A whole cluster in one process, from one seed: name servers, brokers and clients.

Cores are the real ones, with the real PySyncObj; sockets, disks and clocks are simulated. A run has
three acts: the cluster comes up and topics are created; producers and readers work while `Faults`
strike; everything is healed, and then all that was sent must be acknowledged, all that was
acknowledged be read and every replica be alike.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from logboom.metadata.config import NameServerConfig, NameServerMember
from logboom.metadata.name_server import NameServer
from logboom.metadata.raft.quorum_recovery import go_on_alone
from logboom.metadata.raft.raft_config import RaftConfig, RaftError
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.tables.replica_set import ReplicaSet
from logboom.nodes.broker import Broker
from logboom.nodes.config import BrokerConfig
from logboom.wire.actor import Address, Call, Core
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError
from logboom.wire.messages import AnyMessage
from logboom.wire.routes import Routes
from tests.sim.world.complaints import Complaints
from tests.sim.world.journal_disk import JournalDisk
from tests.sim.world.limits import Limits
from tests.sim.world.machine import OLD_UNTIL, Kind, Machine
from tests.sim.world.moments import Moment, moment_of
from tests.sim.world.network import Frames, Host, Network
from tests.sim.world.process import Process
from tests.sim.world.scheduler import Clock, Scheduler
from tests.sim.world.storage import SimulatedStorage
from tests.sim.world.timers import check_timers
from tests.sim.world.trace import BrokenProperty, Trace

Operate: TypeAlias = Callable[
    [WireMessage, Callable[[AnyMessage | None, LogboomError | None], None]], None
]
CLUSTER_KEY = b"the key of a simulated cluster"
RAFT = RaftConfig(compact_entries=24, hash_every=4, snapshot_chunk_bytes=2048)
"""Small thresholds: compaction and snapshots happen within seconds."""
TIMERS_EVERY = 4
"""Turns of brokers, of all together, from one check of the timers to the next."""
LOOK_EVERY = 8
"""States are compared at applied indexes that are multiples of this."""


class World:
    """Machines, the network between them and true time."""

    def __init__(
        self,
        seed: int,
        name_servers: int = 3,
        brokers: int = 3,
        *,
        scrub_every_s: float = 3_600.0,
        follower_reads: bool = False,
        limits: Limits | None = None,
        name_server_settings: Callable[[str], Mapping[str, Any]] | None = None,
        broker_settings: Mapping[str, Any] | None = None,
        raft: RaftConfig = RAFT,
    ) -> None:
        """`limits` None: as the program is shipped. `name_server_settings`: returns what else stands
        in the configuration of a name server that starts; `broker_settings`: in those of all
        brokers."""
        self.seed = seed
        self._name_server_settings = name_server_settings or (lambda _name: {})
        self._broker_settings = dict(broker_settings or {})
        self._limits = limits
        self._raft = raft
        self._scrub_every_s = scrub_every_s
        self._follower_reads = follower_reads
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now)
        self.network = Network(self.scheduler, random.Random(self.rng.random()))
        self.network.on_arrival = self._arrived
        self.transaction_timeout_ms = 60_000
        """Setting of brokers that start from now on."""
        self.on_moment: Callable[[Moment, str], None] = lambda _moment, _who: None
        """Called with a moment that hurts and the node that it is about."""
        self.watched: set[Moment] = set()
        """Moments that `on_moment` wants to hear of: others cost nothing."""
        self.on_broker_turn: Callable[[Broker], None] = lambda _core: None
        """Called when a turn of a broker has ended."""
        self.operate: Operate = lambda _message, _answered: None
        """An operator's client, with the cluster key, sends a request to the name servers."""
        self.intrude: Operate = lambda _message, _answered: None
        """A client without the key sends one that needs it."""
        self.bad_disk = ""
        """The broker whose disk may lose what it had synced."""
        self._max_unsynced_bytes: int | None = None
        self.observer = Routes()
        """The metadata as some client knows it."""
        self.complaints = Complaints()
        """Hears what programs log, for as long as a run has it listen."""
        self.machines: dict[str, Machine] = {}
        self._journals = 0
        self._broker_turns = 0
        self._leaders: dict[int, str] = {}
        self._states: dict[int, tuple[str, bytes]] = {}
        self._looked: dict[str, int] = {}
        self.isrs: dict[tuple[int, int], Collection[str]] = {}
        """Topic id and queue → the ISR that was committed last, as any name server has applied it."""
        self.standings: dict[tuple[int, int], ReplicaSet] = {}
        """The same for the whole replica set."""
        self.on_name_server_turn: Callable[[], None] = lambda: None
        """Called when a turn of a name server has ended."""
        self._furthest = -1
        """Greatest index that any name server has applied."""
        self.recovered_at = 0
        """Index of the entry by which a survivor went on alone; 0: none did."""
        self._recovered = False
        self._members = [
            NameServerMember(f"name-{n}", f"name-{n}:7701", f"name-{n}:7721")
            for n in range(1, name_servers + 1)
        ]
        self._named = name_servers
        for member in self._members:
            self._add_name_server(member, founder=True)
        for number in range(1, brokers + 1):
            self._add_broker(f"broker-{number}", f"zone-{number % 2}")

    # -- building ---------------------------------------------------------------------------

    def join_name_server(self) -> NameServerMember:
        """A new, empty name server of a name never used before; it asks to be added (R12)."""
        self._named += 1
        name = f"name-{self._named}"
        member = NameServerMember(name, f"{name}:7701", f"{name}:7721")
        self._members = [m for m in self._members if not self.machines[m.id].retired]
        self._add_name_server(member, founder=False)
        self._members.append(member)
        return member

    def _add_name_server(self, member: NameServerMember, *, founder: bool) -> None:
        settings: dict[str, Any] = dict(self._limits.raft) if self._limits is not None else {}
        raft = replace(self._raft, **settings)
        config = NameServerConfig(
            id=member.id,
            listen=member.endpoint,
            raft_listen=member.raft_endpoint,
            name_servers=list(self._members),
            create=founder,
        )

        def build() -> Core:
            rng = random.Random(self.rng.random())
            settings = self._name_server_settings(member.id)
            current = msgspec.structs.replace(config, **settings)
            assert machine.journal is not None
            clock = machine.clock.instant()
            return NameServer(current, machine.journal, rng, CLUSTER_KEY, clock, raft)

        journal = self._new_journal(member.id, joining=not founder)
        listeners = {"main": member.endpoint, "raft": member.raft_endpoint}
        machine = self.add(member.id, "name-server", listeners, build)
        machine.journal = journal

    def _new_journal(self, name: str, *, joining: bool) -> JournalDisk:
        """An empty folder for a name server."""
        self._journals += 1
        journal = JournalDisk(self.rng, f"journal {self._journals}", joining=joining)
        journal.on_snapshot = lambda: self._snapshot(name)
        return journal

    def lose_journal(self, name: str) -> None:
        """The disk of a name server that is down is lost; an empty folder takes its place (R9)."""
        machine = self.machines[name]
        assert machine.process is None, f"{name} runs"
        self.trace.note(name, "has an empty folder")
        machine.journal = self._new_journal(name, joining=True)
        machine.emptied = True

    def go_on_alone(self, name: str) -> None:
        """Have a name server that is down go on without the others, of which none is left (R15)."""
        machine = self.machines[name]
        assert machine.process is None, f"{name} runs"
        assert machine.journal is not None
        go_on_alone(name, [member.id for member in self._members], machine.journal)
        self.trace.note(name, "goes on alone")
        self.recovered_at = machine.journal.last_index
        # What the others had decided beyond its log is no part of this history.
        self._states.clear()
        self._looked.clear()

    def _snapshot(self, name: str) -> None:
        self.trace.count("snapshots")
        self.on_moment("snapshot", name)

    def new_storage(self) -> SimulatedStorage:
        """An empty store."""
        storage = SimulatedStorage(self.rng.randbytes(8).hex())
        storage.on_cut = lambda: self.trace.count("cuts")
        return storage

    def replace_storage(self, machine: Machine) -> None:
        """A machine's disk is lost, and an empty one takes its place."""
        old, machine.storage = machine.storage, self.new_storage()
        if old is not None:
            machine.storage.succeed(old)

    def join_broker(self) -> str:
        """A new, empty broker of a name never used before; its name."""
        number = 1 + sum(machine.kind == "broker" for machine in self.machines.values())
        self._add_broker(f"broker-{number}", f"zone-{number % 2}")
        return f"broker-{number}"

    def _add_broker(self, name: str, zone: str) -> None:
        config = BrokerConfig(
            id=name,
            name_servers=[member.endpoint for member in self._members],
            listen=f"{name}:7711",
            advertise=f"{name}:7711",
            zone=zone,
            scrub_every_s=self._scrub_every_s,
            retention_check_ms=700,
            follower_reads=self._follower_reads,
        )
        config = msgspec.structs.replace(config, **self._broker_settings)
        if self._limits is not None:
            config = self._limits.broker(config)
            self._max_unsynced_bytes = self._limits.settings.get("max_unsynced_bytes")

        def build() -> Core:
            rng = random.Random(self.rng.random())
            storage = machine.storage
            assert storage is not None
            if machine.starts == machine.old_until:
                self.trace.count("bodies of an older format", storage.grow_old())
                self.trace.count("folders of an older format")
            storage.open()
            # An operator keeps the list up to date when name servers are replaced.
            alive = [m.endpoint for m in self._members if not self.machines[m.id].retired]
            current = msgspec.structs.replace(
                config,
                name_servers=alive,
                transaction_timeout_ms=self.transaction_timeout_ms,
            )
            return Broker(current, storage, rng, rng.randbytes(8).hex(), CLUSTER_KEY)

        machine = self.add(name, "broker", {"main": f"{name}:7711"}, build)
        machine.storage = self.new_storage()
        # Dice of its own: what a seed does stays as it was.
        machine.old_until = random.Random(f"format of {self.seed} {name}").choice(OLD_UNTIL)

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
        """Name servers and brokers of the cluster, or one kind."""
        wanted = ("name-server", "broker") if kind is None else (kind,)
        return [m for m in self.machines.values() if m.kind in wanted and not m.retired]

    # -- starting and ending ----------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a process on a machine, from what its disks hold."""
        machine = self.machines[name]
        assert machine.process is None, f"{name} runs"
        machine.starts += 1
        self._looked.pop(name, None)
        self.trace.note(name, "starts")
        try:
            core = machine.build()
        except RaftError as error:
            self._refused(machine, str(error))
            return
        process = Process(
            name,
            core,
            machine.clock,
            self.scheduler,
            self.network,
            random.Random(self.rng.random()),
            self.trace,
            self._ended,
            machine.storage,
            self._max_unsynced_bytes if machine.kind == "broker" else None,
        )
        process.lost_power = lambda _process: self.kill(name)
        if machine.kind == "name-server":
            process.after_turn = lambda: self._look_at_name_server(name)
        elif machine.kind == "broker":
            process.after_turn = lambda: self._look_at_broker(machine, process)
        machine.process = process
        for listener, endpoint in machine.listeners.items():
            self.network.listen(process, listener, endpoint)

    def _look_at_broker(self, machine: Machine, process: Process) -> None:
        core, storage = process.core, machine.storage
        assert isinstance(core, Broker)
        assert storage is not None
        if storage.suspect and core.registered:
            # As a broker's skin does: once the name servers know, the next start need not say so.
            storage.suspect = False
        self._broker_turns += 1
        if self._broker_turns % TIMERS_EVERY == 0:
            check_timers(core, process.clock.instant())
        self.on_broker_turn(core)

    def kill(self, name: str) -> None:
        """The machine loses its power, or (a third) only the process is killed."""
        machine = self.machines[name]
        if machine.process is None:
            return
        machine.process.kill()
        machine.process = None
        self.trace.note(name, f"is killed, {self._lose(machine)} writes lost")
        self.trace.count("crashes")

    def _lose(self, machine: Machine) -> int:
        """What was in memory is gone, and with the power what was not synced: how many writes."""
        if machine.storage is not None:
            return machine.storage.crash(self.rng, power=self.rng.random() < 0.67)
        return machine.journal.crash() if machine.journal is not None else 0

    def stop(self, name: str) -> None:
        """Ask a node to stop in good order; it starts again afterwards."""
        process = self.machines[name].process
        if process is not None:
            self.trace.note(name, "is asked to stop")
            process.deliver(Call("stop"))

    def _ended(self, process: Process, reason: str) -> None:
        self.trace.note(process.name, f"ended: {reason or 'in good order'}")
        machine = self.machines[process.name]
        machine.process = None
        if reason:
            self._refused(machine, reason)
            return
        self.trace.count("graceful stops")
        if machine.storage is not None:
            machine.storage.crash(self.rng, power=False)
        self.boot_later(machine.name, self.rng.uniform(0.1, 2.0))

    def _refused(self, machine: Machine, reason: str) -> None:
        """A process ended for a reason, or did not start: because of its disk, or by a fault."""
        if "was removed from the group" in reason:
            return
        if machine.emptied and "it is new, but" in reason:
            self.trace.count("empty folders refused")
            return
        if not machine.excused(reason):
            raise BrokenProperty("nodes run", f"{machine.name} ended: {reason}")
        self.trace.count("ends by a failed disk")
        self._lose(machine)
        self.boot_later(machine.name, self.rng.uniform(0.1, 2.0))

    def boot(self, name: str) -> None:
        """Start the machine's process unless it runs, or is idle."""
        machine = self.machines[name]
        if machine.process is None and not machine.retired and not machine.idle:
            self.start(name)

    def boot_later(self, name: str, seconds: float) -> None:
        """Start it in so many seconds, unless it runs then."""
        self.scheduler.after(seconds, lambda: self.boot(name))

    def retire(self, name: str) -> None:
        """Take a machine out of the cluster, disks and all."""
        machine = self.machines[name]
        machine.retired = True
        if machine.process is not None:
            machine.process.kill()
            machine.process = None
        self.trace.note(name, "is gone for good")

    def leads(self, machine: Machine) -> bool:
        """Whether a node leads the raft group or some queue, as far as `observer` was told."""
        observer = self.observer
        return machine.name == observer.raft_leader or any(
            queue.leader == machine.name
            for topic in observer.topics.values()
            for queue in topic.queues
        )

    def newest_state(self) -> ClusterState | None:
        """What the name servers have decided, as the furthest of those that run has applied it."""
        newest = self.newest_name_server()
        return newest.cluster if newest is not None else None

    def newest_name_server(self) -> NameServer | None:
        """The one of those that run that has applied most."""
        cores = [c for m in self.nodes("name-server") if (c := self.name_server(m.name))]
        return max(cores, key=lambda core: core.raft.applied_index, default=None)

    # -- looking on -------------------------------------------------------------------------

    def _arrived(self, host: Host, peer: Address, frames: Frames) -> None:
        self.trace.mix(host.name.encode(), *frames)
        found = moment_of(self.machines[host.name].kind, peer, frames, self.watched)
        if found is not None:
            moment, who = found
            self.on_moment(moment, who or host.name)

    def _look_at_name_server(self, name: str) -> None:
        """No handler failed; one raft leader per term; equal states at equal applied index."""
        self.complaints.judge()
        self.on_name_server_turn()
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
        if core.cluster.recoveries and not self._recovered:
            self._recovered, self._furthest = True, -1
        if index > self._furthest:
            self._furthest = index
            cluster, before = core.cluster, self.isrs
            topics = cluster.topics_by_id.items()
            self.standings = {(t, q.index): q.standing for t, topic in topics for q in topic.queues}
            self.isrs = {key: standing.isr for key, standing in self.standings.items()}
            # What a survivor takes for the ISR of these was perhaps changed by what it lacks.
            self.isrs.update((key, before[key]) for key in cluster.doubted if key in before)
        if index % LOOK_EVERY == 0 and self._looked.get(name) != index:
            self._looked[name] = index
            self._compare_state(name, index, core)

    def _compare_state(self, name: str, index: int, core: NameServer) -> None:
        """Hold a name server's state against the first one seen at this applied index."""
        members = core.raft.applied_members
        if name not in members:
            return  # It joins, and begins with what it was told.
        whole = core.state.snapshot() + " ".join(sorted(members)).encode()
        digest = hashlib.blake2b(whole, digest_size=8).digest()
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
