"""Checks of `logboom doctor` for what operators do: modes, moves, versions, restores, losses, clocks."""

from __future__ import annotations

from collections.abc import Iterator

from logboom.client import Client
from logboom.client.checks.check_result import CheckResult
from logboom.client.checks.operation_checks import (
    clock_findings,
    loss_findings,
    mode_findings,
    move_findings,
    restore_findings,
    version_finding,
)
from logboom.wire.errors import LogboomError


def operations(boom: Client) -> Iterator[CheckResult]:
    """Check brokers' modes, moves of replicas, versions of nodes, restores, losses and append times."""
    try:
        described = boom.admin.describe_cluster()
        versions = boom.admin.versions()
        topics = boom.admin.topics()
        alive = [broker.id for broker in boom.admin.brokers() if broker.alive]
    except LogboomError as error:
        fix = "see the checks above, then run it again"
        yield CheckResult("operations", "warning", f"could not be checked: {error.text}", fix)
        return
    yield from mode_findings(described.brokers)
    yield from move_findings(described)
    yield version_finding(versions)
    yield from restore_findings(topics)
    yield from loss_findings(topics, described.log_time_ms)
    try:
        yield from clock_findings(
            [queue for broker in alive for queue in boom.admin.survey_queues(broker)]
        )
    except LogboomError as error:
        fix = "see the checks above, then run it again"
        yield CheckResult("append times", "warning", f"could not be checked: {error.text}", fix)
