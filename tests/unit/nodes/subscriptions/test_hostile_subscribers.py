"""Whatever consumers of subscriptions say, a broker goes on, and a healthy one gets everything."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logboom.wire.base import WireMessage
from logboom.wire.batch import open_batch
from logboom.wire.subscription_messages import (
    KINDS,
    AlterSubscription,
    Delivered,
    DescribeSubscriptions,
    Detach,
    Receive,
    SettleMessages,
    Subscribe,
    SubscriptionConfig,
)
from tests.thorough import examples
from tests.unit.nodes.rig import Peer, Rig, batch, produce

OFFSETS = st.sampled_from((0, 1, 2, 3, 5, 9, -1, 1 << 20, (1 << 63) - 1, 1 << 63))
NAMES = st.sampled_from(("a", "b", "c", ""))
SESSIONS = st.integers(1, 4)
SPANS = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3)
CONFIGS = st.builds(
    SubscriptionConfig,
    st.sampled_from(KINDS),
    st.sampled_from(("auto_split", "sticky", "consistent")),
    st.sampled_from(("", "late", "price >")),
    st.sampled_from((0.0, 0.5, -1.0, 1e308)),
    st.sampled_from((1, 3, 50_000, 0)),
    st.sampled_from((1, 200_000)),
    st.sampled_from((0.0, 1.0)),
    st.sampled_from((1, 50_000)),
    st.sampled_from((0, 1, -5)),
    st.sampled_from((0, 100)),
    st.sampled_from((1_000, 10_000, 0)),
)
HEAD = (st.just(0), st.just(5_000), st.just("flights"), st.just(0), st.just("s"), NAMES, SESSIONS)
MESSAGES = st.one_of(
    st.builds(
        Subscribe,
        *HEAD,
        st.just(SubscriptionConfig(kind="shared")) | CONFIGS,
        OFFSETS,
        st.none() | SPANS,
        st.sampled_from(("first", "last", 5, -1, 1 << 62)),
    ),
    st.builds(Receive, *HEAD, st.integers(0, 3), OFFSETS, OFFSETS, OFFSETS),
    st.builds(
        SettleMessages,
        *HEAD,
        SPANS,
        OFFSETS,
        st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS), max_size=2),
    ),
    st.builds(Detach, *HEAD),
    st.builds(
        AlterSubscription,
        *HEAD[:5],
        st.sampled_from(("end", "reset", "skip")),
        OFFSETS,
        st.booleans(),
    ),
    st.builds(DescribeSubscriptions, *HEAD[:5]),
)


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, 1), MESSAGES, st.booleans()), max_size=25))
def test_a_healthy_consumer_gets_everything(acts: list[tuple[int, WireMessage, bool]]) -> None:
    rig = Rig()
    rig.lead()
    peers = [rig.client("x"), rig.client("y")]
    for who, message, waits in acts:
        peers[who].ask(message)
        if waits:
            peers[who].ask(produce(), [batch(2)])
            rig.settle(0.6)
    healthy = rig.client("healthy")
    healthy.ask(produce(), [batch(3)])
    end = rig.replica().hw.offset
    healthy.ask(
        Subscribe(0, 9_000, "flights", 0, "mine", "me", 1, SubscriptionConfig(), 0, None, "first")
    )
    assert healthy.taken()[0].error is None
    assert received(healthy) == end
    assert rig.stop is None


def received(peer: Peer) -> int:
    """How many messages come."""
    found = 0
    for number in range(1, 100):
        peer.ask(Receive(0, 9_000, "flights", 0, "mine", "me", 1, number, 1_000, 1 << 20, 5_000))
        replies = peer.taken()
        if not replies:
            return found
        for reply in replies:
            assert isinstance(reply.message, Delivered), reply.error
            found += sum(len(open_batch(entry)) for entry in reply.batches)
    return found
