"""What the members of simulated groups were given and finished, and the promises to groups.

P7: each group consumes every acknowledged message at least once. P8: a committed offset never goes
back by itself, and covers nothing that nobody finished. P9: a queue has one owner per owner epoch,
and nobody has it before the last owner released it or was fenced. And: nothing that a member
finished comes again while it lives and is heard: neither when it leaves, nor when queues move, nor
when brokers and name servers come and go.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from logboom.client.groups.offset_tracker import decode_ranges
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.wire.group_view import UNKNOWN_START
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty, Trace

UNCONSUMED: Final = "groups consume what is acknowledged"
BACK: Final = "committed offsets never go back"
UNFINISHED: Final = "only what is finished is committed"
AGAIN: Final = "what is finished does not come again"
TWO_OWNERS: Final = "one owner per queue and epoch"
CUT: Final = "a loss cuts positions to where what is new begins"


@dataclass(slots=True)
class _Followed:
    """One queue as one group sees it."""

    owners: dict[int, str] = field(default_factory=dict)
    """Owner epoch → member that was given messages under it."""
    given: dict[int, int] = field(default_factory=dict)
    """Owner epoch → offset after the last that was given."""
    finished: dict[int, str] = field(default_factory=dict)
    """Offset → the member that finished it while it had the queue."""
    handled: set[int] = field(default_factory=set)
    """All that was finished, also by members that did not have the queue any more."""
    passed: set[int] = field(default_factory=set)
    """What failed at least once: done with once its copy is stored."""
    committed: int = UNKNOWN_START
    start: int = 0
    """Where the group began."""
    ended_at: int | None = None
    """End that was known when the group was about to begin at the end; None: it begins at 0."""
    latest: dict[int, int] = field(default_factory=dict)
    """Offset → greatest owner epoch under which it was given."""
    resets: list[int] = field(default_factory=list)
    """Offsets that an operator asked for, to go back to."""
    valid_from: float = 0
    """Owner epochs before this one are of the queue as it was before it lost messages."""
    lost_from: float = 0
    """Offset from which on that was of other messages."""
    last_reset: tuple[int, int] = (0, 0)
    """(metadata version, offset) of the last that is known to be done."""


class GroupLedger:
    """All groups of a run."""

    def __init__(self, history: History, trace: Trace) -> None:
        self._history = history
        self._trace = trace
        self._followed: dict[tuple[str, Queue], _Followed] = defaultdict(_Followed)
        self._lost: dict[str, str] = {}
        """Members that may leave work undone, or be out without knowing, and why."""
        self.since = 0
        """Metadata version at which a survivor went on alone: owner epochs below are of before."""

    def lost(self, member: str, why: str) -> bool:
        """From now on what this member finished may come again; False: that was known."""
        new = member not in self._lost
        self._lost.setdefault(member, why)
        return new

    # -- members ----------------------------------------------------------------------------

    def give(
        self, group: str, queue: Queue, owner_epoch: int, offset: int, value: bytes, member: str
    ) -> None:
        """A member was given a message."""
        followed = self._followed[group, queue]
        where = f"{group} {queue} offset {offset}"
        owner = followed.owners.setdefault(owner_epoch, member)
        if owner != member:
            detail = f"{where} to {member} in owner epoch {owner_epoch}, which is {owner}'s"
            raise BrokenProperty(TWO_OWNERS, detail)
        if owner_epoch < followed.valid_from:
            # Its owner is yet to hear that messages were lost: all of that comes again.
            self._trace.count("given after a loss by those before it")
            return
        if offset < followed.given.get(owner_epoch, 0):
            detail = f"{where} again to {member} in owner epoch {owner_epoch}"
            raise BrokenProperty("a member gets each message once", detail)
        followed.given[owner_epoch] = offset + 1
        acked = self._history.acked.get(value)
        copied = queue.topic.startswith("%")
        loose = value.partition(b"/")[0] in self._history.loose
        if acked is not None and not loose and not copied and acked != (queue, offset):
            raise BrokenProperty("members get what was stored", f"{where}: {value!r}, {acked}")
        followed.latest[offset] = max(owner_epoch, followed.latest.get(offset, 0))
        before = followed.finished.get(offset)
        if any(reset <= offset for reset in followed.resets):
            before = None
        if before is not None and not {before, member} & self._lost.keys():
            detail = f"{where} to {member} in owner epoch {owner_epoch}, finished by {before}"
            raise BrokenProperty(AGAIN, detail)
        self._trace.count("given to members")
        if before is not None:
            # After a crash; or a member that is out, and cannot know it yet, has it in its hands.
            self._trace.count("given twice")

    def finish(
        self, group: str, queue: Queue, owner_epoch: int, offset: int, member: str, *, owned: bool
    ) -> None:
        """A member is done with a message; `owned`: it has the queue still, as when it got it."""
        followed = self._followed[group, queue]
        outlived = owner_epoch < followed.valid_from
        if outlived and offset >= followed.lost_from:
            return
        followed.handled.add(offset)
        # A member that is yet to hear of the loss has its queue still, and commits in vain.
        valid = min(owner_epoch, followed.latest.get(offset, 0)) >= self.since
        if owned and not outlived and valid:
            followed.finished[offset] = member

    def pass_on(self, group: str, queue: Queue, offset: int) -> None:
        """A handler failed: the message comes again as a copy."""
        self._followed[group, queue].passed.add(offset)
        self._trace.count("handlers failed")

    def retried(self, group: str, queue: Queue, offset: int) -> None:
        """A copy of this message was finished."""
        self._followed[group, queue].handled.add(offset)
        self._trace.count("retries finished")

    # -- operators --------------------------------------------------------------------------

    def begin(self, group: str, queue: Queue) -> None:
        """A group is about to begin at the end of a queue."""
        self._followed[group, queue].ended_at = self._history.known_end(queue)

    def reset(self, group: str, queue: Queue, offset: int) -> None:
        """An operator asks to go back; from now on what comes again may have been finished."""
        self._followed[group, queue].resets.append(offset)

    def resetting(self, group: str, queue: Queue) -> bool:
        """Whether an operator has asked for a reset of this queue, or it has lost messages."""
        followed = self._followed[group, queue]
        return bool(followed.resets or followed.valid_from)

    def was_reset(self, group: str, queue: Queue, offset: int, version: int) -> None:
        """It was done, in this metadata version."""
        followed = self._followed[group, queue]
        followed.last_reset = max(followed.last_reset, (version, offset))
        self._trace.count("offsets reset")

    def doubt(self, queue: Queue) -> None:
        """A queue has lost messages, and nobody has said yet from where on: groups may go back."""
        for (_, other), followed in self._followed.items():
            if other == queue:
                followed.valid_from = followed.lost_from = math.inf

    def lose(self, queue: Queue, end: int, cluster: ClusterState) -> None:
        """A queue begins anew at `end`, and so do its groups: what they did behind it was of other
        messages, and what they have finished before it comes again unless it was committed (Q15)."""
        topic_id = cluster.topics[queue.topic].id
        for group in cluster.groups.by_name.values():
            topic = group.topics.get(topic_id)
            if topic is None or not topic.has(queue.number):
                continue
            positions = topic.committed[queue.number], topic.seen_ends[queue.number]
            if positions[0] != UNKNOWN_START and max(positions) > end:
                raise BrokenProperty(CUT, f"{group.name} {queue}: {positions}, and not {end}")
            followed = self._followed[group.name, queue]
            followed.finished.clear()
            followed.handled = {offset for offset in followed.handled if offset < end}
            followed.committed = min(followed.committed, end)
            given_on = topic.owners[queue.number] is not None
            followed.valid_from = topic.owner_epochs[queue.number] + (not given_on)
            followed.lost_from = end

    # -- the name servers -------------------------------------------------------------------

    def look(self, cluster: ClusterState) -> None:
        """Hold committed offsets against what was finished."""
        for group in cluster.groups.by_name.values():
            for topic in group.topics.values():
                known = cluster.topics_by_id.get(topic.id)
                if known is None or not topic.subscribed or known.name.startswith("%"):
                    continue
                for number, committed in enumerate(topic.committed):
                    if committed == UNKNOWN_START:
                        continue
                    queue = Queue(known.name, number)
                    ranges = decode_ranges(max(0, committed), topic.ranges.get(number, b""))
                    self._committed(group.name, queue, committed, ranges)

    def _committed(
        self, group: str, queue: Queue, committed: int, ranges: list[tuple[int, int]]
    ) -> None:
        followed = self._followed[group, queue]
        if followed.committed == UNKNOWN_START:
            if committed < (followed.ended_at or 0):
                detail = f"{group} {queue}: at {committed}, and {followed.ended_at} was its end"
                raise BrokenProperty("a group may begin at the end", detail)
            followed.committed = followed.start = 0 if followed.ended_at is None else committed
        if committed < followed.committed and committed >= min(followed.resets, default=1 << 62):
            followed.committed = committed
        if committed < followed.committed:
            detail = f"{group} {queue}: from {followed.committed} to {committed}"
            raise BrokenProperty(BACK, detail)
        spans = [(followed.committed, committed), *ranges]
        for start, stop in spans:
            for offset in range(start, stop):
                if offset not in followed.handled and offset not in followed.passed:
                    detail = f"{group} {queue}: {offset} of {spans}"
                    raise BrokenProperty(UNFINISHED, detail)
        followed.committed = committed

    def recovered(self, cluster: ClusterState) -> None:
        """A survivor goes on alone: this once, offsets go back to what it knows of. What it does not
        know to be finished comes again."""
        self.since = cluster.version
        for (group, queue), followed in self._followed.items():
            committed, ranges = committed_in(cluster, group, queue)
            if committed < followed.committed:
                followed.committed = committed
                self._trace.count("commits lost")
            spans = [(0, committed), *ranges]
            followed.finished = {
                offset: member
                for offset, member in followed.finished.items()
                if any(start <= offset < stop for start, stop in spans)
            }

    def committed(self, group: str, queue: Queue) -> int:
        """The committed offset as last looked at."""
        return self._followed[group, queue].committed

    # -- the end ----------------------------------------------------------------------------

    def missing(self, group: str, topics: list[str]) -> int:
        """How many acknowledged messages nobody has finished yet."""
        return sum(
            offset >= (of := self._followed[group, queue]).start and offset not in of.handled
            for value, (queue, offset) in self._history.acked.items()
            if queue.topic in topics and value.partition(b"/")[0] not in self._history.loose
        )

    def compare(self, group: str, topics: list[str]) -> None:
        """Every acknowledged message was finished by somebody."""
        for value, (queue, offset) in self._history.acked.items():
            if queue.topic not in topics or value.partition(b"/")[0] in self._history.loose:
                continue
            followed = self._followed[group, queue]
            if offset < followed.start:
                continue
            if offset not in followed.handled:
                raise BrokenProperty(UNCONSUMED, f"{group} {queue} {offset}: {value!r}")
            version, back_to = followed.last_reset
            if offset >= back_to and followed.latest.get(offset, 0) < version:
                raise BrokenProperty(
                    "after a reset everything comes again",
                    f"{group} {queue} {offset}, reset to {back_to} in version {version}",
                )
            self._trace.count("consumed by groups")


def committed_in(
    cluster: ClusterState, group: str, queue: Queue
) -> tuple[int, list[tuple[int, int]]]:
    """What a group has committed of a queue, by these tables: its offset, and ranges behind it."""
    known, topic = cluster.groups.by_name.get(group), cluster.topics.get(queue.topic)
    followed = None if known is None or topic is None else known.topics.get(topic.id)
    if followed is None or not followed.has(queue.number):
        return UNKNOWN_START, []
    committed = followed.committed[queue.number]
    return committed, decode_ranges(max(0, committed), followed.ranges.get(queue.number, b""))
