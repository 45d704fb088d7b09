"""SURVEYQUEUES and FINDAPPENDTIMES: what monitoring asks of all queues that this broker leads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.entry_reader import DamagedEntry, read_batches
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.batch import peek
from logboom.wire.errors import LogboomError
from logboom.wire.sight import Sight
from logboom.wire.survey_messages import (
    MAX_PLACES,
    MAX_SURVEYED,
    AppendTimesFound,
    CursorSurvey,
    FindAppendTimes,
    QueuesSurveyed,
    QueueSurvey,
    SurveyQueues,
)

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of batches after which FINDAPPENDTIMES leaves the rest to another request."""
UNKNOWN_TIME: Final = -1

EndOf = Callable[[str, int, int, BrokerTurn], int]
"""(topic, queue, topic id, turn) → high watermark; raises LogboomError if it is not certain."""


class SurveyHandler(Service):
    """The handler of both requests."""

    def __init__(
        self,
        context: BrokerContext,
        repair: ReplicaRepair,
        subscriptions: SubscriptionService,
        end_of: EndOf,
    ) -> None:
        self._acceptor = context.acceptor
        self._queues = context.queues
        self._repair = repair
        self._subscriptions = subscriptions
        self._end_of = end_of

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of both."""
        return {SurveyQueues: self.survey, FindAppendTimes: self.find_times}

    def survey(self, peer: PeerSession, message: SurveyQueues, turn: BrokerTurn) -> None:
        """Answer with the next page of led queues."""
        limit = min(max(1, message.limit), MAX_SURVEYED)
        sight = self._acceptor.authorizer.sight(peer)
        led = self._queues.led
        keys = sorted(led)
        begin = bisect_right(keys, tuple(message.after))
        shown = (key for key in keys[begin:] if sight is None or sight.topic(led[key].topic))
        page = list(islice(shown, limit))
        reached = page[-1] if next(shown, None) is not None else None
        found = [each for key in page if (each := self._queue(led[key], sight, turn)) is not None]
        turn.answer(peer.address, QueuesSurveyed(message.id, found, reached))

    def _queue(self, replica: Replica, sight: Sight | None, turn: BrokerTurn) -> QueueSurvey | None:
        """Return what is told of a queue; None if its end is not certain."""
        try:
            end = self._end_of(replica.topic, replica.queue, replica.topic_id, turn)
        except LogboomError:
            return None
        return QueueSurvey(
            replica.topic_id,
            replica.queue,
            replica.start,
            end,
            replica.size,
            self._cursors(replica, sight, end),
            replica.topic,
            max(0, replica.append_time_ms - turn.now.wall_ms),
        )

    def _cursors(self, replica: Replica, sight: Sight | None, end: int) -> list[CursorSurvey]:
        found: list[CursorSurvey] = []
        for name in self._subscriptions.names(replica):
            if sight is not None and not sight.subscription(replica.topic, name):
                continue
            served = self._subscriptions.served.get((replica.key, name))
            if served is not None:
                dispatcher = served.dispatcher
                acks, held, consumers = dispatcher.acks, dispatcher.unacked, sorted(served.sessions)
            elif name in replica.cursors.cursors and not replica.cursors.behind:
                acks, held, consumers = replica.cursors.cursors[name].acks, 0, []
            else:
                continue  # It is not complete here yet.
            found.append(CursorSurvey(name, acks.floor, acks.unacked(end), held, consumers))
        return found

    def find_times(self, peer: PeerSession, message: FindAppendTimes, turn: BrokerTurn) -> None:
        """Answer with the append times of batches."""
        sight = self._acceptor.authorizer.sight(peer)
        times: list[int] = []
        before = turn.read
        for topic_id, queue, offset in message.places[:MAX_PLACES]:
            if turn.read - before >= READ_BYTES:
                break
            replica = self._queues.led.get((topic_id, queue))
            if replica is None or (sight is not None and not sight.topic(replica.topic)):
                times.append(UNKNOWN_TIME)
            else:
                times.append(self._time_at(replica, offset, turn))
        turn.answer(peer.address, AppendTimesFound(message.id, times))

    def _time_at(self, replica: Replica, offset: int, turn: BrokerTurn) -> int:
        """Return when the message at an offset was stored, or `UNKNOWN_TIME`."""
        if not replica.start <= offset < replica.readable.offset or replica.damage is not None:
            return UNKNOWN_TIME
        try:
            found = read_batches(replica, self._queues.storage, offset, 1, 1)
        except DamagedEntry as error:
            self._repair.found(replica, error)
            return UNKNOWN_TIME
        turn.read += sum(map(len, found.batches))
        return peek(found.batches[0]).append_time_ms if found.batches else UNKNOWN_TIME
