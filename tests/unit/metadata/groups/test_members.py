"""Members of consumer groups: joining, leaving, expiry, static members, mismatched subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.metadata.tables.name_rules import MAX_MEMBERS
from logboom.wire.commands import CreateTopic, DeleteTopic
from logboom.wire.group_commands import DeleteGroup, ExpireMembers, LeaveGroup, ReleaseQueues
from logboom.wire.group_view import GroupConfig, StrategyOptions
from logboom.wire.view import TopicConfig
from tests.unit.metadata.groups.tables import END, GroupTables

END_PLUS = END + 1


def test_the_first_member_makes_the_group_and_gets_all() -> None:
    tables = GroupTables()
    epoch = tables.join("m1", config=GroupConfig(session_ms=5_000))
    assert tables.member("m1").epoch == epoch
    assert tables.group.config.session_ms == 5_000
    assert tables.owned("m1") == []
    tables.allocate()
    assert tables.owned("m1") == [tables.key(n) for n in range(4)]
    assert tables.group.target_epoch == tables.group.group_epoch


def test_settings_are_only_those_of_the_first_member() -> None:
    tables = GroupTables()
    tables.join("m1", config=GroupConfig(session_ms=5_000))
    tables.join("m2", config=GroupConfig(session_ms=7_000))
    assert tables.group.config.session_ms == 5_000


def test_a_queue_is_given_to_the_next_only_when_released() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.allocate()
    before = {key: tables.last(key, 0).owner_epoch for key in tables.owned("m1")}
    tables.join("m2")
    tables.allocate()
    revoked = tables.owned("m1", revoking=True)
    assert len(revoked) == 2
    assert tables.owned("m2") == []
    assert tables.release("m1", tables.last(revoked[0], 7)) == [""]
    assert tables.owned("m2") == revoked[:1]
    assert tables.committed(revoked[0][1]) == 7
    assert tables.last(revoked[0], 0).owner_epoch > before[revoked[0]]
    for kept in tables.owned("m1", revoking=False):
        assert tables.last(kept, 0).owner_epoch == before[kept]


def test_a_release_that_is_refused_keeps_the_queue() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.settle()
    tables.join("m2")
    tables.allocate()
    one, two = tables.owned("m1", revoking=True)
    answer = tables.release("m1", tables.last(one, END_PLUS), tables.last(two, 5))
    assert answer == ["BEYOND_END", ""]
    assert tables.owned("m1", revoking=True) == [one]
    assert tables.release("m1", tables.last(two, 5), tables.last(one, 6)) == ["NOT_OWNER", ""]


def test_a_queue_whose_target_comes_back_stays_under_its_epoch() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.allocate()
    tables.join("m2")
    tables.allocate()
    revoked = tables.owned("m1", revoking=True)
    epochs = [tables.last(key, 0).owner_epoch for key in revoked]
    tables.leave("m2")
    assert tables.owned("m1", revoking=True) == []
    tables.allocate()
    assert tables.owned("m1", revoking=False) == [tables.key(n) for n in range(4)]
    assert [tables.last(key, 0).owner_epoch for key in revoked] == epochs


def test_leaving_commits_and_frees_at_once() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.join("m2")
    tables.settle()
    mine = tables.owned("m2")
    assert tables.leave("m2", tables.last(mine[0], 11), tables.last(mine[1], END_PLUS)) == [
        "",
        "BEYOND_END",
    ]
    assert "m2" not in tables.group.members
    assert tables.committed(mine[0][1]) == 11
    tables.allocate()
    assert tables.owned("m1") == [tables.key(n) for n in range(4)]


def test_an_expired_member_is_fenced_and_what_it_drained_goes_to_its_target() -> None:
    tables = GroupTables()
    old = tables.join("m1")
    tables.allocate()
    tables.join("m2")
    tables.allocate()
    revoked = tables.owned("m1", revoking=True)
    late = [tables.last(key, 9) for key in revoked]
    assert tables.expire("m1") == [""]
    assert tables.owned("m2") == revoked
    assert tables.apply(ReleaseQueues("g", "m1", old, late, 0)).code == "UNKNOWN_MEMBER"
    assert tables.commit("m1", *late, epoch=old) == ["UNKNOWN_MEMBER"] * 2
    assert tables.committed(revoked[0][1]) == 0
    assert tables.commit("m2", *late) == ["STALE_EPOCH"] * 2


def test_several_that_expire_at_once_do_not_inherit_from_each_other() -> None:
    tables = GroupTables()
    for member in ("m1", "m2", "m3"):
        tables.join(member)
        tables.allocate()
    tables.expire("m1", "m2")
    before = tables.state.snapshot()
    assert list(tables.group.members) == ["m3"]
    owners = {o.id for o in tables.group.topics[tables.key(0)[0]].owners if o is not None}
    assert owners <= {"m3"}
    assert tables.state.snapshot() == before
    tables.settle()
    assert len(tables.owned("m3")) == 4


def test_expiry_is_answered_for_each_and_only_the_coordinator_may() -> None:
    tables = GroupTables()
    epoch = tables.join("m1")
    g = tables.group
    command = ExpireMembers(
        "g", g.coordinator, g.coordinator_epoch, [("m1", epoch - 1), ("m9", 1)], 0
    )
    assert tables.done(command).value == ["STALE_EPOCH", "UNKNOWN_MEMBER"]
    for coordinator, coordinator_epoch in (("x", g.coordinator_epoch), (g.coordinator, 99)):
        late = ExpireMembers("g", coordinator, coordinator_epoch, [("m1", epoch)], 0)
        assert tables.apply(late).code == "NOT_COORDINATOR"
    assert "m1" in g.members


def test_a_member_that_joins_again_keeps_its_queues_under_new_epochs() -> None:
    tables = GroupTables()
    old = tables.join("m1")
    tables.settle()
    key = tables.key(0)
    late = tables.last(key, 5)
    group_epoch = tables.group.group_epoch
    new = tables.join("m1")
    assert new > old
    assert len(tables.owned("m1")) == 4
    assert tables.group.group_epoch == group_epoch
    assert tables.commit("m1", late, epoch=old) == ["STALE_EPOCH"]
    assert tables.commit("m1", late) == ["STALE_EPOCH"]
    assert tables.commit("m1", tables.last(key, 5)) == [""]


def test_a_static_member_takes_over_what_its_former_process_had() -> None:
    tables = GroupTables()
    old = tables.join("process-1", instance="left")
    tables.join("other", instance="right")
    tables.settle()
    mine = tables.owned("process-1")
    group_epoch, target_epoch = tables.group.group_epoch, tables.group.target_epoch
    late = tables.last(mine[0], 3)
    tables.join("process-2", instance="left")
    assert tables.owned("process-2") == mine
    assert (tables.group.group_epoch, tables.group.target_epoch) == (group_epoch, target_epoch)
    assert tables.commit("process-1", late, epoch=old) == ["UNKNOWN_MEMBER"]
    assert tables.commit("process-2", late) == ["STALE_EPOCH"]
    assert tables.apply(LeaveGroup("g", "process-1", old, [], 0)).code == "UNKNOWN_MEMBER"
    assert len(tables.owned("other")) == 2


def test_a_static_member_that_comes_again_does_not_throw_out_its_successor() -> None:
    tables = GroupTables()
    tables.join("process-1", instance="left")
    tables.join("process-2", instance="left")
    result = tables.apply(tables.joining("process-1", instance="left", again=True))
    assert result.code == "INSTANCE_TAKEN"
    assert list(tables.group.members) == ["process-2"]
    # One whose successor has gone, and one that was only expired, are welcome.
    tables.join("process-2", instance="left", again=True)
    tables.leave("process-2")
    tables.join("process-1", instance="left", again=True)
    assert list(tables.group.members) == ["process-1"]


def test_a_static_member_that_was_draining_when_it_died_gives_that_away() -> None:
    tables = GroupTables()
    tables.join("process-1", instance="left")
    tables.allocate()
    tables.join("m2")
    tables.allocate()
    revoked = tables.owned("process-1", revoking=True)
    tables.join("process-2", instance="left")
    assert tables.owned("m2") == revoked
    assert tables.owned("process-2", revoking=True) == []


def test_another_room_is_a_reason_to_allocate_anew() -> None:
    tables = GroupTables()
    tables.join("m1")
    epoch = tables.group.group_epoch
    tables.join("m1", room="north")
    assert tables.group.group_epoch == epoch + 1


@pytest.mark.parametrize(
    ("changed", "code", "says"),
    [
        ({"group": "a b"}, "INVALID_NAME", "1 to 120"),
        ({"group": "x" * 121}, "INVALID_NAME", "1 to 120"),
        ({"group": "%DLQ%x"}, "INVALID_NAME", "1 to 120"),
        ({"group": ".."}, "INVALID_NAME", "'..'"),
        ({"member": ""}, "INVALID_ARGUMENT", "1 to 128"),
        ({"member": "m\n"}, "INVALID_ARGUMENT", "1 to 128"),
        ({"instance": "ü"}, "INVALID_ARGUMENT", "instance"),
        ({"room": "r" * 257}, "INVALID_ARGUMENT", "256"),
        ({"subscription": {}}, "INVALID_ARGUMENT", "1 to 1024"),
        ({"subscription": {"a b": "*"}}, "INVALID_ARGUMENT", "topic name"),
        ({"subscription": {"%RETRY%g": "*"}}, "INVALID_ARGUMENT", "without subscribing"),
        ({"subscription": {"t": "x" * 4097}}, "INVALID_ARGUMENT", "4096"),
        ({"coordinator_epoch": 99}, "NOT_COORDINATOR", "not 99"),
        ({"member": "left"}, "INVALID_ARGUMENT", "another member"),
        ({"instance": "m1"}, "INVALID_ARGUMENT", "another member"),
        ({"member": "process-1"}, "INVALID_ARGUMENT", "another member"),
        ({"group": "new", "config": GroupConfig(session_ms=0)}, "INVALID_ARGUMENT", "session_ms"),
        ({"group": "new", "config": GroupConfig(strategy="x")}, "INVALID_ARGUMENT", "sticky"),
        (
            {"group": "new", "config": GroupConfig(heartbeat_ms=10_000)},
            "INVALID_ARGUMENT",
            "less than session_ms",
        ),
        ({"group": "new", "config": GroupConfig(start=-5)}, "INVALID_ARGUMENT", "'first'"),
        ({"group": "new", "config": GroupConfig(max_attempts=0)}, "INVALID_ARGUMENT", "max_att"),
        (
            {"group": "new", "config": GroupConfig(retry_last_ms=1)},
            "INVALID_ARGUMENT",
            "retry_last_ms",
        ),
        (
            {"group": "new", "config": GroupConfig(options=StrategyOptions(virtual_nodes=0))},
            "INVALID_ARGUMENT",
            "virtual_nodes",
        ),
    ],
)
def test_a_refused_join_says_why_in_one_line_and_changes_nothing(
    changed: dict[str, Any], code: str, says: str
) -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.join("process-1", instance="left")
    before = tables.state.snapshot()
    command = tables.joining(**{"member": "m2", **changed})
    result = tables.apply(command)
    assert (result.code, says in result.text) == (code, True), result.text
    assert "\n" not in result.text
    assert tables.state.snapshot() == before


def test_a_group_has_so_many_members_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_MEMBERS < 0xFFFF
    monkeypatch.setattr("logboom.metadata.groups.member_commands.MAX_MEMBERS", 2)
    tables = GroupTables()
    tables.join("m1")
    tables.join("m2")
    assert tables.apply(tables.joining("m3")).code == "INVALID_ARGUMENT"
    tables.join("m2")


def test_a_mismatch_names_the_difference() -> None:
    tables = GroupTables()
    tables.join("m1", {"t": "*", "u": "late", "w": "*"})
    result = tables.apply(tables.joining("m2", {"t": "*", "u": "early", "v": "*"}))
    assert result.code == "SUBSCRIPTION_MISMATCH"
    assert "lacks 'w'" in result.text
    assert "has 'v' besides" in result.text
    assert "filters 'u' by 'early', not 'late'" in result.text
    assert (result.fields["missing"], result.fields["extra"]) == ("w", "v")
    assert (result.fields["different"], result.fields["version"]) == ("u", 1)
    assert "m2" not in tables.group.members


def test_a_long_mismatch_is_cut() -> None:
    tables = GroupTables()
    tables.join("m1", {f"t{n}": "*" for n in range(100)})
    result = tables.apply(tables.joining("m2", {"x": "*"}))
    assert "and 97 more" in result.text


def test_replacing_gives_all_another_subscription() -> None:
    tables = GroupTables()
    tables.create("u", queues=2)
    tables.join("m1")
    tables.settle()
    tables.join("m2", {"u": "*"}, replace=True)
    group = tables.group
    assert (group.subscription, group.subscription_version) == ({"u": "*"}, 2)
    assert tables.member("m1").subscription_version == 1
    # What m1 still has of t it must release; t's offsets stay.
    assert len(tables.owned("m1", revoking=True)) == 4
    tables.release_revoked("m1", 17)
    tables.settle()
    assert len(tables.owned("m1")) == len(tables.owned("m2")) == 1
    tables.join("m2", {"t": "*"}, replace=True)
    assert tables.committed(0) == 17


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (LeaveGroup("none", "m1", 1, [], 0), "UNKNOWN_GROUP"),
        (LeaveGroup("g", "none", 1, [], 0), "UNKNOWN_MEMBER"),
        (LeaveGroup("g", "m1", 1, [], 0), "STALE_EPOCH"),
        (ExpireMembers("none", "a", 1, [], 0), "UNKNOWN_GROUP"),
        (ReleaseQueues("none", "m1", 1, [], 0), "UNKNOWN_GROUP"),
        (ReleaseQueues("g", "none", 1, [], 0), "UNKNOWN_MEMBER"),
        (ReleaseQueues("g", "m1", 1, [], 0), "STALE_EPOCH"),
        (DeleteGroup("none", 0), "UNKNOWN_GROUP"),
        (DeleteGroup("g", 0), "GROUP_NOT_EMPTY"),
    ],
)
def test_what_does_not_fit_changes_nothing(command: Any, code: str) -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.settle()
    before = tables.state.snapshot()
    result = tables.apply(command)
    assert result.code == code
    assert "\n" not in result.text
    assert tables.state.snapshot() == before


def test_the_id_of_a_deleted_group_is_never_used_again() -> None:
    tables = GroupTables()
    tables.join("m1")
    first = tables.group.id
    tables.leave("m1")
    tables.done(DeleteGroup("g", 0))
    assert "g" not in tables.state.cluster.groups.by_name
    tables.join("m1")
    assert tables.group.id > first


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_deleted_group_takes_its_retries_along_and_dead_letters_if_asked(
    dead_letters: bool,
) -> None:
    tables = GroupTables()
    tables.join("m1")
    for topic in ("%RETRY%g", "%DLQ%g", "%RETRY%gg"):
        tables.done(CreateTopic(topic, 1, 3, TopicConfig(), 0))
    for topic in ("%RETRY%g", "%DLQ%g"):
        refusal = tables.apply(DeleteTopic(topic, 0))
        assert (refusal.code, refusal.fields["group"]) == ("INVALID_ARGUMENT", "g")
        assert "it goes with `logboom group delete`" in refusal.text
    tables.leave("m1")
    tables.done(DeleteGroup("g", 0, dead_letters))
    left = {"t", "%RETRY%gg"} if dead_letters else {"t", "%RETRY%gg", "%DLQ%g"}
    assert tables.state.cluster.topics.keys() == left
    tables.join("m2")
    tables.allocate()
    assert tables.owned("m2") == [tables.key(queue) for queue in range(4)]


def test_dead_letters_of_a_group_that_is_gone_can_be_deleted() -> None:
    tables = GroupTables()
    tables.done(CreateTopic("%DLQ%g", 1, 3, TopicConfig(), 0))
    tables.done(DeleteTopic("%DLQ%g", 0))
    assert "%DLQ%g" not in tables.state.cluster.topics


def test_a_join_sent_again_is_answered_and_not_done_again() -> None:
    tables = GroupTables()
    command = tables.joining("m1")
    first = tables.apply(command, "broker-1", 1)
    again = tables.apply(command, "broker-1", 1)
    assert first == again
    assert tables.member("m1").epoch == first.value
