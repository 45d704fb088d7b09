"""Push consumers: who gets what, in what order, how much, and what becomes of failures."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer
from logboom.client.fetch.retry_copies import restore_original, retry_delay_ms
from logboom.client.groups.assigned_queue import AssignedQueue, TopicFilter
from logboom.client.groups.failed_messages import FailedMessages
from logboom.client.groups.member import (
    CloseMember,
    CommitMember,
    MemberOptions,
    MemberState,
    OpenMember,
)
from logboom.client.groups.offset_tracker import OffsetTracker, trying_of
from logboom.client.push.listener_runner import ListenerRunner, takes_context
from logboom.client.push.listener_task import Context, Dead, Done, Later, ListenerTask
from logboom.client.push.process_queue import PushFetch, cached_by_queue, part_of
from logboom.client.push.push_dispatcher import PushDispatcher
from logboom.client.push_options import PushOptions
from logboom.client.results import Message
from logboom.wire.copy_receipts import ATTEMPT_HEADER, CAUSE, ORIGIN
from logboom.wire.errors import InvalidRequest, LogboomError, Unavailable
from logboom.wire.group_view import GroupConfig
from tests.unit.client.groups.scripted_group import GroupCluster, fill, numbers


class Sink:
    """Takes copies, and says so when asked to."""

    def __init__(self, *, can_delay: bool) -> None:
        self.can_delay = can_delay
        self.copies: list[tuple[str, Message, dict[str, bytes], int]] = []
        self.dones: list[Callable[[LogboomError | None], None]] = []

    def send(
        self,
        topic: str,
        message: Message,
        headers: dict[str, bytes],
        delay_ms: int,
        done: Callable[[LogboomError | None], None],
    ) -> None:
        self.copies.append((topic, message, headers, delay_ms))
        self.dones.append(done)


class Push:
    """A push consumer without threads: `run` calls the listener in steps."""

    def __init__(
        self,
        cluster: GroupCluster,
        listener: Callable[..., object],
        sink: Sink | None = None,
        **options: Any,
    ) -> None:
        self.cluster = cluster
        found = FindTopic("t", 5.0)
        cluster.call(found)
        assert cluster.run(5, lambda: found.outcome.done)
        push = PushOptions(**options)
        push.validate()

        def fetch(
            holding: AssignedQueue,
            start: int,
            inbox: FetchBuffer,
            share: int,
            matching: TopicFilter,
        ) -> PushFetch:
            return PushFetch(holding, start, inbox, share, matching, push)

        given = MemberOptions("g", "m-1", {"t": "*"}, config=cluster.config_of_group)
        self.member = MemberState(
            given, FetchBuffer(1 << 25, lambda: None), contextlib.nullcontext(), fetch
        )
        failures = FailedMessages(self.member, lambda: cluster.now, sink)
        self.dispatcher = PushDispatcher(self.member, push, cluster.call, failures)
        self.runner = ListenerRunner(
            listener, lambda: cluster.now, batch=push.batch > 1, orderly=push.orderly
        )
        opened = OpenMember(self.member, 5.0)
        cluster.call(opened)
        assert cluster.run(6, lambda: opened.outcome.done)

    def take(self) -> ListenerTask | None:
        return self.dispatcher.next(self.cluster.now)

    def run(self, seconds: float) -> None:
        """Let time pass with one worker."""

        def step() -> bool:
            while (work := self.take()) is not None:
                self.runner.run(work)
                self.dispatcher.done(work, self.cluster.now)
            return False

        self.cluster.run(seconds, step)

    def commit(self) -> None:
        call = CommitMember(self.member)
        self.cluster.call(call)
        assert self.cluster.run(40, lambda: call.outcome.done)
        call.outcome.get()

    def close(self, timeout: float) -> CloseMember:
        call = CloseMember(self.member, timeout)
        self.cluster.call(call)
        return call

    def fetch(self, queue: int) -> PushFetch:
        holding = self.member.holding("t", queue)
        assert holding is not None
        assert isinstance(holding.fetch, PushFetch)
        return holding.fetch


@pytest.fixture
def cluster() -> GroupCluster:
    made = GroupCluster()
    fill(made, 0, 0, 30)
    fill(made, 1, 100, 30)
    return made


def test_every_message_is_handled_once_and_committed(cluster: GroupCluster) -> None:
    seen: list[Message] = []
    push = Push(cluster, seen.append)
    cluster.give(0)
    cluster.give(1)
    push.run(2)
    assert sorted(numbers(seen)) == [*range(30), *range(100, 130)]
    push.commit()
    assert {q: c.offset for q, c in cluster.commits.items()} == {0: 30, 1: 30}
    assert push.dispatcher.handled == 60


def test_failures_come_again_later_and_hold_the_commit_point(cluster: GroupCluster) -> None:
    seen: list[tuple[float, int, int]] = []

    def listener(message: Message) -> object:
        seen.append((cluster.now, message.offset, message.attempt))
        answers: dict[int, object] = {3: False, 5: Later(2.0)}
        if message.offset == 7 and message.attempt == 1:
            raise ValueError("seven")
        return answers.get(message.offset) if message.attempt == 1 else True

    push = Push(cluster, listener)
    cluster.give(0)
    began = cluster.now
    push.run(1)
    push.commit()
    commit = cluster.commits[0]
    assert (commit.offset, OffsetTracker(3, commit.ranges).ranges) == (3, [(4, 5), (6, 7), (8, 30)])
    push.run(12)
    again = [(round(when - began), offset) for when, offset, attempt in seen if attempt == 2]
    assert again == [(2, 5), (10, 3), (10, 7)], "level 3 is 10 s"
    push.commit()
    assert cluster.commits[0].offset == 30


def test_orderly_is_one_at_a_time_and_waits_for_the_one_that_failed(cluster: GroupCluster) -> None:
    seen: list[tuple[float, int]] = []

    def listener(message: Message) -> bool:
        seen.append((cluster.now, message.offset))
        return message.offset != 4 or message.attempt == 3

    push = Push(cluster, listener, orderly=True)
    cluster.give(0)
    push.run(0.5)
    first, second = push.take(), push.take()
    assert (first, second) == (None, None)
    push.run(4)
    assert [offset for _, offset in seen] == [0, 1, 2, 3, 4, 4, 4, *range(5, 30)]
    at = [when for when, offset in seen if offset == 4]
    assert [round(b - a) for a, b in pairwise(at)] == [1, 1]


def test_orderly_gives_a_queue_to_one_worker(cluster: GroupCluster) -> None:
    push = Push(cluster, print, orderly=True)
    cluster.give(0)
    cluster.give(1)
    cluster.run(1)
    works = [push.take(), push.take(), push.take()]
    assert [work is None for work in works] == [False, False, True]
    assert {work.lane.holding.queue for work in works if work is not None} == {0, 1}


def test_orderly_may_bury_in_the_end(cluster: GroupCluster) -> None:
    sink = Sink(can_delay=False)
    seen: list[int] = []

    def listener(message: Message) -> bool:
        seen.append(message.offset)
        return message.offset != 4

    push = Push(cluster, listener, sink, orderly=True, orderly_max_attempts=2)
    cluster.give(0)
    push.run(3)
    assert seen == [0, 1, 2, 3, 4, 4, *range(5, 30)]
    ((topic, message, headers, _),) = sink.copies
    assert (topic, message.offset, headers[ATTEMPT_HEADER]) == ("%DLQ%g", 4, b"2")
    push.commit()
    assert cluster.commits[0].offset == 4, "not before the dead letter is safe"
    sink.dones[0](None)
    push.commit()
    assert cluster.commits[0].offset == 30


def test_a_batch_listener_gets_lists(cluster: GroupCluster) -> None:
    seen: list[list[int]] = []

    def listener(messages: list[Message]) -> bool:
        seen.append([m.offset for m in messages])
        return len(seen) > 1

    push = Push(cluster, listener, batch=20)
    cluster.give(0)
    cluster.run(1)
    push.run(1)
    assert seen == [list(range(20)), list(range(20, 30))]
    push.run(10)
    assert sorted(offset for some in seen[2:] for offset in some) == list(range(20))


def test_flow_control_by_count_span_and_bytes(cluster: GroupCluster) -> None:
    fill(cluster, 0, 30, 9_000, batch=100)
    push = Push(cluster, print, pull_threshold_for_queue=500)
    cluster.give(0)
    cluster.run(3)
    assert 500 < push.fetch(0).cached <= 800
    assert cached_by_queue(push.member) == {("t", 0): push.fetch(0).cached}
    work = push.take()
    assert work is not None
    slow, work.messages[:] = work.messages[0], work.messages[:1]
    work.rest.clear()
    seen: list[int] = []
    push.runner = ListenerRunner(
        lambda m: seen.append(m.offset), lambda: 0.0, batch=False, orderly=False
    )
    push.run(5)
    assert slow.offset == 0
    assert 2_000 < max(seen) <= 2_400, "one slow message lets the others go 2,000 ahead"
    push.dispatcher.done(work, cluster.now)
    push.run(5)
    assert len(seen) == 9_029


def test_a_topic_has_a_threshold_that_its_queues_share(cluster: GroupCluster) -> None:
    options = PushOptions(pull_threshold_for_topic=1_024, pull_threshold_size_for_topic=10)
    push = Push(cluster, print, **dataclasses.asdict(options))
    cluster.give(0)
    cluster.run(1)
    assert push.fetch(0).wanted_messages == 1_024 - push.fetch(0).cached
    cluster.give(1)
    cluster.run(1)
    # The reference's vector: 1024 for a topic of which 2 queues are here.
    assert push.fetch(1).wanted_messages == 512 - push.fetch(1).cached
    assert push.fetch(0).wanted_messages == 512 - push.fetch(0).cached
    assert push.fetch(0).full, "by bytes"
    cluster.revoke(1)
    push.run(2)
    assert push.member.holding("t", 1) is None
    assert push.fetch(0).wanted_messages == 1_024 - push.fetch(0).cached


@pytest.mark.parametrize("steps", [(8,), (1, 3, 8)])
@pytest.mark.parametrize("by_bytes", [False, True])
def test_a_topics_threshold_holds_from_the_start(steps: tuple[int, ...], by_bytes: bool) -> None:
    cluster = GroupCluster(queues=8)
    cluster.as_asked = True
    for queue in range(8):
        fill(cluster, queue, 0, 2_000, batch=10)
    size = len(cluster.log("t").entries[0])
    name = "pull_threshold_size_for_topic" if by_bytes else "pull_threshold_for_topic"
    bound = 100 * size if by_bytes else 1_024
    options: dict[str, Any] = {name: bound}
    push = Push(cluster, lambda _: None, **options)
    overrun = 8 * (size if by_bytes else 10)  # a batch is never split

    def held() -> int:
        fetches = [h.fetch for h in push.member.holdings.values()]
        found = [fetch for fetch in fetches if isinstance(fetch, PushFetch)]
        return sum(each.cached_bytes if by_bytes else each.cached for each in found)

    given = 0
    for stop in steps:
        while given < stop:
            cluster.give(given)
            given += 1
        cluster.run(0.05 if stop < 8 else 3)
        assert held() <= bound + overrun
    assert held() > bound - overrun, "and room is used"
    most = 0
    while (work := push.take()) is not None:
        push.runner.run(work)
        push.dispatcher.done(work, cluster.now)
        cluster.run(0.01)
        most = max(most, held())
    assert most <= bound + overrun
    assert push.dispatcher.handled == 16_000


def test_the_room_of_a_queue_that_went_is_the_others(cluster: GroupCluster) -> None:
    fill(cluster, 0, 30, 600, batch=10)
    push = Push(cluster, print, pull_threshold_for_topic=200)
    cluster.give(0)
    cluster.run(1)
    assert push.fetch(0).cached > 200
    cluster.give(1)
    cluster.run(1)
    assert push.fetch(1).cached == 0, "the other has all the room"
    del cluster.owned[0]
    cluster.assigned_version += 1
    cluster.run(1)
    assert push.fetch(1).cached == 30


@pytest.mark.parametrize(
    ("bound", "held", "part"),
    [
        (1_024, [0] * 8, 128),
        (1_024, [1_000, 0, 0, 0], 8),
        (1_024, [1_000, 200, 0, 0], 0),
        (1_024, [300, 300, 0, 0], 212),
        (1_024, [2_000, 0], 0),
        (1_024, [2_000], 1_024),
        (4, [0] * 8, 1),
    ],
)
def test_queues_share_what_those_over_their_part_leave(
    bound: int, held: list[int], part: int
) -> None:
    assert part_of(bound, held) == part


def test_bytes_count_until_the_commit_point_passes_them(cluster: GroupCluster) -> None:
    push = Push(cluster, lambda _: None, pull_threshold_size_for_queue=1)
    cluster.give(0)
    push.run(3)
    fetch = push.fetch(0)
    assert fetch.consumed == fetch.fetched > 0
    push.commit()
    assert cluster.commits[0].offset == 30


def test_a_queue_that_goes_waits_for_its_listeners(cluster: GroupCluster) -> None:
    push = Push(cluster, print)
    cluster.give(0)
    cluster.run(1)
    work = push.take()
    assert work is not None
    cluster.revoke(0)
    cluster.run(2)
    assert not cluster.releases
    assert push.take() is None
    taken = len(work.messages)
    push.runner.run(work)
    assert work.rest, "a listener is not called for what it had not begun"
    push.dispatcher.done(work, cluster.now)
    cluster.run(1)
    assert [r.offset for r in cluster.releases] == [0]
    assert taken == len(work.messages)


def test_a_queue_that_stays_goes_on_with_what_waits(cluster: GroupCluster) -> None:
    seen: list[int] = []
    push = Push(cluster, lambda m: seen.append(m.offset))
    cluster.give(0)
    cluster.run(1)
    work = push.take()
    assert work is not None
    cluster.revoke(0)
    cluster.run(1)
    cluster.revoke(0, revoking=False)
    cluster.run(1)
    push.runner.run(work)
    push.dispatcher.done(work, cluster.now)
    push.run(3)
    assert sorted(seen) == list(range(30))
    assert len(seen) == 30


def test_who_is_fenced_sees_the_cancel_token_and_its_results_do_not_count(
    cluster: GroupCluster,
) -> None:
    contexts: list[Context] = []

    def listener(message: Message, context: Context) -> None:
        contexts.append(context)
        if len(contexts) == 1:
            assert not context.cancelled
            cluster.fence()
            cluster.run(1)

    push = Push(cluster, listener)
    cluster.give(0)
    cluster.run(1)
    work = push.take()
    assert work is not None
    push.runner.run(work)
    push.dispatcher.done(work, cluster.now)
    assert contexts[0].cancelled
    assert len(contexts) == 1
    cluster.give(0)
    push.run(1)
    assert len(contexts) == 31


def test_a_listener_that_takes_too_long_has_failed(cluster: GroupCluster) -> None:
    cluster.config_of_group = GroupConfig(consume_timeout_ms=2_000)
    sink = Sink(can_delay=True)
    push = Push(cluster, print, sink)
    cluster.give(0)
    cluster.run(1)
    work = push.take()
    assert work is not None
    context = Context(work)
    work.current, work.began = work.rest.popleft(), cluster.now
    cluster.run(3)
    assert context.cancelled
    ((topic, message, headers, delay_ms),) = sink.copies
    assert (topic, message.offset, delay_ms) == ("%RETRY%g", 0, 10_000)
    assert b"2 s" in headers[CAUSE]
    sink.dones[0](None)
    push.dispatcher.done(work, cluster.now)
    push.commit()
    assert cluster.commits[0].offset == 1
    assert len(sink.copies) == 1


def test_others_take_over_what_a_hanging_listener_has_left(cluster: GroupCluster) -> None:
    push = Push(cluster, lambda _: None)
    cluster.give(0)
    push.run(1)  # so fast that a worker takes many
    fill(cluster, 0, 30, 30)
    cluster.run(1)
    work = push.take()
    assert work is not None
    count = len(work.messages)
    assert count > 1
    work.current, work.began = work.rest.popleft(), cluster.now
    assert push.take() is None or push.dispatcher.sleep(cluster.now) <= 0.01
    cluster.run(0.05)
    stolen = [other for _ in range(20) if (other := push.take()) is not None]
    assert stolen
    for other in stolen:
        push.runner.run(other)
        push.dispatcher.done(other, cluster.now)
    push.dispatcher.done(work, cluster.now)
    push.run(1)
    push.commit()
    assert cluster.commits[0].offset == 60


def test_copies_carry_where_they_come_from(cluster: GroupCluster) -> None:
    sink = Sink(can_delay=True)
    push = Push(cluster, lambda m: m.offset != 4, sink)
    cluster.give(0)
    push.run(1)
    ((topic, message, headers, delay_ms),) = sink.copies
    assert (topic, delay_ms) == ("%RETRY%g", 10_000)
    assert headers == {
        ATTEMPT_HEADER: b"2",
        ORIGIN: b"t/0/4",
        CAUSE: b"the listener returned False",
    }
    push.commit()
    assert cluster.commits[0].offset == 4
    sink.dones[0](Unavailable("no disk"))
    push.run(4.5)
    assert len(sink.copies) == 1
    push.run(1)
    assert len(sink.copies) == 2, "it comes again 5 s later, and fails again"
    sink.dones[1](None)
    push.commit()
    assert cluster.commits[0].offset == 30
    copy = Message("%RETRY%g", 0, 77, message.key, message.value, None, headers, 5)
    again = restore_original(copy)
    assert (again.topic, again.queue, again.offset, again.attempt) == ("t", 0, 4, 2)
    assert again.read_from == ("%RETRY%g", 0, 77)


def test_after_the_last_attempt_it_is_a_dead_letter(
    cluster: GroupCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.config_of_group = GroupConfig(max_attempts=1)

    def listener(message: Message) -> None:
        if message.offset == 4:
            raise OSError("the bank is closed")

    sink = Sink(can_delay=True)
    push = Push(cluster, listener, sink)
    cluster.give(0)
    push.run(1)
    ((topic, _, headers, _),) = sink.copies
    assert (topic, headers[ATTEMPT_HEADER]) == ("%DLQ%g", b"1")
    raised, buried = [record.getMessage() for record in caplog.records]
    assert raised == "the listener raised for t/0 at 4 (attempt 1)"
    assert buried == (
        "group g: t/0 at 4 is a dead letter after attempt 1: OSError: the bank is closed"
    )


def test_a_message_that_will_never_work_is_a_dead_letter_at_once(cluster: GroupCluster) -> None:
    sink = Sink(can_delay=True)
    push = Push(cluster, lambda m: Dead("no such account") if m.offset == 4 else None, sink)
    cluster.give(0)
    push.run(1)
    ((topic, message, headers, _),) = sink.copies
    assert (topic, message.offset) == ("%DLQ%g", 4)
    assert (headers[ATTEMPT_HEADER], headers[CAUSE]) == (b"1", b"no such account")
    sink.dones[0](None)
    push.commit()
    assert cluster.commits[0].offset == 30


def test_an_orderly_queue_goes_on_behind_a_dead_letter(cluster: GroupCluster) -> None:
    sink = Sink(can_delay=True)
    seen: list[int] = []

    def listener(message: Message) -> object:
        seen.append(message.offset)
        return Dead() if message.offset == 4 else None

    push = Push(cluster, listener, sink, orderly=True)
    cluster.give(0)
    push.run(1)
    assert seen == list(range(30))
    ((topic, _, headers, _),) = sink.copies
    assert (topic, headers[CAUSE]) == ("%DLQ%g", b"the listener returned Dead()")
    sink.dones[0](None)
    push.commit()
    assert cluster.commits[0].offset == 30


@pytest.mark.parametrize("done", [0, 7, 99])
def test_a_batch_may_be_done_in_part(cluster: GroupCluster, done: int) -> None:
    sink = Sink(can_delay=True)
    push = Push(cluster, lambda _: Done(done, delay_s=2), sink, batch=20)
    cluster.give(0)
    cluster.run(1)
    work = push.take()
    assert work is not None
    push.runner.run(work)
    push.dispatcher.done(work, cluster.now)
    copies = [(topic, message.offset, delay) for topic, message, _, delay in sink.copies]
    assert copies == [("%RETRY%g", offset, 2_000) for offset in range(done, 20)]
    holding = push.member.holding("t", 0)
    assert holding is not None
    assert holding.progress.floor == min(done, 20)


def test_fewer_than_none_cannot_be_done() -> None:
    with pytest.raises(InvalidRequest, match="not -1"):
        Done(-1)


def test_a_queue_that_waits_for_its_message_says_why(cluster: GroupCluster) -> None:
    well = False

    def listener(message: Message) -> None:
        if not well:
            raise OSError("the bank is closed")

    push = Push(cluster, listener, orderly=True, suspend_current_queue_ms=1_000)
    cluster.give(0)
    push.run(3.5)
    status = push.fetch(0).holding.status(cluster.now, cluster.now)
    assert status is not None
    assert status.state.startswith("suspended, attempt ")
    assert status.state.endswith(" failed: OSError: the bank is closed")
    well = True
    push.run(2)
    assert push.fetch(0).holding.status(cluster.now, cluster.now) is None


def test_leaving_waits_for_the_listeners(cluster: GroupCluster) -> None:
    push = Push(cluster, lambda _: None)
    cluster.give(0)
    cluster.run(1)
    work = push.take()
    assert work is not None
    call = push.close(10)
    cluster.run(2)
    assert not call.outcome.done
    count = len(work.messages)
    work.rest.clear()
    push.dispatcher.done(work, cluster.now)
    assert cluster.run(2, lambda: call.outcome.done)
    assert cluster.leaves[0][0].offset == count


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(1, 10), (2, 30), (3, 60), (11, 540), (16, 7_200), (40, 7_200)],
)
def test_retry_levels_are_rocketmqs(failures: int, seconds: int) -> None:
    assert retry_delay_ms(GroupConfig(), failures) == seconds * 1000


@pytest.mark.parametrize(("failures", "seconds"), [(1, 5), (11, 5_120), (99, 7_200)])
def test_retries_may_be_exponential(failures: int, seconds: int) -> None:
    assert retry_delay_ms(GroupConfig(retry="exponential"), failures) == seconds * 1000


def test_listeners_take_one_argument_or_two() -> None:
    assert not takes_context(lambda m: m)
    assert not takes_context(lambda m, more=1: m or more)
    assert takes_context(lambda m, c: m or c)
    assert not takes_context([].append)
    with pytest.raises(InvalidRequest, match="context"):
        takes_context(lambda a, b, c: a or b or c)
    no_function: Any = 5
    with pytest.raises(InvalidRequest, match="function"):
        takes_context(no_function)


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 0},
        {"batch": 0},
        {"suspend_current_queue_ms": 9},
        {"pull_threshold_for_queue": 0},
        {"pull_threshold_for_topic": 0},
        {"orderly_max_attempts": -1},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        PushOptions(**options).validate()


def test_a_message_that_may_have_ended_a_process_goes_to_a_listener_alone() -> None:
    cluster = GroupCluster()
    fill(cluster, 0, 0, 30)
    handled: list[tuple[int, int]] = []
    push = Push(cluster, lambda message: handled.append((message.offset, message.attempt)))
    cluster.give(0, 4, ended=True)
    works: list[int] = []

    def first() -> bool:
        work = push.take()
        if work is not None:
            works.append(len(work.messages))
            assert trying_of(cluster.commits[0].ranges) == 2, "the group knows before"
            assert push.take() is None
            push.runner.run(work)
            push.dispatcher.done(work, cluster.now)
        return work is not None

    assert cluster.run(5, first)
    assert (works, handled) == ([1], [(4, 2)])
    push.run(3.0)
    assert handled == [(4, 2), *((offset, 1) for offset in range(5, 30))]
    assert cluster.commits[0].offset > 4


def test_a_message_that_ended_too_many_is_no_listeners_any_more() -> None:
    cluster = GroupCluster()
    cluster.config_of_group = GroupConfig(max_attempts=3)
    fill(cluster, 0, 0, 10)
    handled: list[int] = []
    sink = Sink(can_delay=True)
    push = Push(cluster, lambda message: handled.append(message.offset), sink)
    cluster.give(0, 4, OffsetTracker(4).encode(3), ended=True)
    push.run(1.0)
    ((topic, message, headers, _),) = sink.copies
    assert (topic, message.offset, headers[ATTEMPT_HEADER]) == ("%DLQ%g", 4, b"3")
    assert b"ended 3 times with this message" in headers[CAUSE]
    sink.dones[0](None)
    push.run(3.0)
    assert handled == list(range(5, 10))
