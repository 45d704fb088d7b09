"""Joining ends: a name server that was added once never counts again with an empty disk (R9)."""

from __future__ import annotations

import pytest

from logboom.metadata.raft.raft_config import RaftConfig
from logboom.wire.commands import CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.messages import AddNameServer, Ok, RemoveNameServer
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group

LARGE = RaftConfig(compact_entries=10_000)
"""A log that is not compacted: who joins gets every entry, one after the other."""


def topic(name: str) -> CreateTopic:
    return CreateTopic(name, 1, 1, TopicConfig(), 0)


def add(group: Group, name: str) -> None:
    """Add a name server that runs, as an operator does."""
    request = AddNameServer(0, 5_000, name, f"{name}:7701", f"{name}:7721")
    assert isinstance(group.ask(group.leader(), request, "operator"), Ok)


def remove(group: Group, name: str) -> None:
    """Remove a name server, as an operator does."""
    answer = group.ask(group.leader(), RemoveNameServer(0, 5_000, name), "operator")
    if isinstance(answer, LogboomError):
        # It led, and has handed over.
        group.run(2.0)
        answer = group.ask(group.leader(), RemoveNameServer(0, 5_000, name), "operator")
    assert isinstance(answer, Ok)


@pytest.mark.parametrize("raft", [RaftConfig(compact_entries=24), LARGE])
def test_r9_who_was_added_once_does_not_vote_with_an_empty_disk(raft: RaftConfig) -> None:
    group = Group(raft=raft)
    group.register("b")
    group.start("name-4")
    add(group, "name-4")
    remove(group, "name-1")
    group.kill("name-1")
    group.run(1.0)
    # name-3 lags: it does not get what is committed from now on.
    group.kill("name-3")
    group.register("b")
    assert not group.propose(topic("kept")).code
    group.run(1.0)
    group.kill("name-2")
    group.kill("name-4")
    group.wipe("name-4")
    group.start("name-3")
    group.start("name-4")
    group.run(20.0)
    assert not any(core.raft.is_leader for core in group.cores())
    # It says so, and how to go on.
    assert "name-server remove name-4" in group.ended["name-4"]
    assert "new id" in group.ended["name-4"]
    # Whoever holds everything comes back.
    group.start("name-2")
    group.run(2.0)
    assert [t.name for t in group.view(group.leader()).topics] == ["kept"]
    # The operator does what the text says.
    group.start("name-5")
    remove(group, "name-4")
    add(group, "name-5")
    assert group.core(group.leader()).raft.members == {"name-2", "name-3", "name-5"}


def test_r9_the_leader_does_not_count_who_comes_back_with_an_empty_disk() -> None:
    group = Group()
    group.register("b")
    group.start("name-4")
    add(group, "name-4")
    leader = group.leader()
    group.kill("name-4")
    group.wipe("name-4")
    group.start("name-4")
    group.run(3.0)
    assert "name-4" in group.ended
    assert group.core(leader).links.strangers.keys() == {"name-4"}
    told = [note for note in group.processes[leader].notes if note.event == "raft_member_refused"]
    assert [note.fields["name_server"] for note in told] == ["name-4"]


def test_r9_a_founder_that_is_told_to_create_again_does_not_count() -> None:
    group = Group()
    group.register("b")
    group.run(1.0)
    group.kill("name-3")
    group.wipe("name-3")
    group.start("name-3")
    group.run(3.0)
    assert "name-server remove name-3" in group.ended["name-3"]


def test_r9_who_has_just_been_added_votes_after_a_power_failure_of_all() -> None:
    group = Group(size=1)
    group.register("b")
    group.start("name-2")
    add(group, "name-2")
    for name in ("name-1", "name-2"):
        group.kill(name)
    for name in ("name-1", "name-2"):
        group.start(name)
    group.register("b")
    assert not group.propose(topic("after")).code
    assert not group.ended


def test_r9_who_was_added_and_heard_nothing_yet_votes_for_those_whose_log_names_it() -> None:
    group = Group()
    group.register("b")
    group.start("name-4")
    leader = group.leader()
    group.kill(next(name for name in group.followers() if name != "name-4"))
    adding = AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721")
    group.begin(leader, adding, "operator")
    group.scheduler.run(
        group.scheduler.now + 5.0, lambda: "name-4" in group.core(leader).raft.members
    )
    # The membership is in the log of the leader, and name-4 has no entry at all.
    assert group.core("name-4").raft.members.isdisjoint({"name-4"})
    alive = sorted(group.processes)
    for name in alive:
        group.kill(name)
    for name in alive:
        group.start(name)
    group.register("b")
    assert not group.propose(topic("after")).code
    assert not group.ended


def test_r9_who_was_never_added_may_lose_its_disk() -> None:
    group = Group()
    group.register("b")
    group.start("name-4")
    group.run(2.0)
    group.kill("name-4")
    group.wipe("name-4")
    group.start("name-4")
    add(group, "name-4")
    group.run(2.0)
    assert not group.ended
    assert not group.core("name-4").raft.joining
