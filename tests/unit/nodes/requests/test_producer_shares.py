"""A user may have so many producers at a broker; beyond that its own idle ones go, and no others."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import msgspec
import pytest

from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import Replica
from logboom.nodes.requests import producer_shares
from logboom.nodes.requests.producer_shares import (
    IDLE_S,
    QUEUES_AT_ONCE,
    ProducerShares,
)
from logboom.nodes.turn import BrokerTurn
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.actor import Instant
from logboom.wire.batch import validate_batch
from logboom.wire.errors import Unavailable
from logboom.wire.user_marks import id_of_user
from tests.thorough import examples
from tests.unit.nodes.rig import ME, Peer, Rig, batch, produce
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MAX_PRODUCERS = 8
MOST_MS = 10.0
HEAD = validate_batch(batch(1, 0, 0, 0), stamped=False)


def key_of(user: str) -> UserKey:
    return UserKey("laptop", f"{user:k<40}", 0)


def rig_with_users(queues: int = 1) -> tuple[Rig, Peer, Peer]:
    """A broker that leads a topic, and clients of ann and bob, who may write it."""
    rig = Rig()
    rig.lead(queues=queues)
    users = [
        UserView(name, [key_of(name)], rules=[AccessRule(True, "write", "topic", "*")])
        for name in ("ann", "bob")
    ]
    rig.broker.routes.access.update(AccessView(True, users), 1_000)
    ann, bob = (rig.client(name, principal_of(name, key_of(name))) for name in ("ann", "bob"))
    return rig, ann, bob


def sends(client: Peer, producer: int, sequence: int = 0, queue: int = 0) -> bool:
    """Send a batch of a producer; True if it is stored."""
    client.ask(produce(queue=queue), [batch(1, producer, 0, sequence)])
    (reply,) = client.taken()
    assert reply.error is None or isinstance(reply.error, Unavailable)
    return reply.error is None


@pytest.fixture(params=["MAX_IN_QUEUE", "MAX_OF_USER"])
def _bound(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_shares, request.param, MAX_PRODUCERS)


@pytest.mark.usefixtures("_bound")
def test_a_user_with_too_many_producers_gets_no_new_one_and_keeps_those_it_has() -> None:
    rig, ann, bob = rig_with_users()
    assert sends(bob, 1_000)
    stored = [producer for producer in range(1, 4 * MAX_PRODUCERS) if sends(ann, producer)]
    assert stored == [*range(1, MAX_PRODUCERS + 1)]
    assert len(rig.replica().windows) == MAX_PRODUCERS + 1
    assert sends(ann, 1, 1)
    assert sends(bob, 1_001), "others have a bound of their own"
    assert sends(bob, 1_000, 1)


@pytest.mark.usefixtures("_bound")
def test_those_that_were_idle_for_long_make_room() -> None:
    rig, ann, bob = rig_with_users()
    assert sends(bob, 1_000)
    assert all(sends(ann, producer) for producer in range(1, MAX_PRODUCERS + 1))
    rig.settle(IDLE_S / 2)
    assert sends(ann, 1, 1)
    assert not sends(ann, 100)
    rig.settle(IDLE_S / 2)
    assert sends(ann, 100)
    assert len(rig.replica().windows) == 3, "two of ann, and bob's, which is as old"
    assert sends(ann, 1, 2)
    again = Rig(rig.storage, incarnation="two")
    assert len(again.replica().windows) == 3, "by an entry of the log"


def loses_and_gains(rig: Rig, epoch: int) -> None:
    """Let another broker lead for a moment, and ours again in this epoch."""
    rig.lead(epoch - 1, leader="broker-2")
    assert rig.replica().leading is None
    rig.lead(epoch)


@pytest.mark.usefixtures("_bound")
def test_producers_of_earlier_leaderships_count_until_they_have_been_idle_for_long() -> None:
    rig, ann, bob = rig_with_users()
    assert all(sends(bob, id_of_user("bob", number)) for number in range(2 * MAX_PRODUCERS - 9))
    for epoch in range(3, 9, 2):
        for number in range(2 * MAX_PRODUCERS):
            sends(ann, id_of_user("ann", number))
        loses_and_gains(rig, epoch)
    assert len(rig.replica().windows) == 2 * MAX_PRODUCERS - 1
    assert sends(bob, id_of_user("bob", 100)), "they are not bob's"
    assert sends(ann, id_of_user("ann", 0), 1)
    assert not sends(ann, id_of_user("ann", 100))
    rig.settle(IDLE_S)
    assert sends(ann, id_of_user("ann", 100))
    assert sends(ann, id_of_user("ann", 100), 1)
    windows = rig.replica().windows
    assert [*windows.of_user("ann")] == [id_of_user("ann", 100)]
    assert len([*windows.of_user("bob")]) == MAX_PRODUCERS


def test_a_new_leader_has_room_until_it_knows_who_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_shares, "MAX_IN_QUEUE", MAX_PRODUCERS)
    monkeypatch.setattr(producer_shares, "IDLE_S", 1.0)
    rig, ann, _ = rig_with_users()
    for number in range(4 * MAX_PRODUCERS):
        assert sends(ann, id_of_user("ann", number))
        rig.settle(1.0)
        assert len(rig.replica().windows) <= MAX_PRODUCERS // 2
    loses_and_gains(rig, 3)
    assert all(sends(ann, id_of_user("ann", 100 + each)) for each in range(MAX_PRODUCERS // 2))


def test_producers_of_ended_leaderships_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_shares, "MAX_OF_USER", MAX_PRODUCERS)
    rig, ann, _ = rig_with_users(queues=2)
    assert all(sends(ann, producer) for producer in range(1, MAX_PRODUCERS + 1))
    assert not sends(ann, 100, queue=1)
    assert rig.view is not None
    (topic,) = rig.view.topics
    lost = msgspec.structs.replace(
        topic.queues[0], leader="broker-2", leader_epoch=2, version=rig.version + 1
    )
    changed = {"queues": [lost, topic.queues[1]], "version": rig.version + 1}
    rig.publish(msgspec.structs.replace(topic, **changed))
    assert rig.replica().leading is None
    assert sends(ann, 100, queue=1)


def test_a_producer_whose_batch_is_not_stored_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_shares, "MAX_IN_QUEUE", MAX_PRODUCERS)
    rig, ann, _ = rig_with_users()
    rig.storage.full = True
    rig.settle(0.3)
    assert not any(sends(ann, producer) for producer in range(MAX_PRODUCERS))
    rig.storage.full = False
    rig.settle(0.3)
    assert sends(ann, MAX_PRODUCERS)


def test_clients_without_a_key_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_shares, "MAX_OF_USER", MAX_PRODUCERS)
    rig, _, _ = rig_with_users()
    client = rig.client("open")
    assert all(sends(client, producer) for producer in range(1, 3 * MAX_PRODUCERS))


def total(rig: Rig, user: str) -> int:
    """How many producers of a user the broker counts in the queues that it leads."""
    leaderships = [each.leading for each in rig.broker.queues.led.values()]
    return sum(len(each.producers.get(user, ())) for each in leaderships if each is not None)


def leads_some(rig: Rig, led: Collection[int]) -> None:
    """Let the broker lead these of three queues, those that it led before in the same epoch."""
    assert rig.view is not None
    (topic,) = rig.view.topics
    version = rig.version + 1
    queues = list(topic.queues)
    for number, view in enumerate(queues):
        leader = ME if number in led else "broker-2"
        if view.leader != leader:
            changed = {"leader": leader, "leader_epoch": view.leader_epoch + 1, "version": version}
            queues[number] = msgspec.structs.replace(view, **changed)
    rig.publish(msgspec.structs.replace(topic, queues=queues, version=version))


@pytest.mark.parametrize("seed", range(examples(4)))
def test_a_user_is_refused_at_its_bounds_and_only_there(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Queues come and go, producers are idle for long or not: what is counted is what there is."""
    bounds = {"MAX_IN_QUEUE": 5, "MAX_OF_USER": 8, "IDLE_S": 1.0}
    bounds |= {"FORGOTTEN_AT_ONCE": 2, "QUEUES_AT_ONCE": 2}
    for name, value in bounds.items():
        monkeypatch.setattr(producer_shares, name, value)
    rig, *clients = rig_with_users(queues=3)
    chance, refused, stored = random.Random(seed), 0, 0
    for epoch in range(300):
        if chance.random() < 0.1:
            leads_some(rig, {queue for queue in range(3) if chance.random() < 0.7})
        if chance.random() < 0.1:
            rig.settle(chance.choice([0.25, 1.0]))
        at, queue = chance.choice([0, 0, 0, 1]), chance.randrange(3)
        user, client, replica = ("ann", "bob")[at], clients[at], rig.replica(queue)
        if replica.leading is None:
            continue
        producer = id_of_user(user, chance.randrange(40))
        before = replica.leading.producers.get(user, replica.windows.of_user(user))
        is_new = producer not in before
        client.ask(produce(queue=queue), [batch(1, producer, epoch, 0)])
        (reply,) = client.taken()
        known = replica.leading.producers[user]
        full = len(known) >= 5 or total(rig, user) >= 8
        if reply.error is not None:
            assert is_new
            assert full
            refused += 1
        elif is_new:
            assert len(known) <= 5
            assert total(rig, user) <= 8
            stored += 1
        assert {*replica.windows.of_user(user)} <= {*known}
    assert refused >= 10
    assert stored >= 10


