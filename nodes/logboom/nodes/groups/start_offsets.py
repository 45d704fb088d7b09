"""Start offsets of groups in queues that they never had, requested from the leaders of the queues.

A group that starts at the end, or at a time, gets no queue before its coordinator has proposed a
start offset (SetStart). Only a leader that knows the end of its queue answers (Q8, Q11), so the
coordinator asks until one does. The first start offset in the log wins, so proposing it twice does
no harm.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.groups.coordinator_lookup import CoordinatorLookup
from logboom.nodes.turn import BrokerTurn
from logboom.wire.commands import CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.group_commands import SetStart
from logboom.wire.group_view import GroupView, QueueKey
from logboom.wire.messages import OffsetForTime, OffsetForTimeResult, Offsets, OffsetsResult
from logboom.wire.session import Reply
from logboom.wire.stats import Statistics

ASKED_AT_ONCE: Final = 64
"""Queues that one turn asks about."""
SAID_AT_ONCE: Final = 1_000
"""Queues in one SetStart."""
ANSWER_WITHIN: Final = 2.0
"""Seconds in which a leader must answer."""
PAUSE_FIRST: Final = 0.1
PAUSE_LAST: Final = 2.0


class LeaderOffsets(Protocol):
    """Offsets of queues that this broker leads itself."""

    def end_of(self, topic: str, queue: int, topic_id: int, turn: BrokerTurn) -> int:
        """Return the queue's HW.

        Raises:
            LogboomError: this broker may not tell it now.
        """

    def offset_at(
        self,
        topic: str,
        queue: int,
        topic_id: int,
        timestamp_ms: int,
        whose: Hashable,
        turn: BrokerTurn,
    ) -> tuple[int, int]:
        """Return the offset of the first message at or after a time, or the HW; and its time.

        Raises:
            LogboomError: this broker may not tell it now.
        """


@dataclass(slots=True)
class _PendingStart:
    attempts: int = 0
    asked: bool = False
    """A request to the leader, or a SetStart, is in progress."""


class StartOffsets:
    """The queues without a start offset of all groups that this broker coordinates."""

    def __init__(
        self,
        lookup: CoordinatorLookup,
        links: PeerConnections,
        ends: LeaderOffsets,
        proposals: ProposalQueue,
        stats: Statistics,
    ) -> None:
        self._me = lookup.me
        self._routes = lookup.routes
        self._head_of = lookup.own
        self._links = links
        self._ends = ends
        self._proposals = proposals
        self._stats = stats
        self._wanted: dict[str, dict[QueueKey, _PendingStart]] = {}
        self._due: list[tuple[float, str, QueueKey]] = []
        self._found: dict[str, list[tuple[int, int, int]]] = {}

    def update(self, head: GroupView, now: float) -> None:
        """Follow a group that this broker coordinates."""
        if not head.unstarted:
            self._wanted.pop(head.name, None)
            return
        before = self._wanted.get(head.name, {})
        self._wanted[head.name] = {
            key: before.get(key) or _PendingStart() for key in head.unstarted
        }
        for key in head.unstarted:
            if key not in before:
                heapq.heappush(self._due, (now, head.name, key))

    def end(self, group: str) -> None:
        """Forget a group that this broker no longer coordinates."""
        self._wanted.pop(group, None)
        self._found.pop(group, None)

    def step(self, turn: BrokerTurn) -> None:
        """Ask about the queues that are due, and propose the start offsets that were found."""
        left = ASKED_AT_ONCE
        while left and self._due and self._due[0][0] <= turn.mono:
            _, group, key = heapq.heappop(self._due)
            wanted = self._wanted.get(group, {}).get(key)
            head = self._head_of(group)
            if wanted is None or wanted.asked or head is None:
                continue
            left -= 1
            wanted.asked = True
            self._ask(head, key, wanted, turn)
        self._say(turn)

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        if self._found:
            return float("-inf")
        return self._due[0][0] if self._due else float("inf")

    def _ask(self, head: GroupView, key: QueueKey, wanted: _PendingStart, turn: BrokerTurn) -> None:
        (topic_id, queue), start = key, head.config.start
        if start == "first":
            self._take(head.name, key, wanted, 0)
            return
        name = self._routes.names.get(topic_id)
        try:
            leader = None if name is None else self._routes.leader(name, queue)
            if name is None or leader is None:
                self._again(head.name, key, wanted, turn)
                return
            broker, endpoint, _ = leader
            if broker == self._me:
                offset = (
                    self._ends.end_of(name, queue, topic_id, turn)
                    if start == "last"
                    else self._ends.offset_at(
                        name, queue, topic_id, start, ("group", head.name), turn
                    )[0]
                )
                self._take(head.name, key, wanted, offset)
                return
        except LogboomError:
            self._again(head.name, key, wanted, turn)
            return
        wait_ms = int(ANSWER_WITHIN * 1000)
        if start == "last":
            message: Offsets | OffsetForTime = Offsets(0, wait_ms, name, [queue], topic_id)
        else:
            message = OffsetForTime(0, wait_ms, name, queue, start, topic_id)
        group = head.name
        self._links.request(
            endpoint,
            message,
            turn,
            lambda reply, later: self._answered(group, key, wanted, reply, later),
            turn.mono + ANSWER_WITHIN,
        )

    def _answered(
        self, group: str, key: QueueKey, wanted: _PendingStart, reply: Reply, turn: BrokerTurn
    ) -> None:
        answer = reply.message
        if isinstance(answer, OffsetsResult) and len(answer.offsets) == 1:
            self._take(group, key, wanted, answer.offsets[0][1])
        elif isinstance(answer, OffsetForTimeResult):
            self._take(group, key, wanted, answer.offset)
        else:
            self._again(group, key, wanted, turn)

    def _take(self, group: str, key: QueueKey, wanted: _PendingStart, offset: int) -> None:
        if self._wanted.get(group, {}).get(key) is wanted:
            self._found.setdefault(group, []).append((*key, offset))

    def _again(self, group: str, key: QueueKey, wanted: _PendingStart, turn: BrokerTurn) -> None:
        wanted.asked = False
        pause = min(PAUSE_LAST, PAUSE_FIRST * float(1 << min(wanted.attempts, 10)))
        wanted.attempts += 1
        heapq.heappush(self._due, (turn.mono + pause, group, key))

    def _say(self, turn: BrokerTurn) -> None:
        found, self._found = self._found, {}
        for group, starts in found.items():
            head = self._head_of(group)
            if head is None:
                continue
            self._stats.count("group_starts", len(starts))
            for at in range(0, len(starts), SAID_AT_ONCE):
                part = starts[at : at + SAID_AT_ONCE]
                command = SetStart(group, head.coordinator_epoch, part, turn.now.wall_ms)
                self._proposals.propose(command, partial(self._said, group, part), turn)

    def _said(
        self, group: str, part: list[tuple[int, int, int]], _result: CommandResult, turn: BrokerTurn
    ) -> None:
        """Ask again later if the proposal was rejected, or if the metadata still lacks it."""
        wanted = self._wanted.get(group, {})
        for topic_id, queue, _ in part:
            each = wanted.get((topic_id, queue))
            if each is not None:
                each.attempts += 3
                self._again(group, (topic_id, queue), each, turn)

    def drop_all(self, now: float) -> None:
        """Forget all proposals, and ask again about every queue."""
        self._found.clear()
        for group, wanted in self._wanted.items():
            for key, each in wanted.items():
                if each.asked:
                    each.asked = False
                    heapq.heappush(self._due, (now, group, key))
