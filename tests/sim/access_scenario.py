"""A run in which all connections have keys, and rights change: `python -m tests.sim.access_scenario`."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from logboom.metadata.duties import leader_duties
from logboom.metadata.name_server import NameServer
from logboom.nodes.broker import Broker
from logboom.wire.actor import Core
from logboom.wire.features import FEATURES, SUBSCRIPTION_RIGHTS
from tests.sim.cast.access_guest import KEEPER, Access, public_key
from tests.sim.cast.operators import Operators
from tests.sim.hunting import ROT, hunt
from tests.sim.judges.verdict import Outcome
from tests.sim.scenario import UP_S, Scenario
from tests.sim.world.network import Admission, Host, Passed
from tests.sim.world.process import Process

ADMINISTRATORS: Final = ("observer", KEEPER, "operator")
"""Machines whose keys the configuration of the name servers names."""
NODES: Final = (*(f"name-{n}" for n in range(1, 30)), *(f"broker-{n}" for n in range(1, 6)))


ADDRESS: Final = "10.0.0.1"
"""Where everybody dials from."""


class Keys(dict[str, str]):
    """Machine → the public key that it connects with."""

    def __missing__(self, machine: str) -> str:
        return self.setdefault(machine, public_key(machine))


def admission_of(node: Core, public: str, listener: str) -> Admission:
    """What a node makes of a key."""
    assert isinstance(node, NameServer | Broker)
    verdict = node.authenticate(public, ADDRESS, listener)
    if verdict.status == "accepted":
        return Passed(verdict.principal)
    return verdict.status


class AccessScenario(Scenario):
    """A scenario whose listeners ask for keys, with users whose rights change."""

    module = "tests.sim.access_scenario"

    def __init__(self, seed: int, *, rot: bool = False) -> None:
        super().__init__(seed, rot=rot)
        # Operators' results are held against a model that knows no refusals: other runs have them.
        self.guests = [guest for guest in self.guests if not isinstance(guest, Operators)]
        for name in [name for name in self.world.machines if name.startswith(("admin-", "load-"))]:
            del self.world.machines[name]
        self.keys = Keys()
        workers = [producer.name for producer in self.producers] + ["reader-1", "reader-2"]
        rng = random.Random(f"access of {seed}")
        self._level = rng.choice((FEATURES, SUBSCRIPTION_RIGHTS - 1))
        self.access = Access(
            self.world, self._endpoints, rng, self.keys, self.faults.hand, workers, self._level
        )
        self.guests.append(self.access)
        self.world.network.doorkeeper = self._admission
        self._prepared = False

    def name_server_settings(self, name: str) -> Mapping[str, Any]:
        """Keys in the configuration: those that everybody began with, unless they had to be brought
        up to date."""
        return {
            "administrators": {user: public_key(user) for user in ADMINISTRATORS},
            "initial_nodes": {node: public_key(node) for node in NODES}
            | dict(self.access.keys_listed_by(name)),
        }

    def _admission(self, host: Host, listener: str, dialler: Host) -> Admission:
        """Ask a node as its skin does when somebody connects."""
        assert isinstance(host, Process)
        if host.paused:
            return "silence"
        admission = admission_of(host.core, self.keys[dialler.name], listener)
        return self.access.watch.admission(host, listener, dialler, admission)

    def run(self) -> Outcome:
        """All acts, while every decision is looked at; raises `Failed`."""
        with pytest.MonkeyPatch.context() as patch:
            self.access.watch.look_on(patch)
            patch.setattr(leader_duties, "FEATURES", self._level)
            return super().run()

    def come_up(self) -> None:
        """Nodes and administrators come first: these make the users of all others."""
        world = self.world
        first = [m.name for m in world.machines.values() if m.kind != "client"]
        for name in [*first, "observer", KEEPER]:
            world.scheduler.after(self.rng.uniform(0, 0.3), partial(world.boot, name))
        world.scheduler.after(0.5, self._create_topics)
        world.scheduler.after(0.5, lambda: self.access.prepare(self._users_made))
        self._until("users are made", UP_S, lambda: self._prepared)
        for name in list(world.machines):
            world.boot(name)
        self._until("a fresh cluster comes up", UP_S, self._led)

    def _users_made(self) -> None:
        self._prepared = True


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 if a promise was broken."""
    return hunt(AccessScenario, __doc__, ROT, arguments)


if __name__ == "__main__":
    sys.exit(main())
