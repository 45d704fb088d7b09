"""Checks of what operators do: modes of brokers, moves, versions, restores; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from logboom.client.checks.check_result import CheckResult, list_some
from logboom.client.written_values import bytes_text, counted
from logboom.wire.messages import VersionsDescribed
from logboom.wire.operation_messages import BrokerLoad, ClusterDescribed, QueueMoveState
from logboom.wire.survey_messages import QueueSurvey
from logboom.wire.view import TopicView

LOSS_TOLD_MS: Final = 7 * 86_400_000
"""Milliseconds for which a loss is told."""
AHEAD_TOLD_MS: Final = 60_000
"""Milliseconds by which append times may lie ahead of their leader's clock without a finding."""


def mode_findings(brokers: Sequence[BrokerLoad]) -> Iterator[CheckResult]:
    """Return a finding for each broker that is not in normal work."""
    for broker in brokers:
        name = broker.broker
        if broker.mode == "maintenance":
            fix = f"after the work: `logboom broker maintenance off {name}`"
            yield CheckResult(f"mode of {name}", "warning", "maintenance: it leads nothing", fix)
        elif broker.mode == "draining":
            found = f"draining: {counted(broker.replicas, 'replica')} left"
            fix = f"`logboom broker undrain {name}` cancels it"
            yield CheckResult(f"mode of {name}", "ok", found, fix)
        elif broker.mode == "drained":
            fix = f"stop it and `logboom broker remove {name}`, or `logboom broker undrain {name}`"
            yield CheckResult(f"mode of {name}", "warning", "drained: it holds nothing", fix)


def move_findings(described: ClusterDescribed) -> Iterator[CheckResult]:
    """Return findings about moves under way and about those that cannot begin."""
    moves, planner = described.moves, described.planner
    stuck = [move for move in moves if move.stuck]
    if stuck:
        first = f"{stuck[0].topic}/{stuck[0].queue}: {stuck[0].stuck}"
        more = f"; and {len(stuck) - 1} more" if len(stuck) > 1 else ""
        fix = "`logboom queue list --moving` shows each; `logboom queue cancel` takes one back"
        yield CheckResult("moves", "warning", first + more, fix)
    elif planner.state == "stalled":
        found = planner.reasons[0] if planner.reasons else "it cannot go on"
        yield CheckResult("moves", "warning", found, "`logboom balance status` says more")
    elif moves:
        left = sum(map(_left_bytes, moves))
        found = f"{counted(len(moves), 'move')} under way, {bytes_text(left)} left"
        yield CheckResult("moves", "ok", found)
    else:
        yield CheckResult("moves", "ok", "none under way")


def _left_bytes(move: QueueMoveState) -> int:
    return max(0, move.total_bytes - max(0, move.done_bytes))


def version_finding(versions: VersionsDescribed) -> CheckResult:
    """Return whether all nodes run one version, and whether an upgrade waits for its end."""
    software = sorted({node.software for node in versions.nodes if node.software})
    hindering = [node for node in versions.nodes if node.hinders]
    told = ", ".join(software) or "unknown"
    if versions.features < versions.offered and not hindering:
        fix = "`logboom cluster upgrade finalize`; after it no node can go back"
        return CheckResult("versions", "warning", f"{told}: the upgrade is not finalized", fix)
    if len(software) > 1 or (versions.features < versions.offered and hindering):
        names = list_some([node.id for node in hindering or versions.nodes])
        fix = f"upgrade the other nodes too: `logboom cluster upgrade status` ({names})"
        return CheckResult("versions", "warning", f"mixed: {told}", fix)
    return CheckResult("versions", "ok", told)


def restore_findings(topics: Sequence[TopicView]) -> Iterator[CheckResult]:
    """Return a finding if topics wait for the end of a restore."""
    waiting = [topic.name for topic in topics if topic.restoring]
    if waiting:
        found = f"{counted(len(waiting), 'topic')} being restored: {list_some(waiting)}"
        fix = "run the same `logboom backup restore` again: it goes on where it ended"
        yield CheckResult("restores", "warning", found, fix)


def loss_findings(topics: Sequence[TopicView], log_time_ms: int) -> Iterator[CheckResult]:
    """Return a finding if queues have lost messages lately: positions went back to what was left.

    Args:
        log_time_ms: time of the Raft log, as in `ClusterDescribed`.
    """
    lost: list[str] = []
    for topic in topics:
        for number, queue in enumerate(topic.queues):
            if queue.losses and log_time_ms - queue.losses[-1].time_ms < LOSS_TOLD_MS:
                end = queue.losses[-1].end
                where = f"from offset {end} on" if end >= 0 else "its leader has yet to say where"
                lost.append(f"{topic.name}/{number} ({where})")
    if lost:
        found = (
            f"{counted(len(lost), 'queue')} had a leader that may lack messages: {list_some(lost)}"
        )
        fix = (
            "readers went back to there; send again what is missing, and set --no-unclean-election "
            "where it was allowed; told for 7 days (docs/OPERATING.md)"
        )
        yield CheckResult("losses", "warning", found, fix)


def clock_findings(queues: Sequence[QueueSurvey]) -> Iterator[CheckResult]:
    """Return a finding if the newest append times of queues lie ahead of their leaders' clocks."""
    ahead = [queue for queue in queues if queue.ahead_ms > AHEAD_TOLD_MS]
    if ahead:
        names = list_some([f"{queue.topic}/{queue.queue}" for queue in ahead])
        hours = max(queue.ahead_ms for queue in ahead) / 3_600_000
        found = (
            f"{counted(len(ahead), 'queue')} with append times ahead of the leader's clock, "
            f"by up to {hours:.1f} h: {names}"
        )
        fix = (
            "check that the clocks of the brokers are right (NTP); append times never go back, so "
            "they stand still until the clock reaches them (docs/OPERATING.md)"
        )
        yield CheckResult("append times", "warning", found, fix)
