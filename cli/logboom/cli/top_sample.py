"""What `logboom top` shows: samples of a cluster, and the rows of its tables from two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from logboom.client.admin_flows.survey_flows import ClusterSurvey
from logboom.client.results import NodeStats
from logboom.client.written_values import counted
from logboom.console.consumer_survey import GroupProgress, lags_of
from logboom.wire.names import is_reserved
from logboom.wire.operation_messages import ClusterDescribed
from logboom.wire.view import QueueView, TopicView

UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """What the nodes reported at one moment."""

    at_s: float
    """Monotonic time."""
    nodes: Sequence[NodeStats]
    topics: Sequence[TopicView] = ()
    offsets: Mapping[str, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    """Topic → queue → (first offset, high watermark); queues that no leader told of are left out."""
    groups: Sequence[GroupProgress] = ()
    described: ClusterDescribed | None = None
    """None if the Raft leader did not answer."""
    left_out: str = ""
    """What was not looked at, in words."""


def sample_of(at_s: float, told: ClusterSurvey) -> ClusterSample:
    """Return what is shown of a survey of the cluster."""
    queues = {
        (each.topic_id, each.queue): each for broker in told.queues.values() for each in broker
    }
    topics = [topic for topic in told.topics if not is_reserved(topic.name)]
    offsets = {
        topic.name: {
            number: (each.start, each.end)
            for number in range(len(topic.queues))
            if (each := queues.get((topic.id, number))) is not None
        }
        for topic in topics
    }
    groups = [
        GroupProgress(each.summary, lags_of(each, queues), None) for each in told.groups or ()
    ]
    left_out = []
    if told.silent:
        left_out.append(f"no answer from {', '.join(told.silent)}")
    if told.groups is None or told.cluster is None:
        left_out.append("no Raft leader answers")
    return ClusterSample(
        at_s, told.nodes, topics, offsets, groups, told.cluster, ", ".join(left_out)
    )


def node_counters(sample: ClusterSample, node: str) -> Mapping[str, Any]:
    """Return the counters of a node; empty if it did not answer."""
    return next((each.counters for each in sample.nodes if each.node == node), {})


def rate_per_s(
    name: str, node: str, now: ClusterSample, before: ClusterSample | None
) -> float | None:
    """Return by how much a counter of a node grew per second; None if that is not known.

    A counter that is smaller than before belongs to a process that started meanwhile.
    """
    if before is None or now.at_s <= before.at_s:
        return None
    new, old = node_counters(now, node), node_counters(before, node)
    if not new or not old:
        return None
    grown = float(new.get(name, 0)) - float(old.get(name, 0))
    return None if grown < 0 else grown / (now.at_s - before.at_s)


def broker_rows(now: ClusterSample, before: ClusterSample | None) -> list[dict[str, Any]]:
    """Return a row per broker."""
    loads = {load.broker: load for load in now.described.brokers} if now.described else {}
    answers = {each.node: each for each in now.nodes if each.role == "broker"}
    rows: list[dict[str, Any]] = []
    for broker in sorted({*loads, *answers}):
        load, counters = loads.get(broker), node_counters(now, broker)
        state = "down" if not counters else "up"
        if counters and counters.get("registered") == 0:
            state = "starting"
        elif counters and counters.get("catching_up"):
            state = "catching up"
        elif state == "up" and load is not None and load.mode != "active":
            state = load.mode
        rows.append(
            {
                "broker": broker,
                "state": state,
                "leads": counters.get("leading"),
                "replicas": counters.get("replicas"),
                "in_per_s": rate_per_s("produced_messages", broker, now, before),
                "in_bytes_per_s": rate_per_s("produced_bytes", broker, now, before),
                "out_per_s": rate_per_s("messages_out", broker, now, before),
                "behind": counters.get("behind_messages"),
                "stored_bytes": load.size_bytes
                if load is not None and load.size_bytes >= 0
                else None,
                "disk": _used_share(counters),
                "sync_p99_ms": counters.get("sync_ms.p99"),
                "connections": counters.get("connections"),
                "zone": load.zone if load is not None else None,
            }
        )
    return rows


def _used_share(counters: Mapping[str, Any]) -> float | None:
    size = float(counters.get("disk_bytes", 0))
    return 1 - float(counters["free_bytes"]) / size if size and "free_bytes" in counters else None


def topic_rows(now: ClusterSample, before: ClusterSample | None) -> list[dict[str, Any]]:
    """Return a row per topic, those that take the most messages first."""
    rows = [_topic_row(topic, now, before) for topic in now.topics]
    return sorted(rows, key=lambda row: (-(row["in_per_s"] or 0), row["topic"]))


def _topic_row(
    topic: TopicView, now: ClusterSample, before: ClusterSample | None
) -> dict[str, Any]:
    ends = now.offsets.get(topic.name, {})
    queues = topic.queues
    told = all(n in ends for n, queue in enumerate(queues) if queue.leader is not None)
    return {
        "topic": topic.name,
        "queues": len(queues),
        "led": sum(queue.leader is not None for queue in queues),
        "in_sync": sum(map(is_in_sync, queues)),
        "replicas": topic.replicas or (len(queues[0].replicas) if queues else 0),
        "moving": sum(bool(queue.adding or queue.removing) for queue in queues),
        "messages": sum(end - start for start, end in ends.values()) if told else None,
        "in_per_s": _topic_rate(topic.name, now, before),
    }


def is_in_sync(queue: QueueView) -> bool:
    """True if all replicas that the queue has for good are in its ISR."""
    return {*queue.replicas} - {*queue.adding} <= {*queue.isr}


def _topic_rate(topic: str, now: ClusterSample, before: ClusterSample | None) -> float | None:
    if before is None or now.at_s <= before.at_s:
        return None
    new, old = now.offsets.get(topic), before.offsets.get(topic)
    if new is None or old is None:
        return None
    grown = sum(max(0, end - old[queue][1]) for queue, (_, end) in new.items() if queue in old)
    return grown / (now.at_s - before.at_s)


def group_rows(now: ClusterSample, before: ClusterSample | None) -> list[dict[str, Any]]:
    """Return a row per group, those that are the most behind first."""
    rows = []
    lags = {each.summary.id: each.lag for each in before.groups} if before else {}
    for group in now.groups:
        summary, lag = group.summary, group.lag
        earlier = lags.get(summary.id)
        trend = None
        if earlier is not None and lag is not None and before and now.at_s > before.at_s:
            trend = (lag - earlier) / (now.at_s - before.at_s)
        waits = "the group has no member" if lag and not summary.member_count else ""
        rows.append(
            {
                "group": summary.name,
                "members": summary.member_count,
                "lag": lag,
                "lag_per_s": trend,
                "paused": summary.paused,
                "stuck": summary.fault or waits or None,
            }
        )
    return sorted(rows, key=lambda row: (-(row["lag"] or 0), str(row["group"])))


def headline(now: ClusterSample, before: ClusterSample | None) -> str:
    """Return the state of the cluster in one line."""
    brokers = broker_rows(now, before)
    up = sum(row["state"] != "down" for row in brokers)
    leader = next((each.node for each in now.nodes if each.role == "raft leader"), None)
    queues = [queue for topic in now.topics for queue in topic.queues]
    parts = [
        f"{up}/{counted(len(brokers), 'broker')}",
        f"raft leader {leader or 'none'}",
        f"{sum(map(is_in_sync, queues))}/{counted(len(queues), 'queue')} in sync",
    ]
    rates = [row["in_per_s"] for row in brokers if row["in_per_s"] is not None]
    if rates:
        parts.append(f"{number_text(sum(rates))} msg/s in")
    if now.described is not None and now.described.moves:
        parts.append(counted(len(now.described.moves), "move"))
    elif now.described is not None and now.described.planner.state == "stalled":
        parts.append("moves stalled: see `logboom balance status`")
    if now.left_out:
        parts.append(now.left_out)
    return " · ".join(parts)


def number_text(value: float | None) -> str:
    """Return a number for a narrow column: 950, 12.3k, 4.56M."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            scaled = value / (limit if unit != "k" else 1e3)
            return f"{scaled:.1f}{unit}" if abs(scaled) < 100 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}"
