"""A topic of single copies, its group, and an operator who accepts that a disk is lost (Q15).

One broker comes back with an empty or a damaged disk, and the operator has it lead its queues all
the same. Producer, reader and group go on with what is new, and get all of it.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from logboom.metadata.tables.cluster_state import ClusterState
from logboom.nodes.log.keys import queue_of
from logboom.wire.actor import Call
from logboom.wire.commands import CommandResult, ElectLeader
from tests.sim.cast.api_client import ApiClient
from tests.sim.cast.group_guest import Groups
from tests.sim.cast.group_operator import queues_of
from tests.sim.faults.weather import name_of
from tests.sim.judges.group_ledger import CUT
from tests.sim.judges.history import Queue, values_of
from tests.sim.judges.looks import holds
from tests.sim.judges.lossy_history import LossyHistory
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    from tests.sim.scenario import Scenario

TOPIC: Final = "lone"
GROUP: Final = "heirs"
QUEUES: Final = queues_of([TOPIC])
PRODUCER: Final = "api-9"
"""It reads too."""
STRIKES_S: Final = ((3.0, 9.0), (12.0, 20.0))
"""Seconds after which the disk is lost, for the first time and the second."""
REST_S: Final = 0.12
"""Between two sends, on average."""
ELECT_S: Final = 0.5


class Losses(Groups):
    """A guest of a run: the topic, whoever works with it, and its losses."""

    def __init__(self, scenario: Scenario, endpoints: list[str], *, calm: bool) -> None:
        world = scenario.world
        self.lossy = LossyHistory(world.trace, lambda: world.scheduler.now, self._holds)
        self.lossy.on_ack = scenario.looks.acked
        rng = random.Random(f"losses of {scenario.seed}")
        super().__init__(world, self.lossy, endpoints, rng, calm=calm, topics={GROUP: [TOPIC]})
        self._faults = scenario.faults
        self._dice = random.Random(rng.random())
        self._topic_id = 0
        self._copies: list[str] = []
        """The broker of each queue."""
        self._ends: dict[tuple[Queue, int], int] = {}
        """Queue and epoch of a loss → where the log ended when its leader was elected."""
        self._cut: set[tuple[Queue, int]] = set()
        """Losses that have been reported."""
        self._electing: set[Queue] = set()
        self._sent = 0
        self._looked = -1
        own = random.Random(self._dice.random())
        self._client = client = ApiClient(PRODUCER, endpoints, own, self.lossy, QUEUES)
        world.add(PRODUCER, "client", {}, lambda: client)
        world.on_name_server_turn = self._look

    def place(self) -> None:
        """The topic is there: choose the broker whose disk will be lost."""
        topics = self._world.observer.topics
        self._topic_id = topics[TOPIC].id
        self._copies = [queue.replicas[0] for queue in topics[TOPIC].queues]
        (spared,) = topics["alone"].queues[0].replicas
        victim = self._dice.choice(sorted({*self._copies} - {spared}))
        self._faults.disks.aim(victim, self._topic_id)

    # -- the guest --------------------------------------------------------------------------

    def begin(self) -> None:
        """Send, and lose."""
        super().begin()
        self._send()
        self._elect()
        for span in STRIKES_S:
            self._faults.hand.later(self._dice.uniform(*span), self._lose_disk)

    def _why(self) -> str:
        waiting = self.lossy.unanswered() or self.lossy.unread(PRODUCER)
        if waiting:
            return f"{waiting} not acknowledged, or not read"
        cluster = self._world.newest_state()
        losses = cluster.losses.items() if cluster is not None else ()
        pending = [key for key, known in losses if any(loss.end < 0 for loss in known)]
        return f"losses that nobody reports: {pending}" if pending else super()._why()

    def compare(self) -> None:
        """Everything that is not lost is there, and was consumed."""
        super().compare()
        for queue in QUEUES:
            self.lossy.compare(queue, {self._copies[queue.number]: self._log(queue)})

    # -- what happens -----------------------------------------------------------------------

    def _send(self) -> None:
        if not self._working:
            return
        dice = self._dice
        self._later(dice.expovariate(1 / REST_S), self._send)
        first = self._sent
        self._sent += dice.randint(1, 4)
        values = [f"{PRODUCER}/{number}".encode() for number in range(first, self._sent)]
        process = self._machine(PRODUCER).process
        assert process is not None
        process.deliver(Call(partial(self._client.send, dice.choice(QUEUES), values)))

    def _lose_disk(self) -> None:
        disks, hand = self._faults.disks, self._faults.hand
        fault = self._dice.choice((disks.replace_disk, disks.replace_disk, disks.damage_log))
        if fault():
            hand.strike(name_of(fault))
        else:
            hand.later(0.4, self._lose_disk)

    def _elect(self) -> None:
        """The operator has whoever came back without its disk lead what nobody else has."""
        self._later(self._dice.uniform(0, 2 * ELECT_S), self._elect)
        cluster = self._world.newest_state()
        topic = cluster.topics.get(TOPIC) if cluster is not None else None
        for of in topic.queues if topic is not None else ():
            queue, standing = Queue(TOPIC, of.index), of.standing
            if standing.leader is None and standing.lost and queue not in self._electing:
                self._electing.add(queue)
                command = ElectLeader(TOPIC, queue.number, self._copies[queue.number], 1)
                self._operator.propose(command, partial(self._elected, queue))

    def _elected(self, queue: Queue, result: CommandResult) -> None:
        # Refused as long as the broker is down.
        self._electing.discard(queue)
        self._world.trace.count("losses accepted", not result.code)

    # -- the judge --------------------------------------------------------------------------

    def _look(self) -> None:
        """When a name server is the first to have applied something: note losses and their ends."""
        core = self._world.newest_name_server()
        if core is None or core.raft.applied_index <= self._looked or not self._copies:
            return
        # Whoever looks at older states would find positions that were cut since.
        self._looked = self.watch.looked = core.raft.applied_index
        for queue in QUEUES:
            self._look_at_losses(queue, core.cluster)

    def _look_at_losses(self, queue: Queue, cluster: ClusterState) -> None:
        losses = cluster.losses.get((self._topic_id, queue.number), [])
        if any((queue, loss.epoch) not in self._ends for loss in losses):
            # Its leader has not heard of its election yet.
            end = _end_of(queue, self._log(queue))
            self.lossy.lose(queue, end)
            for loss in losses:
                self._ends.setdefault((queue, loss.epoch), end)
        for loss in losses:
            key = (queue, loss.epoch)
            if loss.end < 0:
                self.ledger.doubt(queue)
            elif key not in self._cut:
                self._cut.add(key)
                if loss.end > self._ends[key]:
                    detail = f"{queue} ended at {self._ends[key]}, the report says {loss.end}"
                    raise BrokenProperty(CUT, detail)
                self.ledger.lose(queue, loss.end, cluster)
                self._world.trace.note("world", f"{queue} was cut to {loss.end}")
                self._world.trace.count("losses")
                self._world.trace.count("losses of a part", loss.end > 0)

    def _log(self, queue: Queue) -> dict[bytes, bytes]:
        storage = self._machine(self._copies[queue.number]).storage
        assert storage is not None
        key = (self._topic_id, queue.number)
        return {k: entry for k, entry in storage.content("log").items() if queue_of(k) == key}

    def _holds(self, queue: Queue, offset: int, value: bytes) -> bool:
        storage = self._machine(self._copies[queue.number]).storage
        assert storage is not None
        entry = storage.on_disk(self._topic_id, queue.number, offset)
        return entry is not None and holds(entry, offset, value)


def _end_of(queue: Queue, log: dict[bytes, bytes]) -> int:
    start, values = values_of(queue, log)
    return start + len(values)
