"""Replicas that the metadata does not contain: deleted only if it shows that they were (R15)."""

from __future__ import annotations

from logboom.wire.commands import ReportTails
from logboom.wire.messages import Stats
from logboom.wire.view import QueueView, TopicConfig, TopicView, first_epoch
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import ME, Rig, batch, produce


def written() -> SimulatedStorage:
    """The store of a broker that was stopped, with three messages of topic 1."""
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    return rig.storage


def started_on(storage: SimulatedStorage) -> Rig:
    rig = Rig(storage, incarnation="two", register=False)
    rig.instance_epoch = 9
    rig.decide(value=9)
    return rig


def kept(rig: Rig) -> object:
    client = rig.client("asking")
    client.ask(Stats(0, 1_000))
    return client.answer().counters["replicas_aside"]


def test_name_servers_that_have_never_heard_of_a_topic_do_not_delete_it() -> None:
    """They were restored from a copy that is older than the topic."""
    rig = started_on(written())
    rig.next_topic_id = 1
    rig.publish()
    rig.settle()
    assert len(rig.storage.content("log")) == 1
    assert kept(rig) == 1


def test_topics_that_a_survivor_has_lost_are_kept() -> None:
    rig = started_on(written())
    rig.lost_topic_ids, rig.recoveries = [(1, 500)], 1
    rig.publish()
    rig.settle()
    assert len(rig.storage.content("log")) == 1
    assert kept(rig) == 1
    client = rig.client("operator")
    client.ask(Stats(0, 1_000))
    assert client.answer().counters["topics_aside"] == "1"
    # What an operator gives up is deleted, here at once.
    rig.lost_topic_ids = [(2, 500)]
    rig.publish()
    rig.settle()
    assert rig.storage.content("log") == {}
    assert kept(rig) == 0


def test_a_broker_that_kept_running_keeps_them_too() -> None:
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.version += 1 << 40
    rig.lost_topic_ids, rig.recoveries = [(1, 500)], 1
    rig.publish(whole=True)
    rig.settle()
    assert len(rig.storage.content("log")) == 1
    assert kept(rig) == 1


def test_another_topic_may_have_the_name_of_a_lost_one() -> None:
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.lost_topic_ids, rig.recoveries = [(1, 500)], 1
    epoch = first_epoch(1)
    view = QueueView([ME], ME, epoch, rig.version + 1, [ME], [])
    rig.publish(TopicView("flights", 600, TopicConfig(retention_ms=-1), [view], rig.version + 1))
    rig.settle()
    assert kept(rig) == 1
    assert set(rig.broker.queues.replicas) == {(1, 0), (600, 0)}
    client = rig.client("later")
    client.ask(produce(), [batch(2)])
    assert client.answer().base_offset == 0
    assert len(rig.storage.content("log")) == 2


def test_a_replica_that_a_lost_move_has_brought_is_kept() -> None:
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.recoveries = 1
    rig.lead(first_epoch(1), leader="broker-2", isr=["broker-2"], replicas=["broker-2", "broker-3"])
    rig.settle(3600.0)
    assert len(rig.storage.content("log")) == 1
    assert kept(rig) == 1


def test_log_ends_are_reported_while_a_queue_in_doubt_has_no_leader() -> None:
    rig = started_on(written())
    rig.recoveries = 1
    epoch = first_epoch(1)
    others = ["broker-2", "broker-3"]
    view = QueueView(others, None, epoch, rig.version + 1, ["broker-2"], [])
    topic = TopicView("flights", 1, TopicConfig(retention_ms=-1), [view], rig.version + 1)
    rig.publish(topic)
    rig.settle()
    (command,) = [each for _, each in rig.commands if isinstance(each, ReportTails)]
    (tail,) = command.tails
    assert (tail.topic_id, tail.queue, tail.end_offset) == (1, 0, 3)
    assert command.complete
