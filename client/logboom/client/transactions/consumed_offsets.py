"""Offsets that a transaction commits: consume, transform and produce exactly once.

They are part of the decision: either everything is published and the group moves on, or nothing
happens. From the moment when they are named, the queues of a group consumer are fenced by member
and owner epochs, like the group's own commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from logboom.client.calls import FindTopic
from logboom.client.fetch import message_flows
from logboom.client.fetch.retry_copies import place_of
from logboom.client.flows import Flow, check_queues
from logboom.client.groups.assigned_queue import AssignedQueue
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.groups.member import MemberState
from logboom.client.results import Message
from logboom.wire.errors import GroupError, InvalidRequest
from logboom.wire.transactions import ConsumedOffset, TransactionOffsetCommit
from logboom.wire.view import TopicView

Offsets: TypeAlias = Mapping[tuple[str, int], int] | Iterable[Message]
"""(topic, queue) → the offset after the last message used, or the messages themselves."""


class _MemberOffsets:
    """Offsets that one group member has used."""

    def __init__(self, intake: GroupFetchCollector, member: MemberState) -> None:
        self.intake = intake
        self.member = member
        self.epoch = member.epoch
        self.queues: dict[tuple[str, int], tuple[AssignedQueue, int]] = {}
        """The assigned queue when it was named. One that was lost and assigned again is another."""

    def consumed(self) -> TransactionOffsetCommit:
        offsets = []
        with self.member.lock:
            for holding, offset in self.queues.values():
                end = max(holding.last_commit().seen_end, offset)
                offsets.append(ConsumedOffset(*holding.key, holding.owner_epoch, offset, end))
        return TransactionOffsetCommit(
            self.member.options.group, self.member.options.member_id, self.epoch, offsets
        )


class ConsumedOffsets:
    """All offsets that one transaction commits for consumer groups."""

    def __init__(self) -> None:
        self._members: dict[int, _MemberOffsets] = {}
        self._groups: dict[str, dict[tuple[str, int], int]] = {}

    def __bool__(self) -> bool:
        return bool(self._members or self._groups)

    def add(self, group: object, offsets: Offsets) -> None:
        """Add offsets of a group, given by its name or by a consumer that is a member.

        Raises:
            InvalidRequest: `group` is neither; also see `add_group` and `add_member`.
        """
        intake = getattr(group, "intake", None)
        if isinstance(group, str):
            self.add_group(group, offsets)
        elif isinstance(intake, GroupFetchCollector):
            self.add_member(intake, offsets)
        else:
            text = f"send_offsets takes a group name or a consumer, not {type(group).__name__}"
            raise InvalidRequest(text)

    def add_group(self, group: str, offsets: Offsets) -> None:
        """Add offsets of a group without members, whose application reads the queues on its own.

        Raises:
            InvalidRequest: an offset is invalid.
        """
        known = self._groups.setdefault(group, {})
        for queue, offset in ends_of(offsets).items():
            known[queue] = max(known.get(queue, 0), check_offset(queue, offset))

    def add_member(self, intake: GroupFetchCollector, offsets: Offsets) -> None:
        """Add offsets that a group consumer has received.

        Raises:
            GroupError: NOT_OWNER, the queue went to another member; BEYOND_END, it was not read
                so far.
            InvalidRequest: an offset is not after the committed one; or messages before the
            given ones were handed out and are in no transaction.
        """
        member = intake.member
        if member.store is not None:
            raise InvalidRequest(
                "a broadcasting consumer keeps its own offsets: its group has none"
            )
        found = self._members.get(id(member))
        if found is None or found.epoch != member.epoch:
            found = _MemberOffsets(intake, member)
        messages = None if isinstance(offsets, Mapping) else list(offsets)
        ends = ends_of(offsets if messages is None else messages)
        with member.lock:
            named = {}
            for queue, offset in ends.items():
                holding = _held(member, queue)
                start = found.queues[queue][1] if queue in found.queues else holding.progress.floor
                _check_reach(holding, queue, start, offset)
                if messages is not None:
                    _check_whole(holding, queue, start, offset, messages)
                named[queue] = (holding, offset)
        found.queues.update(named)
        self._members[id(member)] = found

    def consumed(self, timeout: float) -> Flow[list[TransactionOffsetCommit]]:
        """Return the offsets for the decision.

        Raises:
            UnknownResource: a topic or queue does not exist.
            GroupError: BEYOND_END, an offset is after the end of its queue.
        """
        found = [each.consumed() for each in self._members.values()]
        for group, offsets in self._groups.items():
            queues = []
            for (topic, queue), offset in offsets.items():
                view: TopicView = yield FindTopic(topic, timeout, queues=queue + 1)
                check_queues(view, [queue])
                bounds = yield from message_flows.offsets(topic, [queue], timeout)
                if offset > bounds[queue][1]:
                    raise _beyond((topic, queue), offset, bounds[queue][1])
                queues.append(ConsumedOffset(view.id, queue, 0, offset, bounds[queue][1]))
            found.append(TransactionOffsetCommit(group, "", 0, queues))
        return found

    def committed(self) -> None:
        """Tell the consumers that their group has the offsets."""
        for each in self._members.values():
            each.intake.committed_with(list(each.queues.values()))

    def rewind(self) -> None:
        """Let the consumers read the same messages again, because nothing was committed."""
        for each in self._members.values():
            each.intake.read_again([holding for holding, _ in each.queues.values()])


def ends_of(offsets: Offsets) -> dict[tuple[str, int], int]:
    """Return (topic, queue) → the offset after the last message."""
    if isinstance(offsets, Mapping):
        return dict(offsets)
    found: dict[tuple[str, int], int] = {}
    for message in offsets:
        topic, queue, offset = place_of(message)
        found[topic, queue] = max(found.get((topic, queue), 0), offset + 1)
    return found


def check_offset(queue: tuple[str, int], offset: object) -> int:
    """Check an offset.

    Raises:
        InvalidRequest: it is invalid.
    """
    if type(offset) is not int or offset < 0:
        raise InvalidRequest(f"an offset must be 0 or more, not {offset!r} (of {_name(queue)})")
    return offset


def _held(member: MemberState, queue: tuple[str, int]) -> AssignedQueue:
    holding = member.holding(*queue)
    if holding is None or holding.state == "lost" or member.epoch < 0:
        text = (
            f"{_name(queue)} went to another member of group {member.options.group!r}: what was "
            "read of it comes again there; abort, and go on with what this member has"
        )
        raise GroupError(text, "NOT_OWNER")
    return holding


def _check_reach(
    holding: AssignedQueue, queue: tuple[str, int], start: int, offset: object
) -> None:
    end = check_offset(queue, offset)
    if end > holding.handed:
        raise _beyond(queue, end, holding.handed)
    if end <= start:
        raise _stale(queue, end, start)


def _check_whole(
    holding: AssignedQueue,
    queue: tuple[str, int],
    start: int,
    stop: int,
    messages: Iterable[Message],
) -> None:
    given = {place_of(m)[2] for m in messages if place_of(m)[:2] == queue}
    old = next((o for o in sorted(given) if o < start or holding.progress.is_finished(o)), None)
    if old is not None:
        raise _stale(queue, old, start)
    for first, last in holding.progress.gaps(start, stop):
        for offset in range(first, last):
            if offset not in given:
                text = (
                    f"message {offset} of {_name(queue)} was given out and is in no transaction: "
                    f"name it too, or read again from there with seek"
                )
                raise InvalidRequest(text)


def _stale(queue: tuple[str, int], offset: int, start: int) -> GroupError:
    text = (
        f"offset {offset} of {_name(queue)} is not after {start}, which the group has: another "
        "member may have been given these messages; name what this transaction was given"
    )
    return GroupError(text, "NOT_OWNER")


def _beyond(queue: tuple[str, int], offset: int, end: int) -> GroupError:
    text = f"offset {offset} of {_name(queue)} is after {end}, to where it was read"
    return GroupError(text, "BEYOND_END", topic=queue[0], queue=queue[1], end=end)


def _name(queue: tuple[str, int]) -> str:
    return f"{queue[0]}/{queue[1]}"
