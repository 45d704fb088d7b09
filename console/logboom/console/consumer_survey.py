"""How far groups and subscriptions are, and how far they were in the last minutes; pure.

A survey joins what the name servers told of all groups with what the leaders told of all queues. It
takes a few requests, however many groups there are, so that a list of thousands is shown without a
request per group.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from logboom.client.admin_flows.dead_letter_flows import REDRIVE
from logboom.client.admin_flows.group_lag import unfinished
from logboom.wire.group_view import UNKNOWN_START, GroupSummary
from logboom.wire.names import DLQ_PREFIX
from logboom.wire.survey_messages import GroupSurvey, QueueSurvey

MAX_SURVEYS: Final = 180
"""Surveys that are kept: half an hour at one in ten seconds."""
MAX_CELLS: Final = 4_000_000
"""Lags that are kept in all; with more queues of groups the history is shorter."""
NOT_KNOWN: Final = -1
TREND_SURVEYS: Final = 7
"""Surveys that a trend is taken from: the last minute."""

QueuePlace = tuple[str, int]
"""(topic, queue)."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a group is in a queue."""

    topic: str
    queue: int
    topic_id: int
    committed: int | None
    """Offset of the first unfinished message; None: the start is not known yet."""
    end: int | None
    """None: no leader told it."""
    lag: int | None
    """Unfinished messages, those that the group's filter leaves out included."""
    first: int | None = None
    """Offset of the first of them that is still stored, if there are any."""


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group with its lag."""

    summary: GroupSummary
    queues: tuple[QueueLag, ...]
    """Those of its subscription."""
    age_ms: int | None
    """Since when the oldest unfinished message is stored; None: there is none, or it is unknown."""

    @property
    def lag(self) -> int | None:
        """Unfinished messages of all queues; None: of none it is known."""
        known = [each.lag for each in self.queues if each.lag is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class SubscriptionProgress:
    """A subscription of a topic."""

    topic: str
    name: str
    queues: int
    unacked: int
    held: int
    """Messages that consumers hold."""
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """The dead letters of a group, or of a subscription, which is named topic%subscription."""

    owner: str
    stored: int
    open: int
    """Those that were not sent again."""


@dataclass(frozen=True, slots=True)
class TopicStock:
    """What the leaders of a topic's queues hold."""

    messages: int
    size_bytes: int
    """Of one replica of each queue."""


@dataclass(frozen=True, slots=True)
class ConsumerSurvey:
    """All groups and subscriptions at one moment."""

    wall_s: float
    groups: Mapping[str, GroupProgress]
    """By name, in its order."""
    subscriptions: Mapping[tuple[str, str], SubscriptionProgress]
    """By (topic, name), in this order."""
    ends: Mapping[QueuePlace, tuple[int, int]]
    """(topic, queue) → (first offset, end)."""
    dead: Mapping[str, DeadLetterCount] = field(default_factory=dict)
    """By owner, in its order; those that have a dead-letter topic."""
    silent: tuple[str, ...] = ()
    """Brokers that did not answer; what they lead is missing."""
    stocks: Mapping[str, TopicStock] = field(default_factory=dict)
    """By topic; those that have a leader."""


def lags_of(
    survey: GroupSurvey, queues: Mapping[tuple[int, int], QueueSurvey]
) -> tuple[QueueLag, ...]:
    """Return the lag of a group in each queue of its subscription."""
    broadcasting = survey.summary.mode == "broadcasting"
    found: list[QueueLag] = []
    for offsets in survey.offsets:
        if not offsets.subscribed:
            continue
        ranges = dict(offsets.ranges)
        for queue, committed in enumerate(offsets.committed):
            told = queues.get((offsets.topic_id, queue))
            known = None if broadcasting or committed == UNKNOWN_START else committed
            end = None if told is None else told.end
            lag = first = None
            if told is not None and known is not None:
                lag, at = unfinished(known, ranges.get(queue, b""), told.start, told.end)
                first = at if lag else None
            found.append(QueueLag(offsets.topic, queue, offsets.topic_id, known, end, lag, first))
    return tuple(found)


def oldest_places(
    groups: Iterable[GroupSurvey], queues: Mapping[tuple[int, int], QueueSurvey]
) -> set[tuple[int, int, int]]:
    """Return (topic id, queue, offset) of the first unfinished message of each queue of each group:
    what `build_survey` needs the append times of."""
    return {
        (each.topic_id, each.queue, each.first)
        for survey in groups
        for each in lags_of(survey, queues)
        if each.first is not None
    }


