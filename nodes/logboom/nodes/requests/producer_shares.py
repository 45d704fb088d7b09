"""The idempotent producers of each user, of which a broker remembers a bounded number.

A producer's window of batches costs memory in every replica until the producer has been idle for days,
and anybody who may write a topic has as many producer ids as it likes. So a user who is at its bound
loses those of its own that have been idle for long. If there are none, it gets no new producer:
the windows of others, and those that a retry may still need (Q9), are left alone.

A new leader finds the user's windows in the queue, but not how long they have been idle: they count from
the beginning of its leadership. So that it has room until it knows, the idle ones go from half of a bound on.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import Final

import msgspec

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.turn import BrokerTurn
from logboom.wire.errors import Unavailable
from logboom.wire.head import ControlKind

MAX_IN_QUEUE: Final = 10_000
"""Producers of one user in a queue."""
MAX_OF_USER: Final = 100_000
"""Producers of one user in all queues that the broker leads and the user has written to since."""
IDLE_S: Final = 3_600.0
"""Seconds without a batch after which a producer may be forgotten early; nobody retries for so long.
"""
FORGOTTEN_AT_ONCE: Final = 5_000
"""Producers of a queue that are forgotten at once, and about as many of all queues."""
QUEUES_AT_ONCE: Final = 64
"""Queues in which idle producers of a user are looked for at once."""


class _Share:
    """The producers of one user."""

    __slots__ = ("queues", "total")

    def __init__(self) -> None:
        self.total = 0
        """Number of its producers in these queues."""
        self.queues: dict[QueueKey, Replica] = {}
        """Queues in which it has producers; those in which idle ones were looked for last are at the end."""


class ProducerShares:
    """The producers of users in the queues that this broker leads, since it leads them."""

    def __init__(self, context: BrokerContext, replicate_handler: ReplicateHandler) -> None:
        self._queues = context.queues
        self._replicate_handler = replicate_handler
        self._shares: dict[str, _Share] = {}
        """By user."""

    def use(
        self, user: str, producer: int, replica: Replica, leading: Leadership, turn: BrokerTurn
    ) -> None:
        """Note that a producer of a user sends a batch.

        Raises:
            Unavailable: it is a new one, and the user has too many.
        """
        known = leading.producers.get(user)
        if known is None:
            share = self._shares.setdefault(user, _Share())
            inherited = replica.windows.of_user(user)
            known = leading.producers[user] = dict.fromkeys(inherited, leading.started_at)
            share.total += len(known)
            share.queues[replica.key] = replica
        if known.pop(producer, None) is None:
            self._make_room(user, known, replica, turn)
            self._shares[user].total += 1
        # The dictionary is in order of the last use.
        known[producer] = turn.mono

    def lost(self, replica: Replica, leading: Leadership) -> None:
        """Count the producers of a leadership no more, because it ended."""
        for user, known in leading.producers.items():
            share = self._shares[user]
            share.total -= len(known)
            del share.queues[replica.key]
            if not share.queues:
                del self._shares[user]

    def forget(self, replica: Replica, producers: list[int], turn: BrokerTurn) -> None:
        """Let all replicas of a queue forget producers."""
        body = msgspec.msgpack.encode(producers)
        replica.append_control(
            ControlKind.PRODUCER_EXPIRY, body, turn.now.wall_ms, turn.writes, self._queues.cache
        )
        self._queues.touch(replica)
        self._replicate_handler.appended(replica)

    def _make_room(
        self, user: str, known: dict[int, float], replica: Replica, turn: BrokerTurn
    ) -> None:
        share = self._shares[user]
        if len(known) >= MAX_IN_QUEUE // 2:
            self._forget_idle(user, replica, turn)
        if len(known) >= MAX_IN_QUEUE:
            raise _too_many(user, MAX_IN_QUEUE, f"in {replica.topic}/{replica.queue}")
        if share.total >= MAX_OF_USER // 2:
            gone = 0
            for key, each in list(islice(share.queues.items(), QUEUES_AT_ONCE)):
                if gone < FORGOTTEN_AT_ONCE:
                    share.queues[key] = share.queues.pop(key)
                    gone += self._forget_idle(user, each, turn)
        if share.total >= MAX_OF_USER:
            raise _too_many(user, MAX_OF_USER, "at this broker")

    def _forget_idle(self, user: str, replica: Replica, turn: BrokerTurn) -> int:
        """Forget producers of a user that have been idle for long; return their number."""
        leading = replica.leading
        if leading is None or not replica.may_append:
            return 0
        known = leading.producers[user]
        idle = takewhile(lambda each: each[1] <= turn.mono - IDLE_S, known.items())
        gone = [producer for producer, _ in islice(idle, FORGOTTEN_AT_ONCE)]
        for producer in gone:
            del known[producer]
        if gone:
            self._shares[user].total -= len(gone)
            self.forget(replica, gone, turn)
        return len(gone)


def _too_many(user: str, limit: int, where: str) -> Unavailable:
    text = (
        f"user {user!r} has {limit} producers {where} that have sent something within "
        f"{IDLE_S / 60:.0f} minutes: keep producers open in place of making new ones"
    )
    return Unavailable(text, "BUSY", limit=limit)
