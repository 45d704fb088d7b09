"""Restores in the replicated state: what they set, what they refuse, and that each may be repeated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.commands import (
    AllocateProducerIds,
    CreateTopic,
    DeleteTopic,
    FinishRestore,
    RestoreCounters,
    RestoredApplication,
    RestoredDecision,
    RestoreDecisions,
    RestoredOffsets,
    RestoreGroup,
    RestoreTopic,
)
from logboom.wire.group_view import GroupConfig
from logboom.wire.transactions import Decide, OpenApplication, ParkedBatches
from logboom.wire.view import TopicConfig
from tests.unit.metadata.state.states import Tables, three_brokers

BACKUP = "20261124T021500Z of a cluster"


def topic(name: str = "flights", topic_id: int = 7, **changes: Any) -> RestoreTopic:
    """The command that creates a topic of two queues."""
    made = RestoreTopic(name, topic_id, TopicConfig(), 3, 5, "", [4, 9], BACKUP)
    return msgspec.structs.replace(made, **changes)


def restoring() -> Tables:
    """A cluster with topic flights, of id 7, that is being restored."""
    tables = three_brokers()
    tables.done(topic())
    return tables


def group(**changes: Any) -> RestoreGroup:
    """The command that sets offsets of a group in it."""
    offsets = [RestoredOffsets(7, 0, [30, -1], [40, 0], [(0, b"ranges")])]
    made = RestoreGroup("readers", GroupConfig(), {"flights": "*"}, offsets, BACKUP)
    return msgspec.structs.replace(made, **changes)


def test_a_topic_keeps_its_id_and_begins_above_its_epochs() -> None:
    tables = restoring()
    made = tables.state.cluster.topics["flights"]
    assert (made.id, made.created_ms, made.restoring) == (7, 5, BACKUP)
    assert [queue.epoch for queue in made.queues] == [5, 10]
    assert tables.state.cluster.topic_view(made).restoring == BACKUP
    assert tables.done(topic("other", 0)).value == 8, "the next id"
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    assert twin.cluster.topics["flights"].restoring == BACKUP
    assert twin.snapshot() == tables.state.snapshot()


def test_a_topic_is_created_once_however_often_it_is_asked() -> None:
    tables = restoring()
    version = tables.state.cluster.version
    assert tables.done(topic()).value == 7
    assert tables.state.cluster.version == version


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (topic("t"), "TOPIC_EXISTS"),
        (topic(backup="another"), "TOPIC_EXISTS"),
        (topic(epochs=[4]), "TOPIC_EXISTS"),
        (topic("new", 3), "INVALID_ARGUMENT"),
        (topic("new", 0, replicas=4), "TOO_FEW_BROKERS"),
        (topic("new", 0, epochs=[-2]), "INVALID_ARGUMENT"),
        (topic("new", 0, epochs=[]), "INVALID_ARGUMENT"),
        (topic("new", 0, backup=""), "INVALID_ARGUMENT"),
        (topic("no name", 0), "INVALID_NAME"),
        (topic("new", 0, config=TopicConfig(min_in_sync=4)), "INVALID_ARGUMENT"),
    ],
)
def test_a_topic_that_cannot_be_restored_changes_nothing(command: RestoreTopic, code: str) -> None:
    tables = restoring()
    before = tables.state.snapshot()
    assert tables.apply(command).code == code
    assert tables.state.snapshot() == before


def test_k6_everything_that_counts_begins_above_the_backup() -> None:
    tables = three_brokers()
    tables.done(RestoreCounters(5_000, 70, 800, 90, 11))
    cluster = tables.state.cluster
    assert cluster.version > 5_000
    assert tables.done(AllocateProducerIds(1)).value == 800
    assert tables.register("d") == 90
    assert tables.done(CreateTopic("u", 1, 1, TopicConfig(), 0)).value == 70
    assert cluster.groups.next_id == 11
    version = cluster.version
    tables.done(RestoreCounters(1, 1, 1, 1, 1))
    assert (cluster.version, cluster.next_topic_id) == (version, 71), "nothing goes back"
    assert tables.apply(RestoreCounters(1 << 63, 1, 1, 1, 1)).code == "INVALID_ARGUMENT"


def test_a_group_gets_its_offsets_and_keeps_what_it_has() -> None:
    tables = restoring()
    tables.done(group())
    made = tables.state.cluster.groups.by_name["readers"]
    kept = made.topics[7]
    assert made.subscription == {"flights": "*"}
    assert (kept.committed[0], kept.seen_ends[0], kept.ranges) == (30, 40, {0: b"ranges"})
    later = group(offsets=[RestoredOffsets(7, 1, [5], [9])], subscription={"u": "*"})
    tables.done(later)
    assert list(kept.committed) == [30, 5]
    assert made.subscription == {"flights": "*"}, "one that exists keeps its own"
    before = tables.state.snapshot()
    tables.done(later)
    assert list(kept.committed) == [30, 5]
    assert len(before) == len(tables.state.snapshot())


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        (RestoredOffsets(1, 0, [1], [1]), "INVALID_ARGUMENT"),
        (RestoredOffsets(99, 0, [1], [1]), "INVALID_ARGUMENT"),
        (RestoredOffsets(7, 1, [1, 1], [1, 1]), "UNKNOWN_QUEUE"),
        (RestoredOffsets(7, -1, [1], [1]), "UNKNOWN_QUEUE"),
        (RestoredOffsets(7, 0, [1], []), "INVALID_ARGUMENT"),
        (RestoredOffsets(7, 0, [-2], [1]), "INVALID_ARGUMENT"),
        (RestoredOffsets(7, 0, [1], [1 << 62]), "INVALID_ARGUMENT"),
        (RestoredOffsets(7, 0, [1], [1], [(1, b"")]), "INVALID_ARGUMENT"),
    ],
)
def test_offsets_that_cannot_be_change_nothing(offsets: RestoredOffsets, code: str) -> None:
    tables = restoring()
    before = tables.state.snapshot()
    assert tables.apply(group(offsets=[offsets])).code == code
    assert tables.state.snapshot() == before


def test_decisions_get_numbers_of_their_own_above_the_backups() -> None:
    tables = restoring()
    tables.done(RestoreCounters(5_000, 1, 1, 1, 1))
    decisions = [
        RestoredDecision("app", 3, 1, True, [ParkedBatches(7, 0, [(5, 0)])]),
        RestoredDecision("app", 4, 1, False, [ParkedBatches(7, 0, []), ParkedBatches(7, 1, [])]),
    ]
    application = RestoredApplication("app", 6, 3, [(2, 1), (4, 1)])
    tables.done(RestoreDecisions([application], decisions, BACKUP))
    table = tables.state.cluster.transactions
    first, second = table.decisions
    assert 5_000 < first < second
    assert table.decisions[first].queues == {(7, 0): [(5, 0)]}
    app = table.apps["app"]
    assert (app.epoch, app.committed, list(app.aborted)) == (6, 3, [(4, 1)])
    tables.done(RestoreDecisions([RestoredApplication("app", 2, 1, [])], [], BACKUP))
    assert (app.epoch, app.committed) == (6, 3), "nothing goes back"
    assert tables.done(OpenApplication("app", 0)).value == ["7", "3"]
    late = Decide("app", 7, 4, 1, True, [], [], 0)
    assert tables.apply(late).code == "TRANSACTION_ABORTED"
    tables.done(DeleteTopic("flights", 0))
    assert not table.decisions, "nothing is left to be carried out"


def test_decisions_on_other_topics_are_refused() -> None:
    tables = restoring()
    for parked in (ParkedBatches(1, 0, []), ParkedBatches(7, 2, []), ParkedBatches(99, 0, [])):
        command = RestoreDecisions([], [RestoredDecision("app", 1, 1, True, [parked])], BACKUP)
        assert tables.apply(command).code == "INVALID_ARGUMENT"
    bad = RestoredDecision("a\0b", 1, 1, True, [])
    assert tables.apply(RestoreDecisions([], [bad], BACKUP)).code == "INVALID_ARGUMENT"


def test_normal_work_begins_in_new_epochs() -> None:
    tables = restoring()
    assert tables.apply(FinishRestore("flights", 7, "another")).code == "INVALID_ARGUMENT"
    assert tables.apply(FinishRestore("flights", 8, BACKUP)).code == "UNKNOWN_TOPIC"
    tables.done(FinishRestore("flights", 7, BACKUP))
    made = tables.state.cluster.topics["flights"]
    assert made.restoring == ""
    assert [queue.epoch for queue in made.queues] == [6, 11]
    tables.done(FinishRestore("flights", 7, BACKUP))
    assert [queue.epoch for queue in made.queues] == [6, 11], "once"
    assert tables.apply(group()).code == "INVALID_ARGUMENT", "what is in use is not set back"


def test_a_groups_own_topic_that_is_being_restored_may_be_deleted() -> None:
    tables = restoring()
    tables.done(topic("%RETRY%readers", 0))
    tables.done(group())
    tables.done(DeleteTopic("%RETRY%readers", 0))


@pytest.mark.parametrize(
    "command",
    [
        RestoreCounters(9, 9, 9, 9, 9),
        topic(),
        group(),
        RestoreDecisions([], [], BACKUP),
        FinishRestore("t", 1, BACKUP),
    ],
)
def test_an_older_cluster_is_not_restored_into(command: Any) -> None:
    tables = three_brokers()
    tables.be_older()
    result = tables.apply(command)
    assert result.code == "INVALID_ARGUMENT"
    assert "logboom cluster upgrade finalize" in result.text
