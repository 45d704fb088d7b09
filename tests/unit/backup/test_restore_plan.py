"""What a restore decides before it changes anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.backup.backup_format import (
    Manifest,
    QueueRecord,
    SegmentRecord,
    StateRecord,
    TopicRecord,
)
from logboom.backup.restore_plan import (
    COMMAND_BYTES,
    PRODUCERS_AFTER_CUT,
    CutOffset,
    RestoreOptions,
    RestorePlan,
    backup_mark,
    check_room,
    decision_commands,
    group_commands,
    known_applications,
    lists_all,
    outstanding_decisions,
    plan_restore,
    undecided_aborts,
)
from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.wire.access.access_rules import Quota, UserView
from logboom.wire.backup_messages import ApplicationView, ClusterSnapshot, GroupState
from logboom.wire.commands import RestoredApplication, RestoredDecision
from logboom.wire.errors import AlreadyExists, InvalidRequest, LogboomError, Refused, Unavailable
from logboom.wire.group_view import GroupConfig, GroupOffsets, GroupView
from logboom.wire.transactions import (
    DecisionView,
    ParkedBatches,
    TransactionId,
    UndecidedBatch,
)
from logboom.wire.view import BrokerView, QueueView, SettingView, TopicConfig, TopicView

ID = "20261124T021500Z"
MARK = f"{ID} of old"


def queue(number: int, end: int = 100) -> QueueRecord:
    """A queue in the backup, in one file of 1,000 bytes."""
    record = SegmentRecord(ID, f"{number}.seg", (0, 0), (end, 0), 4, 1_000, 0, 3, end)
    return QueueRecord(number, (0, 0), (end, 0), 4, 6, (end, 0), b"", [record])


def view(name: str, topic_id: int, queues: int = 2, epoch: int = 6, **changes: Any) -> TopicView:
    """A topic of three replicas."""
    replicas = ["a", "b", "c"]
    each = QueueView(replicas, "a", epoch, 1, replicas, [])
    made = TopicView(name, topic_id, TopicConfig(), [each] * queues, 1, replicas=3)
    return msgspec.structs.replace(made, **changes)


def group(name: str = "readers") -> GroupState:
    """A group with offsets in both topics."""
    head = GroupView(
        name, 1, GroupConfig(), {"flights": "", "other": "x"}, 1, "a", 1, 1, 1, "", 1, 0,
        full=False, members=[], gone=[], unstarted=[],
    )  # fmt: skip
    offsets = [
        GroupOffsets(3, "flights", True, [40, 120], [60, 130], [(0, b"r0"), (1, b"r1")]),
        GroupOffsets(5, "other", True, [-1, 7], [0, 9]),
    ]
    return GroupState(head, offsets)


def snapshot(*topics: TopicView, brokers: int = 3, **changes: Any) -> ClusterSnapshot:
    """The state of a cluster."""
    live = [BrokerView(name, f"{name}:1", "", 1, True, 1) for name in "abcdefg"[:brokers]]
    made = ClusterSnapshot(900, "new", 5, 1, 1, 1, list(topics), [], 1, [], [], [], [])
    return msgspec.structs.replace(made, brokers=live, **changes)


STATE = snapshot(
    view("flights", 3),
    view("other", 5),
    groups=[group()],
    next_topic_id=9,
    next_producer_id=70,
    applications=[ApplicationView("app", 4, 8, [(9, 1)])],
    decisions=[
        DecisionView(7, "app", 8, 1, True, [ParkedBatches(3, 1, [(5, 0)])]),
        DecisionView(6, "app", 7, 1, True, [ParkedBatches(5, 0, []), ParkedBatches(4, 0, [])]),
    ],
)
MANIFEST = Manifest(
    ID,
    "old",
    "",
    1,
    2,
    "0.1.0",
    StateRecord(900, 1, 0),
    [
        TopicRecord("flights", 3, [queue(0), queue(1)]),
        TopicRecord("other", 5, [queue(0), queue(1)]),
    ],
    0,
)


def plan(target: ClusterSnapshot, **options: Any) -> RestorePlan:
    """A plan for the backup."""
    return plan_restore(MANIFEST, STATE, target, RestoreOptions(**options))


def test_an_empty_cluster_gets_everything_under_its_ids() -> None:
    made = plan(snapshot())
    assert made.backup == backup_mark(MANIFEST) == MARK
    assert [(t.command.name, t.command.topic_id, t.command.replicas) for t in made.topics] == [
        ("flights", 3, 3),
        ("other", 5, 3),
    ]
    assert made.topics[0].command.epochs == [6, 6]
    assert (made.groups, made.beside, made.resumed) == (["readers"], False, False)
    assert (made.size, made.messages) == (4_000, 400)
    assert (made.counters.version, made.counters.next_producer_id) == (
        900,
        70 + PRODUCERS_AFTER_CUT,
    ), "the logs may hold batches of producers that were opened after the cut"
    assert made.counters.next_topic_id == 1, "the ids that are kept are above it"


def test_epochs_are_those_of_the_entries_where_a_leader_came_while_they_were_read() -> None:
    newer = msgspec.structs.replace(queue(1), last_epoch=9)
    topics = [TopicRecord("flights", 3, [queue(0), newer]), MANIFEST.topics[1]]
    manifest = msgspec.structs.replace(MANIFEST, topics=topics)
    made = plan_restore(manifest, STATE, snapshot(), RestoreOptions())
    assert made.topics[0].command.epochs == [6, 9]


def test_a_topic_keeps_an_owner_who_is_there() -> None:
    state = msgspec.structs.replace(
        STATE, topics=[view("flights", 3, owner="ann"), STATE.topics[1]]
    )
    for users, owner in ([], ""), ([UserView("ann", [])], "ann"):
        made = plan_restore(MANIFEST, state, snapshot(users=users), RestoreOptions())
        assert made.topics[0].command.owner == owner


def test_ids_that_may_have_been_others_are_not_kept() -> None:
    made = plan(snapshot(next_topic_id=4))
    assert [topic.command.topic_id for topic in made.topics] == [0, 0]
    assert made.counters.next_topic_id == 9


def test_a_resumed_restore_keeps_ids_only_where_it_can() -> None:
    # It began with new ids; the next topic cannot have its own any more.
    began_anew = snapshot(view("flights", 9, restoring=MARK), next_topic_id=10)
    # Somebody made topic 6 meanwhile, and deleted it.
    taken_since = snapshot(view("flights", 3, restoring=MARK), next_topic_id=7)
    for target in (began_anew, taken_since):
        made = plan(target)
        assert made.resumed
        assert [topic.command.topic_id for topic in made.topics] == [0, 0]
    kept = plan(snapshot(view("flights", 3, restoring=MARK), next_topic_id=4))
    assert [topic.command.topic_id for topic in kept.topics] == [3, 5]


def test_a_topic_that_lacks_queues_does_not_stop_the_others() -> None:
    half = msgspec.structs.replace(
        MANIFEST, topics=[MANIFEST.topics[0], TopicRecord("other", 5, [queue(0)])]
    )
    made = plan_restore(half, STATE, snapshot(), RestoreOptions())
    assert [topic.command.name for topic in made.topics] == ["flights"]
    assert made.notes == ["topic other is left out: the backup has 1 of its 2 queues"]
    for options in (
        RestoreOptions(topics=["other"]),
        RestoreOptions(topics=["oth*"], new_name="x"),
    ):
        with pytest.raises(InvalidRequest, match="1 of the 2 queues of other"):
            plan_restore(half, STATE, snapshot(), options)


def test_topics_come_beside_others_under_new_names() -> None:
    target = snapshot(view("flights", 3))
    made = plan(target, topics=["flights"], new_name="flights-2")
    assert [(t.command.name, t.command.topic_id) for t in made.topics] == [("flights-2", 0)]
    assert made.beside
    commands, _ = group_commands(made, STATE, {3: 12})
    assert [each.subscription for each in commands] == [{"flights-2": ""}]
    assert [row.topic_id for each in commands for row in each.offsets] == [12]
    made = plan(target, prefix="old-")
    assert [topic.command.name for topic in made.topics] == ["old-flights", "old-other"]


@pytest.mark.parametrize(
    ("target", "options", "kind", "text"),
    [
        (snapshot(view("other", 1)), {}, AlreadyExists, "exist already: other; restore beside"),
        (snapshot(view("other", 1, restoring="x")), {}, AlreadyExists, "other"),
        (snapshot(), {"topics": ["non*"]}, InvalidRequest, "has no topic 'non\\*'"),
        (snapshot(), {"new_name": "x"}, InvalidRequest, "2 are chosen"),
        (snapshot(), {"new_name": "x", "prefix": "y"}, InvalidRequest, "not both"),
        (snapshot(brokers=2), {}, Refused, "--replicas 2"),
        (snapshot(brokers=1), {"replicas": 2}, Refused, "at most 1"),
    ],
)
def test_what_cannot_work_is_said_before(
    target: ClusterSnapshot, options: dict[str, Any], kind: type[LogboomError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        plan(target, **options)


def test_fewer_replicas_lower_what_is_needed_and_say_so() -> None:
    strict = msgspec.structs.replace(
        STATE, topics=[view("flights", 3, config=TopicConfig(min_in_sync=2)), view("other", 5)]
    )
    made = plan_restore(MANIFEST, strict, snapshot(brokers=1), RestoreOptions(replicas=1))
    assert [topic.command.config.min_in_sync for topic in made.topics] == [0, 0]
    assert made.notes == ["flights: min_in_sync 2 becomes a majority of the replicas"]


def test_a_restore_that_was_interrupted_goes_on() -> None:
    finished = view("flights", 3, epoch=8)
    target = snapshot(finished, view("other", 5, restoring=MARK), groups=[group()])
    made = plan(target)
    assert (made.resumed, made.beside) == (True, False)
    assert [topic.finished for topic in made.topics] == [True, False]
    assert made.notes == ["flights was restored by an earlier try, and stays as it is"]


@pytest.mark.parametrize(
    ("there", "waiting"),
    [
        (view("flights", 3, epoch=7), view("other", 5, restoring=MARK)),
        (view("flights", 6, epoch=8), view("other", 5, restoring=MARK)),
        (view("flights", 3, queues=3, epoch=8), view("other", 5, restoring=MARK)),
        (view("other", 2, epoch=8), view("flights", 3, restoring=MARK)),
    ],
)
def test_a_topic_that_this_restore_has_not_made_is_not_taken_as_finished(
    there: TopicView, waiting: TopicView
) -> None:
    with pytest.raises(AlreadyExists, match=there.name):
        plan(snapshot(there, waiting))


def test_settings_and_the_default_quota_come_into_an_empty_cluster_alone() -> None:
    rows = [
        SettingView("", "balance_mode", "continuous"),
        SettingView("", "replace_after_s", "60"),
        SettingView("", "of_a_later_release", "1"),
        SettingView("b", "log_level", "debug"),
        SettingView("gone", "log_level", "debug"),
    ]
    quota = Quota(topics=5)
    state = msgspec.structs.replace(STATE, settings=rows, default_quota=quota)
    set_already = [SettingView("", "replace_after_s", "900")]
    made = plan_restore(MANIFEST, state, snapshot(settings=set_already), RestoreOptions())
    assert (made.settings, made.default_quota) == ([rows[0], rows[3]], quota)
    assert [note.split(" is left out")[0] for note in made.notes] == [
        "setting of_a_later_release",
        "setting log_level of gone",
    ]
    limited = snapshot(default_quota=Quota(topics=1))
    assert plan_restore(MANIFEST, state, limited, RestoreOptions()).default_quota is None
    beside = plan_restore(MANIFEST, state, snapshot(), RestoreOptions(prefix="x-"))
    assert (beside.settings, beside.default_quota) == ([], None)


def test_a_broker_with_less_room_than_its_share_is_told() -> None:
    made = plan(snapshot(brokers=3))
    big = 1 << 30
    # Three replicas on three brokers: each gets everything.
    with pytest.raises(Unavailable, match="free some"):
        check_room(made, {"a": big, "b": big, "c": 0})
    once = plan(snapshot(brokers=3), replicas=1)
    (note,) = check_room(once, {"a": big, "b": big, "c": 0})
    assert note.startswith("c has 0 MiB of room")
    assert check_room(once, dict.fromkeys("abc", big)) == []


def test_a_restore_that_does_not_fit_is_refused() -> None:
    made = plan(snapshot())
    check_room(made, {})
    check_room(made, dict.fromkeys("abc", 1 << 30))
    with pytest.raises(Unavailable, match="free some") as refused:
        check_room(made, {"a": 1_000, "b": 2_000})
    assert refused.value.code == "DISK_FULL"


def test_offsets_beyond_the_end_of_a_queue_are_cut_and_told() -> None:
    commands, cut = group_commands(plan(snapshot()), STATE, {3: 3, 5: 5})
    assert cut == [CutOffset("readers", "flights", 1, 120, 100)]
    flights, other = [row for each in commands for row in each.offsets]
    assert (flights.committed, flights.seen_ends) == ([40, 100], [60, 100])
    assert flights.ranges == [(0, b"r0")], "what was finished beyond the end is gone"
    assert other.committed == [-1, 7]
    commands, _ = group_commands(plan(snapshot()), STATE, {5: 5})
    assert [row.topic_id for each in commands for row in each.offsets] == [5]


def test_many_offsets_are_several_commands() -> None:
    state = msgspec.structs.replace(STATE, groups=[group()])
    rows = GroupOffsets(
        3, "flights", True, [1] * 2, [2] * 2, [(0, b"r" * 30_000), (1, b"q" * 30_000)]
    )
    state.groups[0].offsets[:] = [rows]
    commands, _ = group_commands(plan(snapshot()), state, {3: 3})
    assert len(commands) == 2
    assert all(len(msgspec.msgpack.encode(each)) < 60 * 1024 for each in commands)


def test_decisions_keep_their_order_and_lose_queues_that_are_not_restored() -> None:
    assert outstanding_decisions(STATE, {3: 30, 5: 50}) == [
        RestoredDecision("app", 7, 1, True, [ParkedBatches(50, 0, [])]),
        RestoredDecision("app", 8, 1, True, [ParkedBatches(30, 1, [(5, 0)])]),
    ]
    assert outstanding_decisions(STATE, {5: 50})[0].queues == [ParkedBatches(50, 0, [])]


def waiting(topic_id: int, queue: int, offset: int, sequence: int = 1) -> UndecidedBatch:
    """A batch that waits for a decision."""
    whose = TransactionId("app", sequence, 1)
    return UndecidedBatch("flights", topic_id, queue, offset, 0, whose, 5, 0, 1, 10)


def test_k6_what_waits_in_restored_queues_is_aborted_and_nothing_else() -> None:
    halves = OpenTransaction("app", -1, 0, [waiting(11, 0, 9, -1)])
    mine = OpenTransaction("app", 1, 1, [waiting(11, 0, 3), waiting(11, 1, 4), waiting(5, 0, 3)])
    known = OpenTransaction("app", 2, 1, [waiting(11, 0, 5, 2), waiting(11, 1, 5, 2)])
    other = OpenTransaction("app", 3, 1, [waiting(5, 0, 6, 3)])
    cut = [RestoredDecision("app", 2, 1, True, [ParkedBatches(11, 0, [(5, 0)])])]
    assert undecided_aborts([halves, mine, known, other], {11}, cut) == [
        RestoredDecision("app", 1, 1, False, [ParkedBatches(11, 0, []), ParkedBatches(11, 1, [])]),
        RestoredDecision("app", 2, 1, False, [ParkedBatches(11, 1, [])]),
    ]


def test_k6_a_list_of_what_waits_is_complete_when_it_has_as_many_as_the_queues() -> None:
    found = [
        OpenTransaction("app", -1, 0, [waiting(11, 0, 9, -1)]),
        OpenTransaction("app", 1, 1, [waiting(11, 0, 3), waiting(11, 1, 4)]),
    ]
    assert lists_all(found, {(11, 0): 2, (11, 1): 1, (11, 2): 0, (11, 3): -1})
    assert not lists_all(found, {(11, 0): 3})
    assert not lists_all(found, {(12, 0): 1})


def test_producers_of_before_the_cut_are_fenced() -> None:
    assert known_applications(STATE) == [RestoredApplication("app", 5, 8, [(9, 1)])]


def test_decisions_fit_into_commands() -> None:
    places = [(at, 0) for at in range(2_000)]
    each = RestoredDecision("app", 1, 1, True, [ParkedBatches(3, 0, places)])
    applications = known_applications(STATE)
    commands = list(decision_commands(MARK, applications, [each] * 20))
    assert len(commands) > 2
    assert [one for c in commands for one in c.decisions] == [each] * 20
    assert [one for c in commands for one in c.applications] == applications
    assert all(len(msgspec.msgpack.encode(c)) < COMMAND_BYTES + 6_000 for c in commands)
    assert list(decision_commands(MARK, [], [])) == []
