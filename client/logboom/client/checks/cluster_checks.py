"""Checks of nodes, of the Raft group and of queues, pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from logboom.client.checks.check_result import CheckResult, Outcome, list_some
from logboom.client.checks.cluster_health import ClusterStatus
from logboom.client.written_values import bytes_text


def cluster_findings(standing: ClusterStatus) -> Iterator[CheckResult]:
    """Return the findings about nodes, the Raft leader, brokers and queues."""
    yield from _nodes(standing)
    yield _raft_leader(standing)
    yield _brokers(standing)
    yield from _queues(standing)


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


def _counters(name: str, counters: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check a node's own counters."""
    yield from _disk(name, counters)
    if exposed := counters.get("insecure_listeners"):
        found = f"{exposed} open to other machines: whoever reaches them may do everything"
        fix = "turn encryption on (docs/SECURITY.md); insecure = true does not silence this"
        yield CheckResult(f"listeners of {name}", "failed", found, fix)
    if counters.get("metrics_exposed"):
        found = (
            f"{counters.get('metrics_endpoint')} asks nobody who it is: whoever reaches it reads "
            "the figures"
        )
        fix = 'metrics_listen = "auto" (loopback), or let a firewall pass only Prometheus'
        yield CheckResult(f"metrics of {name}", "warning", found, fix)
    if other := counters.get("other_cluster_key"):
        found = (
            f"it uses {counters.get('cluster_key')} and accepts {other}: the key is being changed"
        )
        fix = "go on with the steps once all nodes have these (docs/SECURITY.md, Rotation)"
        yield CheckResult(f"cluster key of {name}", "warning", found, fix)
    if data := counters.get("data_exposed"):
        fix = f"on its machine: chmod 700 {quote(str(data))} (as root, if it belongs to somebody else)"
        found = f"other users of its machine can look into {data}"
        yield CheckResult(f"data folder of {name}", "warning", found, fix)
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
    if counters.get("replicas_aside"):
        found = (
            f"{counters['replicas_aside']} replicas of topics that the name servers have lost, ids "
            f"{counters.get('topics_aside', '?')}: they stay on its disk"
        )
        fix = (
            "see docs/OPERATING.md, A lost majority of the name servers; "
            "`logboom topic discard-lost` deletes one by its id, for good"
        )
        yield CheckResult(f"lost topics of {name}", "warning", found, fix)
    if counters.get("refusal"):
        yield CheckResult(
            f"registration of {name}", "failed", str(counters["refusal"]), "see its log"
        )
    if counters.get("rival"):
        found = (
            f"a process at {counters['rival']} would be {name} or has its address, and is refused"
        )
        fix = "stop it, or give it an `id`, a data folder and an `advertise` of its own"
        yield CheckResult(f"identity of {name}", "failed", found, fix)
    if not counters.get("refusal") and counters.get("lease") == 0:
        fix = "it cannot reach the raft leader: acks=all and reads continue, everything else waits"
        yield CheckResult(f"lease of {name}", "warning", "none", fix)


def _disk(name: str, counters: Mapping[str, Any]) -> Iterator[CheckResult]:
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
    # Most queues of a large cluster are well, and are passed over.
    queues = [
        (f"{topic.name}/{number}", topic.config, queue)
        for topic in topics
        for number, queue in enumerate(topic.queues)
        if not standing.is_whole(queue)
    ]
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
        [
            name
            for name, _, q in queues
            if not {*q.replicas} - {*q.adding} <= {*standing.in_sync(q)}
        ],
        "warning",
        "they catch up automatically once their brokers run",
    )
    yield _about(
        "queues have the wanted number of replicas",
        [
            f"{topic.name}/{number}"
            for topic in topics
            for number, q in enumerate(topic.queues)
            if len(q.replicas) - len(q.removing) < topic.replicas
        ],
        "warning",
        "they get more automatically once enough brokers run: start the missing ones, or want fewer "
        "(`logboom topic alter --replicas`)",
    )


def _about(check: str, wrong: list[str], result: Outcome, fix: str) -> CheckResult:
    if not wrong:
        return CheckResult(check, "ok", "all")
    return CheckResult(check, result, f"not {len(wrong)}: {list_some(wrong)}", fix)
