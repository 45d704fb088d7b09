"""STATS: gathered in slices, once for all who have asked before that began."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logboom.nodes import stats_handler
from logboom.nodes.broker import Broker
from logboom.nodes.parking.release_scheduler import ReleaseScheduler
from logboom.nodes.replica_roles import ReplicaRoles
from logboom.nodes.turn import LOOKED_PER_STEP, Figures, Service
from logboom.wire.messages import Stats, StatsResult
from tests.unit.nodes.rig import Peer, Rig


def asked(peer: Peer) -> list[StatsResult]:
    """What a peer was answered."""
    return [each.message for each in peer.replies if isinstance(each.message, StatsResult)]


def test_the_figures_of_few_queues_come_at_once() -> None:
    rig = Rig()
    rig.lead(queues=LOOKED_PER_STEP)
    client = rig.client()
    client.ask(Stats(0, 1_000))
    (answer,) = asked(client)
    assert answer.counters["leading"] == LOOKED_PER_STEP
    assert rig.broker.deadline() != float("-inf")


def test_those_of_many_come_in_slices_and_are_gathered_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.lead(queues=3 * LOOKED_PER_STEP)
    rig.settle()
    clients = [rig.client(f"c{number}") for number in range(5)]
    begun: list[float] = []
    gather = ReplicaRoles.figure_steps

    def counted(self: ReplicaRoles, now: float) -> Iterator[Figures]:
        begun.append(now)
        return gather(self, now)

    monkeypatch.setattr(ReplicaRoles, "figure_steps", counted)
    monkeypatch.setattr(stats_handler, "STEPS_AT_ONCE", 1)
    for client in clients:
        client.ask(Stats(0, 1_000))
    assert not any(map(asked, clients)), "one step is not all"
    rig.settle()
    assert [each.counters["leading"] for client in clients for each in asked(client)] == [
        3 * LOOKED_PER_STEP
    ] * 5
    assert len(begun) == 2, "for the first, and for all who asked meanwhile"


def test_what_looks_at_every_queue_takes_a_step_for_each_few_of_them() -> None:
    rig = Rig()
    rig.lead(queues=5 * LOOKED_PER_STEP)
    rig.settle()
    steps = {
        type(service): len([*service.figure_steps(rig.mono)])
        for service in rig.broker.parts.services
        if type(service).figure_steps is not Service.figure_steps
    }
    assert ReleaseScheduler in steps
    assert min(steps.values()) >= 5, steps


def test_one_turn_takes_no_more_than_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    gather = Broker.figure_steps

    def counted(self: Broker, now: float) -> Iterator[Figures]:
        for figures in gather(self, now):
            taken.append(now)
            yield figures

    monkeypatch.setattr(Broker, "figure_steps", counted)
    monkeypatch.setattr(stats_handler, "STEPS_AT_ONCE", 3)
    rig = Rig()
    rig.lead(queues=3 * LOOKED_PER_STEP)
    rig.settle()
    # What is due at a time of its own is done in the turn that brings the request, too.
    rig.mono += 60
    rig.client().ask(Stats(0, 1_000))
    assert len(taken) == 3
