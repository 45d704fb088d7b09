"""A broker tells the Raft leader what it holds, every ten seconds."""

from __future__ import annotations

import random

import pytest

from logboom.nodes import load_reports
from logboom.nodes.load_reports import REPORT_S, MeanRate
from logboom.wire.errors import NotLeader
from logboom.wire.messages import Ok
from logboom.wire.operation_messages import ReportLoad
from tests.unit.nodes.rig import Rig, batch, produce


def reported(rig: Rig) -> list[ReportLoad]:
    """The reports that were sent since the last look; all are taken."""
    found: list[ReportLoad] = []
    while rig.ns.count(ReportLoad):
        report = rig.ns.take(ReportLoad)
        found.append(report)
        rig.reply(report, Ok(0))
    return found


def test_a_report_comes_with_the_registration_and_then_every_ten_seconds() -> None:
    rig = Rig()
    rig.lead()
    reported(rig)
    rig.settle(REPORT_S - 2.0)
    assert not reported(rig)
    rig.settle(2.1)
    (report,) = reported(rig)
    assert (report.broker, report.instance_epoch) == ("broker-1", rig.instance_epoch)
    assert (report.part, report.parts) == (0, 1)
    assert report.disk_bytes >= report.free_bytes > 0


def test_it_has_the_size_of_each_replica_and_the_rates_of_what_is_led() -> None:
    rig = Rig()
    rig.lead()
    reported(rig)
    rig.settle(REPORT_S)
    reported(rig)
    replica = rig.replica()
    # What cannot be compressed.
    rig.client().ask(produce(), [batch(value=random.Random(1).randbytes(40_000))])
    rig.settle(REPORT_S)
    (report,) = reported(rig)
    (load,) = report.replicas
    assert (load.topic_id, load.queue, load.size_bytes) == (*replica.key, replica.size)
    assert 40_000 / 30 < load.in_bytes_per_s < 50_000 / 5
    rig.settle(10 * REPORT_S)
    later = reported(rig)[-1].replicas[0]
    assert 0 < later.in_bytes_per_s < load.in_bytes_per_s, "the mean of five minutes falls slowly"


def test_a_large_report_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_reports, "LOADS_AT_ONCE", 2)
    rig = Rig()
    rig.lead(queues=5)
    rig.settle(REPORT_S)
    reports = reported(rig)[-3:]
    assert [(each.part, each.parts) for each in reports] == [(0, 3), (1, 3), (2, 3)]
    assert [len(each.replicas) for each in reports] == [2, 2, 1]
    assert len({(r.topic_id, r.queue) for each in reports for r in each.replicas}) == 5


def test_without_a_leader_it_is_tried_again_soon() -> None:
    rig = Rig()
    rig.lead()
    reported(rig)
    rig.settle(REPORT_S)
    rig.refuse(rig.ns.take(ReportLoad), NotLeader("an election is on", leader=None))
    rig.settle(load_reports.RETRY_S + 0.1)
    assert len(reported(rig)) == 1


def test_a_mean_rate_follows_a_change_within_minutes() -> None:
    rate = MeanRate(0)
    total = 0
    for _ in range(12):
        total += 10_000
        rate.follow(total, 10.0)
    assert rate.per_s == pytest.approx(1_000.0), "the mean of its life"
    for _ in range(90):
        rate.follow(total, 10.0)
    assert rate.per_s < 100.0
    rate.follow(total - 5, 10.0)
    assert rate.per_s >= 0.0
