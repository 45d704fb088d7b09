"""A run in which all name servers but one are lost: `python -m tests.sim.recovery_scenario`.

The survivor lags by any amount when an operator lets it go on alone; brokers were restarted meanwhile or
kept running. What was lost with the others lives on in brokers and clients, and nothing of it may be
deleted, given again or taken for something else (R15).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from logboom.metadata.tables.cluster_state import ClusterState
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.messages import AddNameServer, AnyMessage, Ok
from tests.sim.attacks import Attack
from tests.sim.cast.operators import Operators
from tests.sim.cast.wire_producer import WireProducer
from tests.sim.faults.networks import NetworkFaults
from tests.sim.hunting import hunt
from tests.sim.judges.history import History, Queue
from tests.sim.scenario import FOR_EVER, Scenario
from tests.sim.world.trace import BrokenProperty

BEGINS_S: Final = (1.0, 8.0)
"""Seconds after which the survivor begins to lag."""
LAGS_S: Final = (0.0, 0.3, 1.0, 4.0, 7.0)
"""Seconds that it lags; each seed has one of these."""
LATE: Final = Queue("late", 0)
"""Of a topic that is created once the survivor lags."""
COPIES: Final = 2
"""Disks that hold what the topic has acknowledged."""
CALM: Final = ("calm", "brokers keep running")
"""An option, and its help."""
SEND_S: Final = 0.2
SENT_LATE: Final = 3


class _Counters(NamedTuple):
    """What the name servers count up, and brokers and clients keep."""

    version: int
    topic_id: int
    producer_id: int
    instance_epoch: int
    group_id: int
    leader_epochs: int


def _counters(cluster: ClusterState) -> _Counters:
    epochs = (queue.epoch for topic in cluster.topics.values() for queue in topic.queues)
    return _Counters(
        cluster.version,
        cluster.next_topic_id,
        cluster.next_producer_id,
        cluster.next_instance_epoch,
        cluster.groups.next_id,
        max(epochs, default=0),
    )


class Recovery:
    """The loss of all name servers but one, and what an operator does about it; a `Guest`."""

    def __init__(self, scenario: RecoveryScenario) -> None:
        self._scenario = scenario
        self._world = world = scenario.world
        self._rng = random.Random(f"recovery of {scenario.seed}")
        self._network = NetworkFaults(scenario.faults.hand)
        self._late = History(world.trace, lambda: world.scheduler.now)
        self._late_id = 0
        self._sent = 0
        self._before: _Counters | None = None
        """The greatest of any name server when the others were lost."""
        self.survivor = ""
        self._missing = 2
        """Name servers that the group still needs."""
        self._lost = False
        self.on_loss: Callable[[], None] = lambda: None
        self.on_survival: Callable[[], None] = lambda: None
        """Called soon after the survivor leads."""
        self.on_recovery: Callable[[ClusterState], None] = lambda _cluster: None
        """Called with its state when it has just gone on alone."""
        world.on_name_server_turn = self._look

    def begin(self) -> None:
        """Let the survivor lag soon."""
        self._after(self._rng.uniform(*BEGINS_S), self._lag)

    def rest(self) -> None:
        """Nothing: it ends by itself."""

    def settled(self) -> bool:
        """Whether the group is whole again."""
        return self._missing == 0

    def why_not(self) -> str:
        """What is missing."""
        return f"{self._missing} name servers to be added"

    def compare(self) -> None:
        """Hold the disks to what was acknowledged of the topic that the survivor may not know."""
        if self._before is None:
            raise BrokenProperty("a survivor goes on", "nothing was lost")
        # A disk that was lost since has nothing to be filled from.
        needed = COPIES - self._world.trace.totals["idle disks replaced"]
        stores = [machine.storage for machine in self._world.nodes("broker")]
        for value, (_queue, offset) in self._late.acked.items():
            held = [s.on_disk(self._late_id, 0, offset) for s in stores if s is not None]
            copies = sum(entry is not None for entry in held)
            if copies < needed:
                raise BrokenProperty(
                    "brokers keep what the name servers have lost",
                    f"{value!r} of topic {self._late_id} is on {copies} disks",
                )
        self._world.trace.count("kept of a lost topic", len(self._late.acked) * self._lost)

    # -- the loss ---------------------------------------------------------------------------

    def _after(self, seconds: float, action: object) -> None:
        assert callable(action)
        self._world.scheduler.after(seconds, action)

    def _lag(self) -> None:
        world, rng = self._world, self._rng
        servers = world.nodes("name-server")
        self.survivor = rng.choice(servers).name
        lag_s = rng.choice(LAGS_S)
        if lag_s:
            others = [name for name in world.machines if name != self.survivor]
            self._network.part([self.survivor], others, seconds=lag_s + 0.5)
        # Producer ids, a topic, and registrations that the survivor may not hear of.
        self._scenario.add_producer("wire-8")
        self._scenario.order(CreateTopic(LATE.topic, 1, 3, FOR_EVER, 1), self._created)
        self._scenario.start_late(self._late)
        if not self._scenario.calm and rng.random() < 0.7:
            name = rng.choice(self._world.nodes("broker")).name
            self._scenario.faults.hand.down(name, rng.uniform(0.1, 3.0))
        self._after(lag_s, self._lose)

    def _created(self, result: CommandResult) -> None:
        if isinstance(result.value, int) and not self._late_id and not result.code:
            self._late_id = result.value
            self._send()

    def _send(self) -> None:
        if self._before is None:
            values = [f"late-1/{n}".encode() for n in range(self._sent, self._sent + SENT_LATE)]
            self._sent += SENT_LATE
            self._scenario.send_late(LATE, values)
            self._after(SEND_S, self._send)

    def _lose(self) -> None:
        """All name servers end; the survivor is told to go on alone."""
        world, rng = self._world, self._rng
        servers = [machine.name for machine in world.nodes("name-server")]
        states = [core.cluster for name in servers if (core := world.name_server(name))]
        if not states or world.machines[self.survivor].journal is None:
            self._after(0.2, self._lose)
            return
        self._before = _Counters(*map(max, zip(*map(_counters, states), strict=True)))
        self.on_loss()
        world.kill(self.survivor)
        for name in servers:
            if name != self.survivor:
                world.retire(name)
        world.retire("late-1")
        for machine in world.nodes("broker"):
            if not self._scenario.calm and rng.random() < 0.5:
                down_s = rng.uniform(0.1, 3.0)
                self._after(
                    rng.uniform(0, 2.0),
                    partial(self._scenario.faults.hand.down, machine.name, down_s),
                )
        world.go_on_alone(self.survivor)
        world.trace.count("recoveries")
        world.boot_later(self.survivor, rng.uniform(0.1, 2.0))

    def _look(self) -> None:
        """At the first turn after which the survivor leads: everything is above what was lost."""
        before = self._before
        core = self._world.name_server(self.survivor) if before is not None else None
        if before is None or core is None or core.raft.applied_index < self._world.recovered_at:
            return
        self._world.on_name_server_turn = lambda: None
        now = _counters(core.cluster)
        if not all(new > old for new, old in zip(now, before, strict=True)):
            raise BrokenProperty("what counts up never goes back", f"{before}, then {now}")
        self._lost = bool(self._late_id) and self._late_id not in core.cluster.topics_by_id
        self._world.trace.count("topics lost", self._lost)
        self.on_recovery(core.cluster)
        self._after(0.5, self._go_on)

    # -- afterwards -------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._scenario.add_producer("wire-9")
        self.on_survival()
        if self._lost and self._rng.random() < 0.5:
            # Another topic of its name: what is left of the lost one is not of it.
            again = CreateTopic(LATE.topic, 1, 3, FOR_EVER, 1)
            self._scenario.order(again, lambda _result: None)
        self._add()

    def _add(self) -> None:
        new = self._world.join_name_server()
        self._world.boot(new.id)
        self._ask(AddNameServer(0, 3_000, new.id, new.endpoint, new.raft_endpoint))

    def _ask(self, message: AddNameServer) -> None:
        def answered(answer: AnyMessage | None, _error: LogboomError | None) -> None:
            if not isinstance(answer, Ok):
                self._after(0.3, lambda: self._ask(message))
                return
            self._missing -= 1
            if self._missing:
                self._add()

        self._world.operate(msgspec.structs.replace(message), answered)


class RecoveryScenario(Scenario):
    """A scenario whose name servers are lost but for one."""

    module = "tests.sim.recovery_scenario"

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        """`calm`: brokers keep running."""
        super().__init__(seed)
        self.calm = calm
        self.options = " --calm" if calm else ""
        # Operators' results are held against a model in which nothing that was decided is lost.
        self.guests = [guest for guest in self.guests if not isinstance(guest, Operators)]
        for name in [name for name in self.world.machines if name.startswith(("admin-", "load-"))]:
            del self.world.machines[name]
        mix = "forgotten leader" if calm else "crashes"
        self.faults = Attack(self.world, random.Random(f"weather of {seed}"), mix)
        self.recovery = Recovery(self)
        self.guests.append(self.recovery)

    def add_producer(self, name: str) -> None:
        """Let one more producer take part, which asks for an id now."""
        self.producers.append(self._client(name, partial(WireProducer, history=self.history)))
        self.world.start(name)

    def start_late(self, history: History) -> None:
        """Start the producer of the topic that may be lost."""
        self._client("late-1", partial(WireProducer, history=history))
        self.world.start("late-1")

    def send_late(self, queue: Queue, values: list[bytes]) -> None:
        """Have it send."""
        process = self.world.machines["late-1"].process
        if process is not None:
            core = process.core
            assert isinstance(core, WireProducer)
            self._call("late-1", partial(core.send, queue, values))

    def order(self, command: CreateTopic, done: object) -> None:
        """Have the operator create a topic, however many tries it takes."""
        assert callable(done)

        def answered(result: CommandResult) -> None:
            if result.code == "TOO_FEW_BROKERS":
                self.observer.later(0.3, lambda: self.observer.propose(command, answered))
            else:
                done(result)

        self._call("observer", lambda: self.observer.propose(command, answered))


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(RecoveryScenario, __doc__, CALM, arguments)


if __name__ == "__main__":
    sys.exit(main())
