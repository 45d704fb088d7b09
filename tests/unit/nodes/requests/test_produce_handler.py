"""PRODUCE: what is refused, with which code, and what is answered when."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from logboom.nodes.log.keys import Position
from logboom.wire.actor import Effects, Received
from logboom.wire.batch import encode_batch, encode_control
from logboom.wire.errors import LogboomError
from logboom.wire.frames import decode
from logboom.wire.head import MAX_PRODUCED_COUNT, ControlKind
from logboom.wire.messages import Acks, Failure, Produced
from logboom.wire.view import TopicConfig
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import ME, Rig, batch, produce, pull

BOTH = (ME, "broker-2")


def code(rig: Rig, batches: list[bytes], acks: Acks = "all") -> str:
    """The error code that these batches are refused with."""
    client = rig.client("refused")
    client.ask(produce(acks), list(batches))
    with pytest.raises(LogboomError) as caught:
        client.answer()
    return caught.value.code


def test_offsets_have_no_gaps() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    bases = []
    for count in (1, 5, 2):
        client.ask(produce(), [batch(count)])
        bases.append(client.answer().base_offset)
    assert bases == [0, 1, 6]


def test_what_is_not_one_good_batch_is_refused() -> None:
    rig = Rig()
    rig.lead()
    good = batch(2)
    assert code(rig, []) == "MALFORMED"
    assert code(rig, [good, good]) == "MALFORMED"
    assert code(rig, [good[:40]]) == "DAMAGED_BATCH"
    assert code(rig, [good[:-1] + bytes([good[-1] ^ 1])]) == "DAMAGED_BATCH"
    assert code(rig, [b"\1" + good[1:]]) == "DAMAGED_BATCH"
    assert code(rig, [encode_control(ControlKind.DECIDED, b"x")]) in ("MALFORMED", "DAMAGED_BATCH")
    assert rig.replica().end == Position(0)


def test_a_message_larger_than_the_topic_takes_is_refused() -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=-1, max_message_bytes=1_000))
    assert code(rig, [batch(value=b"x" * 1_100)]) == "TOO_LARGE"
    large = encode_batch([b"x", b"y" * 1_001], now_ms=1)
    assert code(rig, [large]) == "TOO_LARGE"
    client = rig.client()
    client.ask(produce(), [encode_batch([b"x" * 900] * 3, now_ms=1)])
    assert client.answer().base_offset == 0
    client.ask(produce(), [batch(value=b"x" * 1_000)])
    assert client.answer().base_offset == 3
    # Tag, headers, time and framing are no part of the bound here.
    whole = encode_batch([b"x" * 993], [b"k" * 7], "tag", [{"h": b"v"}], [5], now_ms=1)
    client.ask(produce(), [whole])
    assert client.answer().base_offset == 4
    assert code(rig, [batch(value=b"x" * 1_001)]) == "TOO_LARGE"


def test_what_is_meant_for_another_topic_of_this_name_is_refused() -> None:
    """It was deleted and made anew, and this broker does not know: the message would go with it."""
    rig = Rig()
    rig.lead()
    known = rig.replica().topic_id
    client = rig.client()
    client.ask(produce(topic_id=known + 1), [batch()])
    with pytest.raises(LogboomError) as caught:
        client.answer()
    assert caught.value.code == "NOT_LEADER"
    assert caught.value.retryable
    assert rig.replica().end == Position(0)
    for meant in (known, 0):
        client.ask(produce(topic_id=meant), [batch()])
        assert isinstance(client.answer(), Produced)
    assert rig.replica().end == Position(2)


def test_acks_none_gets_no_answer_and_is_stored() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    out = Effects()
    assert client.session.tell(produce("none"), [batch(3)], out, rig.mono)
    rig.deliver(client, out)
    assert client.taken() == []
    assert rig.replica().end == Position(3)


def test_acks_leader_waits_for_this_disk_alone() -> None:
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH)
    client = rig.client()
    client.ask(produce("leader"), [batch()])
    assert client.answer().base_offset == 0
    assert client.ask(produce("all"), [batch()]) == []


def test_who_waits_is_sent_to_the_next_leader() -> None:
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH)
    client = rig.client()
    assert client.ask(produce("all"), [batch()]) == []
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH)
    (reply,) = client.taken()
    assert reply.error is not None
    assert (reply.error.code, reply.error.fields["leader"]) == ("NOT_LEADER", "broker-2")


def test_a_full_disk_refuses_writes_serves_reads_and_recovers() -> None:
    storage = SimulatedStorage("store-1")
    rig = Rig(storage)
    rig.lead()
    client = rig.client()
    client.ask(produce(), [batch()])
    assert isinstance(client.answer(), Produced)
    storage.full = True
    rig.settle(0.3)
    assert code(rig, [batch()]) == "DISK_FULL"
    client.ask(pull(0))
    assert client.answer().status == "FOUND"
    storage.full = False
    rig.settle(0.3)
    client.ask(produce(), [batch()])
    assert client.answer().base_offset == 1


def test_out_of_order_and_fenced_producers_are_told() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    client.ask(produce(), [batch(1, 9, 1, 0)])
    assert code(rig, [batch(1, 9, 1, 5)]) == "OUT_OF_ORDER_SEQUENCE"
    assert code(rig, [batch(1, 9, 0, 0)]) == "FENCED_PRODUCER"


def test_many_producers_waiting_are_answered_in_order() -> None:
    rig = Rig()
    rig.lead()
    rig.auto_sync = False
    clients = [rig.client(f"c{n}") for n in range(20)]
    for client in clients:
        client.ask(produce(), [batch(2)])
    rig.sync()
    assert [client.answer().base_offset for client in clients] == list(range(0, 40, 2))


def test_a_topic_that_is_gone_is_told_from_one_not_heard_of_yet() -> None:
    rig = Rig()
    rig.lead()
    known = rig.replica().topic_id

    def refused(meant: int) -> str:
        client = rig.client()
        client.ask(produce(topic="later", topic_id=meant), [batch()])
        with pytest.raises(LogboomError) as caught:
            client.answer()
        return caught.value.code

    assert refused(known + 1) == "NOT_LEADER", "our metadata may be older than the topic"
    assert refused(0) == "NOT_LEADER", "nor can be told what is meant"
    rig.publish()
    assert refused(known) == "UNKNOWN_TOPIC"
    client = rig.client()
    client.ask(pull(0, topic_id=known))
    with pytest.raises(LogboomError) as caught:
        client.answer()
    assert caught.value.code == "UNKNOWN_TOPIC"


def test_a_batch_that_opens_to_very_many_messages_is_refused_unopened() -> None:
    rig = Rig()
    rig.lead()
    many = encode_batch([b""] * (MAX_PRODUCED_COUNT + 1), now_ms=1, codec="zstd")
    assert len(many) < 500
    assert code(rig, [many]) == "TOO_LARGE"
    client = rig.client()
    client.ask(produce(), [encode_batch([b""] * MAX_PRODUCED_COUNT, now_ms=1, codec="zstd")])
    assert client.answer().base_offset == 0


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_batch_that_opens_to_more_than_a_request_may_have_is_refused_unopened(codec: str) -> None:
    rig = Rig()
    rig.lead(config=TopicConfig(retention_ms=-1, max_message_bytes=64 * 1024 * 1024))
    large = encode_batch([bytes(1024)] * 32 * 1024, now_ms=1, codec=codec)
    assert len(large) < 400_000
    tracemalloc.start()
    assert code(rig, [large]) == "TOO_LARGE"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_look_for_a_message_that_is_too_large_costs_little(codec: str) -> None:
    """In time and in memory, whatever the batch opens to."""
    rig = Rig()
    rig.lead()
    count = MAX_PRODUCED_COUNT
    batch = encode_batch([bytes(40)] * count, [bytes(60)] * count, now_ms=1, codec=codec)
    client = rig.client()
    loop = min(_thread_time(lambda: sum(range(400_000))) for _ in range(5))
    tracemalloc.start()
    client.ask(produce(), [batch])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert client.answer().base_offset == 0
    assert peak < 20 * 1024 * 1024
    times = [_thread_time(lambda: client.ask(produce(), [batch])) for _ in range(3)]
    assert min(times) < 3 * loop


def test_one_turn_opens_a_bounded_number_of_bytes_for_one_peer() -> None:
    """Each of them is within its bounds; the rest is refused, and accepted in another turn."""
    rig = Rig()
    rig.lead()
    large = encode_batch([bytes(30_000)] * 100, [bytes(45_000)] * 100, now_ms=1, codec="zstd")
    assert len(large) < 4_000
    sender, other = rig.client("sender"), rig.client("other")
    out = Effects()
    for _ in range(100):
        sender.session.request(produce(), [large], None, rig.mono + 5, out, rig.mono)
    bystander = Effects()
    other.session.request(produce(), [large], None, rig.mono + 5, bystander, rig.mono)
    sends = [*out.sends, *bystander.sends]
    addresses = [sender.address] * 100 + [other.address]
    events = [Received(at, send.frames) for at, send in zip(addresses, sends, strict=True)]
    effects = rig.turn(*events)
    refused = [decode(send.frames) for send in effects.sends if send.peer == sender.address]
    assert [each.code for each in refused if isinstance(each, Failure)] == ["BUSY"] * 97
    assert len(refused) == 97
    assert not [send for send in effects.sends if send.peer == other.address]
    assert rig.replica().end == Position(400)
    sender.ask(produce(), [large])
    assert rig.replica().end == Position(500)


def _thread_time(act: Callable[[], object]) -> float:
    start = time.thread_time()
    act()
    return time.thread_time() - start
