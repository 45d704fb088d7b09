"""A broker with very many subscriptions: a turn costs what is due in it, not what there is."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from logboom.nodes.subscriptions.subscription_service import STEPPED_AT_ONCE, SubscriptionService
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import Instant
from logboom.wire.subscription_messages import Receive, Subscribe, SubscriptionConfig
from tests.unit.nodes.rig import Rig
from tests.unit.wire.work import cost_ms, longest_ms, without_garbage_of_others

MANY: Final = 1_000
MOST_MS: Final = 10.0
AT_20_000: Final = 20
"""How many times as many subscriptions a broker with 20,000 queues has, each with one."""
SETTINGS: Final = SubscriptionConfig(kind="shared")
NEARLY_S: Final = 0.9
"""Seconds that the broker may wait without taking that for a stall."""


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def crowded() -> tuple[Rig, SubscriptionService]:
    """A broker with one subscription in each of many queues, and a consumer that waits at each."""
    rig = Rig()
    rig.lead(queues=MANY)
    rig.settle(0.5)
    client = rig.client()
    for queue in range(MANY):
        where = ("flights", queue, "s", "one", 1)
        client.ask(Subscribe(0, 30_000, *where, SETTINGS, start="first"))
        client.ask(Receive(0, 30_000, *where, 1, 100, 1 << 20, 60_000))
    service = rig.broker.parts.subscriptions
    assert len(service.served) == MANY
    gc.collect()
    gc.freeze()
    return rig, service


def test_a_step_costs_little_while_nothing_is_due() -> None:
    rig, service = crowded()

    def step() -> None:
        service.step(BrokerTurn(Instant(rig.mono, rig.wall_ms)))
        service.deadline()

    step()
    enough = MOST_MS / AT_20_000 / 2
    assert cost_ms(step, enough) <= enough


def test_no_turn_lasts_when_all_consumers_are_gone_at_once() -> None:
    def begin() -> Callable[[], bool]:
        rig, service = crowded()
        rig.auto_sync = False
        for _ in range(round(SETTINGS.session_ms / 1000 / NEARLY_S) - 2):
            rig.settle(NEARLY_S)

        def turn() -> bool:
            wanted = rig.broker.deadline()
            if wanted is None or wanted > rig.mono:
                rig.mono += NEARLY_S
            rig.turn()
            return any(served.sessions for served in service.served.values())

        return turn

    assert longest_ms(begin, MOST_MS) <= MOST_MS


def test_all_leaderships_that_end_close_their_subscriptions() -> None:
    rig, service = crowded()
    rig.lead(epoch=2, leader="broker-2", queues=MANY)
    rig.settle()
    assert service.served == {}
    rig.lead(epoch=3, queues=MANY)
    rig.settle()
    assert service.deadline() == float("inf")


def test_those_that_are_stepped_late_are_stepped() -> None:
    rig, _ = crowded()
    assert MANY > 2 * STEPPED_AT_ONCE
    client = next(iter(rig.peers.values()))
    client.taken()
    rig.settle(SETTINGS.session_ms / 2 / 1000)
    assert len(client.taken()) == MANY, "each is told that nothing has come"
