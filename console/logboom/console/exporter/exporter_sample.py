"""What the exporter knows of a cluster, and which append times it still has to ask for; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from logboom.client.admin_flows.dead_letter_flows import REDRIVE
from logboom.client.admin_flows.group_lag import unfinished
from logboom.client.admin_flows.open_transactions import OpenTransactions
from logboom.wire.group_view import UNKNOWN_START
from logboom.wire.names import DLQ_PREFIX
from logboom.wire.operation_messages import ClusterDescribed
from logboom.wire.survey_messages import CursorSurvey, GroupSurvey, QueueSurvey

KEPT_S: Final = 300.0
"""Seconds for which an answer stands in for those that do not come."""

QueueKey: TypeAlias = tuple[int, int]
"""(topic id, queue)."""
Place: TypeAlias = tuple[int, int, int]
"""(topic id, queue, offset)."""


class BrokerAnswer(NamedTuple):
    """What a broker told last of the queues that it leads."""

    at: float
    """Monotonic time of the answer."""
    queues: list[QueueSurvey]


class KnownQueue(NamedTuple):
    """A queue, and who told of it."""

    broker: str
    survey: QueueSurvey


class Backlog(NamedTuple):
    """What somebody has not finished of a queue."""

    messages: int
    place: Place
    """Where it begins."""


class ExporterSample(Struct, frozen=True):
    """The last answers of a cluster; None stands for what has not been told yet."""

    wall_ms: int
    """Time at which it was put together, ms since 1970 UTC."""
    at: float
    """The same by the monotonic clock."""
    oldest_at: float
    """Monotonic time of its oldest answer."""
    took_s: float
    errors: int
    """Questions without an answer since the exporter started."""
    queues: dict[QueueKey, KnownQueue] = field(default_factory=dict)
    groups: list[GroupSurvey] | None = None
    cluster: ClusterDescribed | None = None
    transactions: OpenTransactions | None = None
    times_ms: dict[Place, int] = field(default_factory=dict)
    """When the first message of each backlog was stored, as far as it is known."""


def merge_answers(answers: Mapping[str, BrokerAnswer]) -> dict[QueueKey, KnownQueue]:
    """Join what brokers told. Of a queue that has moved, the newest answer counts."""
    found: dict[QueueKey, KnownQueue] = {}
    for broker, answer in sorted(answers.items(), key=lambda item: item[1].at):
        for each in answer.queues:
            found[each.topic_id, each.queue] = KnownQueue(broker, each)
    return found


def group_backlogs(
    group: GroupSurvey, queues: Mapping[QueueKey, KnownQueue]
) -> dict[str, list[Backlog]]:
    """Return what a group has not finished, by topic, with an entry for each queue that is known.

    Queues that nobody has told of, or in which the start of the group is not known yet, are left
    out, and so are topics to which it does not subscribe any more. A broadcasting group has no
    offsets.
    """
    if group.summary.mode == "broadcasting":
        return {}
    found: dict[str, list[Backlog]] = {}
    for offsets in group.offsets:
        if not offsets.subscribed:
            continue
        ranges = dict(offsets.ranges)
        lags: list[Backlog] = []
        for queue, committed in enumerate(offsets.committed):
            known = queues.get((offsets.topic_id, queue))
            if known is not None and committed != UNKNOWN_START:
                lags.append(_backlog(known.survey, committed, ranges.get(queue, b"")))
        if lags:
            found[offsets.topic] = lags
    return found


def _backlog(queue: QueueSurvey, committed: int, ranges: bytes) -> Backlog:
    count, first = unfinished(committed, ranges, queue.start, queue.end)
    return Backlog(count, (queue.topic_id, queue.queue, first))


def subscriptions_of(
    queues: Mapping[QueueKey, KnownQueue],
) -> dict[tuple[str, str], list[tuple[QueueSurvey, CursorSurvey]]]:
    """Return (subscription, topic) → its cursors, without those that note what was redriven."""
    found: dict[tuple[str, str], list[tuple[QueueSurvey, CursorSurvey]]] = {}
    for known in queues.values():
        survey = known.survey
        for cursor in survey.cursors:
            if cursor.name != REDRIVE or not survey.topic.startswith(DLQ_PREFIX):
                found.setdefault((cursor.name, survey.topic), []).append((survey, cursor))
    return found


def cursor_backlog(queue: QueueSurvey, cursor: CursorSurvey) -> Backlog:
    """Return what a subscription has not finished of a queue."""
    place = (queue.topic_id, queue.queue, max(cursor.floor, queue.start))
    return Backlog(cursor.unacked, place)


def _backlogs(
    groups: list[GroupSurvey] | None, queues: Mapping[QueueKey, KnownQueue]
) -> Iterator[Backlog]:
    for group in groups or ():
        for lags in group_backlogs(group, queues).values():
            yield from lags
    for cursors in subscriptions_of(queues).values():
        yield from (cursor_backlog(*each) for each in cursors)


def places_to_ask(
    groups: list[GroupSurvey] | None,
    queues: Mapping[QueueKey, KnownQueue],
    known: Mapping[Place, int],
) -> tuple[dict[str, list[Place]], dict[Place, int]]:
    """Return (broker → places whose times are to be asked for, times that are known already).

    The time of an offset does not change, so a group that stands still is not asked for again.
    """
    wanted: dict[str, dict[Place, None]] = {}
    kept: dict[Place, int] = {}
    for messages, place in _backlogs(groups, queues):
        if not messages:
            continue
        if place in known:
            kept[place] = known[place]
        else:
            wanted.setdefault(queues[place[:2]].broker, {})[place] = None
    return {broker: list(places) for broker, places in wanted.items()}, kept
