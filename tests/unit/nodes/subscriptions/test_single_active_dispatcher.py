"""Exclusive and failover: delays, and who is active when several change at once."""

from __future__ import annotations

import pytest

from logboom.nodes.subscriptions.dispatch_events import Entry, LogAdvanced, SubscriptionConfig
from logboom.nodes.subscriptions.entry_filter import EntryFilter, Said
from tests.unit.nodes.subscriptions.dispatch_bench import Bench


@pytest.mark.parametrize("delay_s", [0.25, 3.0])
def test_a_nack_waits_for_its_delay_and_no_longer(delay_s: float) -> None:
    bench = Bench(SubscriptionConfig())
    bench.append(b"a", b"b")
    bench.attach("one", 10)
    bench.nack("one", 1, delay_s=delay_s)
    bench.grant("one", 0)
    assert bench.dispatcher.deadline() == pytest.approx(bench.now + delay_s)
    bench.wait(delay_s - 0.05)
    assert bench.got["one"] == [0, 1]
    bench.wait(0.05)
    assert bench.got["one"] == [0, 1, 0, 1]
    assert bench.dispatcher.deadline() > bench.now + 10


def test_who_was_active_two_changes_ago_may_settle_and_then_loses_what_it_holds() -> None:
    bench = Bench(SubscriptionConfig(kind="failover"))
    bench.append(b"a", b"b", b"c")
    bench.attach("third", 3, priority=3)
    assert bench.held["third"] == {0, 1, 2}
    bench.attach("second", 10, priority=2)
    bench.wait(0.5)
    bench.attach("first", 10, priority=1)
    bench.wait(0.4)
    assert bench.ack("third", 1) == []
    bench.wait(0.6)
    assert (bench.got["second"], bench.got["first"]) == ([], [0, 2])
    assert bench.held["third"] == set()
    assert bench.ack("third", 0) == [(0, 1)]


def test_who_becomes_active_again_at_once_keeps_what_it_holds() -> None:
    bench = Bench(SubscriptionConfig(kind="failover"))
    bench.append(b"a", b"b")
    bench.attach("old", 10, priority=2)
    bench.attach("new", 10, priority=1)
    bench.wait(0.2)
    bench.detach("new")
    assert bench.active["old"]
    bench.wait(2.0)
    assert bench.got["old"] == [0, 1]
    assert bench.ack("old", 0, 1) == []


def test_a_batch_that_a_plug_in_does_not_want_yet_holds_up_those_behind() -> None:
    wanted = False

    def not_yet(entry: Entry) -> Said:
        return "reschedule" if entry.base == 1 and not wanted else "accept"

    bench = Bench(SubscriptionConfig(), EntryFilter(plug_ins=[not_yet]))
    for key in (b"a", b"b", b"c"):
        bench.append(key)
    bench.attach("one", 10)
    assert bench.got["one"] == [0]
    begun = bench.now
    due = bench.dispatcher.deadline()
    assert begun < due < begun + 60
    reads = bench.log.reads
    bench.wait((due - begun) / 2)
    bench.append(b"d")
    assert bench.log.reads == reads, "nothing is read before it is asked again"
    wanted = True
    bench.wait(due - begun)
    bench.grant("one", 0)
    bench.grant("one", 0)
    assert bench.got["one"] == [0, 1, 2, 3]


def test_what_retention_removed_is_written_down() -> None:
    bench = Bench(SubscriptionConfig())
    bench.append(b"a", b"b", b"c", b"d")
    bench.attach("one", 10)
    bench.ack("one", 1)
    effects = bench.tell(LogAdvanced(3, 4))
    assert effects.acked == [(0, 1), (2, 3)]
    # Confirmed to whoever held it; the next leader may not have removed it.
    assert bench.ack("one", 0) == []
