"""Resets of a group's offsets: first the plan, and then its execution.

A reset works with members online and offline. The owner of a queue continues at the new offset
under a new owner epoch, and commits of the old epoch are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from logboom.client.admin_flows.group_flows import described
from logboom.client.calls import FindTopic, ProposeCommand
from logboom.client.fetch.fetch_collector import TopicQueue
from logboom.client.fetch.message_flows import offset_for_time, offsets
from logboom.client.flows import Flow
from logboom.wire.base import UNDECODABLE
from logboom.wire.commands import CommandResult
from logboom.wire.errors import InvalidRequest, UnknownResource
from logboom.wire.group_commands import ResetOffsets
from logboom.wire.group_view import UNKNOWN_START, GroupOffsets
from logboom.wire.names import RETRY_PREFIX
from logboom.wire.view import TopicView

AT_ONCE: Final = 1_000
"""Queues in one command."""

Target: TypeAlias = Literal["first", "last"] | int | datetime | Mapping[TopicQueue | int, int]
"""The target: an end, a message time (ms since 1970 UTC, or a datetime with its zone), or offsets
by (topic, queue), or by queue for one topic."""


class OffsetReset(Struct, frozen=True):
    """One line of a plan to reset offsets, or of its result."""

    topic: str
    queue: int
    committed: int | None
    """The old offset; None: it was not known."""
    target: int
    """The new offset."""
    first: int
    end: int
    """The offsets that the queue holds."""
    code: str = ""
    """Error code of `logboom.wire.errors` if it was refused; "" otherwise."""


class ResetRequest(Struct, frozen=True):
    """A request with exactly one of `to`, `shift`, `from_group` and `listed`."""

    group: str
    to: Target | None = None
    shift: int | None = None
    """Number of messages to move forward, or back if negative; limited to what the queue holds."""
    from_group: str | None = None
    """Move to the offsets of this group."""
    listed: dict[TopicQueue, int] | None = None
    """Move to these offsets, as read from a file; messages that retention removed are skipped."""
    topic: str | None = None
    """Only this topic, to which the group need not have subscribed yet."""
    queues: Sequence[int] | None = None
    """Only these queues of the topic."""


def check_reset(asked: ResetRequest) -> None:
    """Check a request.

    Raises:
        InvalidRequest: it has not exactly one target, or the target is invalid.
    """
    ways = {
        "to": asked.to,
        "shift": asked.shift,
        "from_group": asked.from_group,
        "file": asked.listed,
    }
    given = [name for name, way in ways.items() if way is not None]
    if len(given) != 1:
        said = " and ".join(given) or "nothing"
        raise InvalidRequest(f"give one of {', '.join(ways)} as the target, not {said}")
    to = asked.to
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise InvalidRequest(f"{to} has no time zone: say datetime(..., tzinfo=timezone.utc)")
    elif to is not None and not isinstance(to, Mapping):
        named = type(to) is int and to >= 0
        if not named and to not in ("first", "last"):
            text = f'to must be "first", "last", a time or offsets by queue, not {to!r:.80}'
            raise InvalidRequest(text)
    if asked.queues is not None and asked.topic is None:
        raise InvalidRequest("queues belong to a topic: name it too")


def parse_offsets(content: bytes, name: str) -> dict[TopicQueue, int]:
    """Read offsets from the content of a file called `name`.

    It is a JSON list of {"topic", "queue", "offset"}, or the output of `logboom group describe -o
    json`, whose `committed` is taken.

    Raises:
        InvalidRequest: it is neither.
    """
    try:
        read = msgspec.json.decode(content, type=list[_OffsetLine] | _Described)
    except UNDECODABLE as error:
        text = f"{name} is not a list of offsets ({error}): give topic, queue and offset of each"
        raise InvalidRequest(text) from None
    lines = read if isinstance(read, list) else read.queues
    found: dict[TopicQueue, int] = {}
    for line in lines:
        offset = line.committed if line.offset is None else line.offset
        if offset is not None:
            found[line.topic, line.queue] = offset
    return found


class _OffsetLine(Struct, frozen=True):
    topic: str
    queue: int
    offset: int | None = None
    committed: int | None = None


class _Described(Struct, frozen=True):
    queues: list[_OffsetLine]


def reset_offsets(
    asked: ResetRequest, wall_ms: int, timeout: float, *, dry_run: bool
) -> Flow[list[OffsetReset]]:
    """Return the plan, and execute it unless it is a dry run."""
    check_reset(asked)
    plan, ids = yield from _plan(asked, timeout)
    if dry_run or not plan:
        return plan
    done: list[OffsetReset] = []
    for at in range(0, len(plan), AT_ONCE):
        part = plan[at : at + AT_ONCE]
        moves = [(ids[line.topic], line.queue, line.target) for line in part]
        result: CommandResult = yield ProposeCommand(
            ResetOffsets(asked.group, moves, wall_ms), timeout
        )
        codes = result.value if isinstance(result.value, list) else [""] * len(part)
        done += [
            msgspec.structs.replace(line, code=code) for line, code in zip(part, codes, strict=True)
        ]
    return done


def _plan(asked: ResetRequest, timeout: float) -> Flow[tuple[list[OffsetReset], dict[str, int]]]:
    """Return the lines of the plan, and the topics' ids."""
    found = yield from described(asked.group, timeout)
    known = {each.topic: each for each in found.offsets if each.subscribed}
    topics = set(known) if asked.topic is None else {asked.topic}
    if asked.topic is None and asked.listed is None:
        # Retries count as done, unless the request names their topic.
        topics.discard(RETRY_PREFIX + asked.group)
    other: dict[TopicQueue, int] | None = asked.listed
    if asked.from_group is not None:
        other = yield from _offsets_of(asked.from_group, timeout)
    elif isinstance(asked.to, Mapping):
        other = _by_place(asked.to, sorted(topics))
    if other is not None and asked.topic is None and asked.from_group is None:
        topics |= {topic for topic, _ in other}
    ids: dict[str, int] = {}
    plan: list[OffsetReset] = []
    for name in sorted(topics):
        most = max(asked.queues or (), default=-1) + 1
        view: TopicView = yield FindTopic(name, timeout, queues=most)
        ids[name] = view.id
        plan += yield from _lines(asked, view, known.get(name), other, timeout)
    if other is not None and asked.from_group is None:
        planned = {(line.topic, line.queue) for line in plan}
        for topic, queue in sorted(set(other) - planned):
            if (asked.topic in (None, topic)) and (asked.queues is None or queue in asked.queues):
                text = f"topic {topic!r} has no queue {queue}"
                raise UnknownResource(text, "UNKNOWN_QUEUE", topic=topic, queue=queue)
    return plan, ids


