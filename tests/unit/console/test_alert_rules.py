"""Unit tests of every alert by promtool: not before its time, then it fires, and it goes back.

That real clusters make these series is shown by `tests/sim/test_alerts.py` and
`tests/integration/console/test_alerts_of_consumers.py`; here the limits are tried.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logboom.console.observability.alert_rules import ALERTS, rules_file
from tests.promtool import run_rule_tests

AT = '{cluster="c", instance="b1", job="logboom-brokers"}'


class Case(NamedTuple):
    """A series of events, in minutes, with a sample a minute."""

    series: dict[str, str]
    expected: list[tuple[str, bool]]
    """(when, whether it fires)."""
    why: str = ""


def gauge(name: str, values: str, labels: str = "") -> dict[str, str]:
    return {f'logboom_{name}{{cluster="c"{labels}}}': values}


CASES: dict[str, list[Case]] = {
    "LogboomQueuesLeaderless": [
        Case(
            gauge("queues_leaderless", "0x4 3x5 0x20"),
            [("4m", False), ("5m30s", False), ("7m", True), ("12m", False)],
        ),
        Case(
            gauge("queues_leaderless", "0 3 0 3 0 3 0"), [("6m", False)], "elections are no fault"
        ),
    ],
    "LogboomQueuesBelowMinInSync": [
        Case(
            gauge("queues_below_min_in_sync", "0x4 1x5 0x20"),
            [("4m", False), ("7m", True), ("12m", False)],
        )
    ],
    "LogboomQueuesUnderReplicated": [
        Case(
            gauge("queues_under_replicated", "0x4 2x12 0x20"),
            [("9m", False), ("11m", True), ("18m", False)],
        )
    ],
    "LogboomIsrChurn": [
        Case(
            gauge("isr_changes_total", "0x9 0+10x30 300x30", ', direction="shrink"')
            | gauge("queues", "100x90"),
            [("9m", False), ("20m", False), ("35m", True), ("50m", False)],
        ),
        Case(
            gauge("isr_changes_total", "0x9 100x80", ', direction="shrink"')
            | gauge("queues", "100x90"),
            [("12m", False), ("30m", False)],
            "one broker that went down",
        ),
    ],
    "LogboomRaftLeaderless": [
        Case(
            {
                'logboom_raft_is_leader{cluster="c", instance="n1"}': "1x4 0x5 1x9",
                'logboom_raft_is_leader{cluster="c", instance="n2"}': "0x4 stale",
            },
            [("4m", False), ("7m", True), ("12m", False)],
        ),
        Case(
            gauge("raft_is_leader", "1x4 stale"),
            [("4m", False), ("7m", True)],
            "nobody tells anything",
        ),
    ],
    "LogboomRaftMembersDown": [
        Case(
            gauge("raft_members", "3x40")
            | {
                'logboom_raft_members{cluster="c", instance="n2"}': "3x40",
                'logboom_raft_peers_up{cluster="c"}': "2x4 1x10 2x26",
                'logboom_raft_peers_up{cluster="c", instance="n2"}': "2x4 1x10 2x26",
            },
            [("4m", False), ("9m", False), ("12m", True), ("17m", False)],
        ),
        Case(
            gauge("raft_members", "3x40")
            | {
                'logboom_raft_members{cluster="c", instance="n2"}': "3x40",
                'logboom_raft_peers_up{cluster="c"}': "1x40",
                'logboom_raft_peers_up{cluster="c", instance="n2"}': "2x40",
            },
            [("30m", False)],
            "a name server that is cut off does not outvote the others",
        ),
    ],
    "LogboomRaftLeaderChanges": [
        Case(
            gauge("raft_term", "5x9 6+1x5 11x30"),
            [("9m", False), ("16m", True), ("40m", False)],
        ),
        Case(
            gauge("raft_term", "5x9 6 7 8x30"),
            [("12m", False), ("20m", False)],
            "a rolling restart",
        ),
    ],
    "LogboomSyncSlow": [
        Case(
            {
                f'logboom_sync_seconds_bucket{{cluster="c", instance="b1", le="{le}"}}': values
                for le, values in {
                    "0.1": "0+100x9 1000x20 1000+100x30",
                    "1": "0+100x9 1000+100x50",
                    "+Inf": "0+100x9 1000+100x50",
                }.items()
            },
            [("9m", False), ("13m", False), ("25m", True), ("45m", False)],
        )
    ],
    "LogboomDiskFillsSoon": [
        Case(
            gauge("disk_bytes", "1000-1x120 900x120", ', kind="free"')
            | gauge("disk_bytes", "800x240", ', kind="reserve"'),
            [("14m", False), ("60m", True), ("200m", False)],
        ),
        Case(
            gauge("disk_bytes", "1000-1x60 2000x120", ', kind="free"')
            | gauge("disk_bytes", "800x240", ', kind="reserve"'),
            [("60m", True), ("65m", False)],
            "somebody made room",
        ),
        Case(
            gauge("disk_bytes", "100000-1x240", ', kind="free"')
            | gauge("disk_bytes", "800x240", ', kind="reserve"'),
            [("200m", False)],
            "there is room for longer",
        ),
    ],
    "LogboomDiskFull": [
        Case(
            {f"logboom_disk_full{AT}": "0x4 1x5 0x9"},
            [("4m", False), ("7m", True), ("12m", False)],
        )
    ],
    "LogboomDamageFound": [
        Case(
            {
                f"logboom_damages_total{AT}": "0x4 1x40",
                f"logboom_queues_damaged{AT}": "0x4 1x2 0x40",
            },
            [("4m", False), ("6m", True), ("18m", True), ("30m", False)],
        ),
        Case(
            {f"logboom_damages_total{AT}": "1x40", f"logboom_queues_damaged{AT}": "1x30 0x9"},
            [("20m", True), ("35m", False)],
            "found while the process started",
        ),
    ],
    "LogboomMovesStalled": [
        Case(
            gauge("moves", "0x4 1x20 0x20", ', state="stuck"')
            | gauge("moves", "5x50", ', state="running"')
            | gauge("moves", "0x50", ', state="waiting"'),
            [("4m", False), ("15m", False), ("22m", True), ("27m", False)],
        ),
        Case(
            gauge("moves", "0x50", ', state="stuck"')
            | gauge("moves", "0x50", ', state="running"')
            | gauge("moves", "3x30 0x20", ', state="waiting"'),
            [("10m", False), ("20m", True), ("35m", False)],
            "none can begin",
        ),
        Case(
            gauge("moves", "0x50", ', state="stuck"')
            | gauge("moves", "2x50", ', state="running"')
            | gauge("moves", "90x50", ', state="waiting"'),
            [("40m", False)],
            "they take turns",
        ),
    ],
    "LogboomGroupLagGrows": [
        Case(
            gauge("group_lag_seconds", "1x9 0+60x40 0x30", ', group="g", topic="t"'),
            [("9m", False), ("20m", False), ("40m", True), ("75m", False)],
        ),
        Case(
            gauge("group_lag_seconds", "0+3x90", ', group="g", topic="t"'),
            [("60m", False)],
            "it grows by a twentieth of the time",
        ),
        Case(
            gauge(
                "group_lag_seconds",
                "5 60 5 80 5 60 5 70 5 66 5 60 5 80 5 60 5 70 5 66 5 60 5 80 5 60",
                ', group="g", topic="t"',
            ),
            [("24m", False)],
            "it comes and goes",
        ),
    ],
    "LogboomGroupWithoutMembers": [
        Case(
            gauge("group_members", "2x4 0x20 1x9", ', group="g"')
            | gauge("group_lag", "7x40", ', group="g", topic="t"'),
            [("4m", False), ("13m", False), ("17m", True), ("27m", False)],
        ),
        Case(
            gauge("group_members", "0x40", ', group="g"')
            | gauge("group_lag", "0x40", ', group="g", topic="t"'),
            [("30m", False)],
            "there is nothing to consume",
        ),
    ],
    "LogboomDeadLetters": [
        Case(
            gauge("dead_letters_total", "4x14 6x40", ', group="g"'),
            [("14m", False), ("16m", True), ("30m", False)],
        ),
        Case(
            gauge("dead_letters_total", "_x14 1x40", ', group="t%s"')
            | gauge("exporter_sample_age_seconds", "1x60"),
            [("13m", False), ("16m", True), ("30m", False)],
            "the first one made its topic",
        ),
        Case(
            gauge("dead_letters_total", "_x14 9x40", ', group="g"')
            | gauge("exporter_sample_age_seconds", "_x14 1x40"),
            [("16m", False)],
            "the exporter has just been started",
        ),
    ],
    "LogboomKeyEndsSoon": [
        Case(
            gauge("key_expiry_timestamp_seconds", f"{8 * 86_400}x1500 {90 * 86_400}x100"),
            [("23h", False), ("24h20m", True), ("26h", False)],
        )
    ],
}


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == [each.name for each in ALERTS]


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_in_time_and_goes_back(name: str, tmp_path: Path) -> None:
    tests: list[dict[str, Any]] = [
        {
            "name": case.why or name,
            "interval": "1m",
            "input_series": [
                {"series": series, "values": values} for series, values in case.series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0 '
                    "or vector(0)",
                    "eval_time": at,
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
                for at, fires in case.expected
            ],
        }
        for case in CASES[name]
    ]
    assert any(fires for case in CASES[name] for _, fires in case.expected)
    run_rule_tests(tmp_path, rules_file(), tests)


def test_an_alert_says_what_somebody_has_to_read(tmp_path: Path) -> None:
    test = {
        "interval": "1m",
        "input_series": [{"series": f"logboom_disk_full{AT}", "values": "1x10"}],
        "alert_rule_test": [
            {
                "eval_time": "5m",
                "alertname": "LogboomDiskFull",
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "critical", "cluster": "c", "instance": "b1"},
                        "exp_annotations": {
                            "summary": "b1 refuses writes, since its disk is full",
                            "description": "The queues that it leads take no messages. It goes on by "
                            "itself once there is room.",
                            "runbook_url": "https://example.com/r#logboomdiskfull",
                        },
                    }
                ],
            }
        ],
    }
    run_rule_tests(tmp_path, rules_file("https://example.com/r"), [test])
