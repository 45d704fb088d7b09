"""Reports of where the history of a queue begins whose leader may lack committed messages (Q15).

After such an election the name servers do not know which positions are valid. The leader does: its
log is the queue now. It reports the offset once that much is on its disk, and they cut what is beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.commands import CommandResult, LossEnd, ReportLosses
from logboom.wire.view import QueueView

AT_ONCE: Final = 1_000
"""Queues in one report: a command has at most 60 KiB."""
RETRY_S: Final = 1.0
"""Seconds before a refused report is repeated."""


class LossReports(Service):
    """The reports of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._registration = context.registration
        self._proposals = context.proposals
        self._due: dict[QueueKey, None] = {}
        """Queues led here of which a loss is to be reported."""
        self._asking = False
        self._retry_at = float("-inf")

    def registered(self) -> None:
        """Begin again after a registration: what was under way is dropped."""
        self._asking = False
        self._retry_at = float("-inf")

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Note which changed queues have a loss that nobody has reported."""
        for name in topics:
            topic = self._routes.topics.get(name)
            for number, view in enumerate(topic.queues if topic is not None else ()):
                if topic is not None and view.losses and view.loses:
                    self._due[topic.id, number] = None

    def deadline(self) -> float:
        """Return when `step` is due: at once if there is something to report."""
        if not self._due or self._asking or not self._registration.registered:
            return float("inf")
        return self._retry_at if any(map(self._ends, self._due)) else float("inf")

    def step(self, turn: BrokerTurn) -> None:
        """Report what is due."""
        if not self._due or self._asking or turn.mono < self._retry_at:
            return
        if not self._registration.registered:
            return
        for key in [key for key in self._due if not self._is_pending(key)]:
            del self._due[key]
        keys = list(islice((key for key in self._due if self._ends(key)), AT_ONCE))
        if not keys:
            return
        self._asking = True
        epoch = self._registration.instance_epoch
        ends = [end for key in keys for end in self._ends(key)]
        command = ReportLosses(self._me, epoch, ends, turn.now.wall_ms)

        def decided(result: CommandResult, later: BrokerTurn) -> None:
            if epoch == self._registration.instance_epoch:
                # What was taken shows in the metadata; what was not is reported again.
                self._asking = False
                self._retry_at = later.mono + RETRY_S

        self._proposals.propose(command, decided, turn)

    def _view(self, key: QueueKey) -> QueueView | None:
        topic = self._routes.topics.get(self._routes.names.get(key[0], ""))
        return topic.queues[key[1]] if topic is not None and key[1] < len(topic.queues) else None

    def _is_pending(self, key: QueueKey) -> bool:
        view = self._view(key)
        return view is not None and view.loses

    def _ends(self, key: QueueKey) -> list[LossEnd]:
        """Return what this broker can report of a queue now; nothing unless it leads it."""
        view, replica = self._view(key), self._queues.replicas.get(key)
        leading = replica.leading if replica is not None else None
        if view is None or replica is None or leading is None:
            return []
        if leading.epoch != view.leader_epoch:
            return []
        pending = [
            loss.epoch for loss in view.losses if loss.end < 0 and loss.epoch <= leading.epoch
        ]
        places = [(epoch, _begin_of(replica, leading, epoch)) for epoch in pending]
        # What is lost with the power after the report would be lost without one.
        return [LossEnd(*key, epoch, at.offset) for epoch, at in places if at <= replica.synced]


def _begin_of(replica: Replica, leading: Leadership, epoch: int) -> Position:
    """Return where a log's entries of this epoch, and of later ones, begin."""
    starts = (start for known, start in replica.epochs.entries if known >= epoch)
    return min(starts, default=leading.election_end)
