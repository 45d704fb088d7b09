"""The retry and dead letter topics of groups.

They are created when their group is first seen, are placed like any topic, and have one queue each.
A topic that clients may not create therefore exists before the first message fails.
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
"""Seconds before a failed creation is repeated, for example with too few brokers."""
UNDER_WAY: Final = float("inf")
CONFIG: Final = TopicConfig(max_message_bytes=MAX_BATCH_BYTES)
"""The size limit is the largest possible, since the source topics limit message sizes and a copy
has additional headers."""


class RetryTopics:
    """Creates the missing retry and dead letter topics."""

    def __init__(self, routes: Routes, proposals: ProposalQueue) -> None:
        self._routes = routes
        self._proposals = proposals
        self._missing: dict[str, float] = {}
        """The missing topics, and when their creation is repeated, or `UNDER_WAY`."""

    def ensure(self, head: GroupView, turn: BrokerTurn) -> None:
        """Create the missing topics of a group that this broker coordinates."""
        if head.config.mode != "clustering":
            return
        for topic in (RETRY_PREFIX + head.name, DLQ_PREFIX + head.name):
            if topic not in self._routes.topics and topic not in self._missing:
                self._make(topic, turn)

    def end(self, group: str) -> None:
        """Forget a group that this broker no longer coordinates."""
        self._missing.pop(RETRY_PREFIX + group, None)
        self._missing.pop(DLQ_PREFIX + group, None)

    def step(self, turn: BrokerTurn) -> None:
        """Repeat the creations that failed."""
        for topic in [t for t, at in self._missing.items() if at <= turn.mono]:
            if topic in self._routes.topics:
                del self._missing[topic]
            else:
                self._make(topic, turn)

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        return min(self._missing.values(), default=float("inf"))

    def _make(self, topic: str, turn: BrokerTurn) -> None:
        self._missing[topic] = UNDER_WAY
        command = CreateTopic(topic, 1, 0, CONFIG, turn.now.wall_ms)
        self._proposals.propose(
            command, lambda result, later: self._made(topic, result, later), turn
        )

    def _made(self, topic: str, result: CommandResult, turn: BrokerTurn) -> None:
        # It is checked once more after a success too, since this broker's metadata may be behind.
        if topic in self._missing:
            self._missing[topic] = turn.mono + RETRY_DELAY_S

    def drop_all(self, turn: BrokerTurn) -> None:
        """Forget all proposals, since the instance epoch is over."""
        self._missing = dict.fromkeys(self._missing, turn.mono + RETRY_DELAY_S)
