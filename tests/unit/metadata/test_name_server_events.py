"""Of three name servers the Raft leader tells what happens in the cluster, once, also over restarts."""

from __future__ import annotations

from logboom.wire.actor import Note
from logboom.wire.commands import CreateTopic, DeleteTopic
from logboom.wire.messages import AddNameServer
from logboom.wire.view import TopicConfig
from tests.sim.world.process import Process
from tests.unit.metadata.name_servers import Group


class Watched(Group):
    """A group of which also those are remembered that ended."""

    def __init__(self) -> None:
        self.all: list[Process] = []
        super().__init__()
        self.all = [*self.processes.values()]

    def restart(self, *names: str) -> None:
        """Kill name servers, and start them again."""
        for name in names:
            self.kill(name)
        for name in names:
            self.start(name)
            self.all.append(self.processes[name])

    def told(self, *events: str) -> list[tuple[str, Note]]:
        """What all processes ever told of some events, and who did."""
        return [
            (process.name, each)
            for process in self.all
            for each in process.notes
            if each.event in events
        ]


def test_a_dead_broker_is_told_by_the_raft_leader_alone() -> None:
    group = Watched()
    leader = group.leader()
    assert [name for name, _ in group.told("raft_leader_elected")] == [leader]
    assert [name for name, _ in group.told("cluster_founded")] == [leader]
    epochs = {broker: group.register(broker) for broker in ("a", "b", "c")}
    group.propose(CreateTopic("t", 1, 3, TopicConfig(), 0), proposer="me", number=1)
    # Asked again after the connection was lost: it is the same proposal.
    group.propose(CreateTopic("t", 1, 3, TopicConfig(), 0), proposer="me", number=1)
    for _ in range(20):
        for broker in ("b", "c"):
            group.heartbeat(broker, epochs[broker])
        group.run(0.25)
    assert group.leader() == leader
    for event in ("topic_created", "broker_fenced", "election", "isr_shrunk"):
        ((name, told),) = group.told(event)
        assert name == leader, event
    assert (told.fields["left"], told.fields["cause"]) == (["a"], "broker_fenced")
    assert len(group.told("broker_registered")) == 3
    ((_, created),) = group.told("topic_created")
    assert created.fields["by"] == "a client"


def test_nothing_is_told_again_after_restarts() -> None:
    group = Watched()
    group.register("a")
    group.propose(CreateTopic("t", 1, 1, TopicConfig(), 0))
    group.propose(DeleteTopic("t", 0))
    group.run(1.0)
    wanted = ("cluster_founded", "broker_registered", "topic_created", "topic_deleted")
    assert len(group.told(*wanted)) == 4
    former = group.leader()
    group.kill(former)
    assert group.leader() != former
    group.start(former)
    group.all.append(group.processes[former])
    group.run(3.0)
    group.restart("name-1", "name-2", "name-3")
    group.leader()
    group.run(1.0)
    assert len(group.told(*wanted)) == 4
    # Each leadership was told once, by the one that had it.
    terms = [each.fields["term"] for _, each in group.told("raft_leader_elected")]
    assert len(terms) == len({*terms}) >= 3


def test_one_that_hears_nobody_says_so_once() -> None:
    group = Watched()
    leader = group.leader()
    (lonely, *others) = [name for name in group.processes if name != leader]
    for name in (leader, *others):
        group.processes[name].pause()
    group.run(30.0)
    assert [name for name, _ in group.told("raft_contact_lost")] == [lonely]
    for name in (leader, *others):
        group.processes[name].resume()
    group.run(10.0)
    assert lonely in [name for name, _ in group.told("raft_contact_regained")]


def test_a_leader_that_steps_down_says_so() -> None:
    group = Watched()
    leader = group.leader()
    for name in group.processes:
        if name != leader:
            group.processes[name].pause()
    group.run(10.0)
    assert [name for name, _ in group.told("raft_leadership_lost")] == [leader]


def test_new_members_are_told_with_who_added_them() -> None:
    group = Watched()
    group.leader()
    group.start("name-4")
    group.all.append(group.processes["name-4"])
    group.run(1.0)
    request = AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721")
    group.ask(group.leader(), request, "operator")
    ((_, told),) = group.told("raft_member_added")
    assert (told.fields["name_server"], told.fields["by"]) == ("name-4", "a operator")
