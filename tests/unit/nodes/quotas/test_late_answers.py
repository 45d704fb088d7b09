"""A broker with quotas: late answers, in order, and everything else as fast as ever."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec

from logboom.nodes.log.keys import Position
from logboom.wire.access.access_rules import (
    KINDS,
    VERBS_OF,
    AccessRule,
    AccessView,
    Quota,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.actor import Effects
from logboom.wire.errors import Forbidden
from logboom.wire.messages import KickConnection, Offsets, Produced, Pulled, Stats
from logboom.wire.session import Reply
from logboom.wire.subscription_messages import (
    Delivered,
    Receive,
    SettleMessages,
    Subscribe,
    Subscribed,
    SubscriptionConfig,
)
from tests.unit.nodes.rig import Peer, Rig, batch, produce, pull

KEY = UserKey("laptop", "k" * 40, 0)
BATCH_BYTES = len(batch(value=b"v" * 1_000))


def rig_with(**rates: int) -> tuple[Rig, Peer]:
    """A broker that leads a queue, and a client of a user with these rates."""
    rig = Rig()
    rig.lead()
    rules = [
        AccessRule(True, verb, kind, "*")
        for kind in KINDS
        for verb in VERBS_OF[kind]
        if kind != "cluster" or verb == "describe"
    ]
    user = UserView("ann", [KEY], rules=rules, quota=Quota(**rates))
    rig.broker.routes.access.update(AccessView(True, [user]), 1_000)
    return rig, rig.client("ann-1", principal_of("ann", KEY))


def produced(client: Peer) -> list[tuple[float, Produced]]:
    """The answers that have come, with the time."""
    replies = [reply.message for reply in client.taken()]
    return [(client.rig.mono, each) for each in replies if isinstance(each, Produced)]


def figures(rig: Rig) -> dict[str, Any]:
    """The statistics of the broker."""
    peer = rig.client("statistics")
    peer.ask(Stats(0, 5_000))
    return dict(peer.answer().counters)


def test_a_producer_beyond_its_quota_is_answered_late_and_in_order() -> None:
    rig, client = rig_with(produce_bytes_per_s=2 * BATCH_BYTES)
    answers: list[tuple[float, Produced]] = []
    begin = rig.mono
    for sequence in range(10):
        client.ask(produce(), [batch(1, 7, 0, sequence, b"v" * 1_000)])
        answers += produced(client)
    assert len(answers) in (2, 3)
    while len(answers) < 10:
        rig.settle(0.05)
        answers += produced(client)
        assert rig.mono < begin + 6
    assert [answer.base_offset for _, answer in answers] == list(range(10))
    assert answers[-1][0] - begin > 3
    assert answers[0][1].throttled_ms == 0
    assert 3_000 < answers[-1][1].throttled_ms < 6_000
    told = figures(rig)
    assert told["throttle_ms.ann"] == sum(answer.throttled_ms for _, answer in answers)
    assert told["throttled_requests"] == told["throttled_bytes"] == 0
    assert rig.replica().end == Position(10)


def test_a_waiting_batch_is_not_written_yet() -> None:
    rig, client = rig_with(produce_bytes_per_s=10)
    for sequence in range(2):
        client.ask(produce(), [batch(1, 7, 0, sequence, b"v" * 1_000)])
    assert rig.replica().end == Position(1)
    assert figures(rig)["throttled_requests"] == 1


def test_a_reader_beyond_its_quota_is_answered_late() -> None:
    rig, client = rig_with(fetch_bytes_per_s=BATCH_BYTES)
    other = rig.client("open")
    for _ in range(3):
        other.ask(produce(), [batch(value=b"v" * 1_000)])
    client.ask(pull(0))
    assert isinstance(client.answer(), Pulled)
    client.ask(pull(1))
    client.answer()
    client.ask(pull(2))
    assert client.taken() == []
    other.ask(pull(0))
    assert len(other.taken()) == 1
    rig.settle(2.0)
    answer = client.answer()
    assert answer.status == "FOUND"
    assert 500 < answer.throttled_ms <= 2_000


def test_pulls_that_waited_together_are_served_one_by_one() -> None:
    rig, client = rig_with(fetch_bytes_per_s=BATCH_BYTES)
    other = rig.client("open")
    for _ in range(6):
        other.ask(produce(), [batch(value=b"v" * 1_000)])
    out = Effects()
    begin = rig.mono
    for offset in range(6):
        client.session.request(pull(offset), (), offset, begin + 60, out, begin)
    rig.deliver(client, out)
    times: list[float] = []
    while len(times) < 6:
        times += [rig.mono - begin for _ in client.taken()]
        rig.settle(0.1)
    assert times[:2] == [0.0, 0.0]
    assert all(later - at > 0.5 for at, later in pairwise(times[1:]))


def test_the_deadline_of_a_waiting_request_is_put_off() -> None:
    rig, client = rig_with(produce_bytes_per_s=BATCH_BYTES // 10)
    client.ask(produce(), [batch(value=b"v" * 1_000)])
    client.replies = []
    out = Effects()
    session, now = client.session, rig.mono
    payload = [batch(value=b"v" * 1_000)]
    session.request(produce(), payload, None, now + 4.0, out, now, now + 60.0)
    session.request(produce(), payload, None, now + 4.0, out, now)
    rig.deliver(client, out)
    while rig.mono < now + 12:
        rig.settle(0.1)
        ticked = Effects()
        client.replies += session.tick(ticked, rig.mono)
        rig.deliver(client, ticked)
    late, given_up = sorted(client.replies, key=lambda reply: reply.error is not None)
    assert isinstance(late.message, Produced)
    assert late.message.throttled_ms > 8_000
    assert given_up.error is not None
    assert given_up.error.code == "TIMED_OUT"


def test_a_consumer_of_a_subscription_waits_and_stays_attached() -> None:
    rig, client = rig_with(fetch_bytes_per_s=BATCH_BYTES // 10)
    other = rig.client("open")
    for _ in range(3):
        other.ask(produce(), [batch(value=b"v" * 1_000)])
    place = (0, 5_000, "flights", 0, "s", "one", 1)
    config = SubscriptionConfig(kind="shared", session_ms=1_000)
    client.ask(Subscribe(*place, config, start="first"))
    assert isinstance(client.answer(), Subscribed)
    client.ask(Receive(*place, 1, 1, 1 << 20, 400))
    assert client.answer().chosen
    client.ask(Receive(*place, 2, 1, 1 << 20, 400))
    assert client.taken() == []
    # Acknowledgements pass, whatever waits.
    client.ask(SettleMessages(*place, [(0, 1)]))
    assert client.answer().refused == []
    for _ in range(60):
        rig.settle(0.1)
        ticked = Effects()
        client.replies += client.session.tick(ticked, rig.mono)
        rig.deliver(client, ticked)
    assert figures(rig)["subscription_consumers"] == 1
    rig.settle(6.0)
    delivered = client.answer()
    assert isinstance(delivered, Delivered)
    assert delivered.chosen
    assert delivered.throttled_ms > 5_000


def test_open_listeners_have_no_quota() -> None:
    rig, _ = rig_with(produce_bytes_per_s=1)
    client = rig.client("open")
    for _ in range(20):
        client.ask(produce(), [batch(value=b"v" * 1_000)])
        assert client.answer().throttled_ms == 0


def test_refused_requests_count_and_are_audited_at_once() -> None:
    rig, client = rig_with(requests_per_s=10)
    told: list[Reply] = []
    for _ in range(20):
        client.ask(Offsets(0, 30_000, "t", [0]))
        told += client.taken()
    rig.broker.auditor.log.take()
    for _ in range(50):
        client.ask(KickConnection(0, 30_000, "10.0.0.9:7"))
        told += client.taken()
    assert not any(isinstance(reply.error, Forbidden) for reply in told)
    lines = [msgspec.json.decode(line) for line in rig.broker.auditor.log.take()]
    assert [(line["event"], line["request"]) for line in lines] == [("refused", "kickconnection")]
    client.ask(produce(), [batch(1, 7, 0, 0)])
    for _ in range(160):
        told += client.taken()
        rig.settle(0.05)
    codes = [reply.error.code if reply.error else "" for reply in told]
    assert (codes.count("FORBIDDEN"), len(codes)) == (50, 71)
