"""Runs with broken name servers are told from runs with sound ones, by what operators saw."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from msgspec import structs

from logboom.metadata.name_server import NameServer
from logboom.metadata.proposal_checks import proposer_of
from logboom.metadata.raft.log_commands import ENTRY_FORMAT, LogEntry, decode_result, encode_entry
from logboom.metadata.raft.raft_config import SubmitOutcome
from logboom.metadata.state import leadership_commands
from logboom.metadata.state.proposal_dedup import Dedup
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import BrokerRegistration, ClusterState
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import Effects
from logboom.wire.commands import IsrChange
from logboom.wire.messages import Propose, Proposed
from tests.sim.cast.operator_client import Operator
from tests.sim.cast.operators import Operators
from tests.sim.judges.linearizability import Verdict, judge
from tests.sim.judges.operations import pair, read
from tests.sim.scenario import Scenario
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World
from tests.thorough import few_of

Patch: TypeAlias = pytest.MonkeyPatch
TRIED: Final = 30
"""Seeds within which each break of a name server must show."""


def forgotten_results(patch: Patch) -> None:
    """A proposal sent again is applied again."""

    def find(_self: Dedup, _proposer: str, _number: int) -> None:
        return None

    patch.setattr(Dedup, "find", find)


def stale_reads(patch: Patch) -> None:
    """What any name server told last is taken for the truth."""

    def barrier(_self: Operator, then: Callable[[int], None]) -> None:
        then(0)

    patch.setattr(Operator, "_barrier", barrier)


def answers_before_the_commit(patch: Patch) -> None:
    """The raft leader answers operators as soon as a command is in its own log."""
    propose: Callable[..., None] = vars(NameServer)["_propose"]

    def eager(self: NameServer, peer: PeerSession, message: Propose, out: Effects) -> None:
        if not message.proposer.startswith("admin-") or not self.raft.is_leader:
            propose(self, peer, message, out)
            return
        proposer = proposer_of(peer, message)
        entry = encode_entry(LogEntry(ENTRY_FORMAT, proposer, message.number, 0, message.command))
        trial = StateMachine()
        trial.restore(self.state.snapshot())
        result = decode_result(trial.apply(entry))

        def ignore(_outcome: SubmitOutcome) -> None:
            return None

        self.raft.submit(entry, ignore)
        self._reply_later(peer.address, message.id, Proposed(0, result))

    patch.setattr(NameServer, "_propose", eager)


def blind_sets(patch: Patch) -> None:
    """An ISR is set whatever version the asker has seen (Q6)."""
    alter: Callable[..., str] = vars(leadership_commands)["_alter_one"]

    def blind(cluster: ClusterState, broker: BrokerRegistration, change: IsrChange) -> str:
        topic = cluster.topics_by_id.get(change.topic_id)
        if topic is not None and change.queue < len(topic.queues):
            change = structs.replace(change, version=topic.queues[change.queue].version)
        return alter(cluster, broker, change)

    patch.setattr(leadership_commands, "_alter_one", blind)


@pytest.mark.parametrize(
    "take_out",
    few_of([forgotten_results, stale_reads, answers_before_the_commit, blind_sets], [stale_reads]),
)
def test_a_broken_name_server_is_noticed(
    take_out: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    in_a_hurry(monkeypatch)
    take_out(monkeypatch)
    assert any(troubled(seed).broken for seed in range(TRIED))


def in_a_hurry(patch: Patch) -> None:
    """Operators ask more, and more things twice."""
    patch.setattr("tests.sim.cast.operator_client.REST_S", 0.1)
    patch.setattr("tests.sim.cast.operator_client.HASTY", 0.5)


def troubled(seed: int) -> Verdict:
    """Operators in a hurry, while raft leaders are killed or cut off from the other name servers.

    No other faults, few messages: what a whole run would find late is found soon.
    """
    world = World(seed)
    rng = random.Random(seed)
    scheduler, network = world.scheduler, world.network
    servers = [machine.name for machine in world.nodes("name-server")]
    operators = Operators(world, [f"{name}:7701" for name in servers], rng)
    for name in list(world.machines):
        world.start(name)
    scheduler.run(3.0)
    operators.begin()
    for _ in range(12):
        scheduler.run(scheduler.now + rng.uniform(0.3, 1.5))
        running = [(name, core) for name in servers if (core := world.name_server(name))]
        leads = [name for name, core in running if core.raft.is_leader]
        name = rng.choice(leads or servers)
        if rng.random() < 0.5:
            world.kill(name)
            world.boot_later(name, 0.5)
            continue
        others = [other for other in servers if other != name]
        ways = [way for other in others for way in ((name, other), (other, name))]
        for way in ways:
            network.block(*way)
        scheduler.after(rng.uniform(0.5, 3.0), partial(network.unblock, ways))
    network.heal()
    operators.rest()
    while operators.unanswered():
        assert scheduler.now < 60, operators.why_not()
        scheduler.run(scheduler.now + 0.5)
    return judge(operators.history.events)


def test_sound_name_servers_are_not_accused(monkeypatch: Patch) -> None:
    in_a_hurry(monkeypatch)
    for seed in range(2):
        verdict = troubled(seed)
        assert not verdict.broken, str(verdict)
        assert verdict.undecided == ()
        assert verdict.operations > 30


def test_a_whole_run_is_judged(tmp_path: Path) -> None:
    seed = next(seed for seed in range(20) if Scenario(seed).guests)
    scenario = Scenario(seed)
    scenario.run()
    operators = scenario.guests[0]
    assert isinstance(operators, Operators)
    events = operators.history.events
    assert scenario.world.trace.totals["operations"] == len(pair(events)) > 10
    file = tmp_path / "history.jsonl"
    operators.history.write(file)
    assert judge(read(file)).operations == len(pair(events))
    # What the run would say if its last read had shown something else.
    place = max(n for n, e in enumerate(events) if e.type == "ok" and e.f == "read")
    events[place].value.update(id=1_000_000, queues=1, setting=1, isr=[])
    with pytest.raises(BrokenProperty, match="name servers are linearizable"):
        operators.compare()
