"""The overview: what is wrong first, then rates and totals; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.admin_flows.open_transactions import OpenTransactions
from logboom.client.checks.check_result import CheckResult
from logboom.client.checks.cluster_checks import cluster_findings
from logboom.client.checks.cluster_health import ClusterStatus
from logboom.client.checks.consumer_checks import late_findings, time_limits_ms
from logboom.client.checks.operation_checks import (
    loss_findings,
    mode_findings,
    move_findings,
    restore_findings,
    version_finding,
)
from logboom.client.results import NodeStats
from logboom.client.written_values import counted
from logboom.console.cluster_history import ClusterHistory
from logboom.console.consumer_survey import ConsumerSurvey
from logboom.console.pages.topic_page import is_in_sync
from logboom.console.widgets.chart_data import ChartModel, ChartSeries, ChartUnit
from logboom.console.widgets.data_table import Tone
from logboom.console.widgets.formats import count_text, short_text, size_text
from logboom.console.widgets.page_query import link, path_of
from logboom.wire.group_view import GroupSummary
from logboom.wire.messages import StatsResult, VersionsDescribed
from logboom.wire.operation_messages import ClusterDescribed
from logboom.wire.view import View

MAX_FINDINGS: Final = 30
"""Problems that the page shows; `logboom doctor` tells all."""


@dataclass(frozen=True, slots=True)
class OverviewData:
    """What the cluster told; None for what it did not."""

    view: View
    nodes: Sequence[NodeStats]
    described: ClusterDescribed | None
    versions: VersionsDescribed | None
    consumers: ConsumerSurvey | None
    transactions: OpenTransactions | None
    not_asked: Sequence[CheckResult] = ()
    """A finding for each part that did not answer."""


@dataclass(frozen=True, slots=True)
class OverviewProblem:
    """Something that is wrong."""

    result: CheckResult
    tone: Tone
    href: str
    """The page where more is to be seen."""


@dataclass(frozen=True, slots=True)
class OverviewTile:
    """A figure with its name."""

    title: str
    text: str
    note: str = ""
    href: str = ""
    tone: Tone = ""
    chart: ChartModel | None = None


@dataclass(frozen=True, slots=True)
class OverviewModel:
    """The overview."""

    cluster_id: str
    findings: tuple[OverviewProblem, ...]
    more: int
    """Further problems, which are not shown."""
    fine: int
    """Checks that found nothing."""
    verdict: str
    tone: Tone
    tiles: tuple[OverviewTile, ...]
    charts: tuple[ChartModel, ...]


ChartLines = Sequence[tuple[str, str]]
RATE_CHARTS: Final[Sequence[tuple[str, str, ChartUnit, ChartLines]]] = (
    (
        "messages",
        "Messages",
        "rate",
        (("produced", "produced_messages"), ("consumed", "messages_out")),
    ),
    ("bytes", "Bytes", "bytes_rate", (("produced", "produced_bytes"), ("consumed", "bytes_out"))),
)
TIME_CHARTS: Final[Sequence[tuple[str, str, ChartUnit, ChartLines]]] = (
    (
        "times",
        "Slowest broker, 99 % of requests within",
        "ms",
        (("produce", "request.produce_ms.p99"), ("sync", "sync_ms.p99")),
    ),
)


def build_overview(data: OverviewData, history: ClusterHistory, now_ms: int) -> OverviewModel:
    """Return the overview."""
    results = [*all_findings(data, now_ms)]
    wrong = [result for result in results if result.result != "ok"]
    wrong.sort(key=lambda result: result.result != "failed")
    failed = sum(result.result == "failed" for result in wrong)
    verdict, tone = _verdict(failed, len(wrong) - failed)
    name_servers = [server.id for server in data.view.name_servers]
    findings = tuple(
        OverviewProblem(
            result,
            "failed" if result.result == "failed" else "warning",
            page_of(result.check, name_servers),
        )
        for result in wrong[:MAX_FINDINGS]
    )
    return OverviewModel(
        cluster_id=data.view.cluster_id,
        findings=findings,
        more=len(wrong) - len(findings),
        fine=len(results) - len(wrong),
        verdict=verdict,
        tone=tone,
        tiles=tuple(_tiles(data, history)),
        charts=tuple(_charts(history)),
    )


def _verdict(failed: int, warnings: int) -> tuple[str, Tone]:
    if failed:
        more = f", {counted(warnings, 'warning')}" if warnings else ""
        return f"{counted(failed, 'problem')}{more}", "failed"
    if warnings:
        return counted(warnings, "warning"), "warning"
    return "All is well", "ok"


# What is wrong.


def all_findings(data: OverviewData, now_ms: int) -> Iterator[CheckResult]:
    """Return the findings of `logboom doctor`, of what one look at the cluster tells."""
    yield from cluster_findings(cluster_status(data))
    if data.described is not None:
        yield from mode_findings(data.described.brokers)
        yield from move_findings(data.described)
    if data.versions is not None:
        yield version_finding(data.versions)
    yield from restore_findings(data.view.topics)
    yield from loss_findings(
        data.view.topics, data.described.log_time_ms if data.described is not None else -1
    )
    if data.consumers is not None:
        yield from group_findings(data.consumers)
        yield from subscription_findings(data.consumers)
    if data.transactions is not None:
        limits = time_limits_ms(data.nodes)
        yield from late_findings(data.transactions.transactions, limits, now_ms)
    yield from data.not_asked


def cluster_status(data: OverviewData) -> ClusterStatus:
    """Return what the checks of nodes and queues go by."""
    answers = {
        node.node: StatsResult(0, node.node, node.role, node.counters)
        for node in data.nodes
        if not node.error
    }
    return ClusterStatus(data.view, answers)


def group_findings(survey: ConsumerSurvey) -> Iterator[CheckResult]:
    """Return the findings about groups that a survey tells. Why a queue is stuck only
    `describe_group` tells, which is too much for an overview of thousands."""
    wrong = 0
    for group in survey.groups.values():
        finding = _group_finding(group.summary, group.lag or 0)
        if finding is not None:
            wrong += 1
            yield finding
    if not wrong:
        yield CheckResult("groups", "ok", counted(len(survey.groups), "group"))


def _group_finding(group: GroupSummary, behind: int) -> CheckResult | None:
    name, lag = group.name, f"{behind:,} {'message' if behind == 1 else 'messages'} behind"
    if group.fault:
        fix = f"`logboom group describe {name}`"
        return CheckResult(f"group {name}", "failed", f"not allocated: {group.fault}", fix)
    if not behind or group.mode == "broadcasting":
        return None
    if not group.member_count:
        fix = "start its consumers, or delete it"
        return CheckResult(f"group {name}", "warning", f"no member, {lag}", fix)
    if group.paused:
        fix = f"`logboom group alter {name} --no-paused`"
        return CheckResult(f"group {name}", "warning", f"paused, {lag}", fix)
    return None


def subscription_findings(survey: ConsumerSurvey) -> Iterator[CheckResult]:
    """Return a finding for each subscription without a consumer."""
    for (topic, name), each in survey.subscriptions.items():
        if each.unacked and not each.consumers:
            found = f"no consumer, {counted(each.unacked, 'message')} not acknowledged"
            fix = "start its consumers, or delete it"
            yield CheckResult(f"subscription {topic}/{name}", "warning", found, fix)


def page_of(check: str, name_servers: Collection[str] = ()) -> str:
    """Return the page that shows more of what a check is about; "" if there is none."""
    what, _, name = check.partition(" ")
    match what:
        case "group":
            return path_of("groups", name)
        case "subscription":
            topic, _, subscription = name.partition("/")
            return path_of("subscriptions", topic, subscription)
        case "queues" | "every" | "all" | "losses":
            return link("/topics", {"sort": "-out_of_sync"})
        case "transactions" | "half":
            return "/transactions"
        case "brokers" | "moves":
            return "/brokers"
        case "node" | "mode" | "disk" | "store" | "old" | "lease" | "registration":
            node = name.rpartition(" ")[2]  # "node b1", "disk of b1", "old stores of b1"
            return "/name-servers" if node in name_servers else path_of("brokers", node)
    return ""


# Figures.


def _tiles(data: OverviewData, history: ClusterHistory) -> Iterator[OverviewTile]:
    counters: Sequence[Mapping[str, Any]] = [node.counters for node in data.nodes]
    yield _rate_tile(history, "in", "Produced", "produced_messages", "produced_bytes")
    yield _rate_tile(history, "out", "Consumed", "messages_out", "bytes_out")
    silent = {node.node for node in data.nodes if node.error}
    alive = sum(broker.alive and broker.id not in silent for broker in data.view.brokers)
    yield OverviewTile(
        "Brokers",
        f"{alive} of {len(data.view.brokers)}",
        "alive",
        "/brokers",
        "" if alive == len(data.view.brokers) else "failed",
    )
    here = [server for server in data.view.name_servers if server.id not in silent]
    yield OverviewTile(
        "Name servers",
        f"{len(here)} of {len(data.view.name_servers)}",
        f"led by {data.view.raft_leader}" if data.view.raft_leader else "no leader",
        "/name-servers",
        "" if data.view.raft_leader and len(here) == len(data.view.name_servers) else "failed",
    )
    queues = [queue for topic in data.view.topics for queue in topic.queues]
    leaderless = [queue for queue in queues if queue.leader is None]
    behind = sum(not is_in_sync(queue) for queue in queues)
    note = f"{counted(len(queues), 'queue')}"
    tone: Tone = ""
    if leaderless:
        note, tone = f"{counted(len(leaderless), 'queue')} without a leader", "failed"
    elif behind:
        note, tone = f"{counted(behind, 'queue')} out of sync", "warning"
    yield OverviewTile("Topics", count_text(len(data.view.topics)), note, "/topics", tone)
    yield _groups_tile(data)
    yield _disk_tile(counters)
    sessions = sum(int(each.get("sessions.client", 0)) for each in counters)
    opened = history.rate_now("sessions_opened")
    yield OverviewTile(
        "Clients", count_text(sessions), f"{short_text(opened)} new a second", "/connections"
    )


def _rate_tile(
    history: ClusterHistory, name: str, title: str, messages: str, size: str
) -> OverviewTile:
    spark = ChartModel(
        f"spark-{name}",
        f"{title} messages",
        "rate",
        history.times_s(),
        [ChartSeries(title.lower(), history.rates(messages))],
        spark=True,
    )
    rate, size_rate = history.rate_now(messages), history.rate_now(size)
    note = "" if size_rate is None else f"{size_text(size_rate)}/s"
    text = short_text(rate) if rate is None else f"{short_text(rate)}/s"
    return OverviewTile(title, text, note, chart=spark)


def _groups_tile(data: OverviewData) -> OverviewTile:
    if data.consumers is None:
        return OverviewTile("Groups", count_text(None), "not told", "/groups")
    groups = data.consumers.groups
    behind = sum(group.lag or 0 for group in groups.values())
    dead = sum(each.open for each in data.consumers.dead.values())
    note = f"{count_text(behind)} {'message' if behind == 1 else 'messages'} behind"
    if dead:
        note += f", {counted(dead, 'dead letter')}"
    return OverviewTile("Groups", count_text(len(groups)), note, "/groups")


def _disk_tile(counters: Sequence[Mapping[str, Any]]) -> OverviewTile:
    """Return the fullest disk: the first that stops writes."""
    disks = [
        (float(each["free_bytes"]) / float(each["disk_bytes"]), float(each["free_bytes"]))
        for each in counters
        if each.get("disk_bytes") and "free_bytes" in each
    ]
    if not disks:
        return OverviewTile("Fullest disk", count_text(None))
    share, free = min(disks)
    full = any(each.get("disk_full") for each in counters)
    tone: Tone = "failed" if full else "warning" if share < 0.1 else ""
    return OverviewTile(
        "Fullest disk", f"{1 - share:.0%}", f"{size_text(free)} free", "/brokers", tone
    )


def _charts(history: ClusterHistory) -> Iterator[ChartModel]:
    times = history.times_s()
    for name, title, unit, lines in RATE_CHARTS:
        series = [ChartSeries(label, history.rates(counter)) for label, counter in lines]
        yield ChartModel(name, title, unit, times, series)
    for name, title, unit, lines in TIME_CHARTS:
        series = [ChartSeries(label, history.greatest(counter)) for label, counter in lines]
        yield ChartModel(name, title, unit, times, series)
