"""Numbers at their extremes, in every field of every request that a client may send to a broker.

Each is refused, or harms nobody: the broker goes on, and what it keeps is what it can know.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.actor import Received
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.commands import AlterTopic
from logboom.wire.features import OWNERS_PROVEN
from logboom.wire.group_commands import AlterGroup
from logboom.wire.group_messages import GroupAssigned, GroupHeartbeat, GroupJoin, GroupJoined
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    Produce,
    Produced,
    Propose,
    Prove,
    Pull,
    Pulled,
    RaftFrame,
)
from logboom.wire.subscription_messages import (
    DescribeSubscriptions,
    Receive,
    Settled,
    SettleMessages,
    Subscribe,
    Subscribed,
    SubscriptionConfig,
    SubscriptionsDescribed,
)
from logboom.wire.view import TopicConfig
from tests.unit.nodes.groups.group_rig import GROUP, GroupRig
from tests.unit.wire.kept_numbers import EXTREMES, Number, numbers

SHARED: Final = SubscriptionConfig(kind="shared")
DUE_MS: Final = 60_000
NUMBERS: Final = [each for each in numbers() if each.request not in (Propose, Prove, RaftFrame)]
PLAIN: Final = {
    "acks": "all",
    "acked": [],
    "application": "app",
    "app_id": "app",
    "change": "reset",
    "config": GroupConfig(),
    "consumer": "stranger",
    "force": True,
    "group": GROUP,
    "kind": "client",
    "member": "stranger",
    "number": 1,
    "replace": False,
    "session": 1,
    "subscribe.config": SHARED,
    "subscribe.kind": "shared",
    "subscribe.session": 2,
    "groupjoin.subscription": {"flights": "*"},
    "hello.kind": "client",
    "instance": "",
    "room": "",
    "subscription": "s",
    "timeout_ms": 1_000,
    "tags": None,
    "topic": "flights",
    "version_max": 1,
    "version_min": 1,
}


class Bench:
    """A broker with an honest member, consumer and producer, and a stranger who is as much."""

    def __init__(self) -> None:
        rig = self.rig = GroupRig(2, brokers=1)
        self.topic_id = rig.state.cluster.topics["flights"].id
        self.honest, self.stranger = rig.join("honest"), rig.join("stranger")
        for each in (self.honest, self.stranger, self.honest, self.stranger):
            each.beat()
            if each.revoked:
                assert set(each.release(*(each.last(q, 0, seen_end=0) for q in each.revoked))) == {
                    ""
                }
        self.honest.beat()
        (self.mine,), (self.theirs,) = self.honest.kept, self.stranger.kept
        self.consumer, self.intruder = rig.client("consumer"), rig.client("intruder")
        self.consumed = 0
        for queue in (self.mine, self.theirs):
            for peer, name in ((self.consumer, "honest"), (self.intruder, "stranger")):
                message = Subscribe(0, 5_000, "flights", queue, "s", name, 1, SHARED)
                assert isinstance(self.ask(peer, message), Subscribed)
        self.ends = {queue: self.produce(queue) for queue in (self.mine, self.theirs)}
        writer = rig.client("delaying")
        parked = Produce(0, 5_000, "flights", self.theirs, "all", 0, rig.wall_ms + DUE_MS)
        answer = self.ask(writer, parked, encode_batch([b"later"], now_ms=5))
        assert isinstance(answer, Produced)
        self.parked = answer

    def ask(self, peer: Any, message: WireMessage, *batches: bytes) -> Any:
        """Ask, and wait for the answer."""
        peer.ask(message, batches)
        self.rig.settle()
        return peer.answer()

    def produce(self, queue: int) -> int:
        """Append a message; the end behind it."""
        peer = self.rig.client("writer")
        message = Produce(0, 5_000, "flights", queue, "all")
        answer = self.ask(peer, message, encode_batch([b"v"], now_ms=5))
        assert isinstance(answer, Produced)
        return answer.base_offset + 1

    def usual(self) -> dict[str, Any]:
        """What a request of the stranger says."""
        owned = self.stranger.queues[self.theirs]
        return {
            **PLAIN,
            "endhalf.offset": self.parked.base_offset,
            "epoch": self.stranger.epoch,
            "owner_epoch": owned.owner_epoch,
            "queue": self.theirs,
            "offsets.queues": [self.theirs],
            "recall.offset": self.parked.base_offset,
            "side": self.parked.side,
            "topic_id": self.topic_id,
        }

    def try_out(self, number: Number, value: int) -> None:
        """Send the request with this number."""
        self.rig.broker.routes.features = OWNERS_PROVEN
        raw = number.request_with(value, self.usual())
        batches = []
        if number.request is Produce:
            batches = [encode_batch([b"w"], now_ms=5)]
        address = self.intruder.address
        self.rig.turn(Received(address, [raw, *batches]))
        self.rig.settle()
        assert self.rig.stop is None

    def check(self) -> None:
        """Everybody else is served, and nothing is kept that cannot be."""
        rig = self.rig
        rig.settle(2.0)
        ends = {queue: self.produce(queue) for queue in (self.mine, self.theirs)}
        # The queue goes on by one message at a time, from where it was.
        assert ends[self.mine] == self.ends[self.mine] + 1
        mine = self.honest.queues[self.mine]
        pull = Pull(0, 5_000, "flights", self.mine, self.ends[self.mine], 1 << 20, 0)
        pull.group, pull.owner_epoch = GROUP, mine.owner_epoch
        answer = self.ask(rig.client("reader"), pull)
        assert isinstance(answer, Pulled)
        assert (answer.status, answer.max_offset) == ("FOUND", ends[self.mine])
        assert self.honest.commit(self.honest.last(self.mine, 1, seen_end=ends[self.mine])) == [""]
        assert rig.group.topics[self.topic_id].owner_epochs[self.mine] == mine.owner_epoch
        for queue, end in ends.items():
            asked = DescribeSubscriptions(0, 5_000, "flights", queue)
            described = self.ask(rig.client("describer"), asked)
            assert isinstance(described, SubscriptionsDescribed)
            for state in described.subscriptions:
                assert 0 <= state.floor <= end
                assert all(stop <= end for _, stop in state.acked)
        fresh = Subscribe(0, 5_000, "flights", self.mine, "fresh", "c", 1, SHARED, start="first")
        assert isinstance(self.ask(self.consumer, fresh), Subscribed)
        receive = Receive(0, 5_000, "flights", self.mine, "fresh", "c", 1, 1, 10, 1 << 20, 0)
        self.consumer.ask(receive)
        rig.settle()
        (reply,) = self.consumer.taken()
        assert reply.error is None
        assert reply.batches
        settle = SettleMessages(0, 5_000, "flights", self.mine, "fresh", "c", 1, [(0, 1)])
        settled = self.ask(self.consumer, settle)
        assert isinstance(settled, Settled)
        assert not settled.refused
        # What the name servers keep can be stored, and read again.
        again = StateMachine()
        snapshot = rig.state.snapshot()
        again.restore(snapshot)
        assert again.snapshot() == snapshot


@pytest.mark.parametrize("number", NUMBERS, ids=lambda each: each.name)
def test_a_number_at_its_extremes_harms_nobody_else(number: Number) -> None:
    bench = Bench()
    for value in EXTREMES:
        if value or number.path[-1] != "queue":  # queue 0 is one of those there are
            bench.try_out(number, value)
    bench.check()


@pytest.mark.parametrize("value", [each for each in EXTREMES if each > 0])
@pytest.mark.parametrize(
    "name",
    [
        "retention_ms",
        "retention_bytes",
        "dispatch_messages_per_s",
        "dispatch_bytes_per_s",
        "delete_retention_ms",
    ],
)
def test_a_topic_with_an_extreme_setting_is_served(name: str, value: int) -> None:
    bench = Bench()
    compacted = TopicConfig(compaction=name.startswith("delete"))
    config = msgspec.structs.replace(compacted, **{name: value})
    bench.rig.done(AlterTopic("flights", None, config, 0))
    for _ in range(14):
        # Retention and compaction have their turns meanwhile.
        bench.rig.settle(5.0)
        bench.honest.beat()
    bench.check()


@pytest.mark.parametrize("value", [each for each in EXTREMES if each >= 0])
def test_a_group_that_starts_at_an_extreme_time_gets_its_queues(value: int) -> None:
    bench = Bench()
    config = GroupConfig(start=value)
    bench.rig.done(AlterGroup("late", config, {"flights": "*"}, True, 0))
    peer = bench.rig.client("late")
    join = GroupJoin(0, 5_000, "late", "m", "", "", {"flights": "*"}, False, config)
    joined = bench.ask(peer, join)
    assert isinstance(joined, GroupJoined)
    bench.rig.settle(3.0)
    beat = GroupHeartbeat(0, 5_000, "late", "m", joined.epoch, -1, 0)
    assigned = bench.ask(peer, beat)
    assert isinstance(assigned, GroupAssigned)
    assert {q.queue for q in assigned.queues if q.topic_id == bench.topic_id} == {0, 1}
    bench.check()
