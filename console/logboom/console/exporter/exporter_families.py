"""Metric families of a sample, within a limit of series; pure.

A family is told as a whole or not at all, since half of one would read like lag that is gone. What
does not fit is dropped in the reverse of `KEPT_FIRST`: what belongs to single queues first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from logboom.console.exporter.exporter_sample import (
    Backlog,
    ExporterSample,
    cursor_backlog,
    group_backlogs,
    subscriptions_of,
)
from logboom.wire.metric_table import metrics_of
from logboom.wire.names import DLQ_PREFIX

DEFAULT_MAX_SERIES: Final = 50_000
OF_QUEUES: Final = ("queue_end_offset", "queue_start_offset")
"""Families with a series for each queue, which have to be asked for."""
OF_EXPORTER: Final = (
    "exporter_sample_age_seconds",
    "exporter_sample_seconds",
    "exporter_errors_total",
    "series_dropped",
)
KEPT_FIRST: Final = (
    "transactions_open",
    "transaction_oldest_seconds",
    "half_messages",
    "moves",
    "move_left_bytes",
    "group_lag",
    "group_lag_seconds",
    "group_members",
    "dead_letters_total",
    "dead_letters_stored",
    "subscription_lag",
    "subscription_lag_seconds",
    "subscription_pending",
    "subscription_members",
    "group_epoch",
    "topic_bytes",
    *OF_QUEUES,
)
"""The families of a cluster, the most important first."""

Labels: TypeAlias = tuple[str, ...]
"""Values of the labels, in the order of the table."""
Series: TypeAlias = dict[Labels, float]


class FamilySet(NamedTuple):
    """What is told of a sample."""

    families: dict[str, Series]
    """Name without prefix → its series, in the table's order."""
    dropped: dict[str, int]
    """Name → number of its series, of families that did not fit."""


def cluster_families(
    sample: ExporterSample, *, queues: bool = False, max_series: int = DEFAULT_MAX_SERIES
) -> FamilySet:
    """Return the families of a cluster, without those about the exporter itself.

    Args:
        sample: what is known.
        queues: include the offsets of each queue.
        max_series: number of series that the families of `OF_EXPORTER` are part of.
    """
    found: dict[str, Series] = {}
    for part in (_group_families, _subscription_families, _topic_families, _cluster_families):
        found.update(part(sample))
    if queues:
        found.update(_queue_families(sample))
    left = max_series - len(OF_EXPORTER)
    kept: dict[str, Series] = {}
    dropped: dict[str, int] = {}
    for name in KEPT_FIRST:
        series = found.get(name, {})
        if len(series) <= left:
            left -= len(series)
            kept[name] = series
        else:
            dropped[name] = len(series)
    ordered = [each.name for each in metrics_of("cluster") if each.name in kept]
    return FamilySet({name: kept[name] for name in ordered if name in found}, dropped)


def exporter_families(sample: ExporterSample, dropped: Mapping[str, int], now: float) -> FamilySet:
    """Return the families about the exporter itself; `now` is the monotonic time."""
    found: dict[str, Series] = {
        "exporter_sample_age_seconds": {(): max(0.0, now - sample.oldest_at)},
        "exporter_sample_seconds": {(): sample.took_s},
        "exporter_errors_total": {(): sample.errors},
        "series_dropped": {(): sum(dropped.values())},
    }
    return FamilySet(found, {})


def _age_s(sample: ExporterSample, backlogs: Iterable[Backlog]) -> float | None:
    """Return the age of the oldest message of backlogs: 0 without any, None if it is not known."""
    places = [each.place for each in backlogs if each.messages]
    if not places:
        return 0.0
    times = [sample.times_ms[place] for place in places if place in sample.times_ms]
    return max(0, sample.wall_ms - min(times)) / 1000 if times else None


