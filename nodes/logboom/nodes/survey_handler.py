"""SURVEYQUEUES and FINDAPPENDTIMES: what monitoring asks of all queues that this broker leads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.replica.entry_reader import DamagedEntry, read_batches
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.long_requests import LongRequests, Parts
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
MOST_CURSORS: Final = 4_000
"""Subscriptions after which a page of SURVEYQUEUES has no further queue."""
QUEUE_UNITS: Final = 12
"""Units of work (`LongRequests`) of a queue, …"""
CURSOR_UNITS: Final = 8
"""… and of each of its subscriptions."""
WAITING_BYTES: Final = 64 * 1024
"""What a SURVEYQUEUES takes of memory while it is carried out."""
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
        requests: LongRequests,
    ) -> None:
        self._acceptor = context.acceptor
        self._queues = context.queues
        self._repair = repair
        self._subscriptions = subscriptions
        self._end_of = end_of
        self._requests = requests

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of both."""
        return {SurveyQueues: self.survey, FindAppendTimes: self.find_times}

    def survey(self, peer: PeerSession, message: SurveyQueues, turn: BrokerTurn) -> None:
        """Answer with the next page of led queues."""
        self._requests.serve(peer, message, self._surveyed(peer, message), WAITING_BYTES, turn)

    def _surveyed(self, peer: PeerSession, message: SurveyQueues) -> Parts:
        """Answer with a page, which ends early where queues have many subscriptions."""
        turn = yield 0
        limit = min(max(1, message.limit), MAX_SURVEYED)
        sight = self._acceptor.authorizer.sight(peer)
        led = self._queues.led
        keys = sorted(led)
        last = reached = None
        found: list[QueueSurvey] = []
        queues = cursors = 0
        for key in keys[bisect_right(keys, tuple(message.after)) :]:
            turn = yield QUEUE_UNITS
            replica = led.get(key)
            if replica is None or not (sight is None or sight.topic(replica.topic)):
                continue
            if queues >= limit or cursors >= MOST_CURSORS:
                reached = last
                break
            last, queues = key, queues + 1
            try:
                end = self._end_of(replica.topic, replica.queue, replica.topic_id, turn)
            except LogboomError:
                continue
            told: list[CursorSurvey] = []
            for name in self._subscriptions.names(replica):
                turn = yield CURSOR_UNITS
                cursor = self._cursor(replica, name, sight, end)
                if cursor is not None:
                    told.append(cursor)
            cursors += len(told)
            found.append(
                QueueSurvey(
                    replica.topic_id,
                    replica.queue,
                    replica.start,
                    end,
                    replica.size,
                    told,
                    replica.topic,
                    max(0, replica.append_time_ms - turn.now.wall_ms),
                )
            )
        turn.answer(peer.address, QueuesSurveyed(message.id, found, reached))

    def _cursor(
        self, replica: Replica, name: str, sight: Sight | None, end: int
    ) -> CursorSurvey | None:
        """Return what is told of a subscription, or None."""
        if sight is not None and not sight.subscription(replica.topic, name):
            return None
        served = self._subscriptions.served.get((replica.key, name))
        if served is not None:
            dispatcher = served.dispatcher
            acks, held, consumers = dispatcher.acks, dispatcher.unacked, sorted(served.sessions)
        elif name in replica.cursors.cursors and not replica.cursors.behind:
            acks, held, consumers = replica.cursors.cursors[name].acks, 0, []
        else:
            return None  # It is not complete here yet.
        return CursorSurvey(name, acks.floor, acks.unacked(end), held, consumers)

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
