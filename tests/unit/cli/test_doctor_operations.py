"""What `logboom doctor` finds about operators' work, and what --watch tells of two rounds."""

from __future__ import annotations

import pytest

from logboom.cli.doctor_command import changes, is_failure
from logboom.client.checks.check_result import CheckResult
from logboom.client.checks.operation_checks import (
    AHEAD_TOLD_MS,
    LOSS_TOLD_MS,
    clock_findings,
    loss_findings,
    mode_findings,
    move_findings,
    restore_findings,
    version_finding,
)
from logboom.wire.messages import NodeVersion, VersionsDescribed
from logboom.wire.operation_messages import (
    BrokerLoad,
    ClusterDescribed,
    PlannerState,
    PlannerStatus,
    QueueMoveState,
)
from logboom.wire.survey_messages import QueueSurvey
from logboom.wire.view import QueueLoss, QueueView, TopicConfig, TopicView


def load(mode: str, replicas: int = 3) -> BrokerLoad:
    """Return a broker in a mode."""
    rest = (1, 1, 10, 100, 50, 0, 0, 0, 0, 0, 0)
    return BrokerLoad("broker-2", mode, True, False, False, "", "", replicas, *rest)


def move(done_bytes: int, stuck: str = "") -> QueueMoveState:
    """Return a move of 100 KiB."""
    replicas = ["broker-2", "broker-1"]
    where = ("flights", 3, replicas, ["broker-2"], ["broker-1"])
    return QueueMoveState(*where, "drain", done_bytes, 102_400, 0, 0, -1, stuck)


def described(
    *moves: QueueMoveState, state: PlannerState = "idle", reasons: tuple[str, ...] = ()
) -> ClusterDescribed:
    """Return the answer of a Raft leader."""
    planner = PlannerStatus(state, list(reasons), 0, "new-broker", 0.0, 0)
    return ClusterDescribed(1, [], list(moves), planner, 7)


@pytest.mark.parametrize(
    ("mode", "result", "fix"),
    [
        ("maintenance", "warning", "logboom broker maintenance off broker-2"),
        ("draining", "ok", "logboom broker undrain broker-2"),
        ("drained", "warning", "logboom broker remove broker-2"),
    ],
)
def test_a_broker_that_is_not_in_normal_work_is_told(mode: str, result: str, fix: str) -> None:
    (found,) = mode_findings([load(mode)])
    assert found.result == result
    assert fix in found.fix


def test_an_active_broker_is_no_finding() -> None:
    assert not list(mode_findings([load("active")]))


def test_moves_tell_what_is_left_and_what_is_stuck() -> None:
    (quiet,) = move_findings(described())
    assert (quiet.result, quiet.found) == ("ok", "none under way")
    (going,) = move_findings(described(move(51_200), move(-1)))
    assert (going.result, going.found) == ("ok", "2 moves under way, 150.0 KiB left")
    stuck = described(move(51_200), move(0, "destination disk at 81 %"))
    (warned,) = move_findings(stuck)
    assert (warned.result, warned.found) == ("warning", "flights/3: destination disk at 81 %")


def test_a_planner_that_cannot_go_on_says_why() -> None:
    reasons = ("3 replicas, 3 brokers: nowhere to go",)
    (found,) = move_findings(described(state="stalled", reasons=reasons))
    assert (found.result, found.found) == ("warning", reasons[0])


def versions(features: int, *software: str, hinders: str = "") -> VersionsDescribed:
    """Return nodes of these versions; the last one hinders the upgrade."""
    nodes = [
        NodeVersion(f"broker-{n}", "broker", each, 1, hinders if n == len(software) else "")
        for n, each in enumerate(software, 1)
    ]
    return VersionsDescribed(1, features, 1, nodes)


def test_versions_tell_what_an_upgrade_waits_for() -> None:
    assert version_finding(versions(1, "0.2.0", "0.2.0")).result == "ok"
    ready = version_finding(versions(0, "0.2.0", "0.2.0"))
    assert (ready.result, "upgrade finalize" in ready.fix) == ("warning", True)
    mixed = version_finding(versions(0, "0.2.0", "0.1.0", hinders="it is older"))
    assert (mixed.result, mixed.found) == ("warning", "mixed: 0.1.0, 0.2.0")
    assert "broker-2" in mixed.fix


def test_an_unfinished_restore_is_told() -> None:
    topics = [
        TopicView("flights", 1, TopicConfig(), [], 1, restoring="20261124T021500Z"),
        TopicView("orders", 2, TopicConfig(), [], 1),
    ]
    (found,) = restore_findings(topics)
    assert (found.result, found.found) == ("warning", "1 topic being restored: flights")


def test_the_first_round_tells_what_is_not_well_and_later_ones_what_changed() -> None:
    well, ill = CheckResult("moves", "ok", "none"), CheckResult("moves", "warning", "stuck", "fix")
    gone = CheckResult("mode of broker-2", "warning", "maintenance")
    assert list(changes({}, [well, gone])) == [gone]
    assert list(changes({"moves": well}, [ill])) == [ill]
    assert not list(changes({"moves": ill}, [CheckResult("moves", "warning", "still stuck")]))
    back = list(changes({"moves": ill, gone.check: gone}, [well]))
    assert back == [well, CheckResult(gone.check, "ok", "no longer found")]


def test_warnings_fail_only_if_asked() -> None:
    warning = CheckResult("moves", "warning", "stuck")
    assert not is_failure(warning, strict=False)
    assert is_failure(warning, strict=True)
    assert is_failure(CheckResult("moves", "failed", "x"), strict=False)


def test_a_loss_is_told_for_a_while() -> None:
    def topic(*losses: QueueLoss) -> TopicView:
        queue = QueueView(["b"], "b", 3, 1, ["b"], [], losses=[*losses])
        return TopicView("flights", 1, TopicConfig(), [queue], 1)

    assert [*loss_findings([topic()], 5_000)] == []
    (found,) = loss_findings([topic(QueueLoss(2, 7, 0), QueueLoss(3, 900, 4_000))], 5_000)
    assert (found.check, found.result) == ("losses", "warning")
    assert "flights/0 (from offset 900 on)" in found.found
    (found,) = loss_findings([topic(QueueLoss(3, -1, 4_000))], 5_000)
    assert "has yet to say where" in found.found
    assert [*loss_findings([topic(QueueLoss(3, 9, 4_000))], 4_000 + LOSS_TOLD_MS)] == []


def test_append_times_far_ahead_of_the_clock_are_told() -> None:
    def queue(number: int, ahead_ms: int) -> QueueSurvey:
        return QueueSurvey(1, number, 0, 9, 100, [], "flights", ahead_ms)

    assert not list(clock_findings([queue(0, 0), queue(1, AHEAD_TOLD_MS)]))
    (found,) = clock_findings([queue(0, 0), queue(1, 7_200_000), queue(2, AHEAD_TOLD_MS + 1)])
    assert (found.check, found.result) == ("append times", "warning")
    assert "2 queues" in found.found
    assert "2.0 h" in found.found
    assert "flights/1" in found.found
    assert "clocks of the brokers" in found.fix
