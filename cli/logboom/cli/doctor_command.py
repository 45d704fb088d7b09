"""`logboom doctor`: problems of this machine or the cluster, and their remedies."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from typing import Any, Final

import google_crc32c

from logboom.cli.check_result import CheckResult, Outcome, list_some
from logboom.cli.cluster_status import ClusterStatus, read_cluster_status
from logboom.cli.connection import open_client
from logboom.cli.doctor_consumers import consumers
from logboom.cli.options import servers_or_default
from logboom.cli.output import bytes_text, show
from logboom.cli.parameters import Output, Servers
from logboom.deploy.node_client import NodeClient
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.sockets import check_endpoint

ASK_S: Final = 2.0
OPEN_FILES: Final = 4_096
"""File descriptors that RocksDB and the connections need on a busy broker."""


def doctor(*, servers: Servers = None, output: Output = "table") -> int:
    """Check this machine and the cluster: check, result, fix. Exits with 1 if a check failed.

    Groups, subscriptions and transactions are checked too: one that is stuck is a failure, one that
    is paused or has no consumer is a warning.

    For example:

        logboom doctor
        logboom doctor -s 10.0.0.1:7711 -o json
    """
    findings = list(machine())
    try:
        named = servers_or_default(servers)
    except Unavailable as error:
        what, _, fix = str(error).partition(": ")
        findings.append(CheckResult("cluster", "failed", what, fix))
    else:
        ends = [check_endpoint(end.strip()) for end in named.split(",")]
        with NodeClient() as node_client:
            findings += cluster(node_client, ends)
        if any(each.check == "raft leader" and each.result == "ok" for each in findings):
            findings += _consumers(named)
    rows = [
        {"check": f.check, "result": f.result, "found": f.found, "fix": f.fix} for f in findings
    ]
    show(rows, ["check", "result", "found", "fix"], output)
    return 1 if any(finding.result == "failed" for finding in findings) else 0


def _consumers(servers: str) -> Iterator[CheckResult]:
    """Check groups, subscriptions and transactions."""
    try:
        with open_client(servers) as boom:
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


def cluster(node_client: NodeClient, ends: list[str]) -> Iterator[CheckResult]:
    """Check the cluster that answers at any of these endpoints."""
    standing, silent = read_cluster_status(node_client, ends, ASK_S)
    for end in silent:
        yield CheckResult(f"node {end}", "failed", "no answer", _fix_silent(end))
    if standing is None:
        if len(silent) < len(ends):
            fix = "start a majority of the name servers"
            yield CheckResult("metadata", "failed", "no node has any", fix)
        return
    yield from _nodes(standing)
    yield _raft_leader(standing)
    yield _brokers(standing)
    yield from _queues(standing)


def _fix_silent(end: str) -> str:
    return f"is it up, and is {end} right? `logboom cluster status` shows this machine's"


def _nodes(standing: ClusterStatus) -> Iterator[CheckResult]:
    view, leader = standing.view, standing.raft_leader
    for broker in view.brokers:
        if not standing.answers(broker.id):
            yield _silent(broker.id, broker.endpoint)
        elif not broker.alive:
            fix = f"look at its log: it cannot reach the raft leader {leader or ''}".rstrip()
            yield CheckResult(f"node {broker.id}", "failed", "answers, but is fenced", fix)
        else:
            yield CheckResult(f"node {broker.id}", "ok", broker.endpoint)
    for server in view.name_servers:
        stats = standing.stats.get(server.id)
        if stats is None:
            yield _silent(server.id, server.endpoint)
        elif leader is not None and stats.counters.get("in_touch") == 0:
            fix = f"can it reach raft_listen of {leader}, and {leader} its own?"
            found = "answers, but hears nothing of the raft leader"
            yield CheckResult(f"node {server.id}", "failed", found, fix)
        else:
            yield CheckResult(f"node {server.id}", "ok", server.endpoint)
    for name, answer in standing.stats.items():
        yield from _counters(name, answer.counters)


def _silent(name: str, endpoint: str) -> CheckResult:
    return CheckResult(f"node {name}", "failed", f"no answer at {endpoint}", f"start {name}")


def _raft_leader(standing: ClusterStatus) -> CheckResult:
    leader = standing.raft_leader
    if leader is not None:
        return CheckResult("raft leader", "ok", leader)
    here = standing.name_servers
    found = f"none: {len(here)} of {len(standing.view.name_servers)} name servers answer"
    if len(here) < standing.majority:
        missing = [s.id for s in standing.view.name_servers if s.id not in here]
        fix = f"start {standing.majority - len(here)} of {', '.join(missing)}; acks=all and reads continue"
    else:
        fix = (
            "they may be electing one: run it again, then check that they reach each other's "
            "raft_listen"
        )
    return CheckResult("raft leader", "failed", found, fix)


def _brokers(standing: ClusterStatus) -> CheckResult:
    brokers = standing.view.brokers
    alive = sum(standing.answers(broker.id) and broker.alive for broker in brokers)
    if alive:
        return CheckResult("brokers", "ok", f"{alive} of {len(brokers)} alive")
    return CheckResult("brokers", "failed", "none is alive", "start one: `logboom node broker`")


def _counters(name: str, counters: dict[str, Any]) -> Iterator[CheckResult]:
    """Check a node's own counters."""
    yield from _disk(name, counters)
    if counters.get("damaged"):
        fix = "it repairs itself from other replicas; if it stays so, replace its disk"
        found = f"{counters['damaged']} damaged queues: {counters.get('damaged_queues', '?')}"
        yield CheckResult(f"store of {name}", "failed", found, fix)
    if counters.get("stores_set_aside"):
        found = f"{counters['stores_set_aside']} damaged, kept as damaged-* in its data folder"
        fix = (
            "once all replicas are in sync and every queue has a leader delete it; until then it may be "
            "the only copy: `logboom store recover` brings back what it holds"
        )
        yield CheckResult(f"old stores of {name}", "warning", found, fix)
    if counters.get("refusal"):
        yield CheckResult(
            f"registration of {name}", "failed", str(counters["refusal"]), "see its log"
        )
    elif counters.get("lease") == 0:
        fix = "it cannot reach the raft leader: acks=all and reads continue, everything else waits"
        yield CheckResult(f"lease of {name}", "warning", "none", fix)


