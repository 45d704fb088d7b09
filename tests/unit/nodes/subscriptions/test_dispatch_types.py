"""Each type of subscription: who gets what, when it comes again, and what is refused."""

from __future__ import annotations

import pytest

from logboom.nodes.subscriptions.dispatch_events import KINDS, Ack, SubscriptionConfig, Tick
from logboom.nodes.subscriptions.key_shared_dispatcher import KeySharedDispatcher
from logboom.wire.errors import GroupError, InvalidRequest, Refused
from tests.unit.nodes.subscriptions.dispatch_bench import Bench, slots


def keys_of(bench: Bench) -> KeySharedDispatcher:
    """The dispatcher of a key-shared bench."""
    assert isinstance(bench.dispatcher, KeySharedDispatcher)
    return bench.dispatcher


# ── exclusive, failover ─────────────────────────────────────────────────────────────────────────


def test_an_exclusive_subscription_has_one_consumer() -> None:
    bench = Bench(SubscriptionConfig())
    bench.attach("one", 10)
    with pytest.raises(Refused, match="one") as refused:
        bench.attach("two")
    assert refused.value.code == "CONSUMER_BUSY"
    bench.append(b"a", b"b")
    bench.detach("one")
    bench.attach("two", 10)
    assert (bench.got["one"], bench.got["two"]) == ([0, 1], [0, 1])
    assert bench.attempts == {0: 1, 1: 1}


def test_a_nack_goes_back_to_the_first_that_is_not_acknowledged() -> None:
    bench = Bench(SubscriptionConfig())
    bench.attach("one", 100)
    for _ in range(4):
        bench.append(b"a")
        bench.grant("one", 0)
    assert bench.got["one"] == [0, 1, 2, 3]
    bench.ack("one", 0, 2)
    bench.nack("one", 3, delay_s=2.0)
    bench.grant("one", 0)
    assert bench.got["one"] == [0, 1, 2, 3]
    bench.wait(1.9)
    assert bench.held["one"] == set()
    bench.wait(0.1)
    assert bench.got["one"][4:] == [1, 3]
    assert bench.attempts[3] == 1
    assert bench.attempts[1] == 0


def test_a_nack_of_what_is_acknowledged_is_refused() -> None:
    """Whoever gave it back waits for it, and for all that follow, to come again."""
    bench = Bench(SubscriptionConfig())
    bench.append(b"a", b"b")
    bench.attach("one", 100)
    bench.ack_to("one", 1)
    assert bench.nack("one", 0) == [(0, 1)]


def test_cumulative_acknowledgements_are_for_what_was_delivered() -> None:
    bench = Bench(SubscriptionConfig(kind="failover"))
    bench.append(b"a", b"b", b"c", b"d")
    bench.append(b"e")
    bench.attach("one", 4)
    assert bench.ack_to("one", 2) == []
    assert bench.acked.floor == 3
    assert bench.ack_to("one", 1) == []
    assert bench.ack_to("one", 4) == [(4, 5)]
    assert bench.ack_to("one", 3) == []
    assert bench.acked.floor == 4
    shared = Bench(SubscriptionConfig(kind="shared"))
    shared.append(b"a")
    shared.attach("one", 1)
    with pytest.raises(InvalidRequest, match="ack_cumulative"):
        shared.ack_to("one", 0)


def test_a_cumulative_acknowledgement_does_not_pass_what_another_holds() -> None:
    bench = Bench(SubscriptionConfig(kind="failover"))
    bench.append(b"a")
    bench.append(b"b")
    bench.append(b"c")
    bench.attach("two", 100)
    bench.attach("one", 100, priority=1)
    assert bench.got["two"] == [0, 1, 2]
    assert bench.ack("two", 2) == []
    # The messages before it are still with "two", and may be delivered again.
    assert bench.ack_to("one", 2) == [(2, 3)]
    assert bench.acked.floor == 0


def test_a_repeated_cumulative_acknowledgement_is_confirmed_though_something_was_given_back() -> (
    None
):
    bench = Bench(SubscriptionConfig(kind="failover"))
    for _ in range(4):
        bench.append(b"a")
    bench.attach("two", 100)
    bench.attach("one", 100, priority=1)
    assert bench.ack("two", 1) == []
    assert bench.nack("two", 0) == []
    bench.grant("two", 0)
    assert bench.got["two"] == [0, 1, 2, 3, 0, 2, 3]
    bench.attach("one", 100, priority=-1)
    bench.wait(1.0)
    assert bench.got["one"] == [0, 2, 3]
    assert bench.ack_to("one", 2) == []
    # The answer is lost, and the consumer sends the same again.
    assert bench.ack_to("one", 2) == []
    assert bench.acked.floor == 3