# ── what a turn costs ───────────────────────────────────────────────────────────────────────────


def leads(rig: Rig, queue: int) -> Replica:
    """A further queue that the broker leads."""
    replica = rig.broker.queues.create(2, queue, "many")
    replica.leader_epoch = 1
    replica.leading = Leadership(ME, 1, replica.end, rig.mono)
    replica.leading.isr = (ME,)
    rig.broker.queues.led[replica.key] = replica
    return replica


def know(replica: Replica, user: str, producers: int) -> None:
    """Let a queue have windows of a user, as if each producer had sent a batch."""
    first = id_of_user(user, 0)
    for number in range(len(replica.windows), len(replica.windows) + producers):
        sent = msgspec.structs.replace(HEAD, producer_id=first + number)
        replica.windows.add(sent, replica.end, 0, replica.hw)


class Using:
    """Ann uses producers at a broker, one in a turn."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.lead()
        context, parts = self.rig.broker.context, self.rig.broker.parts
        self.shares = ProducerShares(context, parts.replicate_handler)
        self.next = id_of_user("ann", 1 << 30)

    def use(self, replica: Replica) -> bool:
        """Use a new producer; True if there is room for it."""
        turn = BrokerTurn(Instant(self.rig.mono, self.rig.wall_ms))
        self.next += 1
        assert replica.leading is not None
        try:
            self.shares.use("ann", self.next, replica, replica.leading, turn)
        except Unavailable:
            return False
        finally:
            self.rig.broker.queues.commit(turn)
        return True


def test_few_of_many_queues_are_looked_at_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    using = Using()
    rig = using.rig
    queues = [leads(rig, queue) for queue in range(5_000)]
    for replica in queues:
        know(replica, "ann", 3)
        assert using.use(replica)
    monkeypatch.setattr(producer_shares, "MAX_OF_USER", 20_000)
    assert not using.use(queues[0])
    rig.mono += IDLE_S

    def begin() -> Callable[[], bool]:
        def step() -> bool:
            assert using.use(queues[0])
            return False

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS
    ends = [replica.end for replica in queues]
    assert using.use(queues[0])
    forgot = sum(each.end != end for each, end in zip(queues, ends, strict=True))
    assert 0 < forgot <= QUEUES_AT_ONCE
    for _ in range(len(queues) // QUEUES_AT_ONCE):
        assert using.use(queues[0])
    kept = sum(len([*each.leading.producers["ann"]]) for each in queues if each.leading)
    assert kept < 20_000 // 2 + 4 * QUEUES_AT_ONCE


def test_a_queue_with_100_000_producers_makes_no_turn_last() -> None:
    using = Using()
    replica = leads(using.rig, 0)
    know(replica, "bob", 90_000)
    know(replica, "ann", 10_000)

    def begin() -> Callable[[], bool]:
        replica.leading = Leadership(ME, 1, replica.end, using.rig.mono)
        replica.leading.isr = (ME,)
        using.rig.mono += IDLE_S
        return lambda: using.use(replica)

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS
    assert not using.use(replica)
    using.rig.mono += IDLE_S
    assert using.use(replica)


def test_what_is_idle_for_days_costs_no_look_at_every_user() -> None:
    using = Using()
    replica = leads(using.rig, 0)
    know(replica, "bob", 10_000)
    assert replica.leading is not None
    old = range(5_000)
    users = [f"user-{number}" for number in range(1_000)]
    replica.leading.producers = {user: dict.fromkeys(old, 0.0) for user in users[:20]}
    replica.leading.producers |= {user: {1: 0.0} for user in users[20:]}

    def begin() -> Callable[[], bool]:
        turn = BrokerTurn(Instant(using.rig.mono, using.rig.wall_ms))

        def step() -> bool:
            using.shares.forget(replica, [*old], turn)
            return False

        return step

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS
