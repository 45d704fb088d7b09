"""What the Raft leader's log tells of each command: once, with what brought it about and by whom."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.wire.access.access_commands import (
    AddRule,
    AddUserKey,
    AdmitInitialUsers,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteRole,
    DeleteUser,
    EndUserKeys,
    InitialUser,
    RemoveRule,
    RemoveUserKey,
    SetDefaultQuota,
)
from logboom.wire.access.access_rules import AccessRule, Quota, UserKey
from logboom.wire.actor import Note
from logboom.wire.commands import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    FinishRestore,
    RegisterBroker,
    RemoveBroker,
    RestoreTopic,
)
from logboom.wire.features import FEATURES
from logboom.wire.group_commands import AlterGroup, DeleteGroup, ResetOffsets
from logboom.wire.operation_commands import (
    AlterSettings,
    CancelReassign,
    QueueMove,
    RaiseFeatures,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.view import TopicConfig
from tests.unit.metadata.state.states import Tables, three_brokers

KEY = "a" * 40
OTHER = "b" * 40
SECOND = "c" * 40


def cluster(**config: Any) -> Tables:
    """Three brokers and a topic, after all that was told of them."""
    tables = three_brokers(**config)
    tables.told()
    return tables


def shown(notes: list[Note]) -> list[tuple[str, dict[str, Any]]]:
    """Events with the fields that have a value."""
    return [
        (each.event, {name: value for name, value in each.fields.items() if value is not None})
        for each in notes
    ]


def only(tables: Tables, event: str) -> dict[str, Any]:
    """The fields of the one event of a kind that was told."""
    (found,) = [fields for name, fields in shown(tables.told()) if name == event]
    return found


def test_a_cluster_begins() -> None:
    tables = Tables()
    tables.begin()
    assert shown(tables.told()) == [
        ("cluster_founded", {"cluster": "the cluster", "features": FEATURES})
    ]
    tables.begin(2)
    assert tables.told() == [], "another term"
    tables.be_older()
    tables.done(RaiseFeatures(1, 0))
    assert shown(tables.told()) == [("features_raised", {"features": 1})]


def test_a_fenced_broker_brings_an_election_and_a_smaller_isr_once() -> None:
    tables = cluster()
    tables.fence("a")
    epoch = tables.queue().epoch
    where = {"topic": "t", "queue": 0}
    assert shown(tables.told()) == [
        ("broker_fenced", {"broker": "a", "instance_epoch": tables.epochs["a"]}),
        (
            "election",
            {
                **where,
                "leader": "b",
                "was": "a",
                "epoch": epoch,
                "in_sync": ["b", "c"],
                "cause": "broker_fenced",
            },
        ),
        (
            "isr_shrunk",
            {**where, "left": ["a"], "in_sync": ["b", "c"], "cause": "broker_fenced"},
        ),
    ]
    tables.fence("a")
    assert tables.told() == [], "it is fenced already"


def test_a_broker_registers_and_steps_down() -> None:
    tables = Tables()
    tables.begin()
    tables.told()
    tables.register("a", zone="rack-1")
    assert shown(tables.told()) == [
        (
            "broker_registered",
            {"broker": "a", "instance_epoch": 1, "zone": "rack-1", "fresh_store": True},
        )
    ]
    known = tables.state.cluster.brokers["a"]
    again = RegisterBroker("a", known.store_id, known.incarnation, known.endpoint, "", False, 0)
    tables.done(again)
    assert tables.told() == [], "the same process"
    tables.step_down("a")
    assert shown(tables.told()) == [("broker_stepped_down", {"broker": "a", "instance_epoch": 1})]
    tables.register("a", suspect=True)
    assert only(tables, "broker_registered")["suspect"] is True


def test_an_isr_shrinks_below_what_is_needed_and_grows() -> None:
    tables = cluster()
    assert tables.change_isr("a") == ""
    told = shown(tables.told())
    assert [name for name, _ in told] == ["isr_shrunk", "too_few_in_sync"]
    assert told[0][1]["left"] == ["b", "c"]
    assert told[0][1]["cause"] == "leader"
    assert (told[1][1]["in_sync"], told[1][1]["needed"]) == (["a"], 2)
    assert tables.change_isr("a", "b") == ""
    ((name, fields),) = shown(tables.told())
    assert (name, fields["joined"], fields["in_sync"]) == ("isr_expanded", ["b"], ["a", "b"])
    assert tables.change_isr("a", "b", version=-5) == "CONFLICT"
    assert tables.told() == [], "it was refused"


def test_a_queue_without_a_leader_and_one_that_was_forced() -> None:
    tables = cluster(min_in_sync=1)
    assert tables.change_isr("a") == ""
    tables.told()
    tables.fence("a")
    assert only(tables, "leader_missing")["was"] == "a"
    unclean = cluster(min_in_sync=1, unclean_election=True)
    assert unclean.change_isr("a") == ""
    unclean.told()
    unclean.fence("a")
    found = only(unclean, "unclean_election")
    assert (found["leader"], found["was"]) == ("b", "a")


def test_a_damaged_replica_and_a_full_disk_are_the_cause() -> None:
    tables = cluster()
    tables.report_damage("a")
    assert only(tables, "election")["cause"] == "damage"
    tables = cluster()
    tables.report_room("a", full=True)
    assert {each.fields["cause"] for each in tables.told()} == {"disk"}


def test_an_operator_elects() -> None:
    tables = cluster()
    tables.done(ElectLeader("t", 0, "c", 0))
    found = only(tables, "election")
    assert (found["leader"], found["cause"]) == ("c", "hand_over")


def test_moves_begin_end_and_are_cancelled() -> None:
    tables = cluster()
    tables.register("d")
    tables.told()
    tables.by = "alice"
    topic_id = tables.queue().topic.id
    tables.done(Reassign([QueueMove(topic_id, 0, -1, ["a", "b", "d"])], 0))
    begun = only(tables, "move_begun")
    assert (begun["replicas"], begun["added"], begun["removed"], begun["by"]) == (
        ["a", "b", "d"],
        ["d"],
        ["c"],
        "alice",
    )
    tables.done(CancelReassign([(topic_id, 0)], 0))
    assert only(tables, "move_cancelled")["replicas"] == ["a", "b", "c"]
    tables.done(Reassign([QueueMove(topic_id, 0, -1, ["a", "b", "d"])], 0))
    tables.told()
    assert tables.change_isr("a", "b", "c", "d") == ""
    told = shown(tables.told())
    assert [name for name, _ in told].count("move_completed") == 1
    assert dict(told)["move_completed"]["replicas"] == ["a", "b", "d"]
    # A mere order of replicas is a move that ends at once.
    tables.done(Reassign([QueueMove(topic_id, 0, -1, ["b", "a", "d"])], 0))
    assert [each.event for each in tables.told()] == ["replicas_changed"]


def test_a_broker_is_removed_by_somebody() -> None:
    tables = cluster()
    tables.register("d")
    tables.fence("c")
    tables.told()
    tables.by = "alice"
    tables.done(RemoveBroker("c", accept_loss=True))
    told = dict(shown(tables.told()))
    assert told["broker_removed"]["by"] == "alice"
    assert told["replicas_changed"]["removed"] == ["c"]


def test_modes() -> None:
    tables = cluster()
    tables.by = "alice"
    tables.done(SetBrokerMode("a", "maintenance", 0))
    told = shown(tables.told())
    assert told[0] == (
        "broker_mode_changed",
        {"broker": "a", "mode": "maintenance", "was": "active", "by": "alice"},
    )
    assert told[1][0] == "election"
    tables.done(SetBrokerMode("a", "maintenance", 0))
    assert tables.told() == [], "nothing changes"


def test_topics_are_created_altered_and_deleted_by_somebody() -> None:
    tables = cluster()
    tables.by = "alice"
    tables.create("u", queues=2)
    assert shown(tables.told()) == [
        ("topic_created", {"topic": "u", "queues": 2, "replicas": 3, "by": "alice"})
    ]
    tables.done(AlterTopic("u", 3, TopicConfig(retention_ms=5), 0))
    assert only(tables, "topic_altered") == {
        "topic": "u",
        "queues": 3,
        "settings": ["retention_ms=5"],
        "by": "alice",
    }
    tables.done(AlterTopic("u", 3, TopicConfig(retention_ms=5), 0))
    assert tables.told() == [], "nothing changes"
    assert tables.apply(CreateTopic("u", 1, 1, TopicConfig(), 0)).code == "TOPIC_EXISTS"
    assert tables.told() == [], "it was refused"
    tables.done(DeleteTopic("u", 0))
    assert shown(tables.told()) == [("topic_deleted", {"topic": "u", "queues": 3, "by": "alice"})]


def test_a_proposal_that_is_repeated_is_told_once() -> None:
    tables = cluster()
    for _ in range(2):
        tables.apply(DeleteTopic("t", 0), "client:one", 1)
    assert [each.event for each in tables.told()] == ["topic_deleted"]


def test_restores() -> None:
    tables = cluster()
    command = RestoreTopic("r", 0, TopicConfig(), 1, 0, "", [4], "backup 1")
    topic_id = tables.done(command).value
    assert isinstance(topic_id, int)
    assert only(tables, "restore_begun") == {"topic": "r", "queues": 1}
    tables.done(command)
    assert tables.told() == [], "it goes on"
    tables.done(FinishRestore("r", topic_id, "backup 1"))
    assert [each.event for each in tables.told()] == ["restore_finished", "election"]


def test_groups() -> None:
    tables = cluster()
    tables.by = "alice"
    tables.done(AlterGroup("g", None, {"t": ""}, True, 0))
    told = dict(shown(tables.told()))
    assert told["group_altered"] == {"group": "g", "by": "alice"}
    first = told["coordinator_changed"]["coordinator"]
    topic_id = tables.queue().topic.id
    tables.done(ResetOffsets("g", [(topic_id, 0, 7), (topic_id, 99, 7)], 0))
    assert only(tables, "offsets_reset") == {"group": "g", "moved": 1, "by": "alice"}
    tables.fence(str(first))
    found = only(tables, "coordinator_changed")
    assert (found["group"], found["was"], found["cause"]) == ("g", first, "broker_fenced")
    tables.done(DeleteGroup("g", 0))
    assert shown(tables.told()) == [("group_deleted", {"group": "g", "by": "alice"})]


def test_settings_that_changed() -> None:
    tables = cluster()
    tables.by = "alice"
    tables.done(AlterSettings("", {"balance_mode": "off", "half_checks": None}, 0))
    tables.done(AlterSettings("a", {"half_checks": "3"}, 0))
    tables.done(AlterSettings("a", {"half_checks": None}, 0))
    assert shown(tables.told()) == [
        (
            "setting_changed",
            {"scope": "cluster", "name": "balance_mode", "value": "off", "by": "alice"},
        ),
        ("setting_changed", {"scope": "a", "name": "half_checks", "value": "3", "by": "alice"}),
        ("setting_changed", {"scope": "a", "name": "half_checks", "by": "alice"}),
    ]


def test_users_and_rules_are_told_without_their_keys() -> None:
    tables = cluster()
    tables.by = "root"
    rule = AccessRule(True, "read", "topic", "t")
    key, other = UserKey("laptop", KEY, 0), UserKey("phone", OTHER, 0)
    commands = (
        AdmitInitialUsers([InitialUser("root", SECOND, administrator=True)], 0),
        CreateUser("alice", [key], [], 0),
        AddUserKey("alice", other),
        RemoveUserKey("alice", "laptop"),
        CreateRole("readers"),
        AddRule("role:readers", rule),
        AddRule("user:alice", rule),
        AlterUser("alice", True, ["readers"], Quota(topics=3), 0),
        AlterUser("alice", None, [], None, 0),
        RemoveRule("role:readers", rule),
        DeleteRole("readers"),
        SetDefaultQuota(Quota(topics=9)),
        DeleteUser("alice"),
    )
    notes: list[Note] = []
    for command in commands:
        tables.done(command)
        notes += tables.told()
        # What is repeated and changes nothing is not told.
        tables.apply(command)
        assert tables.told() == [], command
    told = shown(notes)
    assert told[0] == ("initial_users_admitted", {"users": ["root"]})
    actions = [(name, fields["action"]) for name, fields in told[1:]]
    assert actions == [
        ("user_changed", "created"),
        ("user_changed", "key added"),
        ("user_changed", "key removed"),
        ("role_changed", "created"),
        ("role_changed", "rule added"),
        ("role_changed", "rule added"),
        ("user_changed", "disabled"),
        ("user_changed", "roles set"),
        ("user_changed", "quota set"),
        ("user_changed", "roles revoked"),
        ("role_changed", "rule removed"),
        ("role_changed", "deleted"),
        ("role_changed", "default quota set"),
        ("user_changed", "deleted"),
    ]
    assert {fields["by"] for _, fields in told[1:]} == {"root"}
    assert told[2][1]["label"] == "phone"
    assert told[5][1] == {
        "role": "readers",
        "action": "rule added",
        "rule": str(rule),
        "by": "root",
    }
    assert not any(secret in repr(notes) for secret in (KEY, OTHER, SECOND))


def test_keys_that_end() -> None:
    tables = cluster()
    tables.done(
        CreateUser("alice", [UserKey("short", KEY, 1, 5), UserKey("long", OTHER, 1)], [], 1)
    )
    tables.told()
    tables.apply(EndUserKeys(0), time_ms=10_000)
    assert only(tables, "keys_ended") == {"users": ["alice"]}


@pytest.mark.parametrize("queues", [50, 1_000])
def test_a_broker_with_many_queues_is_told_of_in_few_lines(queues: int) -> None:
    tables = cluster()
    tables.create("many", queues=queues)
    led = sum(queue.standing.leader == "a" for queue in tables.state.cluster.topics["many"].queues)
    tables.told()
    tables.fence("a")
    told = tables.told()
    assert len(told) < 210
    more = next((each.fields for each in told if each.event == "more_queues_changed"), {})
    elections, queues_more = more.get("elections", 0), more.get("queues", 0)
    assert isinstance(elections, int)
    assert isinstance(queues_more, int)
    # The queue of "t", too.
    assert sum(each.event == "election" for each in told) + elections == led + 1
    assert sum(each.event == "isr_shrunk" for each in told) + queues_more == queues + 1
    assert bool(more) == (queues > 100)


def test_nothing_is_noted_where_nobody_asks() -> None:
    tables = cluster()
    tables.fence("a")
    assert tables.state.cluster.notes is None
