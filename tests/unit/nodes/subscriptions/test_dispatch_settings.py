"""What operators set of dispatching: plug-ins of the broker, rates of a topic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import pytest

from logboom.nodes.subscriptions.dispatch_events import Entry
from logboom.nodes.subscriptions.entry_filter import Said, load
from logboom.wire.errors import StartError
from logboom.wire.view import TopicConfig
from tests.unit.nodes.rig import Rig
from tests.unit.nodes.subscriptions.test_subscription_handler import Reader, send, state


def limited(messages: int = 0, size: int = 0) -> TopicConfig:
    """A topic whose queues deliver so much a second."""
    return TopicConfig(retention_ms=-1, dispatch_messages_per_s=messages, dispatch_bytes_per_s=size)


# ── rates ───────────────────────────────────────────────────────────────────────────────────────


def test_the_rate_of_a_topic_holds_for_all_consumers_of_a_queue_together() -> None:
    rig = Rig()
    rig.lead(config=limited(messages=2))
    one, two = Reader(rig, "one"), Reader(rig, "two")
    for reader in (one, two):
        reader.subscribe()
        assert reader.receive() == []
    for value in (b"a", b"b", b"c", b"d"):
        send(rig, value)
    # What a second gives is used up after two.
    first = one.taken() + two.taken()
    assert sorted(filter(None, first)) == [b"a", b"b"]
    for reader in (one, two):
        reader.number += 1
        reader.ask_again(0)
    rig.settle(1.1)
    assert sorted(filter(None, one.taken() + two.taken())) == [b"c", b"d"]


def test_subscriptions_share_the_rate_of_a_topic() -> None:
    # The one whose turn came first got all that there was, and the other 8 messages of 250.
    rig = Rig()
    rig.lead(config=limited(messages=4))
    one, two = Reader(rig, "one"), Reader(rig, "two")
    two.subscription = "other"
    got = {one: 0, two: 0}
    for reader in got:
        reader.subscribe()
    for n in range(60):
        send(rig, b"%d" % n)

    def read(reader: Reader, values: list[bytes | None]) -> None:
        while values:
            got[reader] += len(values)
            values = reader.receive()

    for reader in got:
        read(reader, reader.receive())
    for _ in range(100):
        rig.settle(0.1)
        for reader in got:
            read(reader, reader.taken())
    assert abs(got[one] - got[two]) <= 4
    assert 30 <= sum(got.values()) <= 46


def test_a_rate_that_is_altered_counts_at_once() -> None:
    rig = Rig()
    rig.lead(config=limited(size=1))
    reader = Reader(rig)
    reader.subscribe()
    assert reader.receive() == []
    send(rig, b"a")
    assert reader.taken() == [b"a"]
    reader.number += 1
    reader.ask_again(0)
    send(rig, b"b")
    # Charged after the send: one batch overdraws by minutes.
    rig.settle(2.0)
    assert reader.taken() == []
    rig.lead(config=limited())
    rig.settle()
    assert reader.taken() == [b"b"]
    rig.lead(config=limited(messages=1))
    assert reader.receive() == []
    send(rig, b"c")
    assert reader.taken() == [b"c"]


def test_settings_are_described() -> None:
    rig = Rig()
    rig.lead()
    reader = Reader(rig)
    reader.subscribe()
    assert state(rig).config == reader.config


# ── plug-ins ────────────────────────────────────────────────────────────────────────────────────


def test_plug_ins_judge_with_topic_and_subscription() -> None:
    asked: list[tuple[str, str, list[bytes | None]]] = []

    def judge(topic: str, subscription: str, entry: Entry) -> Said:
        values = entry.columns().values()
        asked.append((topic, subscription, values))
        return "reject" if values == [b"bad"] else "accept"

    rig = Rig(plug_ins=[judge])
    rig.lead()
    reader = Reader(rig)
    reader.subscribe()
    assert reader.receive() == []
    send(rig, b"bad")
    send(rig, b"good")
    assert reader.taken() == [b"good"]
    assert asked == [("flights", "s", [b"bad"]), ("flights", "s", [b"good"])]
    # What is rejected counts as acknowledged.
    assert state(rig).floor == 1
    assert rig.replica().cursors.cursors["s"].acks.floor == 1


def test_a_plug_in_that_raises_or_says_nothing_loses_nothing() -> None:
    fails = ["raises", "says nothing"]

    def judge(topic: str, subscription: str, entry: Entry) -> Said:
        if not fails:
            return "accept"
        if fails.pop() == "raises":
            raise ZeroDivisionError
        return cast("Said", None)  # as an operator's module may say it

    rig = Rig(plug_ins=[judge])
    rig.lead()
    reader = Reader(rig)
    reader.subscribe()
    reader.receive()
    send(rig, b"a")
    for left in (1, 0):
        assert reader.taken() == []
        assert len(fails) == left
        rig.settle(1.0)
    assert reader.taken() == [b"a"]
    assert rig.broker.stats.counters["dispatch_plug_in_errors"] == 2


def test_plug_ins_are_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_filters.py").write_text(
        "def judge(topic, subscription, entry):\n    return 'accept'\nTHRESHOLD = 3\n"
    )
    (tmp_path / "our_broken.py").write_text("raise OSError('no such table')\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        (judge,) = load(["our_filters:judge"])
        assert judge is sys.modules["our_filters"].judge
        for name, told in (
            ("our_filters", "write package.module:function"),
            (":judge", "write package.module:function"),
            ("our_filters:other", "has no function 'other'"),
            ("our_filters:THRESHOLD", "has no function 'THRESHOLD'"),
            ("no_such_module:judge", "cannot be imported"),
            ("our_broken:judge", "no such table"),
        ):
            with pytest.raises(StartError, match=told) as found:
                load([name])
            assert (found.value.code, "\n" in found.value.text) == ("BAD_CONFIG", False)
    finally:
        for module in ("our_filters", "our_broken"):
            sys.modules.pop(module, None)
