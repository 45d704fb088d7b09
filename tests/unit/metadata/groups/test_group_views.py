"""Groups in WATCH: deltas of groups and members, for coordinators and for others."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from logboom.metadata.groups.group_views import offsets_of, summaries, whole_view
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables import change_index
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.group_commands import AlterGroup, DeleteGroup
from logboom.wire.group_view import GroupOffsets, GroupView, OwnedQueue
from logboom.wire.view import View
from tests.unit.metadata.groups.tables import END, GroupTables


def watch(
    tables: GroupTables, version: int, groups: Collection[str] | None = None, members_at: str = ""
) -> View:
    """The answer to a WATCH."""
    return view_since(tables.state.cluster, version, None, [], None, groups, members_at)


def one(view: View) -> GroupView:
    """The only group of an answer."""
    (group,) = view.groups
    return group


def two_members() -> GroupTables:
    tables = GroupTables()
    tables.join("m1")
    tables.join("m2")
    tables.settle()
    return tables


def test_who_does_not_ask_for_groups_is_told_of_none() -> None:
    tables = two_members()
    for version in (-1, 3):
        view = watch(tables, version, ())
        assert (view.groups, view.deleted_groups) == ([], [])


def test_a_delta_holds_the_members_that_changed() -> None:
    tables = two_members()
    tables.done(AlterGroup("other", None, {"t": "*"}, True, 0))
    version = tables.state.version
    tables.join("m2")
    view = watch(tables, version)
    group = one(view)
    assert not view.full
    assert (group.full, [m.id for m in group.members], group.gone) == (False, ["m2"], [])
    assert group.member_count == 2
    tables.leave("m1")
    group = one(watch(tables, version))
    assert ([m.id for m in group.members], group.gone) == (["m2"], ["m1"])
    assert watch(tables, tables.state.version).groups == []
    assert watch(tables, version, {"other"}).groups == []


def test_a_member_is_told_with_all_it_has() -> None:
    tables = two_members()
    key = tables.owned("m1")[0]
    tables.commit("m1", tables.last(key, 5, ranges=b"r"))
    tables.join("m3")
    tables.allocate()
    (member,) = [m for m in one(watch(tables, -1)).members if m.id == "m1"]
    epoch = tables.group.topics[key[0]].owner_epochs[key[1]]
    revoking = key in tables.owned("m1", revoking=True)
    assert member.queues[0] == OwnedQueue(*key, epoch, 5, b"r", revoking)
    assert [(q.topic_id, q.queue) for q in member.queues] == tables.owned("m1")
    assert member.epoch == tables.member("m1").epoch


def test_commits_wake_nobody() -> None:
    tables = two_members()
    version = tables.state.version
    tables.commit("m1", tables.last(tables.owned("m1")[0], 5))
    assert tables.state.version == version
    assert watch(tables, version).groups == []


def test_a_deleted_group_is_named_and_one_made_again_is_whole() -> None:
    tables = GroupTables()
    tables.join("m1")
    tables.leave("m1")
    version = tables.state.version
    tables.done(DeleteGroup("g", 0))
    assert watch(tables, version).deleted_groups == ["g"]
    tables.join("m2")
    view = watch(tables, version)
    group = one(view)
    assert (view.deleted_groups, group.full, group.gone) == ([], True, [])
    assert [m.id for m in group.members] == ["m2"]


def test_a_broker_is_told_the_members_of_its_own_groups_only() -> None:
    tables = two_members()
    mine = tables.group.coordinator
    other = next(broker for broker in "abc" if broker != mine)
    head = one(watch(tables, -1, None, other))
    assert (head.members, head.full, head.member_count) == ([], False, 2)
    assert head.coordinator == mine
    assert len(one(watch(tables, -1, None, mine)).members) == 2


def test_a_broker_that_becomes_coordinator_is_told_everything() -> None:
    tables = two_members()
    version = tables.state.version
    tables.fence(tables.group.coordinator)
    now = tables.group.coordinator
    group = one(watch(tables, version, None, now))
    assert (group.full, len(group.members)) == (True, 2)
    # Who follows all members has them already.
    assert (one(watch(tables, version)).full, one(watch(tables, version)).members) == (False, [])


def test_after_a_restore_an_older_version_gets_the_whole() -> None:
    tables = two_members()
    version = tables.state.version
    tables.leave("m1")
    snapshot, tables.state = tables.state.snapshot(), StateMachine()
    tables.state.restore(snapshot)
    view = watch(tables, version)
    assert view.full
    assert (one(view).full, [m.id for m in one(view).members]) == (True, ["m2"])


def test_who_is_behind_the_members_that_are_remembered_gets_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_index, "MAX_TOMBSTONES", 2)
    tables = two_members()
    version = tables.state.version
    for number in range(3):
        tables.join(f"x{number}")
        tables.leave(f"x{number}")
    view = watch(tables, version)
    assert not view.full
    assert (one(view).full, one(view).gone) == (True, [])


def test_where_a_group_has_to_begin_is_asked_of_the_coordinator() -> None:
    tables = GroupTables(queues=2)
    tables.done(AlterGroup("g", None, None, True, 0))
    config = tables.group.config
    last = type(config)(start="last")
    tables.done(AlterGroup("g", last, {"t": "*"}, False, 0))
    assert one(watch(tables, -1)).unstarted == [tables.key(0), tables.key(1)]
    tables.start([(tables.key(0), 3)])
    assert one(watch(tables, -1)).unstarted == [tables.key(1)]


def test_a_description_has_offsets_of_former_topics_too() -> None:
    tables = two_members()
    key = tables.owned("m1")[0]
    tables.commit("m1", tables.last(key, 5, ranges=b"r"))
    tables.create("u")
    tables.done(AlterGroup("g", None, {"u": "*"}, False, 0))
    committed, ends = [0] * 4, [0] * 4
    committed[key[1]], ends[key[1]] = 5, END
    former, now = offsets_of(tables.state.cluster, tables.group)
    assert (former.committed, former.seen_ends) == (committed, ends)
    assert (former.topic, former.subscribed, former.ranges) == ("t", False, [(key[1], b"r")])
    assert now == GroupOffsets(tables.key(0, "u")[0], "u", True, [0], [0])
    assert whole_view(tables.group).member_count == 2
    (line,) = summaries(tables.state.cluster)
    assert (line.name, line.topics, line.member_count) == ("g", ["u"], 2)
