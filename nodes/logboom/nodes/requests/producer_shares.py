"""The idempotent producers of each user, of which a broker remembers a bounded number.

A producer's window of batches costs memory in every replica until the producer has been idle for days,
and anybody who may write a topic has as many producer ids as it likes. So a user who is at its bound
loses those of its own that have been idle for long. If there are none, it gets no new producer:
the windows of others, and those that a retry may still need (Q9), are left alone.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import Final

import msgspec

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.turn import BrokerTurn
from logboom.wire.errors import Unavailable
from logboom.wire.head import ControlKind

MAX_IN_QUEUE: Final = 10_000
"""Producers of one user in a queue."""
MAX_OF_USER: Final = 100_000
"""Producers of one user in all queues that the broker leads."""
IDLE_S: Final = 3_600.0
"""Seconds without a batch after which a producer may be forgotten early; nobody retries for so long.
"""
COUNT_EVERY_S: Final = 1.0
"""Seconds between two counts of a user that is at its bound, which look at all queues."""
FORGOTTEN_AT_ONCE: Final = 10_000
"""Producers that one count forgets, and no fewer than a queue has of them."""


class ProducerShares:
    """The producers of users in the queues that this broker leads, since it leads them."""

    def __init__(self, context: BrokerContext, replicate_handler: ReplicateHandler) -> None:
        self._queues = context.queues
        self._replicate_handler = replicate_handler
        self._added: dict[str, int] = {}
        """User → at least the number of its producers in all queues."""
        self._count_at: dict[str, float] = {}
        """User at its bound → when its producers are counted again."""

    def use(
        self, user: str, producer: int, replica: Replica, leading: Leadership, turn: BrokerTurn
    ) -> None:
        """Note that a producer of a user sends a batch.

        Raises:
            Unavailable: it is a new one, and the user has too many.
        """
        known = leading.producers.setdefault(user, {})
        if known.pop(producer, None) is None:
            self._make_room(user, known, replica, turn)
            self._added[user] = self._added.get(user, 0) + 1
        # The dictionary is in order of the last use.
        known[producer] = turn.mono

    def forget(self, replica: Replica, producers: list[int], turn: BrokerTurn) -> None:
        """Let all replicas of a queue forget producers."""
        if replica.leading is not None:
            for known in replica.leading.producers.values():
                for producer in producers:
                    known.pop(producer, None)
        body = msgspec.msgpack.encode(producers)
        replica.append_control(
            ControlKind.PRODUCER_EXPIRY, body, turn.now.wall_ms, turn.writes, self._queues.cache
        )
        self._queues.touch(replica)
        self._replicate_handler.appended(replica)

    def _make_room(
        self, user: str, known: dict[int, float], replica: Replica, turn: BrokerTurn
    ) -> None:
        if len(known) >= MAX_IN_QUEUE and not self._forget_idle(user, replica, turn):
            raise _too_many(user, MAX_IN_QUEUE, f"in {replica.topic}/{replica.queue}")
        if self._added.get(user, 0) < MAX_OF_USER:
            return
        if turn.mono >= self._count_at.get(user, 0.0):
            self._count_at[user] = turn.mono + COUNT_EVERY_S
            self._added[user] = self._count_and_forget(user, turn)
        if self._added[user] >= MAX_OF_USER:
            raise _too_many(user, MAX_OF_USER, "at this broker")

    def _count_and_forget(self, user: str, turn: BrokerTurn) -> int:
        """Return how many producers a user has: leaderships have ended, and some were forgotten."""
        led = [each for each in self._queues.led.values() if each.leading is not None]
        total = sum(len(each.leading.producers.get(user, ())) for each in led if each.leading)
        if total < MAX_OF_USER:
            return total
        gone = 0
        for each in led:
            if gone < FORGOTTEN_AT_ONCE:
                gone += self._forget_idle(user, each, turn)
        return total - gone

    def _forget_idle(self, user: str, replica: Replica, turn: BrokerTurn) -> int:
        """Forget producers of a user that have been idle for long; return their number."""
        leading = replica.leading
        if leading is None or not replica.may_append:
            return 0
        used = leading.producers.get(user, {}).items()
        idle = takewhile(lambda each: each[1] <= turn.mono - IDLE_S, used)
        gone = [producer for producer, _ in islice(idle, FORGOTTEN_AT_ONCE)]
        if gone:
            self.forget(replica, gone, turn)
        return len(gone)


def _too_many(user: str, limit: int, where: str) -> Unavailable:
    text = (
        f"user {user!r} has {limit} producers {where} that have sent something within "
        f"{IDLE_S / 60:.0f} minutes: keep producers open in place of making new ones"
    )
    return Unavailable(text, "BUSY", limit=limit)
