"""Subscriptions at a leader: attached, served, acknowledged, and going on elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.subscriptions import subscription_handler, subscription_service
from logboom.wire.actor import Event
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.cursor_deltas import encode_deltas
from logboom.wire.errors import (
    GroupError,
    InvalidRequest,
    NotEnoughReplicas,
    NotLeader,
    Refused,
    Unavailable,
    UnknownResource,
)
from logboom.wire.messages import Ok
from logboom.wire.subscription_messages import (
    MAX_HELD,
    AlterSubscription,
    Delivered,
    DescribeSubscriptions,
    Detach,
    Receive,
    Settled,
    SettleMessages,
    Span,
    Subscribe,
    Subscribed,
    SubscriptionConfig,
    SubscriptionsDescribed,
    SubscriptionState,
)
from logboom.wire.view import TopicConfig
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce

PAIR = (ME, "broker-2")
SHARED = SubscriptionConfig(kind="shared")


class Reader:
    """A consumer of a subscription, played by hand."""

    subscription = "s"

    def __init__(self, rig: Rig, name: str = "one", config: SubscriptionConfig = SHARED) -> None:
        self.rig = rig
        self.name = name
        self.config = config
        self.session = 0
        self.number = 0
        self.peer = rig.client(name)

    def subscribe(self, **options: Any) -> Any:
        """Attach, in a new session."""
        self.session += 1
        self.number = 0
        message = Subscribe(
            0,
            30_000,
            "flights",
            0,
            self.subscription,
            self.name,
            self.session,
            self.config,
            **{"start": "first", **options},
        )
        self.peer.ask(message)
        return self.peer.answer()

    def receive(self, messages: int = 100, wait_ms: int = 5_000) -> list[bytes | None]:
        """Give permits; the values that came at once."""
        self.number += 1
        self.ask_again(messages, wait_ms)
        return self.taken()

    def ask_again(self, messages: int = 100, wait_ms: int = 5_000) -> None:
        """The same Receive once more."""
        message = Receive(
            0,
            30_000,
            "flights",
            0,
            self.subscription,
            self.name,
            self.session,
            self.number,
            messages,
            1 << 20,
            wait_ms,
        )
        self.peer.ask(message)

    def taken(self) -> list[bytes | None]:
        """The values that have come since."""
        values: list[bytes | None] = []
        for reply in self.peer.taken():
            if reply.error is not None:
                raise reply.error
            assert isinstance(reply.message, Delivered)
            for entry, bits in zip(reply.batches, reply.message.chosen, strict=True):
                all_values = open_batch(entry).values()
                chosen = int.from_bytes(bits, "little") if bits else -1
                values += [value for at, value in enumerate(all_values) if chosen >> at & 1]
        return values

    def settle(
        self, *spans: Span, up_to: int = -1, again: list[tuple[int, int, int]] | None = None
    ) -> Any:
        """Acknowledge; what was refused."""
        self.peer.ask(
            SettleMessages(
                0,
                30_000,
                "flights",
                0,
                self.subscription,
                self.name,
                self.session,
                list(spans),
                up_to,
                again or [],
            )
        )
        if not self.peer.replies:
            self.rig.settle()
        answer = self.peer.answer()
        assert isinstance(answer, Settled)
        return answer.refused


def alone() -> Rig:
    """A broker that leads a queue of one replica."""
    rig = Rig()
    rig.lead()
    return rig


def send(rig: Rig, *values: bytes) -> None:
    """Produce one batch, a key a message."""
    writer = rig.client("writer")
    writer.ask(produce(), [encode_batch(list(values), keys=list(values), now_ms=5)])


def state(rig: Rig, name: str = "s") -> SubscriptionState:
    """What the leader tells of a subscription."""
    peer = rig.client("operator")
    peer.ask(DescribeSubscriptions(0, 5_000, "flights", 0, name))
    answer = peer.answer()
    assert isinstance(answer, SubscriptionsDescribed)
    return answer.subscriptions[0]


def alter(rig: Rig, change: Any, offset: int = 0, *, force: bool = False, name: str = "s") -> Any:
    """End or reset a subscription."""
    peer = rig.client("operator")
    peer.ask(AlterSubscription(0, 5_000, "flights", 0, name, change, offset, force))
    return peer.answer()


def test_messages_come_to_who_waits_and_acknowledged_ones_never_again() -> None:
    rig = alone()
    reader = Reader(rig)
    assert reader.subscribe().floor == 0
    assert reader.receive() == []
    send(rig, b"a", b"b")
    assert reader.taken() == [b"a", b"b"]
    assert reader.settle((0, 1)) == []
    assert reader.settle((0, 1), (1, 2), (5, 6)) == [(5, 6)]
    told = state(rig)
    assert (told.floor, told.unacked, told.held, told.kind) == (2, 0, 0, "shared")
    assert rig.replica().cursors.cursors["s"].acks.floor == 2
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    other = Reader(again, "two")
    other.subscribe()
    assert other.receive() == []
    send(again, b"c")
    assert other.taken() == [b"c"]


def test_an_acknowledgement_is_answered_once_it_is_replicated() -> None:
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    follower = rig.follower()
    reader = Reader(rig)
    reader.peer.ask(Subscribe(0, 30_000, "flights", 0, "s", "one", 1, SHARED, 0, None, "first"))
    assert reader.peer.taken() == []
    follower.ask(fetch(0, (Position(0, 1), 1)))
    assert isinstance(reader.peer.answer(), Subscribed)
    reader.session = 1
    send(rig, b"a")
    follower.ask(fetch(1, (Position(1), 1)))
    assert reader.receive() == [b"a"]
    reader.peer.ask(SettleMessages(0, 9_000, "flights", 0, "s", "one", 1, [(0, 1)]))
    assert reader.peer.taken() == []
    assert rig.replica().cursors.cursors["s"].acks.floor == 0
    follower.ask(fetch(2, (Position(1, 1), 1)))
    assert isinstance(reader.peer.answer(), Settled)
    assert rig.replica().cursors.cursors["s"].acks.floor == 1
    # With too few in sync nothing is acknowledged, and nothing lost.
    rig.lead(isr=[ME], replicas=PAIR, config=TopicConfig(retention_ms=-1, min_in_sync=2))
    with pytest.raises(NotEnoughReplicas):
        reader.settle((0, 1))


def in_one_turn(rig: Rig, *acts: Callable[[], object]) -> None:
    """Let the broker take what the acts send it in one turn."""
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig, "turn", lambda *more: events.extend(more))
        for act in acts:
            act()
    rig.turn(*events)


def attached_with_a_message() -> tuple[Rig, Reader]:
    """A consumer that holds the one message of a queue; everything is replicated."""
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    follower = rig.follower()
    reader = Reader(rig)
    reader.peer.ask(Subscribe(0, 30_000, "flights", 0, "s", "one", 1, SHARED, 0, None, "first"))
    follower.ask(fetch(0, (Position(0, 1), 1)))
    reader.session = 1
    reader.peer.taken()
    send(rig, b"a")
    follower.ask(fetch(1, (Position(1), 1)))
    assert reader.receive() == [b"a"]
    return rig, reader


SETTLE = SettleMessages(0, 9_000, "flights", 0, "s", "one", 1, [(0, 1)])


def test_p10_a_leadership_that_ends_in_the_turn_of_an_acknowledgement_does_not_confirm_it() -> None:
    rig, reader = attached_with_a_message()
    in_one_turn(
        rig,
        lambda: reader.peer.ask(SETTLE),
        lambda: rig.lead(epoch=2, isr=PAIR, replicas=PAIR, leader="broker-2"),
    )
    replies = reader.peer.taken()
    assert [type(reply.error) for reply in replies] == [NotLeader], "it is written nowhere"


def test_p10_an_acknowledgement_that_too_few_replicas_could_keep_is_not_confirmed() -> None:
    rig, reader = attached_with_a_message()
    strict = TopicConfig(retention_ms=-1, min_in_sync=2)
    in_one_turn(
        rig,
        lambda: reader.peer.ask(SETTLE),
        lambda: rig.lead(isr=[ME], replicas=PAIR, config=strict),
    )
    assert reader.peer.taken() == [], "it is not written yet"
    rig.lead(isr=[ME], replicas=PAIR, config=TopicConfig(retention_ms=-1, min_in_sync=1))
    assert isinstance(reader.peer.answer(), Settled)
    assert rig.replica().cursors.cursors["s"].acks.floor == 1


def test_a_new_leader_serves_nobody_before_it_knows_all_that_was_acknowledged() -> None:
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR)
    follower = rig.follower()
    reader = Reader(rig)
    reader.peer.ask(Subscribe(0, 30_000, "flights", 0, "s", "one", 1, SHARED, 0, None, "first"))
    follower.ask(fetch(0, (Position(0, 1), 1)))
    reader.session = 1
    reader.peer.taken()
    send(rig, b"a")
    follower.ask(fetch(1, (Position(1), 1)))
    assert reader.receive() == [b"a"]
    reader.peer.ask(SettleMessages(0, 9_000, "flights", 0, "s", "one", 1, [(0, 1)]))
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, isr=PAIR, replicas=PAIR)
    other = Reader(again, "two")
    with pytest.raises(Unavailable):
        other.subscribe()
    again.follower().ask(fetch(0, (Position(1, 1), 1), epoch=2))
    other.subscribe()
    assert other.receive() == []


def test_a_consumer_that_is_silent_loses_what_it_holds() -> None:
    rig = alone()
    one, two = Reader(rig, "one"), Reader(rig, "two")
    one.subscribe()
    two.subscribe()
    send(rig, b"a")
    assert one.receive() == [b"a"]
    two.receive(wait_ms=5_000)
    rig.settle(9.9)
    assert two.taken() == []
    two.receive(wait_ms=5_000)
    rig.settle(0.2)
    assert two.taken() == [b"a"]
    with pytest.raises(GroupError, match="subscribe again"):
        one.settle((0, 1))
    assert [c.name for c in state(rig).consumers] == ["two"]
    assert state(rig).again == [(0, 1)]


def test_one_that_dies_while_it_waits_is_gone_a_session_after_it_asked() -> None:
    rig = alone()
    one, two = Reader(rig, "one"), Reader(rig, "two")
    one.subscribe()
    two.subscribe()
    one.receive(wait_ms=60_000)
    rig.settle(4.0)
    send(rig, b"a")
    assert one.taken() == [b"a"]
    two.receive(wait_ms=5_000)
    rig.settle(5.9)
    two.receive(wait_ms=5_000)
    rig.settle(0.1)
    assert two.taken() == [b"a"]


def test_a_hold_ends_without_a_batch_and_permits_stay() -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    reader.receive(5, wait_ms=1_000)
    rig.settle(1.0)
    assert reader.taken() == []
    send(rig, b"a")
    assert reader.taken() == []
    assert reader.receive(0) == [b"a"]
    assert state(rig).consumers[0].permits == 4


def test_a_receive_that_is_sent_again_counts_once_and_a_lost_answer_begins_anew() -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    reader.receive(5)
    reader.ask_again(5)
    assert state(rig).consumers[0].permits == 5
    send(rig, b"a")
    assert reader.taken() == [b"a"]
    reader.ask_again(5)
    with pytest.raises(GroupError, match="subscribe again"):
        reader.taken()
    reader.subscribe()
    assert reader.receive() == [b"a"]


def test_one_that_goes_gives_back_what_it_holds() -> None:
    rig = alone()
    one, two = Reader(rig, "one"), Reader(rig, "two")
    one.subscribe()
    two.subscribe()
    send(rig, b"a")
    assert one.receive() == [b"a"]
    assert two.receive() == []
    one.peer.ask(Detach(0, 5_000, "flights", 0, "s", "one", 1))
    assert isinstance(one.peer.answer(), Ok)
    assert two.taken() == [b"a"]
    one.peer.ask(Detach(0, 5_000, "flights", 0, "s", "one", 1))
    assert isinstance(one.peer.answer(), Ok)


def test_what_is_given_back_comes_again_with_its_count_whoever_leads() -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    send(rig, b"a", b"b")
    assert reader.receive() == [b"a", b"b"]
    assert reader.settle(again=[(0, 1, 2_000)]) == []
    assert reader.settle((1, 2)) == []
    assert reader.receive() == []
    rig.settle(2.0)
    assert reader.taken() == [b"a"]
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    assert state(again).again == [(0, 1)]
    with pytest.raises(InvalidRequest, match="delay"):
        reader.settle(again=[(0, 1, -1)])


def test_keys_go_to_one_consumer_as_parts_of_batches() -> None:
    rig = alone()
    config = SubscriptionConfig(kind="key_shared")
    one, two = Reader(rig, "one", config), Reader(rig, "two", config)
    one.subscribe()
    two.subscribe()
    keys = [b"k%d" % n for n in range(20)]
    send(rig, *keys)
    first, second = one.receive(), two.receive()
    assert first
    assert second
    assert sorted([*first, *second], key=lambda v: v or b"") == sorted(keys)
    send(rig, *keys)
    assert one.receive() == first
    ranges = {c.name: c.ranges for c in state(rig).consumers}
    assert ranges == {"two": [(0, 32_768)], "one": [(32_769, 65_535)]}


@pytest.mark.parametrize("kind", ["shared", "key_shared", "failover"])
def test_a_subscription_has_so_many_consumers_and_no_more(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_handler, "MOST_CONSUMERS", 2)
    rig = alone()
    one, two, three = (
        Reader(rig, name, SubscriptionConfig(kind=kind)) for name in ("one", "two", "three")
    )
    one.subscribe()
    two.subscribe()
    with pytest.raises(Refused, match="2 consumers are attached") as busy:
        three.subscribe()
    assert busy.value.code == "CONSUMER_BUSY"
    assert [each.name for each in state(rig).consumers] == ["one", "two"]
    # Who is attached may attach again, and who goes makes room.
    two.subscribe()
    two.peer.ask(Detach(0, 5_000, "flights", 0, "s", "two", two.session))
    two.peer.answer()
    three.subscribe()
    assert [each.name for each in state(rig).consumers] == ["one", "three"]


def test_a_queue_has_so_many_subscriptions_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_handler, "MOST_SUBSCRIPTIONS", 2)
    rig = alone()
    readers = [Reader(rig, name) for name in ("one", "two", "three")]
    for reader in readers:
        reader.subscription = reader.name
    one, _, three = readers
    for reader in readers[:2]:
        reader.subscribe()
    with pytest.raises(Refused, match="flights/0 has 2 subscriptions") as full:
        three.subscribe()
    assert full.value.code == "QUOTA_EXCEEDED"
    # Those that exist are served on, also once nobody is attached, and one that ends makes room.
    one.peer.ask(Detach(0, 5_000, "flights", 0, "one", "one", one.session))
    one.peer.answer()
    one.subscribe()
    one.peer.ask(AlterSubscription(0, 5_000, "flights", 0, "one", "end", force=True))
    one.peer.answer()
    three.subscribe()


def test_a_user_has_so_many_consumers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_service, "MOST_OF_USER", 2)
    rig = alone()
    readers = [Reader(rig, name) for name in ("one", "two", "three", "four")]
    for reader, user in zip(readers, ("ann", "ann", "ann", "bob"), strict=True):
        session = rig.broker.acceptor.peer(reader.peer.address)
        assert session is not None
        session.user = user
    one, two, three, bobs = readers

    def is_full() -> bool:
        with pytest.raises(Refused, match="user ann has attached 2 consumers") as full:
            three.subscribe()
        return full.value.code == "QUOTA_EXCEEDED" and full.value.fields["limit"] == 2

    # Whoever is attached may attach again, another user has a number of its own, …
    for reader in (one, two, one, bobs):
        reader.subscribe()
    assert is_full()
    # … and every way to go makes room: to leave, to be silent, and the end of the subscription.
    one.peer.ask(Detach(0, 5_000, "flights", 0, "s", "one", one.session))
    one.peer.answer()
    three.subscribe()
    assert sorted(each.name for each in state(rig).consumers) == ["four", "three", "two"]
    rig.settle(11.0)
    assert not state(rig).consumers
    for reader in (one, two):
        reader.subscribe()
    assert is_full()
    alter(rig, "end", 0, force=True)
    for reader in (two, three):
        reader.subscribe()
    with pytest.raises(Refused, match="user ann has attached"):
        one.subscribe()


def test_what_does_not_fit_the_subscription_is_refused() -> None:
    rig = alone()
    Reader(rig, "one").subscribe()
    other = Reader(rig, "two", SubscriptionConfig(kind="failover"))
    with pytest.raises(GroupError, match="kind 'shared' and not 'failover'") as mismatch:
        other.subscribe()
    assert mismatch.value.fields["different"] == "kind"
    exclusive = Rig()
    exclusive.lead()
    Reader(exclusive, "one", SubscriptionConfig()).subscribe()
    with pytest.raises(Refused, match="one") as busy:
        Reader(exclusive, "two", SubscriptionConfig()).subscribe()
    assert busy.value.code == "CONSUMER_BUSY"
    for config in (
        SubscriptionConfig(kind="shared", session_ms=1),
        SubscriptionConfig(kind="shared", filter="a WHERE"),
        SubscriptionConfig(kind="shared", look_ahead=0),
        SubscriptionConfig(kind="shared", look_ahead=MAX_HELD + 1),
        SubscriptionConfig(kind="shared", most_unacked=MAX_HELD + 1),
        SubscriptionConfig(kind="shared", most_unacked_all=MAX_HELD + 1),
    ):
        with pytest.raises(InvalidRequest):
            Reader(alone(), "x", config).subscribe()
    with pytest.raises(InvalidRequest, match="name"):
        Reader(alone(), "").subscribe()
    with pytest.raises(UnknownResource):
        Reader(alone()).subscribe(create=False)
    with pytest.raises(GroupError, match="subscribe again"):
        Reader(alone()).receive()


def test_a_subscription_is_reset_and_ended() -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    for value in (b"a", b"b", b"c"):
        send(rig, value)
    reader.receive()
    reader.settle((0, 1), (1, 2))
    reader.receive()
    with pytest.raises(Refused, match="force"):
        alter(rig, "reset", 1)
    assert isinstance(alter(rig, "reset", 1, force=True), Ok)
    with pytest.raises(GroupError, match="subscribe again"):
        reader.taken()
    reader.subscribe()
    assert reader.receive() == [b"b", b"c"]
    assert isinstance(alter(rig, "end", force=True), Ok)
    with pytest.raises(UnknownResource):
        alter(rig, "end")
    assert rig.storage.content("cursor") == {}
    reader.peer.taken()
    reader.subscribe(start="last")
    assert reader.receive() == []
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2)
    assert state(again).floor == 3


def test_a_subscription_begins_where_it_is_told_to() -> None:
    rig = alone()
    send(rig, b"a")
    reader = Reader(rig)
    reader.subscribe(start="last")
    assert reader.receive() == []
    send(rig, b"b")
    assert reader.taken() == [b"b"]


def test_q11_past_the_lease_nothing_is_delivered() -> None:
    """Another may lead, and have confirmed what is not known to be acknowledged here."""
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    send(rig, b"a")
    assert reader.receive() == [b"a"]
    rig.granting = False
    rig.settle(2.5)
    reader.settle(again=[(0, 1, 0)])
    send(rig, b"b")
    assert reader.receive(wait_ms=60_000) == []
    rig.settle(1.0)
    rig.granting = True
    rig.settle(1.5)
    assert reader.taken() == [b"a"]
    assert reader.receive() == [b"b"]


def test_a_leadership_that_ends_sends_its_consumers_away() -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    reader.receive()
    rig.lead(epoch=2, leader="broker-2", isr=PAIR, replicas=PAIR)
    with pytest.raises(NotLeader):
        reader.taken()
    assert rig.broker.parts.subscriptions.served == {}


def test_retention_goes_on_and_cursors_are_told_anew() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=1_000))
    reader = Reader(rig)
    reader.subscribe()
    writer = rig.client("writer")
    for _ in range(5):
        writer.ask(produce(), [batch(3)])
    reader.receive()
    reader.settle((0, 3))
    for _ in range(30):
        rig.wall_ms += 10_000
        rig.settle(10.0)
        writer.ask(produce(), [batch(1)])
    assert rig.replica().start > 15
    assert rig.broker.stats.counters["dispatch_expired"] >= 12
    fresh = Rig(rig.storage, incarnation="two")
    fresh.lead(epoch=2)
    assert state(fresh).floor >= 3


BOUND = 100_000
PIECE = 20_000
CHECKS_APART = 20
"""Seconds: some checks of retention, which are five seconds apart."""
BOUNDED = TopicConfig(retention_ms=-1, retention_bytes=BOUND)


def test_q12_a_busy_queue_with_a_subscription_keeps_its_bound() -> None:
    rig = Rig()
    rig.lead(config=BOUNDED)
    reader = Reader(rig)
    reader.subscribe()
    longest = 0
    for at in range(55):
        send(rig, b"%d" % at + bytes(PIECE))
        reader.receive()
        reader.settle((at, at + 1))
        rig.settle(1.0)
        longest = max(longest, rig.replica().size)
    assert longest < BOUND + CHECKS_APART * PIECE
    assert rig.broker.stats.counters["cursor_deltas"] < 55 + 15


def test_q12_acknowledgements_under_way_do_not_hold_up_retention() -> None:
    rig = Rig()
    rig.lead(isr=PAIR, replicas=PAIR, config=BOUNDED)
    follower, reader, number = rig.follower(), Reader(rig), 0

    def fetched() -> None:
        nonlocal number
        follower.ask(fetch(number, (rig.replica().end, 1)))
        number += 1

    reader.peer.ask(Subscribe(0, 30_000, "flights", 0, "s", "one", 1, SHARED, 0, None, "first"))
    fetched()
    reader.session = 1
    for at in range(55):
        send(rig, b"%d" % at + bytes(PIECE))
        fetched()
        reader.receive()
        reader.peer.ask(SettleMessages(0, 9_000, "flights", 0, "s", "one", 1, [(at, at + 1)]))
        for _ in range(10):
            rig.settle(0.1)
            follower.ask(fetch(number, (rig.replica().hw, 1)))
            number += 1
        assert rig.replica().cursors.behind, "the acknowledgement is not replicated yet"
    assert rig.replica().size < BOUND + CHECKS_APART * PIECE


def test_a_large_cursor_is_not_written_more_often_than_it_is_worth() -> None:
    rig = Rig()
    rig.lead(config=BOUNDED)
    reader, writer = Reader(rig), rig.client("writer")
    reader.config = SubscriptionConfig(
        kind="shared", most_unacked=500_000, most_unacked_all=500_000
    )
    reader.subscribe()
    written: dict[int, tuple[int, int]] = {}
    for first in range(0, 100_000, 2_000):
        writer.ask(produce(), [batch(2_000, value=b"")])
        reader.receive(10_000)
        reader.settle(*((each, each + 1) for each in range(first + 1, first + 2_000, 2)))
        rig.settle(1.0)
        cursor = rig.replica().cursors.cursors["s"]
        size = len(encode_deltas([cursor.whole()]))
        written.setdefault(cursor.whole_at, (rig.replica().appended_bytes, size))
    places = list(written.values())
    assert len(places) > 2
    for (before, size), (after, _) in pairwise(places):
        assert after - before > 7 * size, "it is written and read seven times at most"


def test_what_retention_removed_is_done_with_though_nothing_new_comes() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=60_000))
    reader = Reader(rig)
    reader.subscribe()
    rig.client("writer").ask(produce(), [batch(3)])
    reader.receive()
    reader.settle(again=[(0, 3, 3_600_000)])
    for _ in range(20):
        rig.wall_ms += 8_000
        rig.settle(8.0)
        reader.receive(wait_ms=0)
    assert rig.replica().start == 3
    assert (state(rig).floor, state(rig).unacked) == (3, 0)
    assert rig.replica().cursors.cursors["s"].acks.floor == 3


def test_an_ack_among_a_hundred_thousand_holes_writes_little() -> None:
    rig = alone()
    reader = Reader(rig)
    reader.subscribe()
    writer: Peer = rig.client("writer")
    for _ in range(20):
        writer.ask(produce(), [batch(5_000)])
    config = SubscriptionConfig(kind="shared", most_unacked=500_000, most_unacked_all=500_000)
    reader.config = config
    reader.subscribe()
    while len(reader.receive(200_000)):
        pass
    for start in range(0, 100_000, 10_000):
        reader.settle(*((offset, offset + 1) for offset in range(start + 1, start + 10_000, 2)))
    before = rig.broker.stats.counters["cursor_delta_bytes"]
    assert reader.settle((50_000, 50_001)) == []
    assert rig.broker.stats.counters["cursor_delta_bytes"] - before < 40
    stored = rig.storage.content("cursor")
    assert sum(len(key) + len(value) for key, value in stored.items()) < 100_000


# ── names ───────────────────────────────────────────────────────────────────────────────────────


def twins(rig: Rig) -> tuple[Reader, Reader]:
    """Two processes of one consumer's name."""
    first, second = Reader(rig, "one"), Reader(rig, "twin")
    second.name = first.name
    second.session = 100
    return first, second


