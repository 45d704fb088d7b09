"""Whatever happens to subscriptions, none is forgotten, and none is stepped without end."""

from __future__ import annotations

from random import Random

import pytest

from logboom.wire.subscription_messages import (
    AlterSubscription,
    Detach,
    Receive,
    SettleMessages,
    Subscribe,
    SubscriptionConfig,
)
from logboom.wire.view import TopicConfig
from tests.thorough import seeds
from tests.unit.nodes.rig import Rig, batch, produce

QUEUES = 3
CONFIGS = (
    SubscriptionConfig(kind="shared", session_ms=2_000),
    SubscriptionConfig(kind="shared", messages_per_s=5, session_ms=5_000),
    SubscriptionConfig(kind="key_shared", ack_timeout_s=0.7),
    SubscriptionConfig(kind="failover", filter="WHERE KEYS = 'never'", failover_delay_s=0.3),
)
STEPS = 150


@pytest.mark.parametrize("seed", seeds(6))
def test_each_is_stepped_when_it_is_due_and_no_longer(seed: int) -> None:
    rng = Random(seed)
    rig = Rig()
    rig.lead(queues=QUEUES)
    epoch = 1
    service = rig.broker.parts.subscriptions
    peers = [rig.client(f"c{number}") for number in range(3)]
    numbers: dict[tuple[int, str, str], tuple[int, int]] = {}
    for _ in range(STEPS):
        queue, peer = rng.randrange(QUEUES), rng.choice(peers)
        name, consumer = rng.choice("abcd"), rng.choice("xy")
        session, number = numbers.get((queue, name, consumer), (0, 0))
        where = ("flights", queue, name, consumer, session)
        match rng.randrange(14):
            case 0 | 1 | 2:
                numbers[queue, name, consumer] = session + 1, 0
                config = CONFIGS["abcd".index(name)]
                attach = ("flights", queue, name, consumer, session + 1)
                peer.ask(Subscribe(0, 30_000, *attach, config, start="first"))
            case 3 | 4 | 5:
                numbers[queue, name, consumer] = session, number + 1
                wait_ms = rng.choice((0, 300, 5_000))
                peer.ask(Receive(0, 30_000, *where, number + 1, 100, 1 << 20, wait_ms))
            case 6 | 7:
                peer.ask(produce(queue=queue), [batch(rng.randint(1, 9))])
            case 8:
                spans = [(at, at + 1) for at in rng.sample(range(20), 5)]
                again = [(at, at + 1, rng.choice((0, 200))) for at in range(20, 23)]
                peer.ask(SettleMessages(0, 30_000, *where, sorted(spans), -1, again))
            case 9:
                peer.ask(Detach(0, 30_000, *where))
            case 10:
                rig.granting = not rig.granting
            case 11:
                epoch += 1
                leader = rng.choice(("broker-1", "broker-2"))
                rig.lead(epoch, queues=QUEUES, leader=leader)
            case 12:
                rate = rng.choice((0, 2, 50))
                config_of = TopicConfig(retention_ms=-1, dispatch_messages_per_s=rate)
                rig.lead(epoch, queues=QUEUES, config=config_of)
            case _:
                floor = rng.randrange(9)
                of = ("flights", queue, name)
                if rng.random() < 0.5:
                    peer.ask(AlterSubscription(0, 5_000, *of, "reset", floor, force=True))
                else:
                    peer.ask(AlterSubscription(0, 5_000, *of, "end", force=True))
        rig.settle(rng.choice((0.0, 0.0, 0.05, 0.4, 0.8)))
        assert service.deadline() > rig.mono, "some are stepped without end"
        for served in service.served.values():
            assert service.deadline() <= served.deadline(), served.name
            assert not served.stale
            if rig.broker.context.lease.holds(rig.mono):
                assert not served.dispatcher.halted, served.name
    rig.granting = True
    rig.settle(30.0)
    assert all(not served.sessions for served in service.served.values()), "all were silent"


def test_one_that_was_heard_again_is_stepped_when_its_session_ends_then() -> None:
    rig = Rig()
    rig.lead()
    peer, where = rig.client(), ("flights", 0, "s", "x", 1)
    peer.ask(Subscribe(0, 30_000, *where, CONFIGS[0], start="first"))
    (served,) = rig.broker.parts.subscriptions.served.values()
    rig.settle(1.0)
    peer.ask(SettleMessages(0, 30_000, *where, [], -1, []))
    rig.settle(1.5)
    assert served.sessions
    rig.settle(1.0)
    assert not served.sessions
