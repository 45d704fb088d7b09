"""Transactions at three name servers: who may propose what, who is woken, and a loss of power."""

from __future__ import annotations

from logboom.wire.commands import CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.messages import Propose, Watch, WatchResult
from logboom.wire.transactions import (
    AppliedDecision,
    Decide,
    OpenApplication,
    ParkedBatches,
    ReportDecided,
)
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group
from tests.unit.metadata.transactions.tables import values


def founded() -> tuple[Group, int, int]:
    """A broker and a topic of two queues: the broker's instance epoch, the topic's id."""
    group = Group()
    epoch = group.register("broker-1")
    topic_id = group.propose(CreateTopic("t", 2, 1, TopicConfig(), 0)).value
    assert isinstance(topic_id, int)
    return group, epoch, topic_id


def commit(topic_id: int, sequence: int, attempt: int = 1) -> Decide:
    """Of one batch in queue 1."""
    parked = [ParkedBatches(topic_id, 1, [(0, 0)])]
    return Decide("app", -1, sequence, attempt, True, parked, [], 0)


def test_a_decision_wakes_who_wants_decisions_and_nobody_else() -> None:
    group, epoch, topic_id = founded()
    group.run(0.5)
    name = group.followers()[0]
    version = group.view(name).version
    asking = Watch(0, 9_000, version, None, 8_000, decisions=True)
    mine = group.begin(name, asking, "broker")
    other = group.begin(name, Watch(0, 9_000, version, None, 8_000, None), "broker")
    group.run(0.2)
    number = int(values(group.propose(commit(topic_id, 0)))[1])
    answer = group.wait(mine)
    assert isinstance(answer, WatchResult)
    assert [decision.number for decision in answer.view.decisions] == [number]
    asking = Watch(0, 9_000, answer.view.version, [], 8_000, decisions=True)
    mine = group.begin(name, asking, "broker")
    done = ReportDecided("broker-1", epoch, [AppliedDecision(number, topic_id, 1)])
    assert group.propose(done, "broker").code == ""
    answer = group.wait(mine)
    assert isinstance(answer, WatchResult)
    assert (answer.view.ended_decisions, other.reply) == ([number], None)


def test_clients_may_decide_and_not_report() -> None:
    group, epoch, topic_id = founded()
    assert values(group.propose(OpenApplication("app", 0))) == ["1", "-1"]
    assert values(group.propose(commit(topic_id, 0)))[2] == "first"
    report = ReportDecided("broker-1", epoch, [])
    answer = group.ask(group.leader(), Propose(0, 1_000, "me", 1, report))
    assert isinstance(answer, LogboomError)
    assert answer.code == "UNAUTHENTICATED"


def test_a_decision_sent_again_has_its_first_answer() -> None:
    group, _, topic_id = founded()
    first = group.propose(commit(topic_id, 0), "client", "me", 1)
    assert group.propose(commit(topic_id, 0), "client", "me", 1) == first
    assert values(group.propose(commit(topic_id, 0), "client", "me", 2))[2] == "again"


def test_all_name_servers_lose_power_and_what_was_decided_stays_so() -> None:
    group, _, topic_id = founded()
    number = values(group.propose(commit(topic_id, 7)))[1]
    names = list(group.processes)
    for name in names:
        group.kill(name)
    for name in names:
        group.start(name)
    again = ["commit", number, "again", f"{topic_id}/1"]
    assert values(group.propose(commit(topic_id, 7, attempt=2))) == again
    group.run(0.5)
    assert len({group.core(name).state.snapshot() for name in names}) == 1
