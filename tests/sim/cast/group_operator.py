"""The groups of a simulation, and what operators do with them while they are at work."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal

import msgspec

from logboom.wire.actor import Call
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.group_commands import AlterGroup, ResetOffsets
from logboom.wire.group_view import GroupConfig, StrategyOptions
from tests.sim.cast.observer import Observer
from tests.sim.judges.group_ledger import GroupLedger
from tests.sim.judges.history import Queue
from tests.sim.world.world import World

CONFIG: Final = GroupConfig(
    session_ms=3_000,
    heartbeat_ms=800,
    drain_ms=4_000,
    max_attempts=4,
    retry="exponential",
    retry_first_ms=300,
    retry_last_ms=2_000,
)
GROUPS: Final[Mapping[str, list[str]]] = {
    "billing": ["safe", "pair"],
    "audit": ["safe", "alone"],
    "late": ["safe"],
}
"""Group → its topics. Offsets of "audit" are reset now and then; "late" comes in the middle, and
starts at the end."""
STRATEGIES: Final = (
    *("sticky", "averagely", "averagely_by_circle", "consistent_hash"),
    "by_config",
)
QUEUES: Final = {"safe": 3, "pair": 1, "alone": 1, "lone": 3}


def queues_of(topics: list[str]) -> list[Queue]:
    """All queues of some topics."""
    return [Queue(topic, number) for topic in topics for number in range(QUEUES[topic])]


def config_of(group: str, strategy: str = "sticky") -> GroupConfig:
    """The settings of a group."""
    start: Literal["first", "last"] = "last" if group == "late" else "first"
    return msgspec.structs.replace(CONFIG, start=start, strategy=strategy)


class GroupOperator:
    """Resets offsets and changes strategies."""

    def __init__(
        self,
        world: World,
        ledger: GroupLedger,
        rng: random.Random,
        topics: Mapping[str, list[str]],
    ) -> None:
        """`topics`: group → its topics."""
        self._world = world
        self._ledger = ledger
        self._rng = rng
        self._topics = topics
        self._resting: set[str] = set()
        """Groups whose strategy is to stay."""

    def strike(self, group: str) -> None:
        """Go back somewhere, or have queues allocated otherwise."""
        cluster = self._world.newest_state()
        known = None if cluster is None else cluster.groups.by_name.get(group)
        if cluster is None or known is None:
            return
        if group != "audit" or self._rng.random() < 0.3:
            config = config_of(group, self._rng.choice(STRATEGIES))
            if config.strategy == "by_config":
                config = msgspec.structs.replace(config, options=self._written(group, known.names))
            self.propose(AlterGroup(group, config, None, False, 1), partial(self._altered, group))
            self._world.trace.count("strategies changed")
            return
        queue = self._rng.choice(queues_of(self._topics[group]))
        topic = cluster.topics.get(queue.topic)
        if topic is None or topic.id not in known.topics:
            return
        offset = self._rng.randint(0, max(0, self._ledger.committed(group, queue)))
        self._ledger.reset(group, queue, offset)

        def done(result: CommandResult) -> None:
            if not result.code and result.value == [""]:
                self._ledger.was_reset(group, queue, offset, result.version)

        self.propose(ResetOffsets(group, [(topic.id, queue.number, offset)], 1), done)

    def rest(self, group: str) -> None:
        """Nobody waits any more for members that an operator has named, and that are gone."""
        self._resting.add(group)
        self.propose(AlterGroup(group, config_of(group), None, False, 1), lambda _result: None)

    def _altered(self, group: str, _result: CommandResult) -> None:
        """While there is no Raft leader, what was proposed before `rest` may be applied after it."""
        if group in self._resting:
            self.rest(group)

    def _written(self, group: str, members: Iterable[str]) -> StrategyOptions:
        """Somebody who is there now for each queue; who is gone later leaves them to nobody."""
        names = sorted(members) or ["nobody"]
        config: dict[str, list[tuple[str, int]]] = {}
        for queue in queues_of(self._topics[group]):
            config.setdefault(self._rng.choice(names), []).append((queue.topic, queue.number))
        return StrategyOptions(config)

    def propose(self, command: AnyCommand, done: Callable[[CommandResult], None]) -> None:
        """Have a command decided, however many tries it takes."""
        process = self._world.machines["observer"].process
        assert process is not None
        observer = process.core
        assert isinstance(observer, Observer)
        process.deliver(Call(partial(observer.propose, command, done)))
