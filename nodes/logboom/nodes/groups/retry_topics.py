"""The topics of a group itself: its retries and its dead letters.

They are made when their group is first seen, as any topic is placed, with one queue each. A topic
that a client may not make is there before the first message fails.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.cluster.proposal_queue import ProposalQueue
from logboom.nodes.turn import BrokerTurn
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.group_view import GroupView
from logboom.wire.messages import MAX_BATCH_BYTES
from logboom.wire.names import DLQ_PREFIX, RETRY_PREFIX
from logboom.wire.routes import Routes
from logboom.wire.view import TopicConfig

RETRY_DELAY_S: Final = 1.0
"""Seconds before a topic that could not be made is tried again: too few brokers, say."""
UNDER_WAY: Final = float("inf")
CONFIG: Final = TopicConfig(max_message_bytes=MAX_BATCH_BYTES)
"""What the topics of the group take is bounded there, and a copy has more headers."""


class RetryTopics:
    """Makes what is missing."""

    def __init__(self, routes: Routes, proposals: ProposalQueue) -> None:
        self._routes = routes
        self._proposals = proposals
        self._missing: dict[str, float] = {}
        """Topic → when it is tried again, or `UNDER_WAY`."""

    def ensure(self, head: GroupView, turn: BrokerTurn) -> None:
        """A group that this broker coordinates came or changed."""
        if head.config.mode != "clustering":
            return
        for topic in (RETRY_PREFIX + head.name, DLQ_PREFIX + head.name):
            if topic not in self._routes.topics and topic not in self._missing:
                self._make(topic, turn)

    def end(self, group: str) -> None:
        """Another broker coordinates the group, or it is gone."""
        self._missing.pop(RETRY_PREFIX + group, None)
        self._missing.pop(DLQ_PREFIX + group, None)

    def step(self, turn: BrokerTurn) -> None:
        """Try again what could not be made."""
        for topic in [t for t, at in self._missing.items() if at <= turn.mono]:
            if topic in self._routes.topics:
                del self._missing[topic]
            else:
                self._make(topic, turn)

    def deadline(self) -> float:
        """When `step` is wanted next."""
        return min(self._missing.values(), default=float("inf"))

    def _make(self, topic: str, turn: BrokerTurn) -> None:
        self._missing[topic] = UNDER_WAY
        command = CreateTopic(topic, 1, 0, CONFIG, turn.now.wall_ms)
        self._proposals.propose(
            command, lambda result, later: self._made(topic, result, later), turn
        )

    def _made(self, topic: str, result: CommandResult, turn: BrokerTurn) -> None:
        # Also after a success it is looked at once more: our copy may be behind.
        if topic in self._missing:
            self._missing[topic] = turn.mono + RETRY_DELAY_S

    def drop_all(self, turn: BrokerTurn) -> None:
        """What was proposed is forgotten: this broker's instance epoch is over."""
        self._missing = dict.fromkeys(self._missing, turn.mono + RETRY_DELAY_S)
