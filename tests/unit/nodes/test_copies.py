"""Copies for retries and dead letters at a broker: who gets receipts, and what is taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.nodes import copy_signer
from logboom.nodes.opened_bytes import PEER_BYTES
from logboom.wire.access.access_rules import UserKey, UserView, principal_of
from logboom.wire.actor import Effects, Received
from logboom.wire.batch import encode_batch
from logboom.wire.copy_receipts import (
    ATTEMPT_HEADER,
    MAX_COPIES,
    MAX_SIGNED,
    ORIGIN,
    RECEIPT,
    VALID_MS,
    CopiesSigned,
    SignCopies,
)
from logboom.wire.features import COPIES_PROVEN
from logboom.wire.frames import decode
from logboom.wire.messages import Failure, Produced
from logboom.wire.parking import AT_ONCE, Recall
from logboom.wire.subscription_messages import Receive, Subscribe, SubscriptionConfig
from logboom.wire.transactions import HALF, TransactionId
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.unit.nodes.requests.test_many_holds import wishes
from tests.unit.nodes.rig import ME, Peer, Rig, produce
from tests.unit.nodes.test_users_at_brokers import Right, alice, allow, refused, rules
from tests.unit.wire.batches import sealed

OTHER_KEY = UserKey("desktop", "m" * 40, 0)
READER: list[Right] = [("read", "topic", "flights"), ("read", "group", "g")]
TOPICS = ("flights", "%RETRY%g", "%DLQ%g", "%RETRY%flights%s", "%DLQ%flights%s", "other")


def bench(*rights: Right, features: int = COPIES_PROVEN) -> tuple[Rig, Peer]:
    """A broker that leads all topics, and alice with these rights, in a cluster of this level."""
    rig = Rig()
    rig.broker.routes.features = features
    rig.publish(*(_topic(rig, name, number) for number, name in enumerate(TOPICS, 1)))
    allow(rig, *rights)
    return rig, alice(rig)


def _topic(rig: Rig, name: str, number: int) -> TopicView:
    queue = QueueView([ME], ME, 1, rig.version + 1, [ME], [])
    return TopicView(name, number, TopicConfig(retention_ms=-1), [queue], rig.version + 1)


def store(rig: Rig, *values: bytes, topic: str = "flights", **headers: bytes) -> None:
    """Write messages that anybody may have written, each a batch."""
    anybody = rig.client("anybody")
    for value in values:
        batch = encode_batch([value], keys=[b"k"], headers=[headers or None], now_ms=7)
        anybody.ask(produce(topic=topic), [batch])
        rig.settle()
        assert isinstance(anybody.answer(), Produced)


def copies(
    *values: bytes,
    receipts: list[bytes] | None = None,
    origin: bytes = b"flights/0/%d",
    first: int = 0,
    **more: bytes,
) -> bytes:
    headers = []
    for number in range(len(values)):
        headers.append({**more, ATTEMPT_HEADER: b"2"})
        headers[-1][ORIGIN] = origin % (first + number) if b"%d" in origin else origin
        if receipts is not None:
            headers[-1][RECEIPT] = receipts[number]
    return encode_batch(list(values), keys=[b"k"] * len(values), headers=headers, now_ms=7)


def sign(
    peer: Peer, *offsets: int, topic: str = "flights", owner: str = "g", kept: bool = False
) -> list[bytes]:
    """Ask for receipts; those that came."""
    peer.ask(SignCopies(0, 9_000, topic, 0, owner, list(offsets), kept))
    answer = peer.answer()
    assert isinstance(answer, CopiesSigned)
    return answer.receipts


def send(
    rig: Rig,
    peer: Peer,
    topic: str,
    batch: bytes,
    due_ms: int = AT_ONCE,
    transaction: TransactionId | None = None,
) -> str:
    """Code of the answer to a PRODUCE; "" if it is taken."""
    asked = produce(topic=topic)
    peer.ask(msgspec.structs.replace(asked, due_ms=due_ms, transaction=transaction), [batch])
    rig.settle()
    (reply,) = peer.taken()
    return "" if reply.error is None else reply.error.code


def test_copies_are_taken_with_receipts_in_any_batch_delayed_or_not() -> None:
    rig, peer = bench(*READER)
    store(rig, b"a", b"b", h=b"1")
    receipts = sign(peer, 0, 1)
    assert all(receipts)
    batch = copies(b"a", b"b", receipts=receipts, h=b"1")
    for topic in ("%RETRY%g", "%DLQ%g"):
        assert send(rig, peer, topic, batch) == ""
        assert send(rig, peer, topic, batch, due_ms=rig.wall_ms + 5_000) == ""
    # A copy of a copy names the same origin.
    again = sign(peer, 1, topic="%RETRY%g", kept=True)
    assert send(rig, peer, "%RETRY%g", copies(b"b", receipts=again, first=1, h=b"1")) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"origin": b"other/0/0"},
        {"origin": b"flights/0/1"},
        {"h": b"2"},
        {"topic": "%RETRY%flights%s"},
    ],
    ids=str,
)
def test_a_receipt_is_for_one_message_and_owner(changed: dict[str, Any]) -> None:
    rig, peer = bench(*READER)
    store(rig, b"a", h=b"1")
    receipts = sign(peer, 0)
    topic = changed.pop("topic", "%RETRY%g")
    value = b"a" if changed or topic != "%RETRY%g" else b"forged"
    options: dict[str, Any] = {"h": b"1", **changed}
    assert send(rig, peer, topic, copies(value, receipts=receipts, **options)) == "FORBIDDEN"


def test_one_copy_without_a_receipt_makes_its_batch_refused() -> None:
    rig, peer = bench(*READER)
    store(rig, b"a", b"b")
    (receipt, _) = sign(peer, 0, 1)
    batch = copies(b"a", b"b", receipts=[receipt, b""])
    assert send(rig, peer, "%RETRY%g", batch) == "FORBIDDEN"


def test_a_receipt_ends() -> None:
    rig, peer = bench(*READER)
    store(rig, b"a")
    batch = copies(b"a", receipts=sign(peer, 0))
    rig.wall_ms += VALID_MS + 1
    assert send(rig, peer, "%RETRY%g", batch) == "FORBIDDEN"


def test_a_header_that_is_there_twice_is_refused() -> None:
    rig, peer = bench(*READER, ("write", "topic", "flights"))
    batch = copies(b"a")
    assert send(rig, peer, "%RETRY%g", batch) == ""
    # Another header gets the name of the origin, too.
    other: dict[str, Any] = {"boom-Origin": b"other/0/00"}
    plain = copies(b"a", **other)
    twice = sealed(plain.replace(b"boom-Origin", b"boom-origin"))
    assert send(rig, peer, "%RETRY%g", twice) == "INVALID_ARGUMENT"


def test_whoever_may_write_the_original_needs_no_receipt() -> None:
    rig, peer = bench(*READER, ("write", "topic", "flights"))
    for topic in ("%RETRY%g", "%DLQ%g", "%RETRY%flights%s"):
        assert send(rig, peer, topic, copies(b"new")) == ""
    rig, peer = bench(*READER, ("write", "topic", "other"))
    named = copies(b"new", origin=b"other/0/0")
    assert send(rig, peer, "%RETRY%g", named) == ""
    assert send(rig, peer, "%RETRY%flights%s", named) == "FORBIDDEN"


def test_names_of_the_system_are_nobodys_original() -> None:
    rig, peer = bench(*READER, ("write", "topic", "*"))
    for origin in (b"%RETRY%g/0/0", b"%DLQ%flights%s/0/0", b"", b"flights", b"flights/0/x"):
        assert send(rig, peer, "%RETRY%g", copies(b"new", origin=origin)) == "FORBIDDEN"


def test_copies_are_in_no_transaction_and_not_too_many() -> None:
    rig, peer = bench(*READER, ("write", "topic", "*"), ("write", "transaction", "*"))
    half = TransactionId("shop", HALF, 0)
    assert send(rig, peer, "%RETRY%g", copies(b"a"), transaction=half) == "INVALID_ARGUMENT"
    assert send(rig, peer, "%RETRY%g", copies(*[b"a"] * (MAX_COPIES + 1))) == "TOO_LARGE"
    assert send(rig, peer, "%RETRY%g", copies(*[b"a"] * MAX_COPIES)) == ""


def test_below_the_level_clients_of_the_release_before_send_copies() -> None:
    rig, peer = bench(*READER, features=COPIES_PROVEN - 1)
    assert send(rig, peer, "%RETRY%g", copies(b"a")) == ""
    rig, _ = bench()
    assert send(rig, rig.client(), "%RETRY%g", copies(b"a")) == ""


def test_receipts_need_the_right_to_read() -> None:
    group, topic = READER[1], READER[0]
    cases: list[tuple[list[Right], str, dict[str, Any]]] = [
        ([group], "g", {}),
        ([topic], "g", {}),
        ([group], "flights%s", {}),
        ([topic, group], "g", {"topic": "%DLQ%g", "kept": True}),
        ([topic, group], "flights%s", {"topic": "%DLQ%flights%s", "kept": True}),
    ]
    for rights, owner, more in cases:
        rig, peer = bench(*rights)
        store(rig, b"a")
        asked = SignCopies(0, 9_000, more.get("topic", "flights"), 0, owner, [0], "kept" in more)
        assert refused(peer, asked).code in (
            "FORBIDDEN",
            "UNKNOWN_TOPIC",
            "UNKNOWN_GROUP",
        )


def test_dead_letters_are_signed_for_who_manages_them() -> None:
    manager: Right = ("manage", "group", "g")
    rig, peer = bench(*READER, manager)
    headers = {ATTEMPT_HEADER: b"3", ORIGIN: b"flights/0/9"}
    store(rig, b"a", topic="%DLQ%g", **headers)
    receipts = sign(peer, 0, topic="%DLQ%g", kept=True)
    batch = copies(b"a", receipts=receipts, origin=b"flights/0/9")
    assert send(rig, peer, "%RETRY%g", batch) == ""


def test_copies_for_a_subscription_are_of_what_a_consumer_holds() -> None:
    rig, peer = bench(("read", "topic", "flights"))
    store(rig, b"a", b"b")
    assert sign(peer, 0, owner="flights%s") == [b""]
    who = ("flights", 0, "s", "c", 1)
    config = SubscriptionConfig("shared", max_attempts=3)
    peer.ask(Subscribe(0, 9_000, *who, config, start="first"))
    rig.settle()
    peer.taken()
    assert sign(peer, 0, owner="flights%s") == [b""]
    peer.ask(Receive(0, 9_000, *who, 1, 1, 1 << 20, 0))
    rig.settle()
    peer.taken()
    receipts = sign(peer, 0, 1, owner="flights%s")
    assert list(map(bool, receipts)) == [True, False]
    batch = copies(b"a", receipts=receipts[:1])
    assert send(rig, peer, "%RETRY%flights%s", batch) == ""
    assert send(rig, peer, "%RETRY%g", batch) != ""
    # Another user of the same rights has no such consumer, and nothing of a receipt that it reads.
    mallory = UserView("mallory", [OTHER_KEY], rules=rules(("read", "topic", "flights")))
    allow(rig, ("read", "topic", "flights"), others=[mallory])
    other = rig.client("mallory-1", principal_of("mallory", OTHER_KEY))
    assert sign(other, 0, owner="flights%s") == [b""]
    assert send(rig, other, "%RETRY%flights%s", batch) == "FORBIDDEN"
    # Nobody holds dead letters, and a copy in the retries names a message of its topic alone.
    for origin, signed in ((b"flights/0/0", True), (b"other/0/0", False)):
        rig, peer = bench(("read", "topic", "flights"), ("manage", "topic", "flights"))
        store(rig, b"a", topic="%DLQ%flights%s", **{ORIGIN: origin})
        told = sign(peer, 0, owner="flights%s", topic="%DLQ%flights%s", kept=True)
        assert bool(told[0]) == signed


def test_receipts_come_in_parts_and_of_what_is_there() -> None:
    rig, peer = bench(*READER)
    store(rig, *[b"a"] * (copy_signer.MAX_READ_BATCHES + 2))
    last = copy_signer.MAX_READ_BATCHES + 1
    some = sign(peer, *range(last + 1))
    assert len(some) == copy_signer.MAX_READ_BATCHES
    assert list(map(bool, sign(peer, last, last + 1, -1, 1 << 62))) == [
        True,
        False,
        False,
        False,
    ]
    for count, expected in ((0, "INVALID_ARGUMENT"), (MAX_SIGNED + 1, "TOO_LARGE")):
        asked = SignCopies(0, 9_000, "flights", 0, "g", [0] * count)
        assert refused(peer, asked).code == expected


def test_what_is_opened_for_copies_is_bounded_in_a_turn() -> None:
    rig, peer = bench(*READER, ("write", "topic", "flights"))
    large, out = copies(bytes(900_000)), Effects()
    for _ in range(11):
        peer.session.request(produce(topic="%RETRY%g"), [large], None, rig.mono + 9, out, rig.mono)
    effects = rig.turn(*(Received(peer.address, s.frames, 0, peer.principal) for s in out.sends))
    refused_ones = [decode(send.frames) for send in effects.sends]
    assert [each.code for each in refused_ones if isinstance(each, Failure)] == ["BUSY"]


def test_what_is_opened_for_receipts_is_bounded_in_a_turn() -> None:
    rig, peer = bench(*READER)
    store(rig, *[bytes(900_000)] * (PEER_BYTES // 900_000 + 2))
    asked = [SignCopies(0, 9_000, "flights", 0, "g", [offset]) for offset in range(11)]
    effects = rig.turn(*wishes(peer, asked))
    answers = [decode(send.frames) for send in effects.sends]
    assert [isinstance(each, CopiesSigned) for each in answers] == [True] * 10 + [False]
    refusal = answers[-1]
    assert isinstance(refusal, Failure)
    assert refusal.code == "BUSY"


def test_a_reader_recalls_no_retries_of_others() -> None:
    _, peer = bench(*READER)
    assert refused(peer, Recall(0, 9_000, "%RETRY%g", 0, 0, 1)).code == "FORBIDDEN"


def test_the_check_is_of_topics_of_the_system_alone() -> None:
    rig, peer = bench(("write", "topic", "other"))
    assert send(rig, peer, "other", copies(b"a", origin=b"flights/0/0")) == ""