def refused(reader: Reader, *, owner: int, again: bool = False) -> str:
    """Why a consumer may not attach, as a code."""
    with pytest.raises(GroupError) as caught:
        reader.subscribe(owner=owner, again=again)
    return caught.value.code


def test_p10_a_name_has_one_owner() -> None:
    # They took it from each other, and what they held was counted each time: a dead letter soon.
    rig = alone()
    first, second = twins(rig)
    first.subscribe(owner=5)
    send(rig, b"a")
    assert first.receive() == [b"a"]
    for _ in range(5):
        assert refused(second, owner=9) == "INSTANCE_TAKEN"
    assert first.settle((0, 1)) == []
    (told,) = {note.event: dict(note.fields) for note in rig.notes if "name" in note.event}.items()
    assert told[0] == "consumer_name_taken"
    assert told[1] == {"topic": "flights", "queue": 0, "subscription": "s", "consumer": "one"}
    # An owner that lost its connection, say, comes back.
    first.subscribe(owner=5, again=True)
    assert first.receive() == []
    # Once it is silent for its session, it is gone.
    rig.settle(10.1)
    second.subscribe(owner=9)
    assert second.receive() == []
    assert refused(first, owner=5, again=True) == "INSTANCE_TAKEN"


def test_a_name_is_free_once_its_owner_has_gone() -> None:
    rig = alone()
    first, second = twins(rig)
    first.subscribe(owner=5)
    assert first.receive() == []
    first.peer.ask(Detach(0, 5_000, "flights", 0, "s", "one", first.session))
    second.subscribe(owner=9)
    # An older client does not say who it is: its session is all that counts.
    first.session = 1_000
    first.subscribe()
    with pytest.raises(GroupError, match="subscribe again"):
        second.receive()


@pytest.mark.parametrize("later", [9, 3])
def test_who_has_all_queues_keeps_the_name_from_who_is_coming(later: int) -> None:
    # The leader is new, and the one that is coming has found it first.
    rig = alone()
    first, second = twins(rig)
    second.subscribe(owner=later)
    first.session = 200
    first.subscribe(owner=5, again=True)
    assert first.receive() == []
    assert refused(second, owner=later) == "INSTANCE_TAKEN"


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("comes_first", [0, 1])
def test_of_two_alike_the_later_one_gets_the_name_at_every_leader(
    comes_first: int, *, again: bool
) -> None:
    rig = alone()
    both = twins(rig)
    older, newer = both
    both[comes_first].subscribe(owner=(5, 9)[comes_first], again=again)
    if comes_first:
        assert refused(older, owner=5, again=again) == "INSTANCE_TAKEN"
    else:
        newer.subscribe(owner=9, again=again)
    newer.receive()
    with pytest.raises(GroupError):
        older.receive()
