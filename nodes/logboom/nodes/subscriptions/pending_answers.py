"""Answers that wait until the entries written for them are committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.request_errors import not_leader
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage


class _PendingAnswer(NamedTuple):
    """A message that is sent once the HW is at `after`."""

    leading: Leadership
    after: Position
    address: PeerAddress
    message: WireMessage


class PendingAnswers:
    """The waiting answers of all queues that this broker leads."""

    def __init__(self, context: BrokerContext) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._unwritten: list[tuple[Replica, Leadership, PeerAddress, WireMessage]] = []
        """Answers that wait for the entries of this turn."""
        self._waiting: dict[QueueKey, deque[_PendingAnswer]] = {}

    def add(
        self, replica: Replica, leading: Leadership, address: PeerAddress, message: WireMessage
    ) -> None:
        """Send an answer once everything that this turn writes is committed."""
        self._unwritten.append((replica, leading, address, message))

    def written(self, turn: BrokerTurn, unwritten: Collection[QueueKey] = ()) -> None:
        """Take note of where the entries of this turn end.

        The changes of queues in `unwritten` are not written yet, so their answers wait for that.
        """
        answers, self._unwritten = self._unwritten, []
        for replica, leading, address, message in answers:
            answer = _PendingAnswer(leading, replica.end, address, message)
            if leading is not replica.leading:
                # The leadership ended in this turn, so nothing was written of its changes.
                self._refuse(replica, answer, turn)
            elif replica.key in unwritten:
                self._unwritten.append((replica, leading, address, message))
            elif replica.hw >= replica.end:
                turn.answer(address, message)
            else:
                self._waiting.setdefault(replica.key, deque()).append(answer)

    def hw_moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Send the answers that the HW has passed."""
        waiting = self._waiting.get(replica.key)
        while waiting and waiting[0].after <= replica.hw:
            answer = waiting.popleft()
            if answer.leading is replica.leading:
                turn.answer(answer.address, answer.message)
            else:
                self._refuse(replica, answer, turn)
        if waiting is not None and not waiting:
            del self._waiting[replica.key]

    def step(self, turn: BrokerTurn) -> None:
        """Refuse the answers of leaderships that have ended."""
        for key in self._ended():
            known = self._queues.replicas.get(key)
            for answer in self._waiting.pop(key):
                if known is not None:
                    self._refuse(known, answer, turn)

    def deadline(self) -> float:
        """Return when `step` is wanted next: at once, if a leadership has ended."""
        return float("-inf") if self._ended() else float("inf")

    def _ended(self) -> list[QueueKey]:
        replicas = self._queues.replicas
        return [
            key
            for key, waiting in self._waiting.items()
            if key not in replicas or waiting[0].leading is not replicas[key].leading
        ]

    def _refuse(self, replica: Replica, answer: _PendingAnswer, turn: BrokerTurn) -> None:
        error = not_leader(self._routes, replica.topic, replica.queue, self._me)
        turn.refuse(answer.address, answer.message.id, error)
