"""`logboom doctor`: what is wrong with this machine or the cluster, and how to mend it."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from typing import Any, Final

import google_crc32c

from logboom.cli.connecting import open_client
from logboom.cli.doctor_consumers import consumers
from logboom.cli.findings import Finding, Outcome, some
from logboom.cli.options import Output, Servers, servers_or_default
from logboom.cli.output import bytes_text, show
from logboom.deploy.asking import Asker
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.messages import Stats, StatsResult
from logboom.wire.sockets import check_endpoint
from logboom.wire.view import QueueView, View

ASK_S: Final = 2.0
OPEN_FILES: Final = 4_096
"""RocksDB and the connections need so many file descriptors on a busy broker."""


def doctor(*, servers: Servers = None, output: Output = "table") -> int:
    """Check this machine and the cluster: check, result, fix. Exits with 1 if a check failed.

    Groups, subscriptions and transactions are looked at too: one that is stuck is a failure, one that
    is paused or has nobody who consumes is a warning.

    For example:

        logboom doctor
        logboom doctor -s 10.0.0.1:7711 -o json

    Parameters
    ----------
    servers
        Any nodes, host:port, comma-separated.
    output
        table or json.
    """
    findings = list(machine())
    try:
        named = servers_or_default(servers)
    except Unavailable as error:
        what, _, fix = str(error).partition(": ")
        findings.append(Finding("cluster", "failed", what, fix))
    else:
        ends = [check_endpoint(end.strip()) for end in named.split(",")]
        with Asker() as asker:
            findings += cluster(asker, ends)
        if any(each.check == "raft leader" and each.result == "ok" for each in findings):
            findings += _consumers(named)
    rows = [
        {"check": f.check, "result": f.result, "found": f.found, "fix": f.fix} for f in findings
    ]
    show(rows, ["check", "result", "found", "fix"], output)
    return 1 if any(finding.result == "failed" for finding in findings) else 0


def _consumers(servers: str) -> Iterator[Finding]:
    """Checks of those who read and write."""
    try:
        with open_client(servers) as boom:
            yield from consumers(boom)
    except LogboomError as error:
        yield Finding("groups", "warning", f"not looked at: {error.text}", "see the checks above")


def machine() -> Iterator[Finding]:
    """Checks of this machine and installation."""
    major, minor = sys.version_info[:2]
    python = f"{major}.{minor}"
    if (major, minor) >= (3, 11):
        yield Finding("python", "ok", python)
    else:
        yield Finding("python", "failed", python, "install Python 3.11 or newer")
    kind = google_crc32c.implementation
    if kind == "c":
        yield Finding("checksums", "ok", "compiled")
    else:
        yield Finding(
            "checksums", "warning", f"{kind}: slow", "pip install --force-reinstall google-crc32c"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files >= OPEN_FILES or files == resource.RLIM_INFINITY:
        yield Finding("open files", "ok", f"limit {files}")
    else:
        yield Finding("open files", "warning", f"limit {files}", f"ulimit -n {OPEN_FILES}")


def cluster(asker: Asker, ends: list[str]) -> Iterator[Finding]:
    """Checks of the cluster that answers at any of these endpoints."""
    views = asker.views(ends, ASK_S)
    for end in ends:
        if end not in views:
            yield Finding(f"node {end}", "failed", "no answer", _fix_silent(end))
    if not views:
        return
    view = max(views.values(), key=lambda v: v.version)
    yield from _nodes(asker, view)
    yield _brokers(view)
    yield from _queues(view)


def _fix_silent(end: str) -> str:
    return f"is it up, and is {end} right? `logboom cluster status` shows this machine's"


def _nodes(asker: Asker, view: View) -> Iterator[Finding]:
    names = {b.endpoint: b.id for b in view.brokers} | {n.endpoint: n.id for n in view.name_servers}
    answers = asker.ask({end: Stats(0, int(ASK_S * 1000)) for end in names}, ASK_S)
    fenced = {b.id for b in view.brokers if not b.alive}
    for end, name in names.items():
        answer = answers[end]
        if isinstance(answer, LogboomError):
            yield Finding(f"node {name}", "failed", f"no answer at {end}", f"start {name}")
        elif name in fenced:
            fix = f"look at its log: it cannot reach the raft leader {view.raft_leader}"
            yield Finding(f"node {name}", "failed", "answers, but is fenced", fix)
        else:
            yield Finding(f"node {name}", "ok", end)
        if isinstance(answer, StatsResult):
            yield from _counters(name, answer.counters)
    if view.raft_leader is None:
        fix = "start a majority of the name servers; acks=all and reads go on without"
        yield Finding("raft leader", "failed", "none", fix)
    else:
        yield Finding("raft leader", "ok", view.raft_leader)


def _brokers(view: View) -> Finding:
    alive = sum(broker.alive for broker in view.brokers)
    if alive:
        return Finding("brokers", "ok", f"{alive} of {len(view.brokers)} alive")
    return Finding("brokers", "failed", "none is alive", "start one: `logboom node broker`")


def _counters(name: str, counters: dict[str, Any]) -> Iterator[Finding]:
    """What a node's own counters give away."""
    yield from _disk(name, counters)
    if counters.get("damaged"):
        fix = "it mends itself from other replicas; if it stays so, replace its disk"
        found = f"{counters['damaged']} damaged queues: {counters.get('damaged_queues', '?')}"
        yield Finding(f"store of {name}", "failed", found, fix)
    if counters.get("stores_set_aside"):
        found = f"{counters['stores_set_aside']} damaged, kept as damaged-* in its data folder"
        fix = (
            "once all replicas are in sync and every queue has a leader delete it; until then it may be "
            "the only copy: `logboom store recover` brings back what it holds"
        )
        yield Finding(f"old stores of {name}", "warning", found, fix)
    if counters.get("refusal"):
        yield Finding(f"registration of {name}", "failed", str(counters["refusal"]), "see its log")
    elif counters.get("lease") == 0:
        fix = "it cannot reach the raft leader: acks=all and reads go on, all else waits"
        yield Finding(f"lease of {name}", "warning", "none", fix)