def _disk(name: str, counters: dict[str, Any]) -> Iterator[CheckResult]:
    """Check the free space of a broker's disk beyond its reserve."""
    free, size, reserve = (counters.get(of) for of in ("free_bytes", "disk_bytes", "reserve_bytes"))
    if not isinstance(free, int | float):
        return
    found = f"{bytes_text(max(0, free))} free"
    if isinstance(size, int | float) and isinstance(reserve, int | float) and size:
        found += f" of {bytes_text(size)}, {bytes_text(reserve)} reserved"
    if counters.get("disk_full"):
        fix = "free space, or shorten retention: it then accepts writes again automatically"
        yield CheckResult(f"disk of {name}", "failed", found, fix)
    else:
        yield CheckResult(f"disk of {name}", "ok", found)


def _queues(standing: ClusterStatus) -> Iterator[CheckResult]:
    topics = standing.view.topics
    queues = [(f"{t.name}/{n}", t.config, q) for t in topics for n, q in enumerate(t.queues)]
    fix = "start the brokers that hold its in-sync replicas (`logboom topic describe`)"
    if standing.raft_leader is None:
        fix += ", and a majority of the name servers, which elect"
    yield _about(
        "every queue has a leader",
        [name for name, _, queue in queues if standing.leader(queue) is None],
        "failed",
        fix,
    )
    yield _about(
        "queues take acks=all",
        [name for name, config, queue in queues if not standing.takes_writes(config, queue)],
        "failed",
        "start the brokers that hold the missing replicas",
    )
    yield _about(
        "all replicas in sync",
        [name for name, _, q in queues if len(standing.in_sync(q)) < len(q.replicas)],
        "warning",
        "they catch up automatically once their brokers run",
    )


def _about(check: str, wrong: list[str], result: Outcome, fix: str) -> CheckResult:
    if not wrong:
        return CheckResult(check, "ok", "all")
    return CheckResult(check, result, f"not {len(wrong)}: {list_some(wrong)}", fix)