def build_survey(
    wall_s: float,
    groups: Sequence[GroupSurvey],
    queues: Mapping[tuple[int, int], QueueSurvey],
    times_ms: Mapping[tuple[int, int, int], int],
    topics: Mapping[int, str],
    silent: Sequence[str] = (),
) -> ConsumerSurvey:
    """Join what was told.

    Args:
        queues: by (topic id, queue).
        times_ms: when the messages at `oldest_places` were stored, as far as it is known.
        topics: names by topic id.
    """
    now_ms = wall_s * 1000
    standings: dict[str, GroupProgress] = {}
    for survey in sorted(groups, key=lambda each: each.summary.name):
        lags = lags_of(survey, queues)
        firsts = [(e.topic_id, e.queue, e.first) for e in lags if e.first is not None]
        ages = [max(0, int(now_ms - times_ms[place])) for place in firsts if place in times_ms]
        standings[survey.summary.name] = GroupProgress(
            survey.summary, lags, max(ages, default=None)
        )
    return ConsumerSurvey(
        wall_s,
        standings,
        _subscriptions(queues, topics),
        {
            (topics[topic_id], queue): (told.start, told.end)
            for (topic_id, queue), told in queues.items()
            if topic_id in topics
        },
        _dead(groups, queues, topics),
        tuple(silent),
        _stocks(queues, topics),
    )


def _stocks(
    queues: Mapping[tuple[int, int], QueueSurvey], topics: Mapping[int, str]
) -> dict[str, TopicStock]:
    found: dict[str, tuple[int, int]] = {}
    for (topic_id, _), told in queues.items():
        topic = topics.get(topic_id)
        if topic is not None:
            messages, size = found.get(topic, (0, 0))
            found[topic] = (messages + told.end - told.start, size + told.size_bytes)
    return {topic: TopicStock(*sums) for topic, sums in found.items()}


def _subscriptions(
    queues: Mapping[tuple[int, int], QueueSurvey], topics: Mapping[int, str]
) -> dict[tuple[str, str], SubscriptionProgress]:
    found: dict[tuple[str, str], list[tuple[int, int, list[str]]]] = {}
    for (topic_id, _), told in queues.items():
        topic = topics.get(topic_id)
        if topic is not None:
            for cursor in told.cursors:
                line = (cursor.unacked, cursor.held, cursor.consumers)
                found.setdefault((topic, cursor.name), []).append(line)
    return {
        key: SubscriptionProgress(
            *key,
            len(lines),
            sum(unacked for unacked, _, _ in lines),
            sum(held for _, held, _ in lines),
            tuple(sorted({name for _, _, names in lines for name in names})),
        )
        for key, lines in sorted(found.items())
    }


def _dead(
    groups: Sequence[GroupSurvey],
    queues: Mapping[tuple[int, int], QueueSurvey],
    topics: Mapping[int, str],
) -> dict[str, DeadLetterCount]:
    begun = {
        (offsets.topic_id, queue): committed
        for survey in groups
        for offsets in survey.offsets
        if offsets.topic == DLQ_PREFIX + survey.summary.name
        for queue, committed in enumerate(offsets.committed)
    }
    found: dict[str, tuple[int, int]] = {}
    for key, told in queues.items():
        topic = topics.get(key[0], "")
        if topic.startswith(DLQ_PREFIX):
            floors = [each.floor for each in told.cursors if each.name == REDRIVE]
            first = min(max(told.start, begun.get(key, 0), *floors, 0), told.end)
            owner = topic.removeprefix(DLQ_PREFIX)
            stored, left = found.get(owner, (0, 0))
            found[owner] = (stored + told.end - told.start, left + told.end - first)
    return {owner: DeadLetterCount(owner, *counts) for owner, counts in sorted(found.items())}


