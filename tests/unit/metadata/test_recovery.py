"""A survivor that goes on alone: what its journal holds is what the group has from then on."""

from __future__ import annotations

from logboom.metadata.raft.quorum_recovery import examine, go_on_alone
from logboom.wire.commands import CreateTopic
from logboom.wire.messages import AddNameServer, Ok
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group

FOUNDERS = ("name-1", "name-2", "name-3")


def topic(name: str) -> CreateTopic:
    return CreateTopic(name, 1, 1, TopicConfig(), 1)


def test_the_survivor_goes_on_with_all_that_it_holds() -> None:
    group = Group()
    group.register("b")
    # More than one snapshot's worth.
    for number in range(40):
        group.propose(topic(f"t{number}"))
    group.run(1.0)
    survivor = group.followers()[0]
    for name in FOUNDERS:
        group.kill(name)
    assert go_on_alone(survivor, FOUNDERS, group.disks[survivor]) == sorted(
        set(FOUNDERS) - {survivor}
    )
    group.start(survivor)
    assert group.leader() == survivor
    assert group.core(survivor).raft.members == {survivor}
    assert len(group.view(survivor).topics) == 40
    assert {server.id for server in group.view(survivor).name_servers} == {survivor}
    group.register("b")
    group.propose(topic("after"))
    # It grows again.
    group.start("name-4")
    request = AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721")
    assert isinstance(group.ask(survivor, request, "operator"), Ok)
    group.run(2.0)
    assert len(group.view("name-4").topics) == 41
    # And after a restart it is as before.
    group.kill(survivor)
    group.start(survivor)
    group.run(3.0)
    assert group.core(survivor).raft.members == {survivor, "name-4"}


def test_one_of_the_lost_that_comes_back_is_turned_away() -> None:
    group = Group()
    group.register("b")
    survivor, lost = group.followers()
    for name in FOUNDERS:
        group.kill(name)
    go_on_alone(survivor, FOUNDERS, group.disks[survivor])
    group.start(survivor)
    group.leader()
    group.start(lost)
    group.run(8.0)
    assert "was removed from the group" in group.ended[lost]
    assert group.core(survivor).raft.members == {survivor}


def test_survivors_are_compared_by_how_far_they_go() -> None:
    group = Group()
    group.register("b")
    leader, behind = group.leader(), group.followers()[0]
    group.kill(behind)
    for number in range(5):
        group.propose(topic(f"t{number}"))
    for name in set(FOUNDERS) - {behind}:
        group.kill(name)
    found = {name: examine(name, FOUNDERS, group.disks[name]) for name in FOUNDERS}
    assert max(found.values()).name != behind
    assert found[leader].last_index > found[behind].last_index
    assert {one.members for one in found.values()} == {FOUNDERS}
    # Looking changes nothing.
    for name in FOUNDERS:
        group.start(name)
    assert len(group.view(group.leader()).topics) == 5