def test_failover_goes_by_priority_and_then_by_name() -> None:
    bench = Bench(SubscriptionConfig(kind="failover"))
    bench.attach("b", 100, priority=1)
    bench.append(b"1")
    assert bench.got["b"] == [0]
    bench.attach("c", 100)
    assert bench.active == {"b": False, "c": True}
    # The one before may still acknowledge what it holds, for a second.
    bench.append(b"2")
    bench.wait(0.5)
    assert bench.ack("b", 0) == []
    assert bench.got["c"] == []
    bench.wait(0.5)
    assert bench.got["c"] == [1]
    bench.attach("a", 100)
    bench.wait(1.0)
    assert bench.active == {"a": True, "b": False, "c": False}
    assert bench.got["a"] == [1]
    assert bench.ack("c", 1) == [(1, 2)]
    bench.detach("a")
    bench.grant("c", 0)
    bench.wait(0.9)
    assert bench.got["c"] == [1]
    bench.wait(0.1)
    assert bench.got["c"] == [1, 1]
    assert bench.attempts[1] == 2


def test_queues_spread_over_the_best() -> None:
    for queue, active in ((0, "a"), (1, "b"), (2, "a")):
        bench = Bench(SubscriptionConfig(kind="failover"), queue=queue)
        for name, priority in (("x", 1), ("b", 0), ("a", 0)):
            bench.attach(name, 10, priority)
        assert [name for name, on in bench.active.items() if on] == [active]


def test_an_exclusive_consumer_may_want_some_slots_only() -> None:
    bench = Bench(SubscriptionConfig())
    (first,) = slots(b"a")
    bench.append(b"a", b"b", b"a")
    bench.append(b"b", b"c")
    bench.append(b"a")
    bench.attach("one", 10, ranges=[(first, first)])
    assert bench.got["one"] == [0, 2, 5]
    assert bench.acked.floor == 0
    assert list(bench.acked.spans()) == [(1, 2), (3, 5)], "what lies outside is done with"
    bench.ack("one", 0, 2, 5)
    assert bench.acked.floor == 6
    bench.detach("one")
    bench.append(b"b", b"a")
    bench.attach("two", 10)
    assert bench.got["two"] == [6, 7], "another may want all"


def test_messages_without_a_key_have_one_range_of_several() -> None:
    benches = [Bench(SubscriptionConfig()), Bench(SubscriptionConfig())]
    for bench, ranges in zip(benches, ([(0, 32_767)], [(32_768, 65_535)]), strict=True):
        for _ in range(20):
            bench.append(None, b"k")
        bench.attach("one", 100, ranges=ranges)
    low, high = (set(bench.got["one"]) for bench in benches)
    assert low | high == set(range(40))
    assert not low & high
    assert all(any(n % 2 == 0 for n in got) for got in (low, high))


@pytest.mark.parametrize("ranges", [[], [(9, 3)], [(0, 65_536)], [(0, 9), (5, 12)]])
def test_ranges_that_cannot_be_are_refused(ranges: list[tuple[int, int]]) -> None:
    bench = Bench(SubscriptionConfig())
    with pytest.raises(InvalidRequest):
        bench.attach("one", 10, ranges=ranges)
    bench.attach("two", 10)
    failover = Bench(SubscriptionConfig(kind="failover"))
    with pytest.raises(InvalidRequest, match="ranges are for exclusive and key_shared"):
        failover.attach("one", 10, ranges=[(0, 9)])


# ── shared ──────────────────────────────────────────────────────────────────────────────────────


def test_shared_goes_round_those_that_have_permits() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    for name in ("one", "two", "three"):
        bench.attach(name)
    for name in ("one", "two"):
        bench.grant(name, 1)
    for _ in range(3):
        bench.append(b"a")
    assert (bench.got["one"], bench.got["two"], bench.got["three"]) == ([0], [1], [])
    bench.grant("three", 5)
    assert bench.got["three"] == [2]


def test_the_worse_priority_gets_what_the_better_have_no_permits_for() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.attach("second", 100, priority=1)
    bench.attach("first", 2)
    bench.append(b"a", b"b")
    bench.append(b"c")
    bench.grant("second", 0)
    assert bench.got == {"first": [0, 1], "second": [2]}


def test_a_batch_is_never_split_and_permits_go_below_zero() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.attach("one", 3)
    bench.append(*[b"a"] * 10)
    assert len(bench.got["one"]) == 10
    assert bench.dispatcher.consumers["one"].permits.left == -7
    bench.append(b"b")
    bench.grant("one", 7)
    assert len(bench.got["one"]) == 10
    bench.grant("one", 1)
    assert len(bench.got["one"]) == 11


