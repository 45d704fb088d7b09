"""Flows that query queues: offsets, pulls, messages by offset or key (see `logboom.client.flows`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count as counting
from typing import Final

from logboom.client.calls import AskLeader, FindTopic
from logboom.client.fetch.message_filter import match_messages, matcher_of, tags_of, text_of
from logboom.client.flows import Flow
from logboom.client.results import Message, Messages, PullResult
from logboom.wire.base import WireMessage
from logboom.wire.batch import validate_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import InternalError, InvalidRequest, LogboomError, OffsetOutOfRange
from logboom.wire.filters import Filter
from logboom.wire.frames import Frame
from logboom.wire.hashing import murmur3
from logboom.wire.messages import (
    LONGEST_HOLD_MS,
    FindKey,
    FindKeyResult,
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    OffsetsResult,
    Pull,
    Pulled,
)
from logboom.wire.view import TopicView

PULL_BYTES: Final = 1024 * 1024
EVERYTHING: Final = Filter()
FIND_BATCHES: Final = 64
"""Candidate batches that one FIND_KEY requests."""


def _leader(
    topic: str, queue: int, message: Callable[[int], WireMessage], timeout: float
) -> Flow[tuple[WireMessage, list[Frame]]]:
    answer: tuple[WireMessage, list[Frame]] = yield AskLeader(topic, queue, message, timeout)
    return answer


def offsets(
    topic: str, queues: Sequence[int] | None, timeout: float, *, compacted: bool = False
) -> Flow[dict[int, tuple[int, int]]]:
    """Return (first offset, high watermark) by queue.

    With `compacted` a compacted topic starts at 0.
    """
    if queues is None:
        view: TopicView = yield FindTopic(topic, timeout)
        queues = range(len(view.queues))
    found = {}
    for queue in queues:
        asked = [queue]

        def message(left: int, asked: list[int] = asked) -> WireMessage:
            return Offsets(0, left, topic, asked)

        answer, _ = yield from _leader(topic, queue, message, timeout)
        if isinstance(answer, OffsetsResult):
            first, end = answer.offsets[0]
            keeps = compacted and answer.horizons and answer.horizons[0] >= 0
            found[queue] = (0 if keeps else first, end)
    return found


def offsets_ahead(
    topic: str, begins: Mapping[int, int], max_bytes: Mapping[int, int], timeout: float
) -> Flow[dict[int, tuple[int, int]]]:
    """Return by queue the offset that some bytes lead to, and the bytes; see `Admin.offsets_ahead`."""
    found = {}
    for queue, begin in begins.items():

        def message(
            left: int, queue: int = queue, begin: int = begin, most: int = max_bytes[queue]
        ) -> WireMessage:
            return Offsets(0, left, topic, [queue], 0, begin, most)

        answer, _ = yield from _leader(topic, queue, message, timeout)
        if isinstance(answer, OffsetsResult) and answer.ahead[0] >= 0:
            found[queue] = answer.ahead
    return found


def horizons(topic: str, timeout: float) -> Flow[dict[int, int]]:
    """Return the offset up to which each queue of a topic is compacted.

    The result is empty if the topic is not compacted, and leaves out queues without a leader.
    """
    view: TopicView = yield FindTopic(topic, timeout)
    found = {}
    for queue in [n for n, each in enumerate(view.queues) if each.leader is not None]:

        def message(left: int, asked: int = queue) -> WireMessage:
            return Offsets(0, left, topic, [asked])

        answer, _ = yield from _leader(topic, queue, message, timeout)
        if isinstance(answer, OffsetsResult) and answer.horizons and answer.horizons[0] >= 0:
            found[queue] = answer.horizons[0]
    return found


def offset_for_time(topic: str, queue: int, timestamp_ms: int, timeout: float) -> Flow[int]:
    """Return the offset at which messages from a time on start; the high watermark if none do."""

    def message(left: int) -> WireMessage:
        return OffsetForTime(0, left, topic, queue, timestamp_ms)

    answer, _ = yield from _leader(topic, queue, message, timeout)
    if not isinstance(answer, OffsetForTimeResult):
        raise unexpected(answer)
    return answer.offset


def last_offset_by(topic: str, queue: int, timestamp_ms: int, timeout: float) -> Flow[int]:
    """Return the offset before the first message after a time; 0 if all are later.

    This is RocketMQ's UPPER where times never go back.
    """
    after = yield from offset_for_time(topic, queue, timestamp_ms + 1, timeout)
    bounds = yield from offsets(topic, [queue], timeout)
    first, _ = bounds[queue]
    return after - 1 if after > first else 0


def pull(
    topic: str,
    queue: int,
    offset: int,
    max_messages: int,
    wait_ms: int,
    wanted: Filter,
    timeout: float,
    *,
    uncommitted: bool = False,
    compacted: bool = False,
) -> Flow[PullResult]:
    """Pull once; batches travel whole, so the result is cut to `max_messages` here."""
    if offset < 0:
        raise InvalidRequest(f"an offset must be 0 or more, not {offset}")
    if max_messages < 1:
        raise InvalidRequest(f"max_messages must be 1 or more, not {max_messages}")
    if not 0 <= wait_ms <= 3_600_000:
        raise InvalidRequest(f"wait_ms must be 0 to 3600000, not {wait_ms}")

    hold_ms = 0

    def message(left: int) -> WireMessage:
        wait = min(hold_ms, left)
        pull = Pull(0, left, topic, queue, offset, PULL_BYTES, wait, max_messages)
        pull.tags, pull.filter = tags_of(wanted), text_of(wanted)
        pull.uncommitted, pull.compacted = uncommitted, compacted
        return pull

    left_ms = wait_ms
    while True:
        # No broker holds a pull for longer.
        hold_ms = min(left_ms, LONGEST_HOLD_MS)
        left_ms -= hold_ms
        answer, batches = yield from _leader(topic, queue, message, hold_ms / 1000 + timeout)
        if not isinstance(answer, Pulled):
            raise unexpected(answer)
        if answer.status != "NO_NEW_MESSAGE" or not left_ms:
            break
    return _pull_result(answer, batches, topic, queue, offset, max_messages, wanted)


def _pull_result(
    answer: Pulled,
    batches: list[Frame],
    topic: str,
    queue: int,
    offset: int,
    most: int,
    wanted: Filter,
) -> PullResult:
    matcher, matches = matcher_of(wanted), answer.matches or []
    survivors = answer.survivors or []
    columns: list[Columns] = []
    selected: list[bytes | None] = []
    left, next_offset = most, answer.next_offset
    for place, batch in enumerate(batches):
        head = validate_batch(batch)
        if head.is_control or head.next_offset <= offset:
            continue
        found = Columns(head, batch).from_offset(offset)
        said = matches[place] if place < len(matches) else None
        alive = survivors[place] if place < len(survivors) else None
        picked = match_messages(matcher, found, said, alive)
        found, picked, count = _cut(found, picked, left)
        left -= count
        if count:
            columns.append(found)
            selected.append(picked)
        if left == 0:
            next_offset = found.next_offset
            break
    status = answer.status
    if status == "FOUND" and not columns:
        status = "NO_MATCHED_MESSAGE"  # the broker had not filtered as precisely
    messages = Messages(topic, queue, columns, selected)
    bounds = (next_offset, answer.min_offset, answer.max_offset)
    return PullResult(status, messages, *bounds)


def _cut(columns: Columns, picked: bytes | None, most: int) -> tuple[Columns, bytes | None, int]:
    """Return the start of a batch with at most `most` wanted messages, and their number."""
    if picked is None:
        return columns.slice(0, most), None, min(most, len(columns))
    count = picked.count(1)
    if count > most:
        end = 0
        for _ in range(most):
            end = picked.index(1, end) + 1
        columns, picked, count = columns.slice(0, end), picked[:end], most
    return columns, picked, count


def get_message(topic: str, queue: int, offset: int, timeout: float) -> Flow[Message]:
    """Return the message at an offset.

    Raises:
        OffsetOutOfRange: there is none; the error has the offsets that exist.
    """
    result = yield from pull(topic, queue, offset, 1, 0, EVERYTHING, timeout)
    if not result.messages or result.messages[0].offset != offset:
        text = (
            f"queue {queue} of topic {topic!r} holds offsets {result.min_offset} to "
            f"{result.max_offset - 1}, not {offset}"
        )
        raise OffsetOutOfRange(text, topic=topic, queue=queue, offset=offset)
    message: Message = result.messages[0]
    return message


def find_messages(
    topic: str, key: bytes, queue: int | None, limit: int, timeout: float
) -> Flow[list[Message]]:
    """Find messages with a key, newest first in each queue."""
    view: TopicView = yield FindTopic(topic, timeout)
    queues = range(len(view.queues)) if queue is None else [queue]
    found: list[Message] = []
    for number in queues:
        if len(found) < limit:
            found += yield from _find_in(topic, number, key, limit - len(found), timeout)
    return found


def _find_in(topic: str, queue: int, key: bytes, limit: int, timeout: float) -> Flow[list[Message]]:
    ends = yield from offsets(topic, [queue], timeout)
    first, end = ends[queue]
    found: list[Message] = []
    before = end
    for attempt in counting():
        answer = yield from _candidates(topic, queue, key, before, timeout)
        if attempt == 0:
            start = min(max(answer.indexed_to, first), end)
            found += yield from _scan(topic, queue, key, start, end, timeout)
        for base in answer.base_offsets:
            if len(found) >= limit:
                return found[:limit]
            found += yield from _matches(topic, queue, key, base, timeout)
        if len(answer.base_offsets) < FIND_BATCHES:
            return found[:limit]
        before = answer.base_offsets[-1]
    raise AssertionError("counting has no end")


def _candidates(
    topic: str, queue: int, key: bytes, before: int, timeout: float
) -> Flow[FindKeyResult]:
    digest = murmur3(key)

    def message(left: int) -> WireMessage:
        return FindKey(0, left, topic, queue, digest, before, FIND_BATCHES)

    answer, _ = yield from _leader(topic, queue, message, timeout)
    if not isinstance(answer, FindKeyResult):
        raise unexpected(answer)
    return answer


def _matches(topic: str, queue: int, key: bytes, base: int, timeout: float) -> Flow[list[Message]]:
    """Return messages with the key in the batch at `base`, newest first."""
    result = yield from pull(topic, queue, base, 1 << 20, 0, EVERYTHING, timeout)
    batches = result.columns()
    if not batches or batches[0].base_offset != base:
        return []  # retention removed it meanwhile
    first = Messages(topic, queue, batches[:1])
    return [message for message in reversed(first) if message.key == key]


def _scan(
    topic: str, queue: int, key: bytes, start: int, end: int, timeout: float
) -> Flow[list[Message]]:
    """Return messages with the key from `start` to `end`, newest first, which the index lacks so
    far."""
    found: list[Message] = []
    offset = start
    while offset < end:
        result = yield from pull(topic, queue, offset, 1 << 20, 0, EVERYTHING, timeout)
        found += [m for m in result.messages if m.key == key and m.offset < end]
        if result.next_offset <= offset:
            break
        offset = result.next_offset
    return found[::-1]


def unexpected(answer: WireMessage) -> LogboomError:
    """Return the error for an answer of the wrong type."""
    return InternalError(f"unexpected answer {type(answer).__name__}: please report it")
