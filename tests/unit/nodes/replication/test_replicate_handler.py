"""The leader's side of REPLICATE: sessions, holds, budgets, what is told and when."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from logboom.nodes.log.keys import Position
from logboom.nodes.replication import replicate_handler
from logboom.nodes.replication.replicate_handler import ENTRIES_AT_ONCE
from logboom.wire.batch import encode_batch
from logboom.wire.errors import LogboomError
from logboom.wire.messages import FollowerPosition, QueueAnswer, Replicated
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.thorough import examples
from tests.unit.nodes.rig import ME, Peer, Rig, batch, fetch, produce
from tests.unit.wire.work import cost_ms

BOTH = (ME, "broker-2")


def leader(queues: int = 1) -> tuple[Rig, Peer]:
    """A leader whose follower is in the ISR."""
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH, queues=queues)
    return rig, rig.follower()


def told(peer: Peer) -> list[QueueAnswer]:
    """What the one answer that came says, queue by queue."""
    (reply,) = peer.taken()
    assert isinstance(reply.message, Replicated)
    return reply.message.answers


def test_an_append_wakes_the_held_request_in_the_same_turn() -> None:
    rig, two = leader()
    two.ask(fetch(0, (Position(0), -1)))
    two.taken()
    assert two.ask(fetch(1)) == []
    rig.auto_sync = False
    rig.client().ask(produce(), [batch(2)])
    answer = two.answer()
    assert answer.answers[0].frames == 1


def test_a_request_without_news_is_held_for_its_time() -> None:
    rig, two = leader()
    two.ask(fetch(0, (Position(0), -1)))
    rig.settle(0.005)
    assert two.answer().answers[0].frames == 0
    two.ask(fetch(1, wait_ms=500))
    rig.settle(0.499)
    assert two.taken() == []
    rig.settle(0.001)
    assert two.answer().answers == []


def test_entries_that_the_follower_did_not_take_are_sent_again() -> None:
    rig, two = leader()
    rig.client().ask(produce(), [batch(2)])
    for number in range(3):
        two.ask(fetch(number, *([(Position(0), -1)] if number == 0 else [])))
        assert two.answer().answers[0].frames == 1
    two.ask(fetch(3, (Position(2), 1)))
    assert rig.replica().hw == Position(2)


def test_what_a_lost_answer_said_is_said_again() -> None:
    """The follower replaced its request while the answer, where to cut, was under way."""
    rig, two = leader()
    rig.client().ask(produce(), [batch(2)])
    two.ask(fetch(0, (Position(9), 1)))
    assert two.answer().answers[0].status == "CUT"
    two.ask(fetch(1, heard=-1))
    assert two.answer().answers[0].status == "CUT"
    two.ask(fetch(2, heard=1))
    assert two.taken() == []


def test_a_high_watermark_that_was_not_heard_is_told_again() -> None:
    rig, two = leader()
    rig.client().ask(produce(), [batch(2)])
    two.ask(fetch(0, (Position(2), 1)))
    rig.settle(0.005)
    assert two.answer().answers[0].hw_offset == 2
    two.ask(fetch(1, heard=-1))
    rig.settle(0.005)
    assert two.answer().answers[0].hw_offset == 2


def test_a_follower_that_begins_in_a_new_epoch_is_told_the_high_watermark_again() -> None:
    """It learned of no leader between two epochs of ours, and so remained in its session."""
    rig, two = leader()
    rig.client().ask(produce(), [batch(2)])
    two.ask(fetch(0, (Position(2), 1)))
    rig.settle(0.005)
    assert two.answer().answers[0].hw_offset == 2
    rig.lead(epoch=3, isr=BOTH, replicas=BOTH)
    two.ask(fetch(1, (Position(2), 1), epoch=3))
    rig.settle(0.005)
    assert two.answer().answers[0].hw_offset == 2


@pytest.mark.parametrize(
    ("number", "session"), [(1, 7), (3, 8), (5, 7)], ids=["gap", "unknown", "far"]
)
def test_a_session_that_is_not_known_at_this_number_is_refused(number: int, session: int) -> None:
    rig, two = leader()
    if number != 1:
        two.ask(fetch(0, (Position(0), -1)))
    two.ask(fetch(number, session=session))
    with pytest.raises(LogboomError) as caught:
        two.answer()
    assert caught.value.code == "CONFLICT"
    assert rig.replica().leading is not None


def test_the_same_number_again_is_the_same_request_over_a_new_connection() -> None:
    rig, two = leader()
    request = fetch(0, (Position(0), -1))
    two.ask(request)
    two.taken()
    again = rig.follower()
    again.ask(msgspec.structs.replace(request))
    assert again.replies == [] or again.answer().answers


def test_another_epoch_is_stale_and_an_unknown_queue_unknown() -> None:
    _, two = leader()
    two.ask(fetch(0, (Position(0), -1), epoch=9))
    assert two.answer().answers[0].status == "STALE"
    request = fetch(1)
    request.queues = [FollowerPosition(77, 0, 1, 0, 0, -1)]
    two.ask(request)
    assert two.answer().answers[0].status == "UNKNOWN"


def test_a7_who_has_no_replica_any_more_gets_nothing_though_it_goes_on_asking() -> None:
    rig, two = leader()
    two.ask(fetch(0, (Position(0), -1)))
    rig.settle(0.005)
    two.answer()
    rig.lead()
    two.ask(fetch(1))
    rig.client().ask(produce(), [batch(2)])
    rig.settle(0.005)
    told = two.answer().answers
    assert [(each.status, each.frames) for each in told] == [("STALE", 0)]


def test_one_answer_takes_no_more_than_asked_but_at_least_one_entry() -> None:
    rig, two = leader(queues=2)
    client = rig.client()
    for _ in range(5):
        client.ask(produce(), [batch(1, value=b"x" * 1_000)])
        client.ask(produce(queue=1), [batch(1, value=b"x" * 1_000)])
    request = fetch(0, (Position(0), -1), (Position(0), -1))
    request.max_bytes = 2_500
    two.ask(request)
    (reply,) = two.taken()
    assert len(reply.batches) == 2
    seen: set[int] = set()
    for number in range(1, 3):
        request = fetch(number, *([(Position(2), 1), (Position(0), -1)] if number == 1 else []))
        request.max_bytes = 1
        two.ask(request)
        (reply,) = two.taken()
        assert len(reply.batches) == 1
        assert isinstance(reply.message, Replicated)
        seen |= {answer.queue for answer in reply.message.answers if answer.frames}
    # Both queues get their turn.
    assert seen == {0, 1}


def test_a_queue_with_no_room_in_an_answer_has_its_turn_in_the_next() -> None:
    rig, two = leader(queues=2)
    for queue in range(2):
        rig.client().ask(produce(queue=queue), [batch(1, value=b"x" * 1_000)])
    request = fetch(0, (Position(0), -1), (Position(0), -1))
    request.max_bytes = 1_500
    two.ask(request)
    # The second queue's HW and log start are told, its entry is not.
    assert [answer.frames for answer in told(two)] == [1, 0]
    request = fetch(1, (Position(1), 1))
    request.max_bytes = 1_500
    two.ask(request)
    assert [answer.queue for answer in told(two) if answer.frames] == [1]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 900), max_size=6), min_size=1, max_size=5),
    st.lists(st.integers(1, 2_500), min_size=1, max_size=5),
    st.data(),
)
def test_a_follower_gets_everything_whatever_its_answers_have_room_for(
    sizes: list[list[int]], rooms: list[int], data: st.DataObject
) -> None:
    """Nothing is appended meanwhile, and the follower names only what moved."""
    rig, two = leader(queues=len(sizes))
    client = rig.client()
    for queue, values in enumerate(sizes):
        for size in values:
            client.ask(produce(queue=queue), [batch(1, value=b"x" * size)])
    ends = [0] * len(sizes)
    moved = list(range(len(sizes)))
    for number in range(sum(map(len, sizes)) + 1):
        request = fetch(number)
        request.queues = [
            FollowerPosition(1, q, 1, ends[q], 0, 1 if ends[q] else -1) for q in moved
        ]
        request.max_bytes = rooms[number % len(rooms)]
        moved = []
        two.ask(request)
        if data.draw(st.booleans()):
            rig.settle(0.003)
        for answer in told(two) if two.replies else []:
            ends[answer.queue] += answer.frames
            moved += [answer.queue] * (answer.frames > 0)
        if not moved:
            break
    assert ends == list(map(len, sizes))


def test_where_many_begin_anew_is_told_in_parts() -> None:
    """What a follower must know to begin anew takes room in an answer, too."""
    rig, two = leader(queues=3)
    client = rig.client()
    for queue in range(3):
        for producer in range(20):
            client.ask(produce("leader", queue), [batch(1, producer, 0, 0)])
        replica = rig.replica(queue)
        replica.raise_hw(replica.end)
        replica.trimmed(20, 0)
    places = [(Position(0), -1)] * 3
    for number in range(3):
        request = fetch(number, *(places if number == 0 else []))
        request.max_bytes = 10
        two.ask(request)
        (answer,) = told(two)
        assert (answer.queue, answer.status) == (number, "RESET")
        assert len(answer.state) > 10


def test_what_is_gone_is_fed_no_more() -> None:
    rig, two = leader()
    two.ask(fetch(0, (Position(0), -1)))
    two.taken()
    request = fetch(1)
    request.gone = [(1, 0)]
    two.ask(request)
    rig.client().ask(produce(), [batch()])
    assert two.taken() == []


def test_a_node_speaks_only_for_itself() -> None:
    _, two = leader()
    two.ask(fetch(0, (Position(0), -1), broker="broker-3"))
    with pytest.raises(LogboomError) as caught:
        two.answer()
    assert caught.value.code == "UNAUTHENTICATED"


def test_a_client_may_not_replicate() -> None:
    rig, _ = leader()
    client = rig.client("broker-2")
    client.ask(fetch(0, (Position(0), -1)))
    with pytest.raises(LogboomError) as caught:
        client.answer()
    assert caught.value.code == "UNAUTHENTICATED"


def test_news_of_the_hw_alone_waits_no_longer_than_five_ms() -> None:
    rig, two = leader()
    rig.lead(isr=(*BOTH, "broker-3"), replicas=(*BOTH, "broker-3"))
    three = rig.follower("broker-3")
    rig.client().ask(produce(), [batch()])
    two.ask(fetch(0, (Position(1), 1)))
    two.taken()
    two.ask(fetch(1))
    asked_at = rig.mono
    three.ask(fetch(0, (Position(1), 1), broker="broker-3"))
    assert two.taken() == []
    assert rig.broker.parts.replicate_handler.deadline() <= asked_at + 0.005
    rig.settle(0.005)
    assert two.answer().answers[0].hw_offset == 1


def test_an_older_process_of_a_broker_counts_for_nothing() -> None:
    rig, two = leader()
    rig.client().ask(produce(), [batch()])
    # Metadata knows a newer one, perhaps with another disk.
    two.ask(fetch(0, (Position(1), 1), instance_epoch=49))
    with pytest.raises(LogboomError) as caught:
        two.answer()
    assert caught.value.code == "FENCED"
    assert rig.replica().hw == Position(0)


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_an_answer_looks_at_some_queues_and_the_next_ones_at_the_others(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(replicate_handler, "GATHERED_AT_ONCE", at_once)
    rig, two = leader(queues=5)
    for queue in range(5):
        rig.client().ask(produce("leader", queue=queue), [batch(1)])
    two.ask(fetch(0, *[(Position(0), -1)] * 5))
    got: set[int] = set()
    for number in range(1, 20):
        answers = told(two)
        assert len(answers) <= at_once, "sent at once, since there are more"
        got |= {answer.queue for answer in answers if answer.frames}
        if len(got) == 5:
            break
        request = fetch(number)
        request.queues = [
            FollowerPosition(1, answer.queue, 1, 1, 0, 1) for answer in answers if answer.frames
        ]
        two.ask(request)
    assert got == {*range(5)}


def test_what_waits_for_copies_leaves_its_place_to_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicate_handler, "GATHERED_AT_ONCE", 3)
    rig = Rig()
    compacted = TopicConfig(retention_ms=-1, compaction=True)
    rig.lead(isr=BOTH, replicas=BOTH, queues=8, config=compacted)
    two = rig.follower()
    for queue in range(8):
        rig.client().ask(produce("leader", queue=queue), [encode_batch([b"v"], [b"a"], now_ms=5)])
    # Of two queues it has all entries, and lacks copies that the leader has yet to make.
    request = fetch(0, *[(Position(1), 1)] * 2, *[(Position(0), -1)] * 6)
    request.queues[:2] = [replace(asked, lacks=(0, 1)) for asked in request.queues[:2]]
    carried: list[int] = []
    for number in range(1, 20):
        two.ask(request)
        got = [answer.queue for answer in told(two) if answer.frames]
        carried.append(len(got))
        if sum(carried) == 6:
            break
        request = fetch(number)
        request.queues = [FollowerPosition(1, queue, 1, 1, 0, 1) for queue in got]
    assert sum(carried) == 6
    assert max(carried) == 3, "all of an answer are entries"


def test_entries_that_find_no_room_in_an_answer_keep_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are more queues than one answer looks at, and all have new entries all the time."""
    monkeypatch.setattr(replicate_handler, "GATHERED_AT_ONCE", 3)
    sizes = [600, 1_000, 1_000, 600]
    rig, two = leader(queues=len(sizes))
    ends = [0] * len(sizes)
    moved = [*range(len(sizes))]
    for number in range(3 * len(sizes)):
        for queue in moved:
            body = [batch(1, value=b"x" * sizes[queue])]
            rig.client().ask(produce("leader", queue=queue), body)
        request = fetch(number)
        request.max_bytes = 1_000
        request.queues = [
            FollowerPosition(1, queue, 1, ends[queue], 0, 1 if ends[queue] else -1)
            for queue in moved
        ]
        two.ask(request)
        moved = [answer.queue for answer in told(two) if answer.frames]
        for queue in moved:
            ends[queue] += 1
    assert min(ends) >= 2


