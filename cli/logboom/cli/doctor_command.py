"""`logboom doctor`: problems of this machine or the cluster, and their remedies."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Final, NoReturn

import google_crc32c
import msgspec
from cyclopts import Parameter

from logboom.cli.cluster_address import Destination, destination_of
from logboom.cli.cluster_status import read_cluster_status
from logboom.cli.connection import connect_to, open_node_client
from logboom.cli.doctor_consumers import consumers
from logboom.cli.doctor_operations import operations
from logboom.cli.options import check_interval
from logboom.cli.output import show
from logboom.cli.parameters import ClusterAddress, Output, Servers
from logboom.client.checks.check_result import CheckResult
from logboom.client.checks.cluster_checks import cluster_findings
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import LogboomError, Unavailable

MIN_INTERVAL_S: Final = 1.0
COLUMNS: Final = ("check", "result", "found", "fix")
OPEN_FILES: Final = 4_096
"""File descriptors that RocksDB and the connections need on a busy broker."""


def doctor(
    *,
    watch: Annotated[
        bool, Parameter(name=["--watch", "-w"], negative="", help="Check again until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, Parameter(name=["--interval", "-i"], help="Seconds between two checks of --watch.")
    ] = 5.0,
    strict: Annotated[bool, Parameter(negative="", help="Let warnings count as failures.")] = False,
    servers: Servers = None,
    output: Output = "table",
) -> int:
    """Check this machine and the cluster: check, result, fix. Exits with 1 if a check failed.

    Groups, subscriptions and transactions are checked too: one that is stuck is a failure, one that
    is paused or has no consumer is a warning. So are modes of brokers, moves of replicas, versions
    of nodes, unfinished restores, and append times that lie ahead of the clock.

    With --watch it goes on: a terminal shows the newest checks, a pipe gets what has changed.

    For example:

        logboom doctor
        logboom doctor -s 10.0.0.1:7711 -o json
        logboom doctor --watch --interval 10
    """
    check_interval(interval, MIN_INTERVAL_S)
    if watch:
        _watch(servers, interval, output)
    findings = find_all(servers)
    show([asdict(each) for each in findings], COLUMNS, output)
    return 1 if any(is_failure(finding, strict=strict) for finding in findings) else 0


def is_failure(finding: CheckResult, *, strict: bool) -> bool:
    """True if a finding makes the command exit with 1."""
    return finding.result == "failed" or (strict and finding.result == "warning")


def find_all(servers: ClusterAddress | None) -> list[CheckResult]:
    """Run all checks."""
    findings = list(machine())
    try:
        destination = destination_of(servers)
    except Unavailable as error:
        what, _, fix = str(error).partition(": ")
        findings.append(CheckResult("cluster", "failed", what, fix))
    else:
        findings += check_cluster(destination)
    return findings


def check_cluster(destination: Destination) -> list[CheckResult]:
    """Run the checks of a cluster."""
    with open_node_client(destination) as node_client:
        findings = list(cluster(node_client, destination.endpoints))
    if any(each.check == "raft leader" and each.result == "ok" for each in findings):
        findings += _consumers(destination)
    return findings


def _watch(servers: ClusterAddress | None, interval_s: float, output: str) -> NoReturn:
    """Check again and again, until Ctrl-C."""
    known: dict[str, CheckResult] = {}
    screen = output == "table" and sys.stdout.isatty()
    while True:
        findings = find_all(servers)
        at = time.strftime("%H:%M:%S")
        if screen:
            # Home, and clear what is below: the screen is written at once.
            sys.stdout.write("\x1b[H\x1b[2J")
            print(f"{at}, every {interval_s:g} s; Ctrl-C ends")
            show([asdict(each) for each in findings], COLUMNS, output)
        else:
            for finding in changes(known, findings):
                if output == "json":
                    line = {"at": at, **asdict(finding)}
                    print(msgspec.json.encode(line).decode(), flush=True)
                else:
                    told = (at, finding.result, finding.check, finding.found, finding.fix)
                    print("  ".join(filter(None, told)), flush=True)
        known = {finding.check: finding for finding in findings}
        # Paces the checks.
        time.sleep(interval_s)


def changes(
    known: Mapping[str, CheckResult], findings: Sequence[CheckResult]
) -> Iterator[CheckResult]:
    """Yield the findings whose result is another than before, and what is no longer wrong.

    The first time, only what is not well is told.
    """
    for finding in findings:
        before = known.get(finding.check)
        if finding.result != (before.result if before is not None else "ok"):
            yield finding
    present = {finding.check for finding in findings}
    for check, before in known.items():
        if check not in present and before.result != "ok":
            yield CheckResult(check, "ok", "no longer found")


def _consumers(destination: Destination) -> Iterator[CheckResult]:
    """Check what operators do, and groups, subscriptions and transactions."""
    try:
        with connect_to(destination) as boom:
            yield from operations(boom)
            yield from consumers(boom)
    except LogboomError as error:
        yield CheckResult(
            "groups", "warning", f"not looked at: {error.text}", "see the checks above"
        )


def machine() -> Iterator[CheckResult]:
    """Check this machine and installation."""
    major, minor = sys.version_info[:2]
    python = f"{major}.{minor}"
    if (major, minor) >= (3, 11):
        yield CheckResult("python", "ok", python)
    else:
        yield CheckResult("python", "failed", python, "install Python 3.11 or newer")
    kind = google_crc32c.implementation
    if kind == "c":
        yield CheckResult("checksums", "ok", "compiled")
    else:
        yield CheckResult(
            "checksums", "warning", f"{kind}: slow", "pip install --force-reinstall google-crc32c"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files >= OPEN_FILES or files == resource.RLIM_INFINITY:
        yield CheckResult("open files", "ok", f"limit {files}")
    else:
        yield CheckResult("open files", "warning", f"limit {files}", f"ulimit -n {OPEN_FILES}")


def cluster(node_client: NodeClient, ends: Sequence[str]) -> Iterator[CheckResult]:
    """Check the cluster that answers at any of these endpoints."""
    standing, silent = read_cluster_status(node_client, ends)
    for end in silent:
        yield CheckResult(f"node {end}", "failed", "no answer", _fix_silent(end))
    if standing is None:
        if len(silent) < len(ends):
            fix = "start a majority of the name servers"
            yield CheckResult("metadata", "failed", "no node has any", fix)
        return
    yield from cluster_findings(standing)


def _fix_silent(end: str) -> str:
    return f"is it up, and is {end} right? `logboom cluster status` shows this machine's"