def _group_families(sample: ExporterSample) -> dict[str, Series]:
    if sample.groups is None:
        return {}
    lag: Series = {}
    age: Series = {}
    for group in sample.groups:
        for topic, backlogs in group_backlogs(group, sample.queues).items():
            labels = (group.summary.name, topic)
            lag[labels] = sum(each.messages for each in backlogs)
            seconds = _age_s(sample, backlogs)
            if seconds is not None:
                age[labels] = seconds
    summaries = [each.summary for each in sample.groups]
    return {
        "group_lag": lag,
        "group_lag_seconds": age,
        "group_members": {(each.name,): each.member_count for each in summaries},
        "group_epoch": {(each.name,): each.group_epoch for each in summaries},
    }


def _subscription_families(sample: ExporterSample) -> dict[str, Series]:
    if not sample.queues:
        return {}
    lag: Series = {}
    age: Series = {}
    pending: Series = {}
    members: Series = {}
    for labels, cursors in sorted(subscriptions_of(sample.queues).items()):
        backlogs = [cursor_backlog(*each) for each in cursors]
        lag[labels] = sum(each.messages for each in backlogs)
        seconds = _age_s(sample, backlogs)
        if seconds is not None:
            age[labels] = seconds
        pending[labels] = sum(cursor.held for _, cursor in cursors)
        members[labels] = len({name for _, cursor in cursors for name in cursor.consumers})
    return {
        "subscription_lag": lag,
        "subscription_lag_seconds": age,
        "subscription_pending": pending,
        "subscription_members": members,
    }


def _topic_families(sample: ExporterSample) -> dict[str, Series]:
    if not sample.queues:
        return {}
    sizes: Series = {}
    stored: Series = {}
    ever: Series = {}
    for _, known in sorted(sample.queues.items()):
        survey = known.survey
        topic = (survey.topic,)
        sizes[topic] = sizes.get(topic, 0) + survey.size_bytes
        if survey.topic.startswith(DLQ_PREFIX):
            owner = (survey.topic.removeprefix(DLQ_PREFIX),)
            stored[owner] = stored.get(owner, 0) + survey.end - survey.start
            ever[owner] = ever.get(owner, 0) + survey.end
    return {"topic_bytes": sizes, "dead_letters_stored": stored, "dead_letters_total": ever}


def _cluster_families(sample: ExporterSample) -> dict[str, Series]:
    found: dict[str, Series] = {}
    if sample.transactions is not None:
        undecided = sample.transactions.transactions
        open_ones = [each for each in undecided if not each.is_half]
        oldest_ms = min((each.since_ms for each in open_ones), default=sample.wall_ms)
        found["transactions_open"] = {(): len(open_ones)}
        found["transaction_oldest_seconds"] = {(): max(0, sample.wall_ms - oldest_ms) / 1000}
        found["half_messages"] = {(): len(undecided) - len(open_ones)}
    if sample.cluster is not None:
        moves = sample.cluster.moves
        stuck = sum(1 for each in moves if each.stuck)
        found["moves"] = {
            ("running",): len(moves) - stuck,
            ("stuck",): stuck,
            ("waiting",): sample.cluster.planner.waiting,
        }
        left = (each.total_bytes - each.done_bytes for each in moves if each.total_bytes >= 0)
        found["move_left_bytes"] = {(): sum(max(0, each) for each in left)}
    return found


def _queue_families(sample: ExporterSample) -> dict[str, Series]:
    surveys = [known.survey for _, known in sorted(sample.queues.items())]
    return {
        "queue_start_offset": {(each.topic, str(each.queue)): each.start for each in surveys},
        "queue_end_offset": {(each.topic, str(each.queue)): each.end for each in surveys},
    }


def dropped_text(dropped: Mapping[str, int], max_series: int) -> str:
    """Return what was dropped and what to do, in one line."""
    names = ", ".join(f"{name} ({count:,})" for name, count in dropped.items())
    return f"more than {max_series:,} series: {names} are left out; raise --max-series to have them"