def test_an_answer_of_small_entries_makes_no_turn_last() -> None:
    rig, two = leader()
    rig.fill(10_000)
    numbers = iter(range(100))

    def ask() -> None:
        request = fetch(next(numbers), (Position(0), -1))
        request.max_bytes = 4 << 20
        two.ask(request)
        (answer,) = told(two)
        assert answer.frames == ENTRIES_AT_ONCE

    assert cost_ms(ask, 10.0) <= 10.0


@pytest.mark.parametrize("adding", [(), ("broker-2",)], ids=["follows", "moves"])
def test_small_entries_of_all_queues_count_together(adding: tuple[str, ...]) -> None:
    rig = Rig()
    isr = (ME,) if adding else BOTH
    rig.lead(isr=isr, replicas=BOTH, adding=adding, queues=5)
    two = rig.follower()
    for queue in range(5):
        rig.fill(ENTRIES_AT_ONCE // 2, queue)
    ends, moved, answers = [0] * 5, [*range(5)], 0
    while min(ends) < ENTRIES_AT_ONCE // 2:
        request = fetch(answers)
        request.queues = [
            FollowerPosition(1, queue, 1, ends[queue], 0, 1 if ends[queue] else -1)
            for queue in moved
        ]
        two.ask(request)
        (reply,) = two.taken()
        assert isinstance(reply.message, Replicated)
        assert len(reply.batches) <= ENTRIES_AT_ONCE
        moved = [answer.queue for answer in reply.message.answers if answer.frames]
        for answer in reply.message.answers:
            ends[answer.queue] += answer.frames
        answers += 1
        assert answers <= 3
    assert ends == [ENTRIES_AT_ONCE // 2] * 5


def test_what_finds_no_room_keeps_nobody_waiting_and_nothing_spins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicate_handler, "GATHERED_AT_ONCE", 2)
    rig = Rig()
    rig.lead(isr=(ME,), replicas=BOTH, adding=["broker-2"], queues=5)
    for queue in range(5):
        rig.client().ask(produce("leader", queue=queue), [batch(1)])
    two = rig.follower()
    request = fetch(0, *[(Position(0), -1)] * 5)
    number = 0
    while number < 10:
        # It has no room for what moves, and hears of the HWs alone.
        request.moving_bytes = 0
        two.ask(request)
        if not two.replies:
            break
        assert not any(answer.frames for answer in told(two))
        number += 1
        request = fetch(number)
    assert number < 10
    turns = 0
    while (at := rig.broker.deadline()) is not None and at <= rig.mono:
        rig.turn()
        turns += 1
        assert turns < 10, "all were looked at"
    # One that does not move follows.
    led = QueueView([*BOTH], ME, 1, 1, [ME], [], ["broker-2"])
    rig.publish(
        TopicView("flights", 1, TopicConfig(retention_ms=-1), [led] * 5, rig.version + 1),
        TopicView(
            "other", 2, TopicConfig(), [QueueView([*BOTH], ME, 1, 1, [*BOTH], [])], rig.version + 1
        ),
    )
    two.taken()
    request = fetch(number + 1)
    request.moving_bytes = 0
    request.queues = [FollowerPosition(2, 0, 1, 0, 0, -1)]
    two.ask(request)
    rig.client().ask(produce("leader", topic="other"), [batch(1)])
    rig.settle(0.01)
    sent = [
        answer
        for reply in two.replies
        if isinstance(reply.message, Replicated)
        for answer in reply.message.answers
    ]
    assert [answer.topic_id for answer in sent if answer.topic_id == 2]
