"""The flow that gathers what the cluster knows about one message (see `logboom.client.flows`).

It asks the leader of the message's queue, the name servers for each group of the topic, and the
retry and dead-letter topics of the groups and subscriptions for copies. What may not be asked, or
would be too much, becomes a gap in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from logboom.client.admin_flows.backup_flows import EntryRange, FetchedEntries, fetch_entries
from logboom.client.admin_flows.dead_letter_flows import REDRIVE
from logboom.client.admin_flows.group_flows import described, groups, member_states
from logboom.client.admin_flows.group_lag import GroupReport
from logboom.client.admin_flows.message_life import (
    CopyFacts,
    FinishedOffsets,
    MessageFacts,
    ParkedFacts,
    ReaderFacts,
    owned_topics,
)
from logboom.client.calls import AskLeader, FindTopic, LoadMetadata
from logboom.client.fetch.message_flows import (
    PULL_BYTES,
    offset_for_time,
    offsets,
    pull,
    unexpected,
)
from logboom.client.fetch.retry_copies import attempt_of, cause_of
from logboom.client.flows import Flow, check_queues
from logboom.client.groups.offset_tracker import OffsetTracker
from logboom.client.results import Message, messages_of
from logboom.wire.base import WireMessage
from logboom.wire.batch import control_view, open_batch, peek, released_from, split_entries
from logboom.wire.compression import Codec
from logboom.wire.copy_receipts import ORIGIN
from logboom.wire.errors import DamagedBatch, InvalidRequest, LogboomError
from logboom.wire.filters import Filter
from logboom.wire.group_view import UNKNOWN_START, GroupOffsets
from logboom.wire.head import Attribute, BatchHead, ControlKind
from logboom.wire.messages import GroupDescribed, Pull, Pulled
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX, subscription_name
from logboom.wire.parking import EntryPosition, ParkedBody, parked_body, recalled_body
from logboom.wire.subscription_messages import (
    DescribeSubscriptions,
    SubscriptionsDescribed,
    SubscriptionState,
)
from logboom.wire.validation import validate_batch
from logboom.wire.view import TopicView, View

MOST_GROUPS: Final = 200
"""Groups of a topic that are asked for."""
SEARCH_PULLS: Final = 16
"""Pulls in one queue of a retry or dead-letter topic, for copies that can be read."""
SEARCH_MESSAGES: Final = 1_000
"""Copies that one of these pulls returns."""
PARKED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one retry queue that are read for copies that wait; a longer log is not searched."""
PARKED_BYTES_ALL: Final = 64 * 1024 * 1024
"""The same for all queues together."""
EPOCHS_TRIED: Final = 8
"""Leader epochs that may have preceded a parked entry."""
DENIED: Final = frozenset({"FORBIDDEN", "UNAUTHENTICATED"})
WAITING_DENIED: Final = (
    "retries that wait for their time are read with the cluster key, or the right `admin cluster`"
)

_Waiting: TypeAlias = dict[EntryPosition, tuple[EntryPosition, list[CopyFacts]]]
"""Where copies are parked → where they were parked first, and the copies."""


class _Batch(NamedTuple):
    """The message and its batch."""

    message: Message
    head: BatchHead
    parked_at: EntryPosition | None


class _Search:
    """The search for copies: what it looks for, and what it may still read."""

    def __init__(self, view: View, origin: str, since_ms: int | None, timeout: float) -> None:
        self.topics = {topic.name: topic for topic in view.topics}
        self.origin = origin.encode()
        self.filter = Filter.of(where=f"\"{ORIGIN}\" = '{origin}'")
        self.since_ms = since_ms
        """Message time of the message, which its copies bear too."""
        self.timeout = timeout
        self.bytes_left = PARKED_BYTES_ALL


