"""Moves are throttled at both ends, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.replication.move_budget import BURST_S, PIECE_BYTES
from logboom.wire.batch import stamp
from logboom.wire.messages import FollowerPosition, QueueAnswer, Replicate, Replicated
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.unit.nodes.rig import ME, Peer, Rig, batch, entry, fetch, produce

TWO = "broker-2"
KIB = 1024
RATE = 64 * KIB
IN_SYNC, MOVING, RETURNING = 0, 1, 2


def led() -> list[QueueView]:
    """Queues that this broker leads: broker-2 is in sync, is being added, or returns."""
    both = [ME, TWO]
    return [
        QueueView(both, ME, 1, 1, both, []),
        QueueView(both, ME, 1, 1, [ME], [], [TWO]),
        QueueView(both, ME, 1, 1, [ME], []),
    ]


def publish(rig: Rig, queues: Sequence[QueueView]) -> None:
    """Let the broker learn of the topic."""
    rig.publish(TopicView("flights", 1, TopicConfig(retention_ms=-1, min_in_sync=1), [*queues], 1))


class Follower:
    """Broker-2, which fetches for ever and counts what it gets."""

    def __init__(self, rig: Rig, moving_bytes: int = -1) -> None:
        self.rig = rig
        self.peer: Peer = rig.follower()
        self.moving_bytes = moving_bytes
        self.ends = [0, 0, 0]
        self.got = [0, 0, 0]
        """Bytes of each queue."""
        self.turns = 0
        self._moved: list[int] = [0, 1, 2]
        self._number = 0
        self.ask()

    def ask(self) -> None:
        """Send the next request."""
        request = fetch(self._number)
        request.queues = [
            FollowerPosition(1, q, 1, self.ends[q], 0, 1 if self.ends[q] else -1)
            for q in self._moved
        ]
        request.moving_bytes = self.moving_bytes
        self._number += 1
        self._moved = []
        self.peer.ask(request)

    def take(self) -> bool:
        """Take an answer, if there is one, and ask again."""
        replies = self.peer.taken()
        for reply in replies:
            assert isinstance(reply.message, Replicated)
            frames = iter(reply.batches)
            for answer in reply.message.answers:
                self.got[answer.queue] += sum(len(next(frames)) for _ in range(answer.frames))
                self.ends[answer.queue] += answer.frames
                self._moved += [answer.queue] * (answer.frames > 0)
            self.ask()
        return bool(replies)

    def run(self, seconds: float) -> None:
        """Let time pass, turn by turn."""
        until = self.rig.mono + seconds
        while True:
            while self.take():
                pass
            wanted = self.rig.broker.deadline()
            assert wanted is not None
            if wanted > until:
                break
            self.rig.mono = max(self.rig.mono, wanted)
            self.rig.turn()
            self.turns += 1
        self.rig.mono = until


def filled(
    rate: int = RATE, count: int = 100, size: int = 10_000, moving_bytes: int = -1
) -> Follower:
    """A leader with entries in the queue that moves, and a follower that has begun to fetch."""
    rig = Rig(scrub_bytes_per_s=0)
    publish(rig, led())
    rig.set(move_bytes_per_s=rate)
    client = rig.client()
    for _ in range(count):
        client.ask(produce("leader", MOVING), [batch(1, value=b"x" * size)])
    return Follower(rig, moving_bytes)


@pytest.mark.parametrize(("rate", "seconds"), [(RATE, 8.0), (64 * RATE, 1.0)])
def test_what_moves_keeps_to_the_rate_and_uses_all_of_it(rate: int, seconds: float) -> None:
    two = filled(rate, count=int(rate * seconds / 10_000) + 60)
    two.run(seconds)
    assert rate * seconds * 0.9 < two.got[MOVING] <= rate * (seconds + BURST_S) + 10_200
    counters = two.rig.broker.stats.counters
    assert counters["move_bytes_out"] == two.got[MOVING]
    assert 0.8 <= counters["move_throttled_ms"] / 1000 / seconds <= 1.0


@pytest.mark.parametrize("rate", [1, 1_000, RATE, 40 * 1024 * KIB])
def test_nothing_spins_while_a_move_waits(rate: int) -> None:
    two = filled(rate)
    two.run(10.0)
    idle = filled(rate, count=0)
    idle.run(10.0)
    assert two.turns <= idle.turns + 10.0 / 0.05 * 3


def test_another_rate_counts_at_once() -> None:
    two = filled(rate=1)
    two.run(5.0)
    assert two.got[MOVING] <= 10_200
    two.rig.set(move_bytes_per_s=10_000_000)
    two.run(0.5)
    assert two.got[MOVING] > 900_000
    assert two.rig.broker.parts.replicate_handler.figures(0.0) == {
        "move_limit_bytes_per_s": 10_000_000
    }


def test_the_follower_says_how_much_it_takes() -> None:
    two = filled(rate=1 << 30, moving_bytes=0)
    two.run(3.0)
    assert two.got[MOVING] == 0
    two.moving_bytes = 1
    two.run(0.6)
    assert two.got[MOVING] > 900_000, "at least one entry in each answer, if any"
    answers = two.rig.broker.stats.counters["replicate_answers"]
    assert answers > 100


@pytest.mark.parametrize("queue", [IN_SYNC, RETURNING])
def test_a_follower_in_sync_or_returning_is_served_in_the_same_turn_while_a_move_waits(
    queue: int,
) -> None:
    """In the same turn as without a move, and with all that it had there."""
    for rate, count in ((1, 100), (1, 0), (1 << 30, 0)):
        two = filled(rate, count)
        two.run(3.0)
        rig = two.rig
        rig.auto_sync = False
        before = two.got[queue]
        for _ in range(3):
            rig.client().ask(produce("leader", queue), [batch(1, value=b"y" * 300_000)])
            (reply,) = two.peer.replies
            assert isinstance(reply.message, Replicated)
            assert [a.queue for a in reply.message.answers if a.frames] == [queue]
            two.take()
        assert two.got[queue] - before > 900_000


def test_the_room_of_an_answer_is_not_shared_with_what_moves() -> None:
    two = filled(rate=1 << 30, count=200)
    rig = two.rig
    for number in range(4):
        rig.client().ask(produce("leader", IN_SYNC), [batch(1, value=b"%d" % number * 400_000)])
    rig.settle(1.0)
    request = fetch(0, *[(Position(0), -1)] * 3, session=8)
    request.max_bytes = 500_000
    two.peer.ask(request)
    (reply,) = two.peer.taken()
    assert isinstance(reply.message, Replicated)
    frames = {answer.queue: answer.frames for answer in reply.message.answers}
    assert frames[IN_SYNC] == 1
    moved = sum(len(frame) for frame in reply.batches if len(frame) < 20_000)
    assert 0 < moved <= PIECE_BYTES


def test_an_entry_larger_than_an_answer_is_sent_all_the_same_beside_a_move() -> None:
    two = filled(rate=1 << 30)
    rig = two.rig
    rig.client().ask(produce("leader", IN_SYNC), [batch(1, value=b"y" * 400_000)])
    rig.settle(1.0)
    # The moving queue is the first of the news.
    request = fetch(0, session=8)
    request.queues = [FollowerPosition(1, q, 1, 0, 0, -1) for q in (MOVING, IN_SYNC)]
    request.max_bytes = 1_000
    two.peer.ask(request)
    (reply,) = two.peer.taken()
    assert isinstance(reply.message, Replicated)
    assert {a.queue: a.frames > 0 for a in reply.message.answers} == {MOVING: True, IN_SYNC: True}


def test_once_the_hw_counts_a_replica_it_is_not_throttled_any_more() -> None:
    two = filled(rate=1, count=1, size=100)
    two.run(200.0)
    assert two.ends[MOVING] == 1
    rig = two.rig
    # It has caught up, so its leader has asked to add it to the ISR: the HW waits for it.
    leading = rig.replica(MOVING).leading
    assert leading is not None
    assert leading.pending is not None
    assert not leading.is_moving(TWO)
    for _ in range(3):
        rig.client().ask(produce("leader", MOVING), [batch(1, value=b"y" * 100_000)])
        two.take()
    assert two.got[MOVING] > 300_000


# ── the follower ────────────────────────────────────────────────────────────────────────────────


def fetching(rate: int = RATE) -> Rig:
    """A broker that is being added to queue 0 by broker-2 and to queue 1 by broker-3, and that is
    in sync in queue 2, which broker-2 leads."""
    rig = Rig(scrub_bytes_per_s=0)
    views = [
        QueueView([source, ME], source, 2, 1, [source], [], [ME]) for source in (TWO, "broker-3")
    ]
    rig.publish()
    rig.set(move_bytes_per_s=rate)
    publish(rig, [*views, QueueView([TWO, ME], TWO, 2, 1, [TWO, ME], [])])
    return rig


class Source:
    """A leader with entries of 10,000 bytes, which keeps to what the follower takes."""

    def __init__(self, rig: Rig, endpoint: str, queue: int) -> None:
        self.rig, self.endpoint, self.queue = rig, endpoint, queue
        self.sent = 0
        self.asked = 0
        self._end = 0
        self._held: tuple[Replicate, float] | None = None

    def step(self) -> bool:
        """Answer as a leader does: at once with what may move, else when the wait is over."""
        station = self.rig.stations[self.endpoint]
        while station.count(Replicate):
            message = station.take(Replicate)
            self.asked += 1
            self._held = (message, self.rig.mono + message.wait_ms / 1000)
        if self._held is None:
            return False
        message, until = self._held
        assert message.moving_bytes >= 0
        frames: list[bytes] = []
        room = message.moving_bytes
        while room > 0:
            frames.append(_large(self._end + len(frames)))
            room -= len(frames[-1])
        if not frames and self.rig.mono < until:
            return False
        self._held = None
        self.sent += sum(map(len, frames))
        self._end += len(frames)
        answers = [self._answer(len(frames))] if frames else []
        self.rig.reply(message, Replicated(0, answers), frames, self.endpoint)
        return True

    def due(self) -> float:
        """When a held request wants its answer."""
        return float("inf") if self._held is None else self._held[1]

    def _answer(self, frames: int) -> QueueAnswer:
        return QueueAnswer(1, self.queue, 2, "OK", 0, 0, 0, frames)


def _large(offset: int) -> bytes:
    return stamp(batch(1, value=b"z" * 10_000), offset, 2, 1_800_000_000_000)


def run(rig: Rig, sources: Sequence[Source], seconds: float) -> int:
    """Let time pass; the number of turns."""
    until, turns = rig.mono + seconds, 0
    while True:
        while sum(source.step() for source in sources):
            pass
        wanted = min(rig.broker.deadline() or 0.0, *(source.due() for source in sources))
        if wanted > until:
            rig.mono = until
            return turns
        rig.mono = max(rig.mono, wanted)
        rig.turn()
        turns += 1


@pytest.mark.parametrize(("rate", "seconds"), [(RATE, 10.0), (64 * RATE, 2.0)])
def test_two_sources_share_what_the_receiver_takes(rate: int, seconds: float) -> None:
    rig = fetching(rate)
    sources = [Source(rig, "b2:7711", 0), Source(rig, "b3:7711", 1)]
    turns = run(rig, sources, seconds)
    sent = sum(source.sent for source in sources)
    assert rate * seconds * 0.8 < sent <= rate * (seconds + BURST_S) + 2 * 10_200
    assert min(source.sent for source in sources) > sent / 4
    counters = rig.broker.stats.counters
    assert counters["move_bytes_in"] == sent
    assert counters["move_throttled_ms"] > 500 * seconds
    assert turns < seconds / 0.05 * 20, "nothing spins"


def test_the_receivers_rate_counts_at_once_and_for_this_broker_alone() -> None:
    rig = fetching(rate=1)
    sources = [Source(rig, "b2:7711", 0), Source(rig, "b3:7711", 1)]
    run(rig, sources, 5.0)
    before = sum(source.sent for source in sources)
    assert before <= 2 * 10_200
    rig.set(ME, move_bytes_per_s=10_000_000)
    run(rig, sources, 1.0)
    assert sum(source.sent for source in sources) - before > 3_000_000


def test_a_queue_in_sync_from_the_same_leader_is_asked_for_all_the_time() -> None:
    """What the receiver takes of moves never delays a request: the leader may always answer."""
    rig = fetching(rate=1)
    source = Source(rig, "b2:7711", 0)
    run(rig, [source], 2.0)
    station = rig.stations["b2:7711"]
    for at in range(20):
        rig.settle(0.1)
        source.step()
        held = vars(source)["_held"]
        assert held is not None, "a request of its is always at the leader"
        message, _ = held
        answer = QueueAnswer(1, 2, 2, "OK", at, 0, 0, 1)
        rig.reply(message, Replicated(0, [answer]), [entry(at, 2)], "b2:7711")
        source.step()
        assert rig.replica(2).end == Position(at + 1)
    assert station.count(Replicate) == 0


def test_a_leader_whose_queues_are_all_in_sync_is_told_no_limit() -> None:
    rig = fetching()
    message = rig.stations["b2:7711"].take(Replicate)
    assert message.moving_bytes >= 0
    both = [TWO, ME]
    queue = QueueView(both, TWO, 2, 2, both, [], [ME])
    other = QueueView(["broker-3", ME], "broker-3", 2, 2, ["broker-3"], [], [ME])
    publish(rig, [queue, other, QueueView(both, TWO, 2, 1, both, [])])
    rig.reply(message, Replicated(0, []), [], "b2:7711")
    assert rig.stations["b2:7711"].take(Replicate).moving_bytes == -1
    figures = rig.broker.parts.fetchers.figures(rig.mono)
    assert figures["moving_queues"] == 1


def test_what_a_replaced_request_might_have_brought_is_given_back() -> None:
    rig = fetching(rate=1_000_000)
    station = rig.stations["b2:7711"]
    assert station.take(Replicate).moving_bytes == PIECE_BYTES
    views = list(rig.broker.routes.topics["flights"].queues)
    for count in range(8):
        views.append(QueueView([TWO, ME], TWO, 2, 2 + count, [TWO, ME], []))
        publish(rig, views)
        # Broker-3 has been allowed as much.
        assert station.take(Replicate).moving_bytes >= PIECE_BYTES * 3 // 4
