"""Pulls, holds, offsets, times and keys at a broker."""

from __future__ import annotations

from typing import Literal

import pytest

from logboom.nodes.log.keys import Position
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.errors import LogboomError, NotLeader
from logboom.wire.group_routes import KnownGroup
from logboom.wire.group_view import GroupConfig, GroupView
from logboom.wire.hashing import murmur3
from logboom.wire.messages import (
    FindKey,
    FindKeyResult,
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    Pull,
    Pulled,
    Stats,
)
from tests.unit.nodes.rig import ME, Rig, batch, entry, fetch, produce, pull
from tests.unit.nodes.test_broker_rules import flowing, replicated


def led(*counts: int) -> Rig:
    """A lone leader of one queue with batches of these sizes."""
    rig = Rig()
    rig.lead()
    client = rig.client("producer")
    for count in counts:
        client.ask(produce(), [batch(count)])
    return rig


def ask(rig: Rig, request: Pull) -> Pulled:
    """The answer to a pull that is answered at once."""
    client = rig.client("reader")
    client.ask(request)
    answer = client.answer()
    assert isinstance(answer, Pulled)
    return answer


def test_statuses_and_next_offsets() -> None:
    rig = led(3, 2)
    found = ask(rig, pull(1))
    assert (found.status, found.next_offset, found.min_offset, found.max_offset) == (
        "FOUND",
        5,
        0,
        5,
    )
    assert ask(rig, pull(5)).status == "NO_NEW_MESSAGE"
    assert ask(rig, pull(5)).next_offset == 5
    beyond = ask(rig, pull(6))
    assert (beyond.status, beyond.next_offset) == ("OFFSET_ILLEGAL", 5)
    before = ask(rig, pull(-3))
    assert (before.status, before.next_offset) == ("OFFSET_ILLEGAL", 0)
    assert ask(rig, pull(0, tags=["x"])).status == "NO_MATCHED_MESSAGE"


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, "OFFSET_ILLEGAL", 100),
        (99, "OFFSET_ILLEGAL", 100),
        (100, "FOUND", 132),
        (199, "FOUND", 200),
        (200, "NO_NEW_MESSAGE", 200),
        (201, "OFFSET_ILLEGAL", 200),
        (1_000, "OFFSET_ILLEGAL", 200),
    ],
)
def test_rocketmqs_vectors(offset: int, status: str, next_offset: int) -> None:
    """A queue that holds 100 to 200; what is too small or too large goes to the nearest end."""
    rig = led(*[4] * 50)
    rig.replica().trimmed(100, rig.replica().size // 2)
    request = pull(offset)
    request.max_messages = 32
    found = ask(rig, request)
    assert (found.status, found.next_offset) == (status, next_offset)
    assert (found.min_offset, found.max_offset) == (100, 200)
    held = pull(offset, wait_ms=9_000)
    assert len(rig.client("waiting").ask(held)) == (status != "NO_NEW_MESSAGE")


def test_who_means_another_topic_of_this_name_is_refused() -> None:
    """It was made anew, and this broker has the old one's messages under the same offsets."""
    rig = Rig()
    rig.lead()
    known = rig.replica().topic_id
    client = rig.client()
    client.ask(produce(), [batch(2)])
    rig.settle()
    client.taken()

    def questions(meant: int) -> list[WireMessage]:
        return [
            pull(0, topic_id=meant),
            Offsets(0, 1_000, "flights", [0], meant),
            OffsetForTime(0, 1_000, "flights", 0, 1, meant),
        ]

    for question in questions(known + 1):
        client.ask(question)
        with pytest.raises(LogboomError) as caught:
            client.answer()
        assert caught.value.code == "NOT_LEADER"
    for question in (*questions(known), *questions(0)):
        client.ask(question)
        client.answer()


def test_a_hold_wakes_with_its_message_and_no_other_queues_does() -> None:
    rig = Rig()
    rig.lead(queues=2)
    here, there = rig.client("here"), rig.client("there")
    assert here.ask(pull(0, wait_ms=9_000)) == []
    elsewhere = pull(0, wait_ms=9_000)
    elsewhere.queue = 1
    assert there.ask(elsewhere) == []
    rig.client().ask(produce(), [batch(2)])
    assert here.answer().status == "FOUND"
    assert there.taken() == []


def test_a_hold_ends_exactly_at_its_time() -> None:
    rig = led(1)
    client = rig.client()
    client.ask(pull(1, wait_ms=2_345))
    asked_at = rig.mono
    rig.settle(2.344)
    assert client.taken() == []
    deadline = rig.broker.parts.pull_handler.holds.deadline()
    assert deadline == pytest.approx(asked_at + 2.345, abs=1e-6)
    rig.settle(0.002)
    assert client.answer().status == "NO_NEW_MESSAGE"


def test_a_reader_of_some_tags_sleeps_through_other_messages() -> None:
    rig = led()
    reader, producer = rig.client("reader"), rig.client("producer")
    assert reader.ask(pull(0, wait_ms=5_000, tags=["late"])) == []
    producer.ask(produce(), [encode_batch([b"x"], tags=["early"], now_ms=1)])
    assert reader.taken() == []
    producer.ask(produce(), [encode_batch([b"y"], tags=["late"], now_ms=1)])
    answer = reader.answer()
    assert (answer.status, answer.next_offset) == ("FOUND", 2)


def test_holds_go_to_the_next_leader() -> None:
    rig = led(1)
    client = rig.client()
    client.ask(pull(1, wait_ms=60_000))
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=(ME, "broker-2"))
    with pytest.raises(NotLeader) as caught:
        client.answer()
    assert caught.value.fields == {"leader": "broker-2", "endpoint": "b2:7711", "epoch": 2}


