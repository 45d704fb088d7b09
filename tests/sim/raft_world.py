"""A raft group alone in one process, from one seed: virtual clocks, faulty links, crashing nodes.

The nodes are real `RaftNode`s with the real PySyncObj; only disks, links and clocks are simulated.
The oracle sees every apply: one history, of which every node holds a prefix at every moment.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from logboom.metadata.raft.raft_config import RaftConfig, SubmitOutcome, SubmitStatus
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.raft.raft_state import RaftCallbacks
from tests.sim.raft_faults import Weather
from tests.sim.world.raft_disk import PowerLossError, SimulatedDisk

SMALL = RaftConfig(
    append_batch_bytes=400,
    max_command_bytes=200,
    compact_entries=12,
    snapshot_chunk_bytes=96,
    hash_every=8,
)
"""Small enough that appends split, snapshots come in pieces and the log is compacted often."""


class BrokenPromiseError(AssertionError):
    """The group did what it must never do."""


@dataclass
class Machine:
    """One member: what survives a crash, and the process if it runs."""

    name: str
    disk: SimulatedDisk
    offset: float
    rate: float
    node: RaftNode | None = None
    items: list[bytes] = field(default_factory=list)
    inbox: list[tuple[str, bytes, int]] = field(default_factory=list)
    wake_at: float = float("inf")
    paused_until: float = 0.0
    applied_seen: int = 0
    counting: frozenset[str] = frozenset()
    """The membership that the tick under way counts commits by; the tick may add to it."""
    life: int = 0


@dataclass
class Link:
    """Both directions between two members; a session number for each connection."""

    session: int = 0
    connected: bool = False
    arrives: dict[str, float] = field(default_factory=dict)


class RaftWorld:
    """`run` breaks things for a while, `heal` mends everything, `check` judges."""

    def __init__(
        self,
        seed: int,
        members: int = 3,
        config: RaftConfig = SMALL,
        spare: int = 0,
        node_type: type[RaftNode] = RaftNode,
    ) -> None:
        self.rng = Random(seed)
        self.node_type = node_type
        self.config = config
        self.time = 0.0
        self.founders = [f"n{number}" for number in range(1, members + 1)]
        self.names = [f"n{number}" for number in range(1, members + spare + 1)]
        self.machines = {
            name: Machine(
                name, SimulatedDisk(), self.rng.uniform(0, 1000), self.rng.uniform(0.98, 1.02)
            )
            for name in self.names
        }
        self.links = {
            frozenset(pair): Link(arrives=dict.fromkeys(pair, 0.0))
            for pair in itertools.combinations(self.names, 2)
        }
        self.parted: set[frozenset[str]] = set()
        self.history: list[bytes] = []
        self.acked: dict[bytes, int] = {}
        self.counts: Counter[str] = Counter()
        self.changing = False
        self.led: dict[int, str] = {}
        self.weather = Weather(self)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._next_command = itertools.count(1)
        for name in self.names:
            self.start(name)

    # -- time -------------------------------------------------------------------------------

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def run_until(self, time: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= time:
            self.time, _, event = heapq.heappop(self._events)
            event()
        self.time = time

    def clock(self, machine: Machine) -> float:
        """What this machine's clock shows."""
        return machine.offset + self.time * machine.rate

    # -- machines ---------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a member on its disk."""
        machine = self.machines[name]
        machine.items, machine.inbox, machine.applied_seen = [], [], 0
        machine.life += 1
        machine.wake_at, machine.paused_until = float("inf"), 0.0
        machine.node = self.node_type(
            name,
            self.founders,
            machine.disk,
            RaftCallbacks(
                apply=lambda command: self._apply(machine, command),
                snapshot=lambda: msgspec.msgpack.encode(machine.items),
                restore=lambda state: self._restore(machine, state),
                clock=lambda: self.clock(machine),
            ),
            Random(self.rng.random()),
            self.config,
        )
        self._wake(machine, self.time)
        for other in self.names:
            if other != name:
                self.at(self.time + self.rng.uniform(0.01, 0.2), lambda o=other: self.dial(name, o))  # type: ignore[misc]  # mypy types no default of a lambda

    def crash(self, name: str) -> None:
        """Power off: what was not synced is gone, its connections break."""
        machine = self.machines[name]
        if machine.node is None:
            return
        self._tally(machine)
        machine.node = None
        self.counts["crashes"] += 1
        self.counts["changes_lost"] += machine.disk.crash()
        for other in self.names:
            if other != name:
                self.hang_up(name, other)

    def _tally(self, machine: Machine) -> None:
        assert machine.node is not None
        for key, value in machine.node.status().items():
            if isinstance(value, int) and key not in _GAUGES:
                self.counts[key] += value

    def _wake(self, machine: Machine, time: float) -> None:
        time = max(time, machine.paused_until)
        if time >= machine.wake_at:
            return
        machine.wake_at = time
        life = machine.life

        def turn() -> None:
            if machine.life == life and machine.wake_at == time:
                machine.wake_at = float("inf")
                if self.time < machine.paused_until:
                    self._wake(machine, machine.paused_until)
                elif machine.node is not None:
                    self._turn(machine, machine.node)

        self.at(time, turn)

    def _turn(self, machine: Machine, node: RaftNode) -> None:
        inbox, machine.inbox = machine.inbox, []
        try:
            for sender, frame, session in inbox:
                if not node.receive(sender, frame, session):
                    raise BrokenPromiseError(f"{machine.name} refused a frame of {sender}")
            machine.counting = node.members
            node.tick(self.clock(machine))
            node.sync()
        except PowerLossError:
            self.counts["power_losses_in_a_turn"] += 1
            self.crash(machine.name)
            self.at(self.time + self.rng.uniform(0.05, 1), lambda: self.restart(machine.name))
            return
        if node.applied_index < machine.applied_seen:
            raise BrokenPromiseError(f"{machine.name} rolled back to {node.applied_index}")
        machine.applied_seen = node.applied_index
        if node.is_leader and self.led.setdefault(node.term, machine.name) != machine.name:
            raise BrokenPromiseError(f"two leaders of term {node.term}")
        outbox = node.take_outbox()
        for number, (peer, frame) in enumerate(outbox):
            if machine.disk.fail_in == 2 and number >= len(outbox) // 2:
                break
            self._post(machine.name, peer, frame)
        pause = (node.deadline - self.clock(machine)) / machine.rate
        self._wake(machine, self.time + max(pause, 0.000_2))

    def restart(self, name: str) -> None:
        """Start a member unless it runs."""
        if self.machines[name].node is None:
            self.start(name)

    # -- links ------------------------------------------------------------------------------

    def dial(self, one: str, other: str) -> None:
        """Connect two members afresh if both run and nothing parts them."""
        pair = frozenset((one, other))
        link, ends = self.links[pair], (self.machines[one], self.machines[other])
        if pair in self.parted or link.connected or any(end.node is None for end in ends):
            return
        link.connected = True
        link.session += 1
        self._announce(one, other, link.session)

    def _announce(self, one: str, other: str, session: int) -> None:
        for name, peer in ((one, other), (other, one)):
            machine = self.machines[name]
            if machine.node is not None:
                machine.node.peer_up(peer, session)
                self._wake(machine, self.time)

    def reset(self, one: str, other: str) -> None:
        """A connection breaks and comes back at once; late frames still arrive, out of date."""
        link = self.links[frozenset((one, other))]
        if link.connected:
            link.session += 1
            self.counts["sessions_reset"] += 1
            self._announce(one, other, link.session)

    def hang_up(self, one: str, other: str) -> None:
        """A connection breaks; each end notices in its own time."""
        link = self.links[frozenset((one, other))]
        if not link.connected:
            return
        link.connected = False
        link.session += 1
        session = link.session

        def notice(name: str, peer: str) -> None:
            node = self.machines[name].node
            if node is not None and link.session == session and not link.connected:
                node.peer_down(peer)

        for name, peer in ((one, other), (other, one)):
            self.at(self.time + self.rng.uniform(0, 0.3), lambda n=name, p=peer: notice(n, p))  # type: ignore[misc]  # as above

    def part(self, group: set[str]) -> None:
        """Cut every link between a group and the rest."""
        for pair in self.links:
            if len(pair & group) == 1:
                self.parted.add(pair)
                self.hang_up(*sorted(pair))
        self.counts["partitions"] += 1

    def mend(self) -> None:
        """End every partition."""
        self.parted.clear()
        for pair in self.links:
            one, other = sorted(pair)
            self.at(self.time + self.rng.uniform(0.01, 0.2), lambda o=one, t=other: self.dial(o, t))  # type: ignore[misc]  # as above

    def _post(self, sender: str, receiver: str, frame: bytes) -> None:
        link = self.links[frozenset((sender, receiver))]
        if not link.connected:
            return
        session = link.session
        arrival = max(
            link.arrives[receiver], self.time + self.rng.uniform(0.000_2, self.weather.delay_s)
        )
        link.arrives[receiver] = arrival

        def arrive() -> None:
            machine = self.machines[receiver]
            # After a reset the frame still comes, under its old session; after a break it is lost.
            if link.connected and machine.node is not None:
                machine.inbox.append((sender, frame, session))
                self._wake(machine, self.time)

        self.at(arrival, arrive)

    # -- the oracle -------------------------------------------------------------------------

    def _apply(self, machine: Machine, command: bytes) -> bytes:
        position = len(machine.items)
        machine.items.append(command)
        if position < len(self.history):
            if self.history[position] != command:
                raise BrokenPromiseError(f"{machine.name} applied {command!r} at {position}")
        else:
            self.history.append(command)
        return b"done " + command

    def _restore(self, machine: Machine, state: bytes) -> None:
        items = msgspec.msgpack.decode(state, type=list[bytes])
        if len(items) < len(machine.items):
            raise BrokenPromiseError(f"{machine.name} restored an older state")
        if items != self.history[: len(items)]:
            raise BrokenPromiseError(f"{machine.name} restored another history")
        machine.items = items

    # -- clients ----------------------------------------------------------------------------

    def submit(self) -> None:
        """Hand a command to somebody who believes to lead."""
        leaders = [m for m in self.machines.values() if m.node is not None and m.node.is_leader]
        if not leaders:
            return
        machine = self.rng.choice(leaders)
        assert machine.node is not None
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            command = b"%d:" % next(self._next_command) + bytes(self.rng.choice((8, 60, 150)))
            self.counts["submitted"] += 1
            machine.node.submit(command, partial(self._answered, machine, command))
        self._wake(machine, self.time)

    def _answered(self, machine: Machine, command: bytes, outcome: SubmitOutcome) -> None:
        self.counts[outcome.status.value] += 1
        if outcome.status is not SubmitStatus.APPLIED:
            return
        if outcome.result != b"done " + command:
            raise BrokenPromiseError(f"{command!r} got another's result")
        self.acked[command] = outcome.index
        members = machine.counting
        holding = sum(self.machines[name].disk.holds(outcome.index, command) for name in members)
        if 2 * holding <= len(members):
            raise BrokenPromiseError(f"{command!r} acknowledged on {holding} of {len(members)}")

    def change_membership(self) -> None:
        """Ask a leader to add or remove somebody."""
        leaders = [m for m in self.machines.values() if m.node is not None and m.node.is_leader]
        if not leaders:
            return
        machine = self.rng.choice(leaders)
        node, name = machine.node, self.rng.choice(self.names)
        assert node is not None

        def answered(outcome: SubmitOutcome) -> None:
            self.counts[f"changes_{outcome.status.value}"] += 1

        if name not in node.members:
            node.add_member(name, answered)
        elif len(node.members) > 3:
            node.remove_member(name, answered)
        self._wake(machine, self.time)

    # -- the story --------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Load and faults for a while."""
        end, weather = self.time + seconds, self.weather
        faults_at = self.time
        while self.time < end:
            self.run_until(self.time + self.rng.expovariate(1 / weather.load_s))
            self.submit()
            if self.time >= faults_at:
                weather.strike()
                faults_at = self.time + self.rng.expovariate(1 / weather.interval_s)
            if self.changing and self.rng.random() < 2 * weather.load_s:
                self.change_membership()

    def leader_name(self) -> str | None:
        """Somebody who believes to lead."""
        for machine in self.machines.values():
            if machine.node is not None and machine.node.is_leader:
                return machine.name
        return None

    def pause(self, name: str, seconds: float) -> None:
        """The process stands still; what arrives waits."""
        self.machines[name].paused_until = self.time + seconds
        self.counts["pauses"] += 1

    def slow(self, one: str, other: str, seconds: float) -> None:
        """A link holds everything back for a while, in order."""
        link = self.links[frozenset((one, other))]
        for end in (one, other):
            link.arrives[end] = max(link.arrives[end], self.time + seconds)
        self.counts["slow_links"] += 1

    def hand_over(self, name: str) -> None:
        """Ask a leader to hand leadership over."""
        machine = self.machines[name]
        if machine.node is not None and machine.node.is_leader:
            self.counts["transfers"] += machine.node.transfer_leadership()
            self._wake(machine, self.time)

    def heal(self, seconds: float = 8.0) -> None:
        """Everybody runs and hears everybody, for a while."""
        for machine in self.machines.values():
            machine.disk.fail_in = None
            machine.paused_until = min(machine.paused_until, self.time)
            self.restart(machine.name)
            self._wake(machine, self.time)
        self.mend()
        self.run_until(self.time + seconds)
        self.submit()
        self.run_until(self.time + 1)

    def check(self) -> None:
        """Judge: converged, nothing acknowledged lost, one history."""
        nodes = [m.node for m in self.machines.values() if m.node is not None]
        leaders = [node for node in nodes if node.is_leader]
        if len(leaders) != 1 or not leaders[0].leads_at(
            self.clock(self.machines[leaders[0].node_id])
        ):
            raise BrokenPromiseError(f"leaders after healing: {[n.node_id for n in leaders]}")
        members = leaders[0].members
        for node in nodes:
            machine = self.machines[node.node_id]
            self._tally(machine)
            if node.node_id not in members:
                continue
            if machine.items != self.history or node.members != members:
                raise BrokenPromiseError(
                    f"{node.node_id} has {len(machine.items)} of {len(self.history)} commands and"
                    f" members {sorted(node.members)}: {node.status()}"
                )
        lost = self.acked.keys() - set(self.history)
        if lost:
            raise BrokenPromiseError(f"acknowledged and lost: {sorted(lost)}")
        if len(set(self.history)) != len(self.history):
            raise BrokenPromiseError("a command was applied twice")
        if self.counts["state_hash_mismatches"]:
            raise BrokenPromiseError("state hashes differ")


_GAUGES = {
    "commit_index",
    "applied_index",
    "first_index",
    "last_index",
    "log_bytes",
    "members",
    "peers_up",
    "term",
    "applied",
}


def play(
    seed: int,
    members: int = 3,
    seconds: float = 12.0,
    *,
    changing: bool = False,
    node_type: type[RaftNode] = RaftNode,
) -> RaftWorld:
    """One whole story; raises `BrokenPromiseError` with the seed in it."""
    world = RaftWorld(seed, members, spare=2 if changing else 0, node_type=node_type)
    world.changing = changing
    try:
        world.run_until(2.0)
        world.run(seconds)
        world.heal()
        world.check()
    # Whatever the story raises, the seed belongs to it. It is raised on.
    except Exception as error:
        error.add_note(f"seed {seed}, {members} members, changing={changing}")
        raise
    return world