def gather(topic: str, queue: int, offset: int, wall_ms: int, timeout: float) -> Flow[MessageFacts]:
    """Gather what is known about the message at an offset.

    Raises:
        UnknownResource: there is no such topic or queue.
        InvalidRequest: the offset is negative.
    """
    if offset < 0:
        raise InvalidRequest(f"an offset must be 0 or more, not {offset}")
    view: View = yield LoadMetadata(timeout)
    own: TopicView | None = next((each for each in view.topics if each.name == topic), None)
    if own is None:
        own = yield FindTopic(topic, timeout)  # created just now, or it says that there is none
    check_queues(own, [queue])
    bounds = yield from offsets(topic, [queue], timeout)
    first, end = bounds[queue]
    batch = None
    if first <= offset < end:
        batch = yield from _read(topic, queue, offset, timeout)
    gaps: list[str] = []
    parked = None
    if batch is not None and batch.parked_at is not None:
        parked = yield from parked_facts(own, queue, batch.head, batch.parked_at, timeout)
    since_ms = None if batch is None else batch.message.timestamp_ms
    search = _Search(view, f"{topic}/{queue}/{offset}", since_ms, timeout)
    readers = yield from _groups(own, queue, wall_ms, view, search, gaps)
    readers += yield from _subscriptions(own, queue, offset, search, gaps)
    return MessageFacts(
        topic,
        queue,
        offset,
        first,
        end,
        None if batch is None else batch.message,
        None if batch is None else batch.head,
        batch is not None and batch.parked_at is not None,
        parked,
        readers,
        gaps,
    )


def _read(topic: str, queue: int, offset: int, timeout: float) -> Flow[_Batch | None]:
    """Read one message with the head of its batch; None: compaction or damage took it."""

    def message(left: int) -> WireMessage:
        return Pull(0, left, topic, queue, offset, PULL_BYTES, 0, 1)

    answer, batches = yield AskLeader(topic, queue, message, timeout)
    if not isinstance(answer, Pulled):
        raise unexpected(answer)
    for frame in batches:
        entry = bytes(frame)
        head = validate_batch(entry)
        if head.is_control or not head.base_offset <= offset < head.next_offset:
            continue
        columns = open_batch(entry, head).from_offset(offset).slice(0, 1)
        return _Batch(messages_of(topic, queue, columns)[0], head, released_from(entry, head))
    return None


def parked_facts(
    topic: TopicView, queue: int, head: BatchHead, at: EntryPosition, timeout: float
) -> Flow[ParkedFacts | None]:
    """Read the entry that parked a batch, as far as it is still there and may be read."""
    # The leader compares the epoch before the entry, which nobody tells: it is seldom far back.
    last = max(head.leader_epoch - EPOCHS_TRIED, -1)
    for epoch in (*range(head.leader_epoch, last, -1), -1):
        wanted = EntryRange(topic.name, topic.id, queue, at, epoch, 1)
        try:
            found: FetchedEntries = yield from fetch_entries(wanted, timeout)
        except LogboomError:
            return None
        if found.head.start == "trimmed":
            return None
        if found.head.start == "here" and found.frames:
            entry = next(split_entries(found.frames[0]))
            stamped = peek(entry)
            if stamped.kind != ControlKind.PARKED:
                return None
            body = parked_body(control_view(bytes(entry)))
            if body.transaction is not None:
                return ParkedFacts(body.due_ms, None, body.transaction)
            # What was relocated was parked before; only the latest entry is still there.
            first_ms = stamped.append_time_ms if body.carried is None else None
            return ParkedFacts(first_ms, body.due_ms, None)
    return None


# ── groups ──────────────────────────────────────────────────────────────────────────────────────


def _groups(
    topic: TopicView, queue: int, wall_ms: int, view: View, search: _Search, gaps: list[str]
) -> Flow[list[ReaderFacts]]:
    """Describe the groups that subscribe to the topic."""
    found: list[ReaderFacts] = []
    try:
        every = yield from groups(search.timeout)
    except LogboomError as error:
        gaps.append(f"the groups: {error.text}")
        return found
    names = sorted(group.name for group in every if topic.name in group.topics)
    if len(names) > MOST_GROUPS:
        gaps.append(f"{len(names) - MOST_GROUPS} of {len(names)} groups, which were not asked")
    for name in names[:MOST_GROUPS]:
        try:
            told = yield from described(name, search.timeout)
            found.append((yield from _group(told, topic, queue, wall_ms, view, search)))
        except LogboomError as error:
            gaps.append(f"group {name}: {error.text}")
    return found


def _group(
    told: GroupDescribed, topic: TopicView, queue: int, wall_ms: int, view: View, search: _Search
) -> Flow[ReaderFacts]:
    group = told.group
    statuses = yield from member_states(group, view, search.timeout)
    report = GroupReport(group, statuses, wall_ms)
    key = (topic.id, queue)
    holder = report.owners.get(key, ("",))[0]
    client = next((each.client_id for each in group.members if each.id == holder), "")
    copies, unsearched = yield from _copies(group.name, search)
    return ReaderFacts(
        "group",
        group.name,
        group.subscription.get(topic.name, ""),
        dict(_group_progress(told.offsets)),
        f"{holder} ({client})" if client else holder,
        report.unowned(topic.name, key) or report.stuck(key),
        0,
        copies,
        unsearched,
        report.broadcasting,
    )


