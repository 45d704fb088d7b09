"""Answers that wait until the entries written for them are committed."""

from __future__ import annotations

from collections import deque
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

    def written(self, turn: BrokerTurn) -> None:
        """Take note of where the entries of this turn end."""
        unwritten, self._unwritten = self._unwritten, []
        for replica, leading, address, message in unwritten:
            if replica.hw >= replica.end:
                turn.answer(address, message)
                continue
            answer = _PendingAnswer(leading, replica.end, address, message)
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
        for key, waiting in list(self._waiting.items()):
            known = self._queues.replicas.get(key)
            if known is not None and waiting[0].leading is known.leading:
                continue
            for answer in waiting:
                if known is not None:
                    self._refuse(known, answer, turn)
            del self._waiting[key]

    def _refuse(self, replica: Replica, answer: _PendingAnswer, turn: BrokerTurn) -> None:
        error = not_leader(self._routes, replica.topic, replica.queue, self._me)
        turn.refuse(answer.address, answer.message.id, error)