def _offsets_of(group: str, timeout: float) -> Flow[dict[TopicQueue, int]]:
    found = yield from described(group, timeout)
    return {
        (each.topic, queue): committed
        for each in found.offsets
        for queue, committed in enumerate(each.committed)
        if committed != UNKNOWN_START
    }


def _by_place(offsets: Mapping[TopicQueue | int, int], topics: list[str]) -> dict[TopicQueue, int]:
    found: dict[TopicQueue, int] = {}
    for key, offset in offsets.items():
        if isinstance(key, tuple):
            found[key] = offset
        elif len(topics) == 1:
            found[topics[0], key] = offset
        else:
            text = f"queue {key} of which topic? name it, or say (topic, queue)"
            raise InvalidRequest(text)
    return found


def _lines(
    asked: ResetRequest,
    view: TopicView,
    known: GroupOffsets | None,
    other: dict[TopicQueue, int] | None,
    timeout: float,
) -> Flow[list[OffsetReset]]:
    lines = []
    chosen = range(len(view.queues)) if asked.queues is None else sorted(set(asked.queues))
    for queue in chosen:
        if not 0 <= queue < len(view.queues):
            text = f"topic {view.name!r} has queues 0 to {len(view.queues) - 1}, not {queue}"
            raise UnknownResource(text, "UNKNOWN_QUEUE", topic=view.name, queue=queue)
        if other is not None and (view.name, queue) not in other:
            continue
        committed = None
        if known is not None and queue < len(known.committed):
            committed = known.committed[queue]
            committed = None if committed == UNKNOWN_START else committed
        ends = yield from offsets(view.name, [queue], timeout)
        target = yield from _target(asked, view.name, queue, committed, ends[queue], other, timeout)
        if target is not None:
            lines.append(OffsetReset(view.name, queue, committed, target, *ends[queue]))
    return lines


def _target(
    asked: ResetRequest,
    topic: str,
    queue: int,
    committed: int | None,
    bounds: tuple[int, int],
    other: dict[TopicQueue, int] | None,
    timeout: float,
) -> Flow[int | None]:
    """Return the new offset of a queue; None: there is no offset to shift."""
    first, end = bounds
    if other is not None:
        offset = other[topic, queue]
        if not 0 <= offset <= end and asked.from_group is None:
            text = f"queue {queue} of topic {topic!r} holds offsets {first} to {end}, not {offset}"
            raise InvalidRequest(text)
        return min(max(offset, first), end)
    if asked.shift is not None:
        return None if committed is None else min(max(committed + asked.shift, first), end)
    match asked.to:
        case "first":
            return first
        case "last":
            return end
        case datetime() as time:
            time_ms = int(time.timestamp() * 1000)
        case time:
            time_ms = time if isinstance(time, int) else 0
    found = yield from offset_for_time(topic, queue, time_ms, timeout)
    return found
