"""Reading ahead: everything once and in order, whatever moves, fails or is sought."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.client.calls import FindTopic, MessageTime, Start
from logboom.client.fetch.fetch_buffer import CloseFetch, FetchBuffer, OpenFetch, QueueFetch
from logboom.client.fetch.fetch_collector import FetchCollector
from logboom.client.fetch.message_filter import text_of
from logboom.wire.batch import encode_batch, validate_batch
from logboom.wire.errors import DamagedBatch, UnknownResource
from logboom.wire.filters import Filter
from logboom.wire.messages import (
    AnyMessage,
    Failure,
    OffsetForTime,
    Offsets,
    Pull,
    Pulled,
    Throttled,
    Watch,
)
from tests.thorough import examples
from tests.unit.client.scripted import BROKERS, WALL_MS, Cluster


def fill(cluster: Cluster, queue: int, first: int, count: int, batch: int = 3, **more: Any) -> None:
    """Store values first, first + 1, … in batches."""
    for start in range(first, first + count, batch):
        stop = min(start + batch, first + count)
        values = [b"%06d" % n for n in range(start, stop)]
        entry = encode_batch(values, now_ms=WALL_MS, **more)
        cluster.log("t", queue).append(entry, validate_batch(entry, stamped=False))


class Reader:
    """An intake of topic "t" on a scripted cluster."""

    def __init__(
        self,
        cluster: Cluster,
        queues: int = 1,
        start: Start = "first",
        tags: list[str] | None = None,
        share: int = 1 << 20,
        where: str | None = None,
        prefetch: int | None = None,
        group: str = "",
    ) -> None:
        self.cluster = cluster
        found = FindTopic("t", 5.0)
        cluster.call(found)
        assert cluster.run(5, lambda: found.outcome.done)
        found.outcome.get()
        self.bells = 0
        self.inbox = FetchBuffer(prefetch or 1 << 25, self._ring, bounded=prefetch is not None)
        self.intake = FetchCollector(self.inbox, cluster.call, Filter.of(tags, where))
        for queue in range(queues):
            fetch = QueueFetch("t", queue, start, self.inbox, share, tags)
            fetch.filter = text_of(Filter.of(tags, where))
            fetch.group = group
            self.intake.add(fetch)
            cluster.call(OpenFetch(fetch))

    def _ring(self) -> None:
        self.bells += 1

    def read(self, count: int, seconds: float = 30.0) -> list[bytes | None]:
        """The next `count` values."""
        values: list[bytes | None] = []

        def enough() -> bool:
            values.extend(message.value for message in self.intake.take(count - len(values)))
            return len(values) == count

        self.cluster.run(seconds, enough)
        return values


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%06d" % n for n in range(first, first + count)]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t", 2)
    return made


def test_everything_comes_in_order_and_then_what_is_new(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 10)
    reader = Reader(cluster)
    assert reader.read(10) == numbers(0, 10)
    assert reader.intake.position("t", 0) == 10
    cluster.run(25)  # two held pulls end without news
    fill(cluster, 0, 10, 5)
    assert reader.read(5, 11) == numbers(10, 5)


def test_the_middle_of_a_batch_is_a_position(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster, start=4)
    assert reader.read(5) == numbers(4, 5)


def test_last_begins_at_the_high_watermark(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster, start="last")
    cluster.run(1)
    assert reader.read(1, 0.1) == []
    fill(cluster, 0, 9, 3)
    assert reader.read(3, 11) == numbers(9, 3)


def test_a_pull_that_the_leader_delays_is_not_sent_again(cluster: Cluster) -> None:
    late: list[Pull] = []

    def delay(_: str, message: AnyMessage) -> bool | None:
        if isinstance(message, Pull):
            late.append(message)
            return True
        return None

    cluster.intercept = delay
    reader = Reader(cluster)
    for _ in range(30):
        cluster.run(1.0)
        assert len(late) == 1
        cluster.tell(BROKERS[0], Throttled(0, 1_000, [late[0].id]))
    cluster.tell(BROKERS[0], Pulled(late[0].id, "NO_NEW_MESSAGE", 0, 0, 0, throttled_ms=30_000))
    cluster.run(0.1)
    assert len(late) == 2
    assert reader.inbox.throttled_ms == 30_000


def test_the_bell_rings_only_when_wanted(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster)
    cluster.run(1)
    assert reader.bells == 0
    assert reader.read(9) == numbers(0, 9)
    reader.inbox.wanted = True
    fill(cluster, 0, 9, 9)
    cluster.run(12)
    assert reader.bells == 1


def test_prefetch_stops_at_the_share_and_goes_on(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 3_000)
    reader = Reader(cluster, share=5_000)
    cluster.run(5)
    (fetch,) = reader.intake.fetches
    assert 5_000 <= fetch.fetched < 6_000
    assert reader.read(3_000) == numbers(0, 3_000)


LARGE = 4_000
"""Bytes of a large value, of which there is one in a batch."""


def fill_large(cluster: Cluster, queues: int, count: int) -> None:
    """Store large values in each queue."""
    for queue in range(queues):
        for number in range(count):
            value = b"%d/%d " % (queue, number)
            entry = encode_batch([value.ljust(LARGE, b".")], now_ms=WALL_MS)
            cluster.log("t", queue).append(entry, validate_batch(entry, stamped=False))


class Wide:
    """A cluster with many queues of large messages, and a reader of all with a small bound."""

    QUEUES, COUNT, PREFETCH = 40, 4, 10_000

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.add_topic("t", self.QUEUES)
        fill_large(self.cluster, self.QUEUES, self.COUNT)
        self.pulls = 0
        self.cluster.intercept = self._count
        self.reader = Reader(self.cluster, queues=self.QUEUES, prefetch=self.PREFETCH)

    def _count(self, _: str, message: AnyMessage) -> None:
        self.pulls += isinstance(message, Pull)

    def waiting(self) -> int:
        """Bytes that wait."""
        fetches = self.reader.intake.fetches
        assert self.reader.inbox.fetched - self.reader.inbox.consumed == sum(
            fetch.fetched - fetch.consumed for fetch in fetches
        )
        return sum(arrival.size for arrival in self.reader.inbox.arrivals)

    def read(self, count: int) -> set[bytes | None]:
        """The next values, taken one by one; the bound holds all the time."""
        found: set[bytes | None] = set()
        for _ in range(count):
            (value,) = self.reader.read(1)
            found.add(value)
            # All of an answer is taken: here a queue's four messages.
            assert self.waiting() < self.PREFETCH + 2 * self.COUNT * (LARGE + 1_000)
        return found


def test_the_bound_holds_for_all_queues_together_and_all_come_in_turn() -> None:
    wide = Wide()
    wide.cluster.run(60)
    assert 0 < wide.waiting() < Wide.PREFETCH + 2 * Wide.COUNT * (LARGE + 1_000)
    total = Wide.QUEUES * Wide.COUNT
    assert len(wide.read(total)) == total
    # At first all are asked at once; then those that have something, one after the other.
    assert wide.pulls < 6 * Wide.QUEUES
    for queue in range(Wide.QUEUES):
        entry = encode_batch([b"new %d" % queue], now_ms=WALL_MS)
        wide.cluster.log("t", queue).append(entry, validate_batch(entry, stamped=False))
    assert len({*wide.reader.read(Wide.QUEUES)}) == Wide.QUEUES


def test_paused_queues_hold_nobody_up_whatever_waits_for_them() -> None:
    wide = Wide()
    wide.cluster.run(60)
    held = {arrival.fetch.queue for arrival in wide.reader.inbox.arrivals}
    for queue in held:
        wide.reader.intake.pause("t", queue)
    others = (Wide.QUEUES - len(held)) * Wide.COUNT
    assert len({*wide.reader.read(others, 300.0)}) == others
    wide.cluster.run(1)
    before = wide.pulls
    wide.cluster.run(60)
    # Only the leaders' holds end: nobody is asked over and over.
    assert wide.pulls - before < 8 * Wide.QUEUES
    for queue in held:
        wide.reader.intake.resume("t", queue)
    left = len(held) * Wide.COUNT
    assert len({*wide.reader.read(left, 300.0)}) == left


def test_what_a_seek_drops_and_a_close_leaves_makes_room() -> None:
    wide = Wide()
    wide.cluster.run(60)
    held = {arrival.fetch.queue for arrival in wide.reader.inbox.arrivals}
    for queue in held:
        wide.reader.intake.seek("t", queue, Wide.COUNT)
    others = (Wide.QUEUES - len(held)) * Wide.COUNT
    assert len({*wide.reader.read(others, 300.0)}) == others
    assert wide.waiting() == 0
    again = Wide()
    again.cluster.run(60)
    gone = {arrival.fetch.queue for arrival in again.reader.inbox.arrivals}
    for queue in gone:
        again.cluster.call(CloseFetch(again.reader.intake.fetch("t", queue)))
    waiting = sum(len(each.columns or ()) for each in again.reader.inbox.arrivals)
    others = (Wide.QUEUES - len(gone)) * Wide.COUNT
    assert len({*again.reader.read(waiting + others, 300.0)}) == waiting + others
    assert again.waiting() == 0


def test_seek_voids_what_was_fetched(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 30)
    reader = Reader(cluster)
    assert reader.read(5) == numbers(0, 5)
    cluster.run(1)
    reader.intake.seek("t", 0, 20)
    assert reader.intake.position("t", 0) == 20
    assert reader.read(4) == numbers(20, 4)
    reader.intake.seek("t", 0, "first")
    assert reader.read(30) == numbers(0, 30)


def test_a_paused_queue_gives_nothing_and_loses_nothing(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 10)
    fill(cluster, 1, 100, 10)
    reader = Reader(cluster, queues=2)
    cluster.run(1)
    first = reader.read(1)[0]
    paused = 0 if first == b"000000" else 1
    rest = {0: numbers(0, 10), 1: numbers(100, 10)}
    rest[paused].pop(0)
    reader.intake.pause("t", paused)
    assert reader.intake.position("t", paused) == 1
    assert reader.read(100, 1) == rest[1 - paused]
    reader.intake.resume("t", paused)
    assert reader.read(9) == rest[paused]


def test_columns_and_messages_share_one_position(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster)
    assert reader.read(2) == numbers(0, 2)
    cluster.run(1)
    batches = reader.intake.take_columns()
    assert [v for b in batches for v in b.columns.values()] == numbers(2, 7)
    assert reader.intake.position("t", 0) == 9


def test_tags_leave_out_the_others(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 3, tags="late")
    fill(cluster, 0, 3, 3, tags="early")
    fill(cluster, 0, 6, 3, tags=["late", "early", None])
    reader = Reader(cluster, tags=["late"])
    assert reader.read(4) == numbers(0, 3) + numbers(6, 1)


@pytest.mark.parametrize("judged", [None, 0, 1, 2])
def test_a_property_filter_is_the_brokers_as_far_as_it_looked(
    cluster: Cluster, judged: int | None
) -> None:
    """`judged`: of how many batches the broker says which messages match."""
    odd = [{"n": b"1"}, {"n": b"2"}, {"n": b"3"}]
    fill(cluster, 0, 0, 3, headers=odd)
    fill(cluster, 0, 3, 3, headers=odd)
    said: list[bytes] = [b"\4", b""]
    cluster.matches = None if judged is None else said[:judged]
    reader = Reader(cluster, where="n >= 2")
    first = [b"000002"] if judged else numbers(1, 2)
    second = numbers(3, 3) if judged == 2 else numbers(4, 2)
    assert reader.read(5, 5) == first + second
    filters = {message.filter for message in cluster.seen if isinstance(message, Pull)}
    assert filters == {"* WHERE n >= 2"}
    assert reader.intake.position("t", 0) == 6


def test_a_position_moves_past_what_does_not_match(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 6, headers=[{"n": b"1"}] * 3)
    cluster.passed_over = True
    reader = Reader(cluster, where="n > 1")
    cluster.run(2)
    fill(cluster, 0, 6, 6, headers=[{"n": b"1"}] * 3)
    cluster.run(12)
    assert len(reader.inbox.arrivals) == 1, "what is passed over one after the other is one arrival"
    assert reader.intake.position("t", 0) == 0
    assert reader.read(1, 0.1) == []
    assert reader.intake.position("t", 0) == 12
    cluster.passed_over = False
    fill(cluster, 0, 12, 3, headers=[{"n": b"2"}] * 3)
    assert reader.read(1, 12) == numbers(12, 1)
    reader.intake.pause("t", 0)
    cluster.passed_over = True
    fill(cluster, 0, 15, 3)
    cluster.run(12)
    assert reader.read(1, 0.1) == []
    assert reader.intake.position("t", 0) == 13
    reader.intake.resume("t", 0)
    assert reader.read(2) == numbers(13, 2)
    assert reader.read(1, 12) == []
    assert reader.intake.position("t", 0) == 18


@pytest.mark.parametrize("passed_over", [False, True])
def test_a_slow_reader_goes_where_it_is_sent_as_long_as_it_is_slow(
    cluster: Cluster, passed_over: bool
) -> None:
    fill(cluster, 0, 0, 18, headers=[{"n": b"1"}] * 3)
    asked: list[str] = []

    def note(endpoint: str, message: AnyMessage) -> None:
        if isinstance(message, Pull):
            asked.append(endpoint)

    cluster.intercept = note
    cluster.passed_over, cluster.suggested = passed_over, "two"
    Reader(cluster, where="n > 1")
    cluster.run(2)
    leader, *others = asked
    assert leader == BROKERS[0]
    assert others
    assert set(others) == {BROKERS[1]}


def test_a_reader_leaves_a_follower_once_it_is_fenced(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    cluster.suggested = "two"
    reader = Reader(cluster)
    assert reader.read(9) == numbers(0, 9)
    cluster.run(1)  # the next pull is held at the follower
    cluster.dead.add(BROKERS[1])
    cluster.run(2)
    fill(cluster, 0, 9, 3)
    cluster.wake_pulls()
    cluster.version += 1  # the name servers fence it
    assert reader.read(3, 1.5) == numbers(9, 3)


def test_a_paused_batch_keeps_what_the_broker_said(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 3, headers=[{"n": b"1"}] * 3)
    cluster.matches = [b"\6"]
    reader = Reader(cluster, where="n = 1")
    assert reader.read(1) == numbers(1, 1)
    reader.intake.pause("t", 0)
    assert reader.read(1, 1) == []
    reader.intake.resume("t", 0)
    assert reader.read(1) == numbers(2, 1)


def test_columns_of_a_filter_are_whole_batches_with_a_match(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9, headers=[{"n": b"1"}] * 3)
    cluster.matches = [b"\0", b"\2", b""]
    reader = Reader(cluster, where="n = 1")
    cluster.run(2)
    batches = reader.intake.take_columns()
    assert [v for b in batches for v in b.columns.values()] == numbers(3, 6)


def test_an_offset_below_the_log_goes_on_at_its_start(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 0, 0, 9)
    log = cluster.log("t")
    log.start = 3
    del log.entries[0]
    reader = Reader(cluster, start=1)
    assert reader.read(6) == numbers(3, 6)
    assert reader.intake.fetches[0].corrections == 1
    assert "offset 1 does not exist" in caplog.text


def test_first_needs_no_warning(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    fill(cluster, 0, 0, 9)
    cluster.log("t").start = 3
    del cluster.log("t").entries[0]
    reader = Reader(cluster)
    assert reader.read(6) == numbers(3, 6)
    assert caplog.text == ""


def test_a_new_leader_that_lags_takes_nobody_back(cluster: Cluster) -> None:
    """SAFETY Q8: read to 9; the new leader knows 6; nothing is read twice."""
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster)
    assert reader.read(9) == numbers(0, 9)
    log = cluster.log("t")
    held, log.entries, log.end = log.entries, log.entries[:2], 6
    cluster.move("t", 0, BROKERS[1])
    assert reader.read(1, 5) == []
    log.entries, log.end = held, 9
    fill(cluster, 0, 9, 3)
    assert reader.read(3) == numbers(9, 3)


def test_a_seek_beyond_the_end_comes_back_to_it(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster, start=50)
    cluster.run(1)
    fill(cluster, 0, 9, 3)
    assert reader.read(3) == numbers(9, 3)


def test_a_damaged_batch_is_fetched_again_and_at_last_told(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 6)
    good = cluster.log("t").entries[1]
    cluster.log("t").entries[1] = good[:-1] + bytes([good[-1] ^ 1])
    reader = Reader(cluster)
    assert reader.read(3) == numbers(0, 3)
    with pytest.raises(DamagedBatch):
        reader.read(1, 5)
    cluster.log("t").entries[1] = good
    assert reader.read(3) == numbers(3, 3)


def test_a_queue_that_its_group_gives_before_the_client_knows_of_it_is_waited_for(
    cluster: Cluster,
) -> None:
    reader = Reader(cluster, queues=3, group="g")
    cluster.run(1)
    cluster.grow("t")
    fill(cluster, 2, 0, 3)
    assert reader.read(3) == numbers(0, 3)
    alone = Reader(cluster, queues=4)
    with pytest.raises(UnknownResource, match="queues 0 to 2"):
        alone.read(1, 5)


def test_a_deleted_topic_is_told(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 3)
    reader = Reader(cluster)
    assert reader.read(3) == numbers(0, 3)
    cluster.drop_topic("t")
    with pytest.raises(UnknownResource):
        reader.read(1, 5)


def test_a_topic_made_anew_is_read_from_its_beginning(cluster: Cluster) -> None:
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster)
    assert reader.read(9) == numbers(0, 9)
    cluster.drop_topic("t")
    cluster.add_topic("t")
    fill(cluster, 0, 50, 3)
    assert reader.read(3) == numbers(50, 3)
    assert reader.intake.fetches[0].corrections == 1


@pytest.mark.parametrize("start", ["first", "last", MessageTime(1)])
def test_a_reader_says_which_topic_of_the_name_it_means(cluster: Cluster, start: Start) -> None:
    """Else a broker that hears late of the new one answers from the old one."""
    asked: list[int] = []

    def listen(_: str, message: AnyMessage) -> Failure | None:
        if isinstance(message, Pull | Offsets | OffsetForTime):
            asked.append(message.topic_id)
        if isinstance(message, OffsetForTime):
            return Failure(0, "NOT_LEADER", "hears late", retryable=True)
        return None

    cluster.intercept = listen
    first = cluster.topic_ids["t"]
    Reader(cluster, start=start)
    cluster.run(1)
    assert set(asked) == {first}
    asked.clear()
    cluster.drop_topic("t")
    cluster.add_topic("t")
    cluster.run(1)
    assert asked[-1] == cluster.topic_ids["t"]
    assert first != cluster.topic_ids["t"]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_everything_is_read_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(seed)
    cluster.add_topic("t", 2)
    for queue in range(2):
        fill(cluster, queue, 0, 60, batch=rng.randint(1, 7))
    cluster.delay = lambda: rng.choice((0.0005, 0.02, 0.3))
    until = cluster.now + 20

    def strike(_: str, message: AnyMessage) -> Failure | bool | None:
        if cluster.now > until or isinstance(message, Watch):
            return None
        roll = rng.random()
        if roll < 0.1:
            cluster.move("t", rng.randrange(2), rng.choice(BROKERS))
        if isinstance(message, Pull):
            if roll < 0.2:
                return rng.random() < 0.5
            if roll < 0.3:
                return Failure(0, "BUSY", "busy", retryable=True)
        return None

    cluster.intercept = strike
    share = rng.choice((1, 2_000, 1 << 20))
    reader = Reader(cluster, queues=2, share=share, prefetch=rng.choice((None, 1, 3_000)))
    seen: dict[int, list[bytes | None]] = {0: [], 1: []}

    def done() -> bool:
        for message in reader.intake.take(rng.randint(1, 9)):
            seen[message.queue].append(message.value)
        return len(seen[0]) + len(seen[1]) >= 120

    assert cluster.run(200, done)
    assert seen == {0: numbers(0, 60), 1: numbers(0, 60)}


def test_q15_a_reader_of_a_queue_that_lost_messages_goes_back_to_its_new_ones() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster)
    assert len(reader.read(9)) == 9
    # More is new than was lost, before the reader hears of it.
    cluster.lose("t", 0, 3)
    fill(cluster, 0, 100, 30)
    assert reader.read(30) == [b"%06d" % n for n in range(100, 130)]
    assert reader.intake.fetches[0].corrections == 1
    fill(cluster, 0, 200, 3)
    assert reader.read(3) == [b"%06d" % n for n in range(200, 203)]
    # Who begins now, or seeks, knows of it.
    late = Reader(cluster, start=12)
    assert late.read(1) == [b"%06d" % 109]
    cluster.move("t", 0, BROKERS[1])
    assert late.read(1) == [b"%06d" % 110]


def test_q15_a_loss_behind_a_reader_moves_nothing() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    fill(cluster, 0, 0, 9)
    reader = Reader(cluster)
    assert len(reader.read(6)) == 6
    cluster.lose("t", 0, 100)
    assert reader.read(3) == [b"%06d" % n for n in range(6, 9)]
    assert reader.intake.fetches[0].corrections == 0
