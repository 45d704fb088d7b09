"""Roles from metadata: what is deleted goes, what is made again begins empty."""

from __future__ import annotations

import pytest

from logboom.nodes import replica_roles
from logboom.nodes.log.keys import Position, queue_key
from logboom.nodes.log.storage import WriteSet
from logboom.wire.errors import NotLeader
from logboom.wire.messages import Heartbeat, Produce, Replicate, Stats
from logboom.wire.view import QueueView, TopicConfig, TopicView
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import ME, Rig, batch, produce

BOTH = (ME, "broker-2")


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.publish()
    rig.settle()
    assert rig.broker.queues.replicas == {}
    assert rig.storage.content("log") == {}
    assert rig.storage.content("state") == {}


def test_a_topic_deleted_while_the_broker_was_down_goes_once_it_is_registered() -> None:
    first = Rig()
    first.lead()
    first.client().ask(produce(), [batch(3)])
    rig = Rig(first.storage, incarnation="two", register=False)
    rig.publish()
    assert len(rig.storage.content("log")) == 1
    rig.instance_epoch = 9
    rig.decide(value=9)
    rig.publish()
    rig.settle()
    assert rig.storage.content("log") == {}


def test_what_compaction_once_left_of_a_deleted_queue_goes_once_the_broker_is_registered() -> None:
    """Versions that forgot that family left it there; a queue of such an id is never made again."""
    storage = SimulatedStorage("store-1")
    writes = WriteSet()
    writes.put("compact", queue_key(77, 0, b"k"), b"something")
    storage.write(writes)
    rig = Rig(storage)
    rig.lead()
    rig.settle()
    assert rig.storage.content("compact") == {}
    assert set(rig.broker.queues.replicas) == {(1, 0)}


def test_nobody_is_followed_by_metadata_that_is_older_than_the_process() -> None:
    """A name server that is cut off still tells of a leader that was deposed since."""
    first = Rig()
    first.lead(replicas=(ME, "broker-2", "broker-3"))
    rig = Rig(first.storage, incarnation="two", register=False)
    old, new = rig.stations["b2:7711"], rig.stations["b3:7711"]
    rig.lead(1, leader="broker-2", isr=BOTH, replicas=(ME, "broker-2", "broker-3"))
    rig.instance_epoch = 9
    rig.decide(value=9)
    rig.settle(1.0)
    assert old.count(Replicate) == 0
    rig.lead(5, leader="broker-3", isr=BOTH, replicas=(ME, "broker-2", "broker-3"))
    rig.settle(1.0)
    assert (old.count(Replicate), new.count(Replicate)) == (0, 1)


def test_a_topic_made_again_with_fewer_queues_leaves_none_of_the_others_behind() -> None:
    """Deleted and made again between two looks: metadata shows the new one only."""
    rig = Rig()
    rig.lead(queues=3)
    client = rig.client()
    for queue in range(3):
        client.ask(produce(queue=queue), [batch(3)])
    view = QueueView([ME], ME, 1, rig.version + 1, [ME], [])
    config = TopicConfig(retention_ms=-1)
    rig.publish(TopicView("flights", 2, config, [view], rig.version + 1))
    rig.settle()
    assert set(rig.broker.queues.replicas) == {(2, 0)}
    assert rig.storage.content("log") == {}
    client.ask(produce(queue=2), [batch(1)])
    with pytest.raises(NotLeader):
        client.answer()
    rig.publish()
    rig.settle()
    assert rig.broker.queues.replicas == {}
    assert rig.broker.queues.held("flights") == []


def test_a_topic_made_again_under_its_name_is_empty() -> None:
    rig = Rig()
    rig.lead()
    client = rig.client()
    client.ask(produce(), [batch(3)])
    assert rig.view is not None
    (topic,) = rig.view.topics
    topic = type(topic)(topic.name, 2, topic.config, topic.queues, rig.version + 1)
    rig.publish(topic)
    client.ask(produce(), [batch(1)])
    assert client.answer().base_offset == 0
    assert set(rig.broker.queues.replicas) == {(2, 0)}


def test_without_a_leader_a_queue_is_neither_led_nor_followed() -> None:
    rig = Rig()
    rig.lead()
    rig.lead(2, leader=None)
    replica = rig.replica()
    assert (replica.role, replica.leading, rig.broker.queues.led) == ("none", None, {})
    client = rig.client()
    client.ask(produce(), [batch()])
    with pytest.raises(NotLeader):
        client.answer()
    rig.lead(3, leader="broker-2", isr=BOTH, replicas=BOTH)
    rig.settle(1.0)
    assert replica.role == "follower"
    rig.lead(4, leader=None, isr=BOTH, replicas=BOTH)
    assert (replica.role, replica.leader, replica.leader_epoch) == ("none", None, 4)