def test_a_reconnect_begins_without_permits() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.attach("one", 100)
    bench.attach("one")
    bench.append(b"a")
    assert bench.got["one"] == []
    with pytest.raises(GroupError, match="subscribe again"):
        bench.tell(Ack("one", bench.session["one"] - 1, ((0, 1),)))


def test_the_next_delivery_waits_for_the_last_and_a_slow_socket_gets_one_batch() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.attach("one", 100)
    for _ in range(6):
        bench.append(b"a")
    assert bench.got["one"] == [0]
    bench.grant("one", 0, blocked=True)
    assert bench.got["one"] == [0, 1]
    bench.grant("one", 0)
    assert bench.got["one"] == [0, 1, 2, 3, 4, 5]


def test_bytes_are_permits_too() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.attach("one")
    bench.grant("one", 100, size=1)
    for _ in range(3):
        bench.append(b"a")
    bench.grant("one", 0, size=1)
    assert bench.got["one"] == [0]
    bench.grant("one", 0, size=1_000)
    assert bench.got["one"] == [0, 1, 2]


def test_what_holds_too_much_is_served_on_at_half() -> None:
    bench = Bench(SubscriptionConfig(kind="shared", most_unacked=4))
    bench.attach("one", 100)
    for _ in range(6):
        bench.append(b"a")
        bench.grant("one", 0)
    assert bench.got["one"] == [0, 1, 2, 3]
    bench.ack("one", 0)
    assert len(bench.got["one"]) == 4
    bench.ack("one", 1)
    assert bench.got["one"] == [0, 1, 2, 3, 4, 5]


def test_a_nack_comes_again_after_its_delay_to_anybody() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.append(b"a", b"b", b"c")
    bench.attach("one", 10)
    bench.nack("one", 1, delay_s=3.0)
    assert bench.nack("one", 1) == [(1, 2)]
    bench.detach("one")
    bench.attach("two", 10)
    assert bench.got["two"] == [0, 2]
    bench.grant("two", 0)
    bench.wait(2.9)
    assert bench.got["two"] == [0, 2]
    bench.wait(0.1)
    assert bench.got["two"] == [0, 2, 1]
    assert bench.attempts[1] == 1


def test_what_is_not_acknowledged_in_time_comes_again_with_its_count() -> None:
    bench = Bench(SubscriptionConfig(kind="shared", ack_timeout_s=10.0))
    bench.append(b"a", b"b")
    bench.attach("one", 10)
    bench.wait(5.0)
    bench.nack("one", 1)
    bench.grant("one", 10)
    bench.wait(4.9)
    assert bench.got["one"] == [0, 1, 1]
    bench.grant("one", 10)
    bench.wait(0.1)
    # Message 1 was sent again later: its time is not over.
    assert bench.got["one"] == [0, 1, 1, 0]
    assert bench.held["one"] == {0, 1}
    bench.fail_over()
    bench.attach("one", 10)
    assert bench.attempts == {0: 1, 1: 1}


def test_acks_of_what_was_never_delivered_are_refused() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    bench.append(b"a", b"b", b"c")
    bench.append(b"d")
    bench.attach("one", 2)
    assert bench.ack("one", 2, 3, 99) == [(3, 4), (99, 100)]
    assert bench.acked.bits(0, 4) == 0b100
    assert bench.ack("one", 2) == []
    with pytest.raises(InvalidRequest, match="permits"):
        bench.grant("one", -1)


def test_the_rate_is_charged_after_the_send() -> None:
    bench = Bench(SubscriptionConfig(kind="shared", messages_per_s=10))
    bench.attach("one", 1_000)
    bench.append(*[b"a"] * 30)
    for _ in range(5):
        bench.append(b"b")
    bench.grant("one", 0)
    assert len(bench.got["one"]) == 30
    bench.wait(1.9)
    assert len(bench.got["one"]) == 30
    bench.wait(0.3)
    bench.grant("one", 0)
    bench.wait(1.0)
    assert len(bench.got["one"]) > 30


def test_a_fail_over_delivers_only_what_was_not_acknowledged() -> None:
    bench = Bench(SubscriptionConfig(kind="shared"))
    for _ in range(5):
        bench.append(b"a", b"b")
    bench.attach("one", 100)
    bench.grant("one", 0)
    bench.ack("one", 0, 3, 4, 5, 9)
    bench.fail_over()
    bench.got.clear()
    bench.attach("two", 100)
    assert bench.got["two"] == [1, 2, 6, 7, 8]


# ── key_shared ──────────────────────────────────────────────────────────────────────────────────