def _group_progress(found: list[GroupOffsets]) -> Iterator[tuple[tuple[str, int], FinishedOffsets]]:
    for each in found:
        ranges = dict(each.ranges)
        for queue, floor in enumerate(each.committed):
            if floor == UNKNOWN_START:
                yield (each.topic, queue), FinishedOffsets(None, [])
                continue
            try:
                tracker = OffsetTracker(floor, ranges.get(queue, b""))
            except DamagedBatch:
                tracker = OffsetTracker(floor)
            yield (each.topic, queue), FinishedOffsets(tracker.floor, tracker.ranges)


# ── subscriptions ───────────────────────────────────────────────────────────────────────────────


def _subscriptions(
    topic: TopicView, queue: int, offset: int, search: _Search, gaps: list[str]
) -> Flow[list[ReaderFacts]]:
    """Describe the subscriptions of the queue."""
    found: list[ReaderFacts] = []
    try:
        states = yield from _states(topic, queue, search.timeout)
        for state in states:
            reader = yield from _subscription(topic, queue, offset, state, search)
            found.append(reader)
    except LogboomError as error:
        gaps.append(f"the subscriptions: {error.text}")
    return found


def _states(topic: TopicView, queue: int, timeout: float) -> Flow[list[SubscriptionState]]:
    def message(left: int) -> WireMessage:
        return DescribeSubscriptions(0, left, topic.name, queue, "", topic.id)

    answer, _ = yield AskLeader(topic.name, queue, message, timeout)
    if not isinstance(answer, SubscriptionsDescribed):
        raise unexpected(answer)
    return answer.subscriptions


def _subscription(
    topic: TopicView, queue: int, offset: int, state: SubscriptionState, search: _Search
) -> Flow[ReaderFacts]:
    progress = {(topic.name, queue): _progress_of(state)}
    name = subscription_name(topic.name, state.name)
    copies, unsearched = yield from _copies(name, search)
    for place in sorted({(copy.topic, copy.queue) for copy in copies}):
        settles = REDRIVE if place[0].startswith(DLQ_PREFIX) else state.name
        there = yield from _states(search.topics[place[0]], place[1], search.timeout)
        progress[place] = FinishedOffsets(0, [])  # nobody has read it, unless there is a cursor
        for each in there:
            if each.name == settles:
                progress[place] = _progress_of(each)
    holders = [each.name for each in state.consumers if each.unacked]
    # Which consumer has which message is not told; one alone must have it.
    holder = holders[0] if len(holders) == 1 else ""
    why = f"one of {', '.join(holders)} may have it" if len(holders) > 1 else ""
    if not state.consumers:
        why = "the subscription has no consumer"
    deliveries = dict(state.again).get(offset, 0)
    wanted = "" if state.config is None else state.config.filter
    return ReaderFacts(
        "subscription", state.name, wanted, progress, holder, why, deliveries, copies, unsearched
    )


def _progress_of(state: SubscriptionState) -> FinishedOffsets:
    acked = [(start, stop) for start, stop in state.acked]
    return FinishedOffsets(state.floor, acked, state.spans <= len(acked))


# ── copies ──────────────────────────────────────────────────────────────────────────────────────


def _copies(name: str, search: _Search) -> Flow[tuple[list[CopyFacts], str]]:
    """Look for copies in the topics of a group or subscription; return also what was left out."""
    found: list[CopyFacts] = []
    left_out: dict[str, None] = {}
    for topic_name in owned_topics(name):
        topic = search.topics.get(topic_name)
        if topic is None:
            continue
        for queue in range(len(topic.queues)):
            try:
                rest = yield from _readable(topic, queue, search, found)
                if not rest and topic_name.startswith(RETRY_PREFIX):
                    rest = yield from _waiting(topic, queue, search, found)
            except LogboomError as error:
                rest = error.text
            if rest:
                told = rest if rest is WAITING_DENIED else f"{topic_name}/{queue}: {rest}"
                left_out[told] = None
    return found, "; ".join(left_out)