def test_q2_metadata_that_knows_another_process_of_this_broker_makes_nobody_lead() -> None:
    rig = Rig(register=False)
    rig.instance_epoch = 8
    rig.decide(value=9)
    rig.lead()
    client = rig.client()
    for known, role in ((8, "none"), (9, "leader")):
        rig.instance_epoch = known
        rig.lead()
        assert rig.replica().role == role
        client.ask(produce(), [batch()])
        if role == "none":
            with pytest.raises(NotLeader):
                client.answer()
    assert client.answer().base_offset == 0


def test_a_fenced_broker_follows_nobody_until_it_is_registered_anew() -> None:
    rig = Rig()
    rig.lead()
    rig.granting = rig.registering = False
    rig.settle(1.1)
    rig.refuse(rig.ns.take(Heartbeat), NotLeader("fenced", "FENCED"))
    assert rig.replica().role == "none"
    rig.lead(2, leader="broker-2", isr=BOTH, replicas=BOTH)
    rig.settle(0.5)
    leader = rig.stations["b2:7711"]
    assert (rig.replica().role, leader.count(Replicate)) == ("none", 0)
    rig.instance_epoch = 7
    rig.decide(value=7)
    rig.lead(3, leader="broker-2", isr=BOTH, replicas=BOTH)
    rig.settle(0.5)
    assert (rig.replica().role, leader.count(Replicate)) == ("follower", 1)


# ── replicas that were moved away (M4) ──────────────────────────────────────────────────────────

OTHERS = ("broker-2", "broker-3")
GRACE_S = 60.0


def replicas_to_delete(rig: Rig) -> object:
    """What STATS tells of replicas that wait for their deletion."""
    client = rig.client("operator")
    client.ask(Stats(0, 1_000))
    return client.answer().counters["replicas_to_delete"]


def led_and_moved_away() -> Rig:
    """A broker that led a queue with messages, which is now on others."""
    rig = Rig()
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.settle()
    assert len(rig.storage.content("log")) == 1
    rig.lead(2, leader="broker-2", isr=OTHERS, replicas=OTHERS)
    rig.settle()
    return rig


def test_m4_a_replica_that_was_moved_away_does_nothing_and_goes_after_the_grace() -> None:
    rig = led_and_moved_away()
    assert (rig.replica().role, rig.replica().leading) == ("none", None)
    assert replicas_to_delete(rig) == 1
    client = rig.client()
    client.ask(produce(), [batch()])
    with pytest.raises(NotLeader):
        client.answer()
    rig.settle(GRACE_S - 5.0)
    assert len(rig.storage.content("log")) == 1
    rig.settle(10.0)
    assert rig.broker.queues.replicas == {}
    assert rig.storage.content("log") == {}
    assert rig.storage.content("state") == {}


def test_m4_the_grace_begins_anew_with_the_process() -> None:
    first = led_and_moved_away()
    first.settle(GRACE_S - 5.0)
    rig = Rig(first.storage, incarnation="two", mono=first.mono)
    rig.lead(2, leader="broker-2", isr=OTHERS, replicas=OTHERS)
    rig.settle(GRACE_S - 5.0)
    assert len(rig.storage.content("log")) == 1
    rig.settle(10.0)
    assert rig.storage.content("log") == {}


def test_m4_metadata_that_is_older_than_the_process_deletes_nothing() -> None:
    first = Rig()
    first.lead()
    first.client().ask(produce(), [batch(3)])
    rig = Rig(first.storage, incarnation="two", register=False, replica_delete_grace_s=0.0)
    rig.lead(1, leader="broker-2", isr=OTHERS, replicas=OTHERS)
    rig.publish()
    rig.settle(1.0)
    assert len(rig.storage.content("log")) == 1
    rig.instance_epoch = 9
    rig.decide(value=9)
    rig.lead(3)
    rig.settle(1.0)
    assert len(rig.storage.content("log")) == 1
    assert rig.replica().role == "leader"