def test_a_slot_that_moves_is_drained_first() -> None:
    bench = Bench(SubscriptionConfig(kind="key_shared"))
    keys = [b"k%d" % n for n in range(8)]
    bench.attach("one", 100)
    bench.append(*keys)
    bench.attach("two", 100)
    mine = keys_of(bench).table.ranges()["two"][0]
    moved = [n for n, slot in enumerate(slots(*keys)) if mine[0] <= slot <= mine[1]]
    assert moved
    bench.grant("one", 0)
    bench.append(*keys)
    # Its slots wait until `one` has acknowledged their messages; the others go on.
    assert bench.got["two"] == []
    assert sorted(bench.got["one"][8:]) == [8 + n for n in range(8) if n not in moved]
    assert dict(keys_of(bench).draining()) == {slots(keys[n])[0]: 1 for n in moved}
    bench.ack("one", *moved)
    assert bench.got["two"] == [8 + n for n in moved]
    assert keys_of(bench).draining() == []


def test_a_slot_that_moves_back_is_free_again() -> None:
    bench = Bench(SubscriptionConfig(kind="key_shared"))
    keys = [b"k%d" % n for n in range(8)]
    bench.attach("one", 100)
    bench.append(*keys)
    bench.attach("two", 100)
    bench.append(*keys)
    bench.grant("one", 0)
    assert keys_of(bench).waiting() > 0
    bench.detach("two")
    assert bench.got["one"] == [*range(8), *bench.got["one"][8:]]
    bench.grant("one", 0)
    assert sorted(bench.got["one"]) == list(range(16))


def test_a_stuck_key_starves_nobody() -> None:
    bench = Bench(SubscriptionConfig(kind="key_shared", look_ahead=100))
    keys = [b"k%d" % n for n in range(8)]
    bench.attach("one")
    bench.attach("two", 1_000)
    owner = keys_of(bench).table.owners
    hers = [key for key in keys if getattr(owner[slots(key)[0]], "name", "") == "two"]
    for _ in range(5):
        bench.append(*keys)
        bench.grant("two", 0)
    assert len(bench.got["two"]) == 5 * len(hers)
    assert keys_of(bench).waiting() == 5 * (8 - len(hers))
    # Only so much is read ahead for who takes nothing.
    for _ in range(50):
        bench.append(*keys)
        bench.grant("two", 0)
    assert 100 <= keys_of(bench).waiting() < 100 + 8
    bench.attach("one", 1_000)
    bench.finish()


def test_a_delayed_message_holds_up_its_key_alone() -> None:
    bench = Bench(SubscriptionConfig(kind="key_shared"))
    bench.attach("one", 100)
    bench.append(b"a", b"b")
    bench.nack("one", 0, delay_s=5.0)
    bench.grant("one", 0)
    bench.append(b"a", b"b")
    assert bench.got["one"] == [0, 1, 3]
    bench.grant("one", 0)
    bench.wait(5.0)
    bench.grant("one", 0)
    assert bench.got["one"] == [0, 1, 3, 0, 2]


def test_uncovered_slots_hold_nobody_up() -> None:
    bench = Bench(SubscriptionConfig(kind="key_shared", hashing="sticky", look_ahead=2))
    low = [key for key in (b"k%d" % n for n in range(60)) if slots(key)[0] < 32_768]
    high = [key for key in (b"k%d" % n for n in range(60)) if slots(key)[0] >= 32_768]
    bench.attach("one", 1_000, ranges=[(0, 32_767)])
    assert keys_of(bench).table.uncovered() == [(32_768, 65_535)]
    for at in range(20):
        bench.append(high[at], low[at])
        bench.grant("one", 0)
    assert bench.got["one"] == list(range(1, 40, 2))
    assert len(keys_of(bench).uncovered) == 20
    with pytest.raises(InvalidRequest, match="overlap"):
        bench.attach("two", ranges=[(32_767, 40_000)])
    bench.attach("two", 1_000, ranges=[(32_768, 65_535)])
    assert bench.got["two"] == list(range(0, 40, 2))
    assert len(keys_of(bench).uncovered) == 0


def test_nobody_reads_while_nobody_may_take() -> None:
    for kind in KINDS:
        bench = Bench(SubscriptionConfig(kind=kind))
        bench.attach("one")
        bench.append(b"a")
        bench.tell(Tick())
        assert bench.log.reads == 0
        bench.grant("one", 1)
        assert bench.got["one"] == [0]


@pytest.mark.parametrize("kind", ["half", ""])
def test_a_type_that_does_not_exist(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="exclusive, failover, shared, key_shared"):
        Bench(SubscriptionConfig(kind=kind))  # type: ignore[arg-type]  # as it may come from the wire