def _readable(topic: TopicView, queue: int, search: _Search, found: list[CopyFacts]) -> Flow[str]:
    """Add the copies that can be read; return why not all were looked for."""
    bounds = yield from offsets(topic.name, [queue], search.timeout)
    at, end = bounds[queue]
    if at < end and search.since_ms is not None:
        # Copies have the message time of the message.
        since = yield from offset_for_time(topic.name, queue, search.since_ms, search.timeout)
        at = max(at, since)
    for _ in range(SEARCH_PULLS):
        if at >= end:
            return ""
        result = yield from pull(
            topic.name, queue, at, SEARCH_MESSAGES, 0, search.filter, search.timeout
        )
        for columns, picked in zip(result.columns(), result.selectors(), strict=True):
            stored_ms = columns.head.append_time_ms
            found += (
                _copy(message, stored_ms, None)
                for message in messages_of(topic.name, queue, columns, picked)
                if (message.headers or {}).get(ORIGIN) == search.origin
            )
        if result.next_offset <= at:
            return ""
        at = result.next_offset
    return f"only offsets below {at} of {end} were searched"


def _copy(message: Message, stored_ms: int, due_ms: int | None) -> CopyFacts:
    attempt = attempt_of(message)
    return CopyFacts(
        message.topic,
        message.queue,
        message.offset,
        1 if attempt is None else attempt,
        cause_of(message),
        stored_ms,
        due_ms,
    )


def _waiting(topic: TopicView, queue: int, search: _Search, found: list[CopyFacts]) -> Flow[str]:
    """Add the copies that wait for their time; return why not all were looked for."""
    start = EntryRange(topic.name, topic.id, queue)
    try:
        answer: FetchedEntries = yield from fetch_entries(start, search.timeout)
    except LogboomError as error:
        if error.code in DENIED:
            return WAITING_DENIED
        raise
    if answer.head.log_bytes > min(PARKED_BYTES, search.bytes_left):
        size = answer.head.log_bytes / 1024 / 1024
        return f"its log has {size:.0f} MiB, too many to look for copies that wait"
    search.bytes_left -= answer.head.log_bytes
    waiting: _Waiting = {}
    at, more = (answer.head.offset, answer.head.side), answer.head.more
    while more:
        wanted = EntryRange(topic.name, topic.id, queue, at, answer.head.last_epoch, PARKED_BYTES)
        answer = yield from fetch_entries(wanted, search.timeout)
        if answer.head.start != "here":
            return "its log has changed meanwhile: try again"
        where = at
        for entry in split_entries(b"".join(answer.frames)):
            where = _note(bytes(entry), where, topic.name, queue, search, waiting)
        at, more = (
            (answer.head.offset, answer.head.side),
            answer.head.more and bool(answer.head.count),
        )
    found += (copy for _, copies in waiting.values() for copy in copies)
    return ""


def _note(
    entry: bytes,
    at: EntryPosition,
    topic: str,
    queue: int,
    search: _Search,
    waiting: _Waiting,
) -> EntryPosition:
    """Note what one entry parks or ends, and return the position after it."""
    head = peek(entry)
    if head.kind == ControlKind.PARKED:
        body = parked_body(control_view(entry))
        first = at
        if body.carried is not None:
            first = body.carried[0]
            _end(waiting, body.carried[1])
        copies = (
            [] if body.transaction is not None else _copies_in(body, head, topic, queue, search)
        )
        if copies:
            waiting[at] = (first, copies)
    elif head.kind == ControlKind.RECALLED:
        _end(waiting, recalled_body(control_view(entry)))
    elif head.has(Attribute.RELEASED):
        _end(waiting, released_from(entry, head))
    if head.count:
        return head.next_offset, 0
    return at[0], at[1] + 1


def _end(waiting: _Waiting, at: EntryPosition | None) -> None:
    """Drop what is parked at a position, or was parked there first."""
    for place in [place for place, (first, _) in waiting.items() if at in (place, first)]:
        del waiting[place]


def _copies_in(
    body: ParkedBody, head: BatchHead, topic: str, queue: int, search: _Search
) -> list[CopyFacts]:
    inner = peek(body.batch)
    if inner.codec is Codec.NONE and search.origin not in bytes(body.batch):
        return []
    # The offsets of a batch that is not released are not its own.
    columns = open_batch(body.batch, inner)
    return [
        msgspec.structs.replace(_copy(message, head.append_time_ms, body.due_ms), offset=-1)
        for message in messages_of(topic, queue, columns)
        if (message.headers or {}).get(ORIGIN) == search.origin
    ]
