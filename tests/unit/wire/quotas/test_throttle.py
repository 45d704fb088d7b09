"""The throttle by itself, with a clock of the test: rates, order, fairness, notices, bounds."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import AccessView, Quota, UserView
from logboom.wire.actor import Instant, PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.commands import Barrier
from logboom.wire.errors import Forbidden, LogboomError, NotLeader
from logboom.wire.frames import decode
from logboom.wire.group_messages import GroupCommit, GroupHeartbeat
from logboom.wire.messages import (
    AnyMessage,
    Failure,
    Offsets,
    Produce,
    Produced,
    Propose,
    Pull,
    Pulled,
    Throttled,
    Watch,
)
from logboom.wire.quotas import throttle as throttle_module
from logboom.wire.quotas.throttle import EXEMPT, Throttle
from logboom.wire.stats import Statistics
from logboom.wire.subscription_messages import Receive, SettleMessages
from logboom.wire.transactions import Decide

KB = 1_000


class Bench:
    """A throttle, the sessions that it sees, and what was served when."""

    def __init__(self, quota: Quota, *others: UserView) -> None:
        self.now = 100.0
        self.book = AccessBook()
        self.version = 0
        self.sessions: dict[PeerAddress, PeerSession] = {}
        self.kept: list[tuple[str, float]] = []
        self.revoked: dict[int, LogboomError] = {}
        """Requests that may not be served any more."""
        self.stats = Statistics()
        self.throttle = Throttle(
            lambda: self.book,
            self.sessions.get,
            lambda _, message: self.revoked.get(message.id),
            self.stats,
            lambda message, _user, now: self.kept.append((message.consumer, now)),
        )
        self.served: list[tuple[float, str, AnyMessage, int]] = []
        """(time, client, request, bytes)"""
        self.sent: list[tuple[str, AnyMessage]] = []
        self.refusing = False
        self.answer_bytes = 0
        """Bytes of the answer to each request for messages."""
        self.grant(quota, *others)

    def grant(self, quota: Quota, *others: UserView) -> None:
        """Let the throttle learn the quota of "ann"."""
        self.version += 1
        view = AccessView(True, [UserView("ann", [], quota=quota), *others])
        self.book.update(view, self.version)

    def connect(self, name: str, user: str = "ann") -> PeerSession:
        """A session of a user."""
        address = PeerAddress("main", name.encode())
        session = PeerSession(address, name, "client", 0, 1, self.now, principal=f"{user}/k#1")
        self.sessions[address] = session
        return session

    def ask(self, session: PeerSession, message: AnyMessage, size: int = 0) -> bool:
        """A request of a session arrives; True if it is served at once."""
        turn = self.turn()
        frames = [b"x" * size] if size else []
        taken = self.throttle.takes(session, message, frames, turn)
        if taken:
            self.serve(session, message, size, turn)
        self.close(turn)
        return taken

    def refused_late(self, session: PeerSession, message: AnyMessage) -> bool:
        """A request arrives that is to be refused; True if the answer waits."""
        turn = self.turn()
        error = Forbidden("no rule allows it", verb="read", kind="topic", name="t")
        late = self.throttle.postpones(session, message, error, turn.out, self.now)
        self.close(turn)
        return late

    def run(self, seconds: float) -> None:
        """Let time pass, with a turn whenever one is wanted."""
        until = self.now + seconds
        turns = 0
        while self.throttle.deadline() <= until:
            assert self.throttle.deadline() > self.now or not turns, "it wants turns for nothing"
            self.now = max(self.now, self.throttle.deadline())
            turn = self.turn()
            for session, message, frames in self.throttle.release(turn):
                self.serve(session, message, sum(map(len, frames)), turn)
            self.close(turn)
            turns += 1
        self.now = until

    def serve(self, session: PeerSession, message: AnyMessage, size: int, turn: BrokerTurn) -> None:
        """Answer as a broker does."""
        self.served.append((self.now, session.client_id, message, size))
        if self.refusing:
            turn.refuse(session.address, message.id, NotLeader("moved"))
        elif isinstance(message, Pull | Receive):
            answer = Pulled(message.id, "FOUND", 0, 0, 0)
            turn.answer(session.address, answer, [b"y" * self.answer_bytes])
        elif message.id:
            turn.answer(session.address, Produced(message.id, 0, 0))

    def turn(self) -> BrokerTurn:
        """A turn at the present."""
        return BrokerTurn(Instant(self.now, 0), self.throttle)

    def close(self, turn: BrokerTurn) -> None:
        """Take what a turn sends."""
        for send in turn.out.sends:
            assert isinstance(send.peer, PeerAddress)
            self.sent.append((send.peer.routing_id.decode(), decode(send.frames)))

    def told(self, kind: type[WireMessage]) -> list[AnyMessage]:
        """What was sent of a kind."""
        return [message for _, message in self.sent if isinstance(message, kind)]


def produce(number: int, queue: int = 0) -> Produce:
    return Produce(number, 30_000, "t", queue, "all")


def pull(number: int) -> Pull:
    return Pull(number, 30_000, "t", 0, 0, 1 << 20, 1_000)


def receive(number: int) -> Receive:
    return Receive(number, 30_000, "t", 0, "s", "c1", 1, number, 100, 1 << 20, 1_000)


def watch(number: int) -> Watch:
    return Watch(number, 5_000, -1, None, 0)


def offsets(number: int, timeout_ms: int = 5_000) -> Offsets:
    return Offsets(number, timeout_ms, "t", [0])


def test_a_user_without_rates_is_never_late() -> None:
    bench = Bench(Quota(connections=3))
    session = bench.connect("a")
    assert all(bench.ask(session, produce(n), 10**6) for n in range(1, 1_000))
    assert bench.throttle.deadline() == float("inf")


def test_a_minute_of_producing_keeps_the_rate_loses_nothing_and_keeps_the_order() -> None:
    bench = Bench(Quota(produce_bytes_per_s=100 * KB))
    rng = random.Random(3)
    sessions = [bench.connect(name) for name in ("a", "b", "c")]
    asked: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for number in range(1, 301):
        session = rng.choice(sessions)
        bench.ask(session, produce(number), rng.randrange(1, 40 * KB))
        asked[session.client_id].append(number)
        bench.run(rng.random() / 5)
    bench.run(120)
    for name, numbers in asked.items():
        assert [m.id for _, client, m, _ in bench.served if client == name] == numbers
    for first, (begin, *_) in enumerate(bench.served):
        total = 0
        for at, _, _, size in bench.served[first:]:
            assert total <= 100 * KB * (at - begin + 1.01)
            total += size
    total = sum(size for *_, size in bench.served)
    assert total / (100 * KB) - 2 <= bench.served[-1][0] - 100.0 <= total / (100 * KB) + 2
    answers = [m for m in bench.told(Produced) if isinstance(m, Produced)]
    assert len(answers) == 300
    waited = sum(answer.throttled_ms for answer in answers)
    assert waited > 1_000
    assert bench.throttle.figures()["throttle_ms.ann"] == waited


def test_fetched_bytes_are_charged_when_they_are_sent() -> None:
    bench = Bench(Quota(fetch_bytes_per_s=100 * KB))
    bench.answer_bytes = 50 * KB
    sessions = [bench.connect(name) for name in "abcd"]
    for number in range(1, 101):
        bench.ask(sessions[number % 4], pull(number))
    bench.run(60)
    assert len(bench.served) == 100
    # 1 s of burst, one answer that overdraws, then one every half second.
    assert 48 <= bench.served[-1][0] - 100.0 <= 50


def test_requests_of_any_kind_count_and_lanes_do_not_wait_for_each_other() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB, requests_per_s=1_000))
    session = bench.connect("a")
    assert bench.ask(session, produce(1), 100 * KB)
    assert not bench.ask(session, produce(2), 1)
    assert bench.ask(session, pull(3))
    assert bench.ask(session, offsets(4))
    few = Bench(Quota(requests_per_s=10))
    session = few.connect("a")
    taken = [few.ask(session, offsets(n)) for n in range(1, 31)]
    assert taken == [True] * 11 + [False] * 19
    few.run(2.0)
    assert len(few.served) == 30


@pytest.mark.parametrize("kind", sorted(EXEMPT, key=str))
def test_signs_of_life_commits_and_acknowledgements_never_wait(kind: type[WireMessage]) -> None:
    assert {GroupHeartbeat, GroupCommit, SettleMessages} <= EXEMPT
    bench = Bench(Quota(requests_per_s=1))
    session = bench.connect("a")
    for number in range(1, 50):
        bench.ask(session, offsets(number))
    values: dict[str, Any] = {**dict.fromkeys(kind.__struct_fields__), "timeout_ms": 1_000}
    message: Any = kind(**{**values, "id": 77})
    assert all(bench.ask(session, message) for _ in range(100))


def test_the_page_of_security_says_what_never_waits() -> None:
    page = (Path(__file__).parents[4] / "docs" / "SECURITY.md").read_text("utf-8")
    said = page.partition("- **Never delayed**:")[2].partition("\n- **")[0]
    assert set(re.findall("`([a-z]+)`", said)) == {
        str(kind.__struct_config__.tag) for kind in EXEMPT
    }


def test_watches_and_decisions_count_by_themselves() -> None:
    bench = Bench(Quota(requests_per_s=10))
    session = bench.connect("a")
    for number in range(1, 50):
        bench.ask(session, offsets(number))
    assert bench.ask(session, watch(100)), "who is over its quota goes on following"
    decided = Decide("app", -1, 1, 1, False, [], [], 0)
    assert bench.ask(session, Propose(101, 5_000, "", 0, decided))
    taken = [bench.ask(session, watch(number)) for number in range(200, 230)]
    assert taken.count(True) < 12, "but not without end"
    assert not bench.ask(session, Propose(300, 5_000, "", 0, Barrier()))
    bench.run(3)
    assert sum(isinstance(each, Watch) for *_, each, _ in bench.served) == 31


def test_a_refused_request_counts_and_its_answer_waits_like_one() -> None:
    bench = Bench(Quota(requests_per_s=10))
    session = bench.connect("a")
    begin = bench.now
    late = [number for number in range(1, 51) if bench.refused_late(session, watch(number))]
    assert len(late) >= 38
    assert not bench.ask(session, offsets(100)), "it waits behind them"
    bench.run(5)
    told = [message for _, message in bench.sent if isinstance(message, Failure)]
    assert [message.id for message in told] == late
    assert {message.code for message in told} == {"FORBIDDEN"}
    assert [message.id for *_, message, _ in bench.served] == [100]
    assert bench.served[-1][0] - begin > 3.5


def test_refusals_of_users_without_a_rate_do_not_wait() -> None:
    bench = Bench(Quota())
    session = bench.connect("a")
    assert not any(bench.refused_late(session, watch(number)) for number in range(1, 51))


def test_nodes_have_no_quota() -> None:
    bench = Bench(Quota(), UserView("node:b2", [], quota=Quota(requests_per_s=1)))
    session = bench.connect("b2", "node:b2")
    assert all(bench.ask(session, offsets(n)) for n in range(1, 100))


def test_no_peer_starves_another_of_the_same_user() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    greedy, modest = bench.connect("greedy"), bench.connect("modest")
    for number in range(1, 101):
        bench.ask(greedy, produce(number), 10 * KB)
    bench.ask(modest, produce(1), 10 * KB)
    bench.run(5.0)
    assert "modest" in {client for _, client, _, _ in bench.served}


def test_users_do_not_wait_for_each_other() -> None:
    bench = Bench(Quota(produce_bytes_per_s=1), UserView("bob", []))
    bench.ask(bench.connect("a"), produce(1), 10 * KB)
    assert not bench.ask(bench.connect("b"), produce(1), 1)
    assert bench.ask(bench.connect("c", "bob"), produce(1), 10**6)


def test_the_peer_is_told_which_requests_wait_until_they_are_served() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    for number in range(1, 4):
        bench.ask(session, produce(number), 50 * KB)
    bench.run(0.9)
    assert bench.told(Throttled) == []
    bench.run(2.0)
    (first,) = bench.told(Throttled)
    assert isinstance(first, Throttled)
    assert (first.id, first.requests) == (0, [2, 3])
    bench.run(3.0)
    assert [m.requests for m in bench.told(Throttled) if isinstance(m, Throttled)][-1] == [3]
    bench.run(20.0)
    bench.sent.clear()
    bench.run(20.0)
    assert bench.sent == []


def test_a_request_that_is_sent_again_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "MAX_WAITING", 2)
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    bench.ask(session, produce(1), 30 * KB)
    for number in (2, 3, 2, 2):
        bench.ask(session, produce(number), 1)
    bench.run(1.5)
    bench.ask(session, produce(2), 1)
    assert bench.told(Failure) == []
    bench.run(10.0)
    assert [m.id for _, _, m, _ in bench.served] == [1, 2, 3]
    waited = {m.id: m.throttled_ms for m in bench.told(Produced) if isinstance(m, Produced)}
    assert waited[2] >= 2_000


def test_a_request_that_comes_when_the_wait_is_over_stays_behind_the_others() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    bench.ask(session, produce(1), 30 * KB)
    bench.ask(session, produce(2), 1)
    bench.now += 5.0
    assert not bench.ask(session, produce(3), 1)
    bench.run(1.0)
    assert [m.id for _, _, m, _ in bench.served] == [1, 2, 3]


def test_a_wait_that_ends_with_a_refusal_is_forgotten() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    for _ in range(2):
        bench.ask(session, produce(1), 30 * KB)
    bench.refusing = True
    bench.run(5.0)
    bench.refusing = False
    assert bench.ask(session, produce(1), 1)
    answers = [m.throttled_ms for m in bench.told(Produced) if isinstance(m, Produced)]
    assert answers == [0, 0]


def test_a_request_whose_right_ends_while_it_waits_is_refused() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    for number in (1, 2, 3):
        bench.ask(session, produce(number), 30 * KB)
    bench.revoked[2] = Forbidden("no more")
    bench.run(5.0)
    assert [m.id for _, _, m, _ in bench.served] == [1, 3]
    assert [(m.id, m.code) for m in bench.told(Failure) if isinstance(m, Failure)] == [
        (2, "FORBIDDEN")
    ]


def test_connections_that_are_gone_are_forgotten() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    for number in (1, 2):
        bench.ask(session, produce(number), 30 * KB)
    bench.run(5.0)
    assert bench.throttle.throttled_ms_of(session.address) > 1_000
    del bench.sessions[session.address]
    bench.run(30.0)
    bench.ask(bench.connect("b"), produce(1))
    assert bench.throttle.throttled_ms_of(session.address) == 0


def test_a_sender_that_is_never_answered_is_told_to_pause() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    message = Produce(0, 0, "t", 0, "none")
    assert bench.ask(session, message, 30 * KB)
    assert not bench.ask(session, message, 10 * KB)
    assert not bench.ask(session, message, 10 * KB)
    (notice,) = bench.told(Throttled)
    assert isinstance(notice, Throttled)
    assert notice.wait_ms >= 2_000
    bench.run(10.0)
    assert len(bench.served) == 3


def test_what_has_no_room_is_refused_and_the_rest_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throttle_module, "MAX_WAITING_BYTES", 100 * KB)
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    bench.ask(session, produce(1), 30 * KB)
    for number in range(2, 7):
        bench.ask(session, produce(number), 30 * KB)
    refused = [m for m in bench.told(Failure) if isinstance(m, Failure)]
    assert [(m.id, m.code, m.retryable) for m in refused] == [(5, "BUSY", True), (6, "BUSY", True)]
    assert refused[0].fields["throttled_ms"] > 9_000
    assert "quota" in refused[0].text
    bench.run(60.0)
    assert [m.id for _, _, m, _ in bench.served] == [1, 2, 3, 4]


def test_a_message_that_waits_counts_with_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "MAX_WAITING_BYTES", 100 * KB)
    bench = Bench(Quota(requests_per_s=1))
    session = bench.connect("a")
    for number in range(1, 7):
        bench.ask(session, Offsets(number, 60_000, "t" * 30 * KB, [0]))
    # Two are served at once, and three have room.
    assert [m.id for m in bench.told(Failure)] == [6]
    assert 90 * KB < float(bench.throttle.figures()["throttled_bytes"]) < 100 * KB
    bench.run(10.0)
    assert [m.id for _, _, m, _ in bench.served] == [1, 2, 3, 4, 5]
    assert bench.throttle.figures()["throttled_bytes"] == 0


def test_a_message_that_waits_counts_what_its_short_texts_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throttle_module, "MAX_WAITING_BYTES", 100 * KB)
    bench = Bench(Quota(requests_per_s=1))
    session = bench.connect("a")
    tags = [f"{tag:02x}" for tag in range(256)]
    for number in range(1, 21):
        bench.ask(session, Pull(number, 60_000, "t", 0, 0, 1, 0, tags=tags))
    # Two are served at once. The others take 17 KB each, and a twentieth of it in their frames.
    assert [m.id for m in bench.told(Failure)] == list(range(8, 21))


def test_a_larger_copy_of_a_waiting_request_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "MAX_WAITING_BYTES", 100 * KB)
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    bench.ask(session, produce(1), 30 * KB)
    for number in (2, 3, 4):
        bench.ask(session, produce(number), 1)
    for number in (2, 3, 4):
        bench.ask(session, produce(number), 45 * KB)
    assert [m.id for m in bench.told(Failure)] == [4]
    assert float(bench.throttle.figures()["throttled_bytes"]) < 100 * KB


def test_what_waits_holds_some_seconds_of_the_rate() -> None:
    bench = Bench(Quota(produce_bytes_per_s=2_000 * KB))
    first, second = bench.connect("a"), bench.connect("b")
    for number in range(1, 61):
        bench.ask(first, produce(number), 1_000 * KB)
    assert 15_000 * KB < float(bench.throttle.figures()["throttled_bytes"]) <= 16_000 * KB
    (failure, *_) = bench.told(Failure)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.retryable) == ("BUSY", True)
    for number in range(1, 11):
        bench.ask(second, produce(number), 1_000 * KB)
    assert float(bench.throttle.figures()["throttled_bytes"]) <= 17_000 * KB
    bench.run(30.0)
    late = [at for at, client, *_ in bench.served if client == "b"]
    assert len(late) == 1, "every peer has room for one"
    assert late[0] < 105.0, "and takes turns"


def test_small_rates_have_room_for_some_batches_and_what_gets_no_answer_for_more() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    session = bench.connect("a")
    for number in range(1, 200):
        bench.ask(session, produce(number), 100 * KB)
    assert 8_000 * KB < float(bench.throttle.figures()["throttled_bytes"]) <= 8 << 20
    refused = len(bench.told(Failure))
    for _ in range(200):
        bench.ask(session, Produce(0, 0, "t", 0, "none"), 100 * KB)
    assert len(bench.told(Failure)) == refused
    assert float(bench.throttle.figures()["throttled_bytes"]) > 20_000 * KB


def test_all_users_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "MAX_ALL_WAITING_BYTES", 100 * KB)
    rate = Quota(produce_bytes_per_s=10 * KB)
    bench = Bench(rate, UserView("bob", [], quota=rate))
    ann, bob = bench.connect("a"), bench.connect("b", "bob")
    for number in range(1, 4):
        bench.ask(ann, produce(number), 40 * KB)
        bench.ask(bob, produce(number), 40 * KB)
    bench.run(60.0)
    assert sorted(client for _, client, _, _ in bench.served) == ["a", "a", "b", "b"]
    assert len(bench.told(Failure)) == 2


def test_a_request_that_cannot_be_put_off_is_refused_in_time() -> None:
    bench = Bench(Quota(requests_per_s=1))
    session = bench.connect("a")
    for number in range(1, 21):
        bench.ask(session, offsets(number, timeout_ms=5_000))
    begin = bench.now
    bench.run(4.9)
    assert bench.now < begin + 5
    assert len(bench.served) + len(bench.told(Failure)) == 20
    assert len(bench.served) >= 5


def test_a_consumer_stays_attached_while_its_request_waits() -> None:
    bench = Bench(Quota(fetch_bytes_per_s=10 * KB))
    bench.answer_bytes = 100 * KB
    session = bench.connect("a")
    bench.ask(session, receive(1))
    bench.ask(session, receive(2))
    session.heard = 105.0
    bench.run(9.0)
    times = [at for _, at in bench.kept]
    assert all(later - at < 0.5 for at, later in pairwise(times))
    # A connection that is silent for longer is dead, whatever waits.
    assert times[0] < 100.5
    assert 107.5 < times[-1] < 108.0
    bench.run(10.0)
    assert [m.id for _, _, m, _ in bench.served] == [1, 2]


def test_nothing_is_served_of_a_connection_that_is_gone_or_of_another_key() -> None:
    bench = Bench(Quota(produce_bytes_per_s=10 * KB))
    gone, other = bench.connect("gone"), bench.connect("other")
    bench.ask(gone, produce(1), 20 * KB)
    for session in (gone, other):
        bench.ask(session, produce(2), 20 * KB)
    del bench.sessions[gone.address]
    bench.connect("other", "bob")
    bench.run(30.0)
    assert [m.id for _, _, m, _ in bench.served] == [1]
    assert bench.throttle.deadline() == float("inf")


def test_a_quota_that_is_raised_or_ends_counts_at_once() -> None:
    bench = Bench(Quota(produce_bytes_per_s=1))
    session = bench.connect("a")
    bench.ask(session, produce(1), 100 * KB)
    bench.ask(session, produce(2), 100 * KB)
    bench.run(10.0)
    assert len(bench.served) == 1
    bench.grant(Quota(produce_bytes_per_s=200 * KB))
    bench.run(1.0)
    assert len(bench.served) == 2
    bench.ask(session, produce(3), 4_000 * KB)
    bench.ask(session, produce(4), 4_000 * KB)
    bench.grant(Quota())
    bench.run(0.5)
    assert len(bench.served) == 4


def test_nothing_overtakes_what_waits_as_a_quota_ends() -> None:
    bench = Bench(Quota(produce_bytes_per_s=1_000))
    session = bench.connect("a")
    for number in (1, 2, 3):
        bench.ask(session, produce(number), 5_000)
    bench.run(0.1)
    bench.grant(Quota())
    bench.ask(session, produce(4), 5_000)
    bench.run(1.0)
    assert [message.id for _, _, message, _ in bench.served] == [1, 2, 3, 4]


def test_a_pull_does_not_read_more_than_a_second_of_its_rate() -> None:
    bench = Bench(Quota(fetch_bytes_per_s=10 * KB))
    message = pull(1)
    bench.ask(bench.connect("a"), message)
    assert message.max_bytes == 10 * KB
