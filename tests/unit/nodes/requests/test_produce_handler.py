"""PRODUCE: what is refused, with which code, and what is answered when."""

from __future__ import annotations

import pytest

from logboom.nodes.log.keys import Position
from logboom.wire.actor import Effects
from logboom.wire.batch import encode_batch, encode_control
from logboom.wire.errors import LogboomError
from logboom.wire.head import ControlKind
from logboom.wire.messages import Acks, Produced
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