def test_m4_a_replica_that_is_added_back_within_the_grace_begins_anew() -> None:
    rig = led_and_moved_away()
    station = rig.stations["b2:7711"]
    rig.lead(
        3, leader="broker-2", isr=OTHERS, replicas=(ME, *OTHERS), adding=[ME], removing=OTHERS[1:]
    )
    rig.settle(1.0)
    assert rig.storage.content("log") == {}
    assert (rig.replica().end, rig.replica().role) == (Position(0), "follower")
    asked = station.take(Replicate).queues
    assert [(each.offset, each.last_epoch) for each in asked] == [(0, -1)]
    rig.settle(2 * GRACE_S)
    assert rig.replica().role == "follower"
    assert replicas_to_delete(rig) == 0


def test_m4_what_was_derived_of_a_replica_that_is_added_back_is_gone() -> None:
    rig = Rig()
    rig.lead()
    for _ in range(3):
        delayed = Produce(0, 30_000, "flights", 0, "all", 0, rig.wall_ms + 600_000)
        rig.client().ask(delayed, [batch(1)])
    rig.settle()
    assert rig.replica().parked.count == 3
    rig.lead(2, leader="broker-2", isr=OTHERS, replicas=OTHERS)
    rig.settle(1.0)
    rig.lead(3, leader="broker-2", isr=OTHERS, replicas=(ME, *OTHERS), adding=[ME])
    assert rig.replica().end == Position(0)
    assert rig.replica().parked.count == 0
    assert rig.replica().index.reach == Position(0)


def test_m4_one_whose_topic_is_deleted_within_the_grace_goes_at_once() -> None:
    rig = led_and_moved_away()
    rig.publish()
    rig.settle()
    assert rig.storage.content("log") == {}
    assert replicas_to_delete(rig) == 0


def test_m4_no_grace_deletes_at_once() -> None:
    rig = Rig(replica_delete_grace_s=0.0)
    rig.lead()
    rig.client().ask(produce(), [batch(3)])
    rig.lead(2, leader="broker-2", isr=OTHERS, replicas=OTHERS)
    rig.settle()
    assert rig.storage.content("log") == {}


def led_topic(number: int, epoch: int = 1) -> TopicView:
    """A topic of one queue that the broker leads, after so many elections."""
    led = QueueView([ME], ME, epoch, epoch, [ME], [])
    return TopicView(f"t{number}", 10 + number, TopicConfig(), [led], epoch)


def test_q11_metadata_whose_roles_go_in_slices_is_not_known_before_the_last() -> None:
    rig = Rig()
    rig.publish(*map(led_topic, range(4)))
    rig.settle()
    known = rig.broker.context.applied.version
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 1)
        rig.publish(*(led_topic(number, epoch=2) for number in range(4)))
        assert rig.broker.routes.version > known, "the copy is new"
        assert rig.broker.context.applied.version == known, "but not all act by it yet"
        rig.settle()
    assert rig.broker.context.applied.version == rig.broker.routes.version
    assert {each.leader_epoch for each in rig.broker.queues.led.values()} == {2}


def test_q11_a_version_is_reached_though_changes_never_end() -> None:
    rig = Rig()
    rig.publish(*map(led_topic, range(3)))
    rig.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 1)
        reached: list[int] = []
        for epoch in range(2, 14):
            rig.publish(*(led_topic(number, epoch) for number in range(3)))
            reached.append(rig.broker.context.applied.version)
        assert rig.broker.context.applied.version < rig.broker.routes.version
        assert len({*reached}) >= 3, "three topics change while one gets its role, and some count"
        rig.settle()
    assert rig.broker.context.applied.version == rig.broker.routes.version
    assert {each.leader_epoch for each in rig.broker.queues.led.values()} == {13}


def test_q11_queues_that_are_yet_to_be_opened_keep_no_version_from_being_reached() -> None:
    rig = Rig()
    old = led_topic(0)
    rig.publish(old)
    rig.settle()
    applied, replicas = rig.broker.context.applied, rig.broker.queues.replicas
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 8)
        # New topics, and new queues of one that is open.
        many = TopicView("t1", 11, TopicConfig(), led_topic(1).queues * 90, 1)
        rig.publish(old, many)
        more = TopicView("t0", 10, TopicConfig(), old.queues * 30, 1)
        rig.publish(more, many)
        changed = TopicView("t0", 10, TopicConfig(), led_topic(0, epoch=2).queues * 30, 2)
        rig.publish(changed, many)
        for _ in range(4):
            rig.turn()
        assert applied.version == rig.broker.routes.version
        assert replicas[10, 0].leader_epoch == 2
        assert applied.opens
        assert len(replicas) < 100
        rig.settle()
    assert not applied.opens
    assert len(rig.broker.queues.led) == 120