def test_a_follower_reads_below_its_hw_only_if_it_is_told_to() -> None:
    for reads in (False, True):
        rig = Rig(follower_reads=reads)
        rig.lead(epoch=1, leader="broker-2", isr=("broker-2", ME), replicas=(ME, "broker-2"))
        replicated(rig, flowing(1, 3, 2), frames=[entry(0, 1, 3), entry(3, 1, 3)])
        client = rig.client()
        client.ask(pull(0))
        if not reads:
            with pytest.raises(NotLeader):
                client.answer()
            continue
        answer = client.answer()
        assert (answer.status, answer.next_offset, answer.max_offset) == ("FOUND", 3, 3)
        # Beyond what it knows it holds, and corrects nobody.
        assert client.ask(pull(500, wait_ms=50)) == []
        rig.settle(0.05)
        assert client.answer().status == "NO_NEW_MESSAGE"


def test_a_reader_far_behind_is_sent_to_a_follower() -> None:
    rig = Rig(follower_reads=True, memory_bytes=1_000)
    both = (ME, "broker-2")
    rig.lead(isr=both, replicas=both)
    client, two = rig.client(), rig.follower()
    for _ in range(10):
        client.ask(produce(), [batch(1)])
    two.ask(fetch(0, (Position(10), 1)))
    client.ask(pull(0, max_bytes=1))
    assert client.answer().suggested == "broker-2"
    client.ask(pull(8, max_bytes=1))
    assert client.answer().suggested is None


def test_a_group_sends_its_slow_readers_away_only_if_it_says_so() -> None:
    rig = Rig(follower_reads=True, memory_bytes=1_000)
    both = (ME, "broker-2")
    rig.lead(isr=both, replicas=both)
    client, two = rig.client(), rig.follower()
    for _ in range(10):
        client.ask(produce(), [batch(1)])
    two.ask(fetch(0, (Position(10), 1)))
    suggested = {}
    choices: tuple[Literal["stay", "follower"] | None, ...] = (None, "stay", "follower")
    for when_slow in choices:
        if when_slow is not None:
            config = GroupConfig(when_slow=when_slow)
            rig.broker.context.groups.groups["billing"] = KnownGroup(
                GroupView("billing", 1, config, {}, 1, ME, 1, 1, 1, "", 1, 0, False, [], [], [])
            )
        asked = pull(0, max_bytes=1)
        asked.group = "billing"
        client.ask(asked)
        suggested[when_slow] = client.answer().suggested
    assert suggested == {None: None, "stay": None, "follower": "broker-2"}


def test_a_follower_keeps_a_slow_reader_as_long_as_it_is_slow() -> None:
    rig = Rig(follower_reads=True, memory_bytes=1_000)
    rig.lead(epoch=1, leader="broker-2", isr=("broker-2", ME), replicas=(ME, "broker-2"))
    replicated(rig, flowing(1, 12, 12), frames=[entry(at, 1) for at in range(12)])
    client = rig.client()
    suggested = []
    for offset in (0, 11):
        client.ask(pull(offset, max_bytes=1))
        suggested.append(client.answer().suggested)
    assert suggested == [ME, None]


def test_a_time_and_a_key_are_found() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    for time_ms, key in [(100, b"UA"), (200, b"AA"), (300, b"UA")]:
        data = encode_batch([b"v"], [key], timestamps_ms=time_ms, now_ms=1)
        client.ask(produce(), [data])
    rig.settle()
    for time_ms, found in [(50, (0, 100)), (101, (1, 200)), (300, (2, 300)), (301, (3, -1))]:
        client.ask(OffsetForTime(0, 1_000, "flights", 0, time_ms))
        answer = client.answer()
        assert isinstance(answer, OffsetForTimeResult)
        assert (answer.offset, answer.timestamp_ms) == found
    client.ask(FindKey(0, 1_000, "flights", 0, murmur3(b"UA"), 99, 10))
    keys = client.answer()
    assert isinstance(keys, FindKeyResult)
    assert {0, 2} <= set(keys.base_offsets) | set(range(keys.indexed_to, 3))


def test_an_unknown_queue_is_refused_so_that_the_asker_looks_at_its_metadata() -> None:
    rig = led(1)
    client = rig.client()
    for topic, queue in [("flights", 7), ("nothing", 0)]:
        client.ask(Pull(0, 1_000, topic, queue, 0, 1, 0))
        with pytest.raises(NotLeader) as caught:
            client.answer()
        assert caught.value.retryable
        assert "not known" in caught.value.text


def test_stats_count_what_was_done() -> None:
    rig = led(3, 2)
    ask(rig, pull(0))
    client = rig.client()
    client.ask(Stats(0, 1_000))
    counters = client.answer().counters
    assert (counters["produced_messages"], counters["pulled_messages"]) == (5, 5)
    assert (counters["leading"], counters["registered"], counters["lease"]) == (1, 1, 1)
