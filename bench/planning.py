"""10,000 queues: rounds of the planner of moves at the Raft leader, and their slices, in this process.

Processor time is used instead of wall time, because the loop of a name server does nothing else
meanwhile. A round runs a slice per turn of the loop, so the longest slice is what others wait for.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from logboom.metadata.planning.cluster_picture import PlanningRules
from logboom.metadata.planning.load_table import LoadTable
from logboom.metadata.planning.move_round import Attendance, BalanceRun, MoveRound
from logboom.metadata.raft.log_commands import AnyLogCommand, decode_result, encode_entry, entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.commands import CreateTopic, NewTerm, RegisterBroker
from logboom.wire.features import FEATURES
from logboom.wire.operation_commands import SetBrokerMode
from logboom.wire.operation_messages import ReplicaLoad, ReportLoad
from logboom.wire.view import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS: Final = 12
ZONES: Final = 3
QUEUES_PER_TOPIC: Final = 100
ROUNDS: Final = 15
ROUND_BAR_MS: Final = 50.0
SLICE_BAR_MS: Final = 5.0
DISK_BYTES: Final = 1 << 44


class PlanningBench:
    """A state with many queues on brokers in three zones, and what these have reported."""

    def __init__(self, queues: int) -> None:
        self.state = StateMachine()
        self.loads = LoadTable()
        self._rng = random.Random(1)
        self._apply(NewTerm(1, "name-1", "bench", 0, FEATURES))
        for number in range(BROKERS):
            self.register(number)
        for topic in range(-(-queues // QUEUES_PER_TOPIC)):
            count = min(QUEUES_PER_TOPIC, queues - topic * QUEUES_PER_TOPIC)
            self._apply(CreateTopic(f"t{topic}", count, 3, TopicConfig(), 0))
        self._sizes = {
            (topic.id, queue.index): self._rng.randint(1 << 28, 1 << 30)
            for topic in self.state.cluster.topics.values()
            for queue in topic.queues
        }

    def _apply(self, command: AnyLogCommand) -> None:
        result = self.state.apply(encode_entry(entry_of("", 0, 0, command)))
        assert not decode_result(result).code, decode_result(result).text

    def register(self, number: int) -> None:
        """Have another broker."""
        name, zone = f"broker-{number}", f"zone-{number % ZONES}"
        self._apply(RegisterBroker(name, name, name, f"{name}:7711", zone, False, 0))

    def drain(self, number: int) -> None:
        """Drain a broker."""
        self._apply(SetBrokerMode(f"broker-{number}", "draining", 0))

    def report(self) -> float:
        """Take the reports of all brokers; the longest takes so long, in ms."""
        longest = 0.0
        for name, broker in self.state.cluster.brokers.items():
            loads = [
                ReplicaLoad(queue.topic.id, queue.index, self._sizes[queue.topic.id, queue.index])
                for queue in broker.queues
            ]
            message = ReportLoad(0, 0, name, 1, 0, 1, DISK_BYTES, DISK_BYTES, 0, 0, loads)
            began = time.process_time()
            self.loads.take(message, 0.0)
            longest = max(longest, 1000 * (time.process_time() - began))
        return longest

    def round(self, mode: str) -> tuple[float, float]:
        """Plan once; the whole and the longest slice, in ms."""
        began = time.process_time()
        rules = PlanningRules(mode)
        planned = MoveRound(self.state.cluster, self.loads, rules, Attendance(), {}, 0.0)
        created = 1000 * (time.process_time() - began)
        whole, longest = _timed(planned.steps())
        planned.status()
        return whole + created, max(longest, created)

    def run(self) -> tuple[float, float]:
        """Plan a whole balance; all of it and the longest slice, in ms."""
        rules = PlanningRules("continuous")
        run = BalanceRun(self.state.cluster, self.loads, rules, Attendance(), 1_000, 0.0)
        return _timed(run.steps())


def _timed(steps: Iterator[int]) -> tuple[float, float]:
    whole = longest = 0.0
    more = True
    while more:
        began = time.process_time()
        more = next(steps, None) is not None
        spent = 1000 * (time.process_time() - began)
        whole, longest = whole + spent, max(longest, spent)
    return whole, longest


def rows(queues: int) -> list[Figure]:
    """Measure a cluster of this many queues: even, with a new broker, and with one that is drained."""
    bench = PlanningBench(queues)
    found: list[Figure] = []

    def measure(name: str, mode: str) -> None:
        bench.report()
        rounds = [bench.round(mode) for _ in range(ROUNDS)]
        size = (
            f"{queues:,} queues on {len(bench.state.cluster.brokers)} brokers, median of {ROUNDS}"
        )
        whole = sorted(each[0] for each in rounds)[ROUNDS // 2]
        longest = sorted(each[1] for each in rounds)[ROUNDS // 2]
        found.append(Figure(f"planning: {name}", whole, "ms", ROUND_BAR_MS, "less", size))
        found.append(
            Figure(f"planning: {name}, longest slice", longest, "ms", SLICE_BAR_MS, "less", size)
        )

    measure("a round that finds nothing", "new-broker")
    bench.register(BROKERS)
    measure("a round with a new broker", "new-broker")
    measure("a continuous round", "continuous")
    whole, longest = bench.run()
    found.append(Figure("planning: 1,000 moves at once", whole, "ms", note="PlanBalance"))
    found.append(
        Figure("planning: 1,000 moves, longest slice", longest, "ms", SLICE_BAR_MS, "less")
    )
    bench.drain(0)
    measure("a round with a broker that is drained", "new-broker")
    found.append(Figure("planning: to take the longest report", bench.report(), "ms"))
    return found
