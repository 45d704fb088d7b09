"""A follower's copy of the consumer groups: wholes, deltas, deletions, coordinators that change."""

from __future__ import annotations

from logboom.wire.group_routes import GroupRoutes
from logboom.wire.group_view import GroupConfig, GroupView, MemberView
from logboom.wire.view import View


def member(name: str, version: int = 1) -> MemberView:
    return MemberView(name, 1, "me", "", "", 1, [], version)


def group(
    *members: str,
    name: str = "g",
    full: bool = False,
    gone: tuple[str, ...] = (),
    at: str = "a",
    version: int = 1,
) -> GroupView:
    told = [member(each, version) for each in members]
    gone_ids = list(gone)
    config = GroupConfig()
    return GroupView(name, 1, config, {}, 1, at, 1, 1, 1, "", version, 9, full, told, gone_ids, [])


def view(
    version: int, *groups: GroupView, full: bool = False, deleted: tuple[str, ...] = ()
) -> View:
    named = list(groups)
    return View(version, full, "c", [], [], [], [], [], None, named, list(deleted))


def members(routes: GroupRoutes, name: str = "g") -> list[str]:
    return sorted(routes.groups[name].members)


def test_deltas_add_change_and_remove_members() -> None:
    routes = GroupRoutes()
    assert routes.update(view(1, group("m1", "m2", full=True), full=True)) == ["g"]
    assert routes.update(view(2, group("m2", "m3", gone=("m1",), version=2))) == ["g"]
    assert members(routes) == ["m2", "m3"]
    assert routes.groups["g"].members["m2"].version == 2
    assert routes.groups["g"].head.version == 2


def test_a_whole_group_leaves_out_who_is_gone() -> None:
    routes = GroupRoutes()
    routes.update(view(1, group("m1", full=True), full=True))
    routes.update(view(2, group("m2", full=True)))
    assert members(routes) == ["m2"]


def test_groups_go_by_name_or_because_the_whole_lacks_them() -> None:
    routes = GroupRoutes()
    both = (group(full=True), group(full=True, name="h"))
    routes.update(view(1, *both, full=True))
    assert routes.update(view(2, deleted=("h", "never known"))) == ["h"]
    assert sorted(routes.groups) == ["g"]
    assert routes.update(view(3, group(full=True, name="h"), full=True)) == ["g", "h"]
    assert sorted(routes.groups) == ["h"]


def test_older_views_are_ignored() -> None:
    routes = GroupRoutes()
    routes.update(view(5, group("m1", full=True), full=True))
    assert routes.update(view(4, group("m2", full=True), full=True)) == []
    assert routes.update(view(5, group("m2", full=True))) == []
    assert members(routes) == ["m1"]


def test_a_broker_forgets_members_of_groups_that_others_coordinate() -> None:
    routes = GroupRoutes("a")
    routes.update(view(1, group("m1", full=True), full=True))
    routes.update(view(2, group(at="b", version=2)))
    assert members(routes) == []
    assert routes.groups["g"].head.coordinator == "b"
    routes.update(view(3, group("m1", "m2", full=True, version=3)))
    assert members(routes) == ["m1", "m2"]
