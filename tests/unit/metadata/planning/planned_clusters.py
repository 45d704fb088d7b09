"""A replicated state whose moves are planned, with brokers that report what they hold and copy at once."""

from __future__ import annotations

from typing import Final

from logboom.metadata.planning.cluster_picture import PlannedMoveOf, PlanningRules
from logboom.metadata.planning.load_table import LoadTable
from logboom.metadata.planning.move_round import Attendance, BalanceRun, MoveRound
from logboom.metadata.tables.cluster_state import Queue
from logboom.wire.operation_commands import (
    CancelReassign,
    EndFilling,
    QueueMove,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.operation_messages import BalancePlanned, ReplicaLoad, ReportLoad
from tests.unit.metadata.state.states import Tables

GIB: Final = 1024**3
MIB: Final = 1024**2


class PlannedCluster(Tables):
    """The tables, what brokers have reported, and what the Raft leader has seen of them."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()
        self.loads = LoadTable()
        self.now = 1_000.0
        self.died: dict[str, float] = {}
        self.returned: dict[str, float] = {}
        self.refused: dict[tuple[int, int], str] = {}
        self.rounds = self.skipped = 0
        self.slices: list[int] = []
        """The work between the yields of the last plan."""
        self.sizes: dict[tuple[int, int], int] = {}
        """Queue → bytes; 1 MiB unless said otherwise."""
        self.copied: dict[tuple[int, int, str], int] = {}
        """Queue and broker → bytes of a replica that is not whole."""
        self.produced = 0
        """Bytes per second that every queue grows by."""
        self.disk_bytes = 1000 * GIB
        self.free_bytes: dict[str, int] = {}

    def size(self, queue: Queue) -> int:
        """The bytes of a queue."""
        return self.sizes.get((queue.topic.id, queue.index), MIB)

    def report(self, *brokers: str) -> None:
        """Brokers report their load; without names all live ones do."""
        for name in brokers or sorted(self.state.cluster.alive):
            loads = [
                ReplicaLoad(
                    queue.topic.id,
                    queue.index,
                    self.copied.get((queue.topic.id, queue.index, name), self.size(queue)),
                    self.produced if queue.standing.leader == name else 0,
                )
                for queue in self.state.cluster.brokers[name].queues
            ]
            free = self.free_bytes.get(name, self.disk_bytes)
            epoch = self.epochs[name]
            message = ReportLoad(0, 0, name, epoch, 0, 1, self.disk_bytes, free, 0, 0, loads)
            self.loads.take(message, self.now)

    def kill(self, broker: str, since_s: float = 0.0) -> None:
        """A broker died some time ago."""
        self.fence(broker)
        self.died[broker] = self.now - since_s

    def plan(self, mode: str = "continuous", **rules: float) -> MoveRound:
        """One round, without carrying it out."""
        given = PlanningRules(mode, **rules)  # type: ignore[arg-type] # numbers are whole or not
        seen = Attendance(self.died, self.returned)
        self.rounds += 1
        planned = MoveRound(
            self.state.cluster,
            self.loads,
            given,
            seen,
            self.refused,
            self.now,
            self.rounds,
            self.skipped,
        )
        self.slices = list(planned.steps())
        self.skipped = planned.skipped
        return planned

    def plan_run(self, most: int = 1_000) -> BalancePlanned:
        """What PlanBalance answers."""
        seen = Attendance(self.died, self.returned)
        run = BalanceRun(self.state.cluster, self.loads, PlanningRules(), seen, most, self.now)
        self.slices = list(run.steps())
        return run.result

    def carry_out(self, planned: MoveRound) -> list[PlannedMoveOf]:
        """Propose what a round has planned, as the Raft leader does; nothing is refused."""
        moves = planned.moves
        commands = [
            QueueMove(each.queue.topic.id, each.queue.index, each.version, list(each.target))
            for each in moves
        ]
        result = self.done(Reassign(commands, 0))
        assert result.value == [""] * len(moves), result.text
        cancels = [(queue.topic.id, queue.index) for queue in planned.cancels]
        result = self.done(CancelReassign(cancels, 0))
        assert result.value == [""] * len(cancels), result.text
        for broker in planned.drained:
            self.done(SetBrokerMode(broker, "drained", 0))
        for broker in planned.filled:
            self.done(EndFilling(broker))
        return moves

    def queues(self) -> list[Queue]:
        """All queues."""
        return [queue for topic in self.state.cluster.topics.values() for queue in topic.queues]

    def moving(self) -> list[Queue]:
        """The queues whose moves are under way."""
        return [each for each in self.queues() if each.standing.adding or each.standing.removing]

    def copy(self) -> None:
        """Every move whose brokers are alive completes."""
        for queue in self.moving():
            s = queue.standing
            there = [each for each in s.replicas if each in self.state.cluster.alive]
            if s.leader is not None and set(there) != set(s.isr):
                self.change_isr(*there, name=queue.topic.name, index=queue.index)

    def settle(self, mode: str = "continuous", rounds: int = 500, **rules: float) -> int:
        """Plan and copy until nothing is planned any more; the number of moves."""
        moves = 0
        for _ in range(rounds):
            self.report()
            planned = self.plan(mode, **rules)
            begun = self.carry_out(planned)
            moves += len(begun)
            self.copy()
            done = planned.cancels or planned.drained or planned.filled or planned.skipped
            if not begun and not done and not self.moving():
                return moves
        raise AssertionError(f"after {rounds} rounds moves go on: {moves}")

    def held(self) -> dict[str, int]:
        """Broker → bytes of its replicas."""
        return {
            name: sum(self.size(queue) for queue in broker.queues)
            for name, broker in self.state.cluster.brokers.items()
        }


def cluster_of(brokers: str, queues: int = 6, replicas: int = 3) -> PlannedCluster:
    """A cluster with a topic t, whose brokers have one-letter names."""
    cluster = PlannedCluster()
    for name in brokers:
        cluster.register(name)
    if queues:
        cluster.create(queues=queues, replicas=replicas)
    cluster.report()
    return cluster
