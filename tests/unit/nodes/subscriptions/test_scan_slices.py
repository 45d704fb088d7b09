"""Subscriptions with filters: an event passes over a bounded number of messages, and goes on later."""

from __future__ import annotations

from random import Random

import pytest

from logboom.nodes.subscriptions.dispatch_events import KINDS, SubscriptionConfig, Tick
from logboom.nodes.subscriptions.dispatch_events import SubscriptionType as Type
from logboom.nodes.subscriptions.dispatcher import SLICE_UNITS
from logboom.nodes.subscriptions.subscription_service import TURN_UNITS
from logboom.wire.actor import Received
from logboom.wire.batch import encode_batch
from logboom.wire.subscription_messages import Receive, Subscribe
from tests.thorough import seeds
from tests.unit.nodes.requests.test_many_holds import wishes
from tests.unit.nodes.rig import Rig, asking, produce
from tests.unit.nodes.subscriptions.dispatch_bench import Bench
from tests.unit.nodes.subscriptions.test_dispatch_any import KEYS, play


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_that_matches_nothing_does_not_scan_the_log_in_one_event(kind: Type) -> None:
    bench = Bench(SubscriptionConfig(kind=kind, filter="WHERE KEYS = 'never'"))
    for _ in range(300):
        bench.append(*[b"key %d" % number for number in range(100)])
    bench.attach("one")
    bench.grant("one", 1_000_000)
    passed = [bench.acked.floor]
    while bench.acked.floor < bench.log.end:
        assert bench.dispatcher.deadline() <= bench.now
        bench.tell(Tick())
        assert bench.dispatcher.spent < 2 * SLICE_UNITS
        passed.append(bench.acked.floor)
    assert len(passed) > 3
    assert passed == sorted(set(passed))
    assert bench.dispatcher.deadline() > bench.now


@pytest.mark.parametrize("kind", KINDS)
def test_one_large_batch_is_evaluated_in_pieces(kind: Type) -> None:
    """Each of its messages costs some hundred comparisons."""
    terms = " OR ".join(f"'{number:020}' = KEYS" for number in range(100))
    bench = Bench(SubscriptionConfig(kind=kind, filter=f"WHERE {terms} OR KEYS ENDSWITH ' 7'"))
    bench.append(*[b"key %d" % number for number in range(8_000)])
    bench.attach("one")
    bench.grant("one", 1_000_000)
    events = 1
    while bench.dispatcher.deadline() <= bench.now:
        bench.tell(Tick())
        assert bench.dispatcher.spent < 2 * SLICE_UNITS
        events += 1
    assert events > 20
    assert bench.got["one"] == [7]


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("kind", KINDS)
def test_slices_change_nothing_of_what_is_delivered(kind: Type, seed: int) -> None:
    rng = Random(seed)
    wanted = "WHERE KEYS IN ('a', 'c', 'f')"
    bench = Bench(SubscriptionConfig(kind=kind, filter=wanted, look_ahead=rng.choice([10, 50_000])))
    bench.units = rng.choice([1, 30, 500])
    play(bench, rng, 80)
    bench.finish_alone()
    assert set(KEYS) > {b"a", b"c", b"f"}
    matching = {at for at, key in enumerate(bench.log.keys) if key in (b"a", b"c", b"f")}
    assert {offset for got in bench.got.values() for offset in got} == matching


def test_many_subscriptions_with_filters_share_what_a_turn_spends() -> None:
    rig = Rig()
    rig.lead()
    writer, keys = rig.client("writer"), [b"key %d" % number for number in range(100)]
    for _ in range(200):
        writer.ask(produce(), [encode_batch([b"v"] * 100, keys, now_ms=1)])
    config = SubscriptionConfig(kind="shared", filter="WHERE KEYS = 'never'")
    peers = {f"s{number}": rig.client(f"c{number}") for number in range(24)}
    attach, ask = [], []
    for name, peer in peers.items():
        join = Subscribe(0, 30_000, "flights", 0, name, "one", 1, config, start="first")
        receive = Receive(0, 30_000, "flights", 0, name, "one", 1, 1, 100, 1 << 20, 9_000)
        attach += wishes(peer, [join])
        ask += wishes(peer, [receive])
    rig.turn(*attach)
    rig.auto_sync = False  # each turn on its own
    rig.turn(*ask)
    end = rig.replica().end.offset
    served = rig.broker.parts.subscriptions.served.values()
    read = [each.dispatcher.read_at for each in served]
    assert 0 < sum(read) < TURN_UNITS // 2
    turns = 1
    while min(read) < end:
        rig.sync()
        turns += 1
        assert sum(each.dispatcher.read_at for each in served) - sum(read) < TURN_UNITS // 2
        read = [each.dispatcher.read_at for each in served]
    assert turns > 3


def test_those_that_ask_in_every_turn_leave_room_for_those_that_wait() -> None:
    rig = Rig()
    rig.lead()
    writer, keys = rig.client("writer"), [b"key %d" % number for number in range(100)]
    for _ in range(400):
        writer.ask(produce(), [encode_batch([b"v"] * 100, keys, now_ms=1)])
    config = SubscriptionConfig(kind="shared", filter="WHERE KEYS = 'never'")
    names = ("waits", "asks", "asks too", "asks as well")
    peers = {name: rig.client(name) for name in names}
    for name, peer in peers.items():
        peer.ask(Subscribe(0, 30_000, "flights", 0, name, "one", 1, config, start="first"))

    def receive(name: str, number: int) -> list[Received]:
        where = ("flights", 0, name, "one", 1)
        return asking(peers[name], Receive(0, 30_000, *where, number, 100, 1 << 20, 9_000))

    rig.auto_sync = False  # each turn on its own
    served = rig.broker.parts.subscriptions.served[(1, 0), "waits"].dispatcher
    first = [event for name in names[1:] for event in receive(name, 1)]
    rig.turn(*first, *receive("waits", 1))
    before = served.read_at
    for number in range(2, 2 + len(names)):
        rig.broker.deadline()  # as the loop asks before each turn
        rig.turn(*[event for name in names[1:] for event in receive(name, number)])
    assert served.read_at > before