def _disk(name: str, counters: dict[str, Any]) -> Iterator[Finding]:
    """The room of a broker's disk beside its reserve."""
    free, size, reserve = (counters.get(of) for of in ("free_bytes", "disk_bytes", "reserve_bytes"))
    if not isinstance(free, int | float):
        return
    found = f"{bytes_text(max(0, free))} free"
    if isinstance(size, int | float) and isinstance(reserve, int | float) and size:
        found += f" of {bytes_text(size)}, {bytes_text(reserve)} reserved"
    if counters.get("disk_full"):
        fix = "free space, or shorten retention: it takes writes again by itself"
        yield Finding(f"disk of {name}", "failed", found, fix)
    else:
        yield Finding(f"disk of {name}", "ok", found)


def _queues(view: View) -> Iterator[Finding]:
    queues = [(f"{t.name}/{n}", t, q) for t in view.topics for n, q in enumerate(t.queues)]
    yield _about(
        "every queue has a leader",
        [name for name, _, queue in queues if queue.leader is None],
        "failed",
        "start the brokers that hold its in-sync replicas (`logboom topic describe`)",
    )
    yield _about(
        "queues take acks=all",
        [name for name, topic, q in queues if len(q.isr) < _needed(topic.config.min_in_sync, q)],
        "failed",
        "start the brokers that hold the missing replicas",
    )
    yield _about(
        "all replicas in sync",
        [name for name, _, queue in queues if len(queue.isr) < len(queue.replicas)],
        "warning",
        "they catch up by themselves once their brokers run",
    )


def _needed(min_in_sync: int, queue: QueueView) -> int:
    """Copies that an acks=all write needs (SAFETY Q7)."""
    replicas = len(queue.replicas)
    return min(min_in_sync or replicas // 2 + 1, replicas)


def _about(check: str, wrong: list[str], result: Outcome, fix: str) -> Finding:
    if not wrong:
        return Finding(check, "ok", "all")
    return Finding(check, result, f"not {len(wrong)}: {some(wrong)}", fix)
