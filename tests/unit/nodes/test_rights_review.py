"""Rights that change while very many requests wait: no turn lasts, and nothing is told any more."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.wire.errors import UnknownResource
from logboom.wire.frames import decode
from logboom.wire.messages import Failure, Pulled
from logboom.wire.subscription_messages import Delivered, Receive, Subscribe, SubscriptionConfig
from logboom.wire.transactions import AwaitDecided, CheckHalves
from tests.unit.nodes.requests.test_many_holds import wishes
from tests.unit.nodes.rig import Peer, QuietRig, batch, produce, pull
from tests.unit.nodes.test_users_at_brokers import Right, alice, allow, changed
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS: Final = 10.0
MANY: Final = 10_000
"""Requests that one connection lets wait."""
READ: Final[Right] = ("read", "topic", "flights")
WRITE: Final[Right] = ("write", "topic", "flights")
GROUPS: Final[Right] = ("write", "transaction", "*")
ELSEWHERE: Final[Right] = ("read", "group", "g")
SETTINGS: Final = SubscriptionConfig(kind="shared")


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    with without_garbage_of_others():
        yield


def crowd(*rights: Right) -> tuple[QuietRig, Peer]:
    """A broker with one queue, and alice with these rights."""
    rig = QuietRig()
    rig.lead()
    allow(rig, *rights)
    return rig, alice(rig)


def with_pulls() -> tuple[QuietRig, Sequence[Right]]:
    """Pulls that wait at the end of a queue."""
    rig, client = crowd(READ)
    rig.turn(*wishes(client, [pull(0, 60_000) for _ in range(MANY)]))
    assert len(rig.broker.parts.pull_handler.holds) == MANY
    return rig, [READ]


def with_decisions() -> tuple[QuietRig, Sequence[Right]]:
    """Requests that wait for decisions."""
    rig, client = crowd(READ)
    waiting = [AwaitDecided(0, 60_000, "flights", 0, 99 + n) for n in range(MANY)]
    rig.turn(*wishes(client, waiting))
    assert len(rig.broker.parts.decision_reports) == MANY
    return rig, [READ]


def with_half_messages() -> tuple[QuietRig, Sequence[Right]]:
    """Producer groups that wait for checks."""
    rig, client = crowd(WRITE, GROUPS)
    waiting = [CheckHalves(0, 60_000, f"g{n}", 60_000) for n in range(MANY)]
    rig.turn(*wishes(client, waiting))
    return rig, [WRITE, GROUPS]


def with_consumers(subscriptions: int = 1, consumers: int = 1_000) -> QuietRig:
    """Consumers that wait for messages."""
    rig, client = crowd(READ)
    for number in range(subscriptions):
        for consumer in range(consumers):
            where = ("flights", 0, f"s{number}", f"c{consumer}", 1)
            client.ask(Subscribe(0, 30_000, *where, SETTINGS, start="first"))
            client.ask(Receive(0, 30_000, *where, 1, 100, 1 << 20, 60_000))
    return rig


def reviewing(rig: QuietRig, *rights: Right) -> Callable[[], bool]:
    """Turns in which alice's rights change, and all that follows from it is done."""
    gc.collect()
    gc.freeze()
    rig.kept, begun = [], False

    def turn() -> bool:
        nonlocal begun
        if begun:
            rig.turn()
        else:
            changed(rig, *rights)
            begun = True
        return rig.broker.deadline() == float("-inf")

    return turn


@pytest.mark.parametrize("waiting", [with_pulls, with_decisions, with_half_messages])
def test_no_turn_lasts_when_another_right_changes(
    waiting: Callable[[], tuple[QuietRig, Sequence[Right]]],
) -> None:
    def begin() -> Callable[[], bool]:
        rig, rights = waiting()
        return reviewing(rig, *rights, ELSEWHERE)

    assert longest_ms(begin, MOST_MS) <= MOST_MS


@pytest.mark.parametrize("waiting", [with_pulls, with_decisions, with_half_messages])
def test_no_turn_lasts_when_all_are_refused(
    waiting: Callable[[], tuple[QuietRig, Sequence[Right]]],
) -> None:
    rigs: list[QuietRig] = []

    def begin() -> Callable[[], bool]:
        rigs.append(waiting()[0])
        return reviewing(rigs[-1])

    assert longest_ms(begin, MOST_MS) <= MOST_MS
    answers = rigs[-1].messages()
    assert len(answers) == MANY
    assert all(isinstance(each, Failure) for each in answers)


@pytest.mark.parametrize(("subscriptions", "consumers"), [(1, 1_000), (1_000, 1)])
def test_no_turn_lasts_when_all_consumers_are_refused(subscriptions: int, consumers: int) -> None:
    services: list[SubscriptionService] = []

    def begin() -> Callable[[], bool]:
        rig = with_consumers(subscriptions, consumers)
        services.append(rig.broker.parts.subscriptions)
        return reviewing(rig)

    assert longest_ms(begin, MOST_MS) <= MOST_MS
    assert not any(each.sessions for each in services[-1].served.values())


def test_a_pull_that_is_not_checked_yet_gets_nothing() -> None:
    rig, _ = with_pulls()
    writer = rig.client("open-1")
    rig.kept = []
    changed(rig)
    writer.ask(produce(), [batch()])
    assert len(rig.broker.parts.pull_handler.holds) > MANY // 2
    while rig.broker.deadline() == float("-inf"):
        rig.turn()
    answers = rig.messages()
    assert sum(isinstance(each, Failure) for each in answers) == MANY
    assert not any(isinstance(each, Pulled) for each in answers)


def test_a_consumer_that_is_not_checked_yet_gets_nothing() -> None:
    rig, client = crowd(READ)
    other = rig.client("open-2")
    for peer, name in ((client, "hers"), (other, "theirs")):
        where = ("flights", 0, "s", name, 1)
        peer.ask(Subscribe(0, 30_000, *where, SETTINGS, start="first"))
        peer.ask(Receive(0, 30_000, *where, 1, 100, 1 << 20, 60_000))
    rig.turn(*wishes(client, [pull(0, 60_000) for _ in range(MANY)]))
    client.taken()
    writer = rig.client("open-1")
    rig.kept = []
    changed(rig)
    writer.ask(produce(), [batch()])
    assert rig.broker.context.rights.under_way
    while rig.broker.deadline() == float("-inf"):
        rig.turn()
    told = {send.peer for send in rig.kept if isinstance(decode(send.frames), Delivered)}
    assert told == {other.address}


def test_changes_that_follow_each_other_do_not_keep_the_last_from_being_checked() -> None:
    rig, client = crowd(READ)
    where = ("flights", 0, "s", "c", 1)
    client.ask(Subscribe(0, 30_000, *where, SETTINGS, start="first"))
    client.ask(Receive(0, 30_000, *where, 1, 100, 1 << 20, 60_000))
    client.taken()
    rig.turn(*wishes(rig.client("open-1"), [pull(0, 60_000) for _ in range(MANY)]))
    changed(rig)
    for _ in range(50):
        rig.broker.context.rights.begin()
        rig.turn()
    with pytest.raises(UnknownResource):
        client.answer()
