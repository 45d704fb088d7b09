"""Leaders report where the history begins of a queue that may lack messages (SAFETY Q15)."""

from __future__ import annotations

from logboom.wire.commands import ReportLosses
from logboom.wire.view import QueueLoss, QueueView, TopicConfig, TopicView
from tests.unit.nodes.rig import ME, Rig, batch, produce

TWO = "broker-2"


def publish(rig: Rig, epoch: int, *losses: QueueLoss, leader: str = ME) -> None:
    """Topic "flights" with a queue that has lost messages."""
    view = QueueView([ME, TWO], leader, epoch, rig.version + 1, [leader], [], losses=[*losses])
    config = TopicConfig(retention_ms=-1, min_in_sync=1)
    rig.publish(TopicView("flights", 1, config, [view], rig.version + 1))


def reported(rig: Rig) -> list[tuple[int, int]]:
    """(epoch, end) of each loss in the oldest proposal."""
    command = rig.commands[0][1]
    assert isinstance(command, ReportLosses)
    assert all((each.topic_id, each.queue) == (1, 0) for each in command.ends)
    return [(each.epoch, each.end) for each in command.ends]


def test_a_leader_reports_its_end_at_election_once() -> None:
    rig = Rig()
    publish(rig, 1)
    rig.client().ask(produce(), [batch(4)])
    rig.settle()
    publish(rig, 2, QueueLoss(2, -1, 0))
    assert reported(rig) == [(2, 4)]
    rig.decide()
    publish(rig, 2, QueueLoss(2, 4, 0))
    rig.settle(3.0)
    assert rig.commands == []


def test_it_waits_until_that_is_on_its_disk() -> None:
    rig = Rig()
    publish(rig, 1)
    rig.auto_sync = False
    rig.client().ask(produce(), [batch(4)])
    publish(rig, 2, QueueLoss(2, -1, 0))
    assert rig.replica().synced.offset == 0
    assert rig.commands == []
    rig.sync()
    rig.settle()
    assert reported(rig) == [(2, 4)]


def test_a_later_leader_reports_for_one_that_died_before_it_could() -> None:
    rig = Rig()
    publish(rig, 1)
    rig.client().ask(produce(), [batch(4)])
    publish(rig, 2)
    rig.client().ask(produce(), [batch(2)])
    rig.settle()
    publish(rig, 3, QueueLoss(2, -1, 0), QueueLoss(3, -1, 0))
    assert reported(rig) == [(2, 4), (3, 6)]


def test_who_does_not_lead_reports_nothing_and_a_refused_report_is_repeated() -> None:
    rig = Rig()
    publish(rig, 2, QueueLoss(2, -1, 0), leader=TWO)
    rig.settle(3.0)
    assert rig.commands == []
    publish(rig, 3, QueueLoss(2, -1, 0))
    assert reported(rig) == [(2, 0)]
    rig.decide("FENCED")
    rig.settle(3.0)
    assert reported(rig) == [(2, 0)]