def test_a_new_topic_that_changes_keeps_its_place_among_the_new_ones() -> None:
    rig = Rig()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 2)
        topics: list[TopicView] = []
        for epoch in range(1, 9):
            # Each time, the topics that are still new change, and two more come.
            topics += [led_topic(2 * epoch), led_topic(2 * epoch + 1)]
            opened = {key[0] for key in rig.broker.queues.replicas}
            topics = [
                each if each.id in opened else led_topic(each.id - 10, epoch) for each in topics
            ]
            rig.publish(*reversed(topics))
        opened = {key[0] for key in rig.broker.queues.replicas}
        assert opened >= {*range(12, 16)}
        rig.settle()
    assert len(rig.broker.queues.led) == len(topics)


def test_a_compacted_topic_that_changes_all_the_time_does_not_hold_up_new_queues() -> None:
    rig = Rig()
    led = QueueView([ME], ME, 1, 1, [ME], [])
    compacted = TopicConfig(compaction=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 4)
        rig.publish(TopicView("t", 10, compacted, [led] * 10, 1))
        for version in range(2, 12):
            new = [led_topic(2)] if version > 2 else []
            rig.publish(TopicView("t", 10, compacted, [led] * 10, version), *new)
        assert (12, 0) in rig.broker.queues.led


def test_a_topic_is_changed_and_made_anew_while_it_is_opened() -> None:
    rig = Rig()
    one = QueueView([ME], ME, 1, 1, [ME], [])
    two = QueueView([ME], ME, 2, 2, [ME], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 2)
        rig.publish(TopicView("t", 10, TopicConfig(), [one] * 9, 1))
        rig.publish(TopicView("t", 10, TopicConfig(), [two] * 9, 2))
        assert 2 <= len(rig.broker.queues.led) < 9
        rig.publish(TopicView("t", 11, TopicConfig(), [one] * 7, 3))
        rig.publish(TopicView("t", 11, TopicConfig(), [two] * 7, 4))
        rig.settle()
    assert {key: each.leader_epoch for key, each in rig.broker.queues.led.items()} == {
        (11, number): 2 for number in range(7)
    }
    assert rig.broker.context.applied.version == rig.broker.routes.version


def test_an_open_topic_is_made_anew_with_fewer_queues_while_it_gets_roles() -> None:
    rig = Rig()
    one = QueueView([ME], ME, 1, 1, [ME], [])
    two = QueueView([ME], ME, 2, 2, [ME], [])
    rig.publish(TopicView("t", 10, TopicConfig(), [one] * 9, 1))
    rig.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 4)
        rig.publish(TopicView("t", 10, TopicConfig(), [two] * 9, 2))
        assert {each.leader_epoch for each in rig.broker.queues.led.values()} == {1, 2}
        rig.publish(TopicView("t", 11, TopicConfig(), [one] * 2, 3))
        rig.settle()
    assert set(rig.broker.queues.replicas) == set(rig.broker.queues.led) == {(11, 0), (11, 1)}


def test_a_topic_with_many_queues_gets_their_roles_in_slices() -> None:
    rig = Rig()
    led = QueueView([ME], ME, 1, 1, [ME], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 4)
        rig.publish(TopicView("t", 10, TopicConfig(), [led] * 10, 1))
        assert len(rig.broker.queues.led) == 4
        # It is deleted meanwhile, and there is another one of its name, with fewer queues.
        rig.publish(TopicView("t", 11, TopicConfig(), [led] * 2, 2))
        rig.settle()
    assert set(rig.broker.queues.replicas) == set(rig.broker.queues.led) == {(11, 0), (11, 1)}
    assert rig.broker.context.applied.version == rig.broker.routes.version


def test_q3_a_compacted_topic_gets_all_its_roles_in_one_turn() -> None:
    rig = Rig()
    view = QueueView([ME, "broker-2"], "broker-2", 1, 1, ["broker-2"], [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 4)
        rig.publish(TopicView("t", 10, TopicConfig(compaction=True), [view] * 10, 1))
        replicas = list(rig.broker.queues)
        assert len(replicas) == 10
        assert all(each.compaction.on for each in replicas)


def test_deleted_topics_with_many_queues_go_in_slices() -> None:
    rig = Rig()
    led = QueueView([ME], ME, 1, 1, [ME], [])
    topics = [TopicView(f"t{n}", 10 + n, TopicConfig(), [led] * 3, 1) for n in range(4)]
    rig.publish(*topics)
    rig.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 6)
        rig.publish()
        assert len(rig.broker.queues.replicas) == 6
        rig.settle()
    assert not rig.broker.queues.replicas
