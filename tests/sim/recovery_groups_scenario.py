"""A recovery while groups consume: `python -m tests.sim.recovery_groups_scenario --seed 3`.

As `recovery_scenario.py`. Members join, commit, fail and come back before the loss of the name servers, during
it and afterwards. What they committed, or that they joined, may be unknown to the survivor: this once, commits
go back to what it knows, and what they covered comes again (R15). Nothing else does, and nothing is passed over.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from typing import Final, NamedTuple

from logboom.metadata.tables.cluster_state import ClusterState
from tests.sim.cast.group_guest import Groups
from tests.sim.cast.group_operator import queues_of
from tests.sim.hunting import hunt
from tests.sim.judges.group_ledger import committed_in
from tests.sim.judges.history import History, Queue
from tests.sim.recovery_scenario import CALM, RecoveryScenario
from tests.sim.world.trace import BrokenProperty

GROUPS_COUNT_UP: Final = "epochs of groups never go back"


class _Epochs(NamedTuple):
    """What members, coordinators and leaders of queues keep of a group."""

    coordinator: int
    group: int
    subscription: int


def _epochs(cluster: ClusterState) -> dict[str, _Epochs]:
    return {
        name: _Epochs(of.coordinator_epoch, of.group_epoch, of.subscription_version)
        for name, of in cluster.groups.by_name.items()
    }


class SurvivingGroups(Groups):
    """Groups through the loss of the name servers; a `Guest`."""

    def __init__(self, scenario: RecoveryGroupsScenario) -> None:
        rng = random.Random(f"groups of {scenario.seed}")
        endpoints = [machine.listeners["main"] for machine in scenario.world.nodes()]
        super().__init__(
            scenario.world, scenario.history, endpoints, rng, calm=scenario.calm, operated=False
        )
        self._recovery = scenario.recovery
        self._before: dict[str, _Epochs] = {}
        """The greatest of any name server when the others were lost."""
        self._known: dict[tuple[str, Queue], int] = {}
        """What the survivor knew to be committed then."""
        self._recovery.on_loss = self._lose
        self._recovery.on_recovery = self._recover
        self._dice = random.Random(f"late groups of {scenario.seed}")
        some = not scenario.calm and self._dice.random() < 0.6
        self._late = [
            name
            for name, of in self._members.items()
            if some and of.group == "audit" and not self._machine(name).idle
        ]
        """Members of a group that comes once the survivor lags."""
        for name in self._late:
            self._machine(name).idle = True

    def come_late(self) -> None:
        """The survivor lags: a group is created of which it may not hear."""
        for name in self._late:
            self._machine(name).idle = False
            self._later(self._dice.uniform(0.0, 0.5), partial(self._boot, name))

    def _lose(self) -> None:
        world = self._world
        for machine in world.nodes("name-server"):
            core = world.name_server(machine.name)
            for name, epochs in ({} if core is None else _epochs(core.cluster)).items():
                pairs = zip(epochs, self._before.get(name, epochs), strict=True)
                self._before[name] = _Epochs(*map(max, pairs))
        core = world.name_server(self._recovery.survivor)
        if core is not None:
            self._known = self._commits(core.cluster)
        world.trace.count("committed before the loss", sum(map(bool, self._known.values())))

    def _commits(self, cluster: ClusterState) -> dict[tuple[str, Queue], int]:
        return {
            (name, queue): committed_in(cluster, name, queue)[0]
            for name, topics in self.topics.items()
            for queue in queues_of(topics)
        }

    def _recover(self, cluster: ClusterState) -> None:
        for place, committed in self._commits(cluster).items():
            if committed < self._known.get(place, committed):
                detail = f"{place}: {committed}, and it knew {self._known[place]}"
                raise BrokenProperty("a survivor keeps the commits that it knows", detail)
        self._count_up(cluster)
        self._world.trace.count("groups lost", len(self._before.keys() - cluster.groups.by_name))
        self.ledger.recovered(cluster)
        self.watch.recovered()

    def _count_up(self, cluster: ClusterState) -> None:
        """Whatever is given from now on is above what anybody had before."""
        for name, now in _epochs(cluster).items():
            before = self._before.get(name)
            if before and not all(new > old for new, old in zip(now, before, strict=True)):
                raise BrokenProperty(GROUPS_COUNT_UP, f"{name}: {before}, then {now}")

    def compare(self) -> None:
        """Everything is consumed, and by members that have joined since the loss."""
        super().compare()
        cluster = self._world.newest_state()
        assert cluster is not None
        self._count_up(cluster)
        for name in self.topics:
            group, since = cluster.groups.by_name[name], self.ledger.since
            owners = [
                e for each in group.topics.values() if each.subscribed for e in each.owner_epochs
            ]
            least = min([*owners, *(member.epoch for member in group.members.values())])
            if not 0 < since <= least:
                raise BrokenProperty(GROUPS_COUNT_UP, f"{name}: {least}, and {since} at the loss")


class RecoveryGroupsScenario(RecoveryScenario):
    """A recovery while groups consume; with `calm` their members only come and leave in good order."""

    module = "tests.sim.recovery_groups_scenario"

    def __init__(self, seed: int, *, calm: bool = False) -> None:
        super().__init__(seed, calm=calm)
        self._groups = SurvivingGroups(self)
        self.guests.append(self._groups)

    def start_late(self, history: History) -> None:
        """Start what comes once the survivor lags."""
        super().start_late(history)
        self._groups.come_late()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(RecoveryGroupsScenario, __doc__, CALM, arguments)


if __name__ == "__main__":
    sys.exit(main())
