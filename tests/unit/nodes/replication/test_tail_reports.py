"""Brokers report their log ends after a recovery of the name servers (SAFETY R15)."""

from __future__ import annotations

import pytest

from logboom.nodes import replica_roles
from logboom.nodes.replication import tail_reports
from logboom.wire.commands import ReportTails
from logboom.wire.view import QueueView, TopicConfig, TopicView, first_epoch
from tests.unit.nodes.rig import ME, Rig, batch, produce

NAMES = ("one", "two", "three")


def publish(rig: Rig, leader: str | None, epoch: int) -> None:
    """Three topics of one queue each, whose ids are 1, 2 and 3."""
    view = QueueView([ME], leader, epoch, rig.version + 1, [ME], [])
    config = TopicConfig(retention_ms=-1)
    rig.publish(
        *(TopicView(name, n, config, [view], rig.version + 1) for n, name in enumerate(NAMES, 1))
    )


def reports(rig: Rig) -> list[ReportTails]:
    return [command for _, command in rig.commands if isinstance(command, ReportTails)]


def led() -> Rig:
    """A broker that leads all three, with two messages in each."""
    rig = Rig()
    publish(rig, ME, 1)
    for name in NAMES:
        rig.client(name).ask(produce(topic=name), [batch(2)])
    return rig


def test_r15_log_ends_are_reported_once_all_queues_have_their_roles() -> None:
    rig = led()
    late = rig.client("late")
    rig.recoveries = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 1)
        publish(rig, None, first_epoch(1))
        # The first one has its role; the last one still leads by the roles of before.
        assert rig.replica(topic_id=1).role == "none"
        assert rig.replica(topic_id=3).role == "leader"
        late.ask(produce(topic="three"), [batch(5)])
        rig.settle()
    assert rig.replica(topic_id=3).role == "none"
    tails = {tail.topic_id: tail.end_offset for each in reports(rig) for tail in each.tails}
    ends = {n: rig.replica(topic_id=n).end.offset for n in (1, 2, 3)}
    assert ends == {1: 2, 2: 2, 3: 7}, "the last one took messages until it had its role"
    assert tails == ends
    assert [each.complete for each in reports(rig)] == [True]


def test_r15_a_report_in_parts_is_complete_with_its_last_part() -> None:
    rig = led()
    rig.recoveries = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_reports, "TAILS_AT_ONCE", 2)
        publish(rig, None, first_epoch(1))
        rig.settle()
        told = []
        while rig.commands:
            told.append(rig.decide())
            rig.settle()
    parts = [(len(each.tails), each.complete) for each in told if isinstance(each, ReportTails)]
    assert parts == [(2, False), (1, True)]


def test_r15_log_ends_are_reported_once_all_queues_are_open() -> None:
    rig = led()
    rig.recoveries = 1
    none = QueueView([ME], None, first_epoch(1), rig.version + 1, [ME], [])
    config = TopicConfig(retention_ms=-1)
    topics = [
        TopicView(name, n, config, [none], rig.version + 1) for n, name in enumerate(NAMES, 1)
    ]
    new = TopicView("new", 4, config, [none] * 20, rig.version + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_roles, "QUEUES_AT_ONCE", 8)
        rig.publish(*topics, new)
        assert rig.broker.context.applied.version == rig.broker.routes.version
        assert reports(rig) == []
        rig.settle()
    assert [each.complete for each in reports(rig)] == [True]
    assert len(reports(rig)[0].tails) == 23
