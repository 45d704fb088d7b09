"""New queues are admitted no faster than the brokers open them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from logboom.metadata.duties.queue_admission import MAX_UNOPENED
from logboom.wire.commands import AlterTopic, AnyCommand, DeleteTopic, RestoreTopic
from logboom.wire.errors import Unavailable
from logboom.wire.features import FEATURES, SOFTWARE
from logboom.wire.messages import Heartbeat, HeartbeatGranted, Propose, Proposed
from logboom.wire.names import MAX_QUEUES
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group, Who
from tests.unit.metadata.test_name_server import topic

AT_ONCE = MAX_UNOPENED // MAX_QUEUES
BEAT = Heartbeat(0, 1_000, "a", 0, [], 0, SOFTWARE, FEATURES)


class OneBroker:
    """A group with a broker that tells what it has opened."""

    def __init__(self) -> None:
        self.group = Group()
        self.epoch = self.group.register("a")

    def opened(self, replicas: int) -> None:
        """The broker's next heartbeat."""
        beat = replace(BEAT, instance_epoch=self.epoch, replicas=replicas)
        answer = self.group.ask(self.group.leader(), beat, "broker")
        assert isinstance(answer, HeartbeatGranted)

    def propose(self, command: AnyCommand, kind: Who = "client") -> str:
        """The code with which a proposal is refused; "" if it is applied."""
        answer = self.group.ask(self.group.leader(), Propose(0, 5_000, "", 0, command), kind)
        if isinstance(answer, Unavailable):
            assert "until a has opened them" in answer.text
            return answer.code
        assert isinstance(answer, Proposed), answer
        return answer.result.code

    def fill(self) -> None:
        """Create as many queues as are admitted."""
        for number in range(AT_ONCE):
            assert self.propose(topic(f"t{number}", MAX_QUEUES)) == ""


def test_new_queues_wait_until_those_before_are_open() -> None:
    one = OneBroker()
    one.opened(0)
    one.fill()
    assert one.propose(topic("late")) == "BUSY"
    one.opened(3)
    assert one.propose(topic("late", 4)) == "BUSY", "three are open, four are asked for"
    assert one.propose(topic("late", 3)) == ""
    one.opened(AT_ONCE * MAX_QUEUES + 3)
    one.opened(AT_ONCE * MAX_QUEUES + 3)
    assert one.propose(topic("later", MAX_QUEUES)) == ""


def test_what_is_deleted_makes_no_room_before_the_broker_says_so() -> None:
    one = OneBroker()
    one.opened(0)
    one.fill()
    one.opened(AT_ONCE * MAX_QUEUES)
    for number in range(AT_ONCE):
        assert one.propose(DeleteTopic(f"t{number}", 0)) == ""
    for number in range(AT_ONCE):
        assert one.propose(topic(f"new{number}", MAX_QUEUES)) == ""
    assert one.propose(topic("late")) == "BUSY"


def test_what_is_asked_for_in_one_turn_counts_before_it_is_applied() -> None:
    one = OneBroker()
    one.opened(0)
    leader = one.group.leader()
    asked = [
        one.group.begin(leader, Propose(0, 5_000, "", 0, topic(f"t{number}", MAX_QUEUES)))
        for number in range(20)
    ]
    answers = [one.group.wait(each) for each in asked]
    assert sum(isinstance(answer, Proposed) for answer in answers) == AT_ONCE
    assert sum(isinstance(answer, Unavailable) for answer in answers) == 20 - AT_ONCE


def test_queues_that_a_topic_gets_and_restored_ones_wait_too() -> None:
    one = OneBroker()
    assert one.propose(topic("t", 1)) == ""
    one.opened(1)
    one.fill()
    restored = RestoreTopic("r", 0, TopicConfig(), 1, 0, "", [1], "b")
    assert one.propose(AlterTopic("t", 2, None, 0)) == "BUSY"
    assert one.propose(restored, "operator") == "BUSY"
    assert one.propose(AlterTopic("t", None, TopicConfig(retention_ms=1), 0)) == ""
    assert one.propose(AlterTopic("t", 1, None, 0)) == "", "it has one"


@pytest.mark.parametrize("queues", [-(2**63), -1, 0, MAX_QUEUES + 1, 2**63 - 1])
def test_a_number_that_is_refused_anyway_does_not_wait(queues: int) -> None:
    one = OneBroker()
    assert one.propose(topic("t", 1)) == ""
    one.opened(1)
    one.fill()
    assert one.propose(topic("other", queues)) == "INVALID_ARGUMENT"
    assert one.propose(AlterTopic("t", queues, None, 0)) == "INVALID_ARGUMENT"


def test_nodes_do_not_wait_and_older_brokers_hold_nobody_up() -> None:
    one = OneBroker()
    one.opened(0)
    one.fill()
    assert one.propose(topic("%RETRY%g"), "broker") == ""
    one.opened(-1)
    assert one.propose(topic("t")) == ""


def test_a_broker_that_is_fenced_holds_nobody_up() -> None:
    one = OneBroker()
    one.opened(0)
    one.fill()
    other = one.group.register("b")
    for _ in range(8):
        beat = replace(BEAT, broker="b", instance_epoch=other, replicas=0)
        one.group.ask(one.group.leader(), beat, "broker")
        one.group.run(1.0)
    assert one.propose(topic("t")) == ""


@pytest.mark.parametrize("replicas", [-(2**63), 2**63 - 1])
def test_no_number_that_a_broker_tells_holds_queues_up(replicas: int) -> None:
    one = OneBroker()
    one.opened(replicas)
    assert one.propose(topic("t", MAX_QUEUES)) == ""