class ConsumerHistory:
    """The newest survey, and the lags of the ones before."""

    def __init__(self) -> None:
        self.newest: ConsumerSurvey | None = None
        self.since_s: float | None = None
        """From when on commits were watched: longer than lags are kept."""
        self._times_s: deque[float] = deque()
        self._lags: deque[tuple[dict[str, tuple[tuple[QueuePlace, ...], array[int]]], int]] = (
            deque()
        )
        """Of each survey: group → (its queues, their lags), and how many lags that is."""
        self._unacked: deque[dict[tuple[str, str], int]] = deque()
        self._cells = 0
        self._commits: dict[str, tuple[int, float | None]] = {}
        """Group → (sum of its committed offsets, when a survey first saw this sum after another)."""
        self._recent: dict[str, tuple[tuple[float, int], ...]] = {}
        """Group → (time, lag) of the newest surveys."""
        self._places: dict[tuple[QueuePlace, ...], tuple[QueuePlace, ...]] = {}
        """Equal tuples of queues, kept once."""

    def add(self, survey: ConsumerSurvey) -> None:
        """Add a survey. One that is not later than the last replaces all: the clock was set back."""
        if self._times_s and survey.wall_s <= self._times_s[-1]:
            self._times_s.clear()
            self._lags.clear()
            self._unacked.clear()
            self._recent.clear()
            self._commits.clear()
            self._cells = 0
            self.since_s = None
        self.newest = survey
        self.since_s = survey.wall_s if self.since_s is None else self.since_s
        self._follow_commits(survey)
        self._follow_lags(survey)
        lags = {}
        cells = 0
        for name, group in survey.groups.items():
            places = tuple((each.topic, each.queue) for each in group.queues)
            places = self._places.setdefault(places, places)
            lags[name] = (
                places,
                array("q", (NOT_KNOWN if e.lag is None else e.lag for e in group.queues)),
            )
            cells += len(places)
        self._times_s.append(survey.wall_s)
        self._lags.append((lags, cells))
        self._unacked.append({key: each.unacked for key, each in survey.subscriptions.items()})
        self._cells += cells
        while len(self._times_s) > MAX_SURVEYS or (
            self._cells > MAX_CELLS and len(self._times_s) > 2
        ):
            self._times_s.popleft()
            self._unacked.popleft()
            self._cells -= self._lags.popleft()[1]
        if len(self._places) > 2 * max(16, len(lags)):
            kept = {places for lags, _ in self._lags for places, _ in lags.values()}
            self._places = {places: places for places in kept}

    def _follow_commits(self, survey: ConsumerSurvey) -> None:
        found: dict[str, tuple[int, float | None]] = {}
        for name, group in survey.groups.items():
            total = sum(each.committed or 0 for each in group.queues)
            before = self._commits.get(name)
            if before is None:
                found[name] = (total, None)
            else:
                found[name] = before if before[0] == total else (total, survey.wall_s)
        self._commits = found

    def committed_at_s(self, group: str) -> float | None:
        """Return when a survey last saw that a group's offsets had changed; None: it never did."""
        return self._commits.get(group, (0, None))[1]

    def times_s(self) -> list[float]:
        """Return when the surveys were made."""
        return list(self._times_s)

    def queue_lags(self, group: str) -> dict[QueuePlace, list[float | None]]:
        """Return the lag of a group in each of its queues at each of these times."""
        newest = self._lags[-1][0].get(group) if self._lags else None
        if newest is None:
            return {}
        found: dict[QueuePlace, list[float | None]] = {place: [] for place in newest[0]}
        for lags, _ in self._lags:
            places, values = lags.get(group, ((), array("q")))
            known = dict(zip(places, values, strict=True))
            for place, line in found.items():
                lag = known.get(place, NOT_KNOWN)
                line.append(None if lag == NOT_KNOWN else lag)
        return found

    def group_lags(self, group: str) -> list[float | None]:
        """Return the lag of a group at each of these times."""
        found: list[float | None] = []
        for lags, _ in self._lags:
            values = [lag for lag in lags.get(group, ((), array("q")))[1] if lag != NOT_KNOWN]
            found.append(sum(values) if values else None)
        return found

    def trend_per_s(self, group: str) -> float | None:
        """Return by how many messages per second a lag has grown in the last minute; below 0: it
        shrinks. None: it is not known yet."""
        known = self._recent.get(group, ())
        if len(known) < 2 or known[-1][0] <= known[0][0]:
            return None
        return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])

    def _follow_lags(self, survey: ConsumerSurvey) -> None:
        """Keep the newest lags of each group at hand: a list shows the trends of thousands."""
        self._recent = {
            name: (*self._recent.get(name, ())[-(TREND_SURVEYS - 1) :], (survey.wall_s, lag))
            for name, group in survey.groups.items()
            if (lag := group.lag) is not None
        }

    def unacked(self, topic: str, name: str) -> list[float | None]:
        """Return the messages that a subscription has not acknowledged, at each of these times."""
        return [each.get((topic, name)) for each in self._unacked]
