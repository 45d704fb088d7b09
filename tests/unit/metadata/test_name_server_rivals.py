"""Two processes with one Raft id and copies of one folder: the one that nobody dials is refused."""

from __future__ import annotations

import pytest

from tests.unit.metadata.name_servers import Group


def test_r9_a_copy_of_the_leader_that_nobody_dials_ends() -> None:
    one_of_two_ends(of_leader=True)


def test_r9_a_copy_of_a_follower_that_nobody_dials_ends() -> None:
    one_of_two_ends(of_leader=False)


def one_of_two_ends(*, of_leader: bool) -> None:
    """Start a copy of a name server: it ends, and nothing happens to the original."""
    group = Group()
    group.register("b")
    name = group.leader() if of_leader else group.followers()[0]
    others = [other for other in group.processes if other != name]
    term = group.core(name).raft.term
    group.start(name, copy_on="elsewhere")
    group.run(15.0)
    assert f"another process is {name}" in group.ended.get("elsewhere", "")
    assert list(group.ended) == ["elsewhere"]
    for other in others:
        (told,) = [n for n in group.processes[other].notes if n.event == "raft_member_refused"]
        assert told.fields["name_server"] == name
        assert "stop the wrong one" in str(told.fields["text"])
    assert [core.links.up_count() for core in group.cores()] == [2, 2, 2]
    group.register("c")
    assert group.core(group.leader()).raft.term == term, "nobody was deposed"


@pytest.mark.parametrize("seconds", [0.05, 0.4, 1.3])
def test_one_that_is_restarted_again_and_again_is_not_refused(seconds: float) -> None:
    group = Group()
    group.register("b")
    name = group.followers()[0]
    for _ in range(12):
        group.kill(name)
        group.start(name)
        group.run(seconds)
    group.run(5.0)
    assert not group.ended
    assert [core.links.up_count() for core in group.cores()] == [2, 2, 2]
    assert not [n for each in group.processes.values() for n in each.notes if "refused" in n.event]
