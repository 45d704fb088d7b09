"""The sender of one queue: order, sequences and retries (see docs/SAFETY.md, Q9).

At most `MAX_IN_FLIGHT` batches are in flight, counted from the oldest unacknowledged one. The broker
remembers that many per producer, and would store an older one again. A batch keeps its sequence
until its outcome is known. Retries are sent in order and with the same bytes, so the broker answers
a duplicate with its first offset.

After a retryable error, only the oldest batch in flight is sent again: while the leader refuses it,
it would refuse the others too. Once it is stored, the others follow at once.

If a batch is given up, its sequence leaves a hole that no other batch may fill. Nothing new is sent
until every batch in flight is settled, and then the queue continues with a new producer epoch.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final

from logboom.client.cluster.connections import Connections
from logboom.client.cluster.leader_cache import LeaderCache
from logboom.client.core_context import CoreTurn, Timer
from logboom.client.delays import Parking
from logboom.client.send.producer_batch import (
    NOBODY,
    JoinedBatch,
    ProducerBatch,
    QueueAccumulator,
)
from logboom.client.send.send_buffer import SendBuffer
from logboom.wire.backoff import backoff
from logboom.wire.batch import set_producer
from logboom.wire.errors import LogboomError, ProducerError, TimedOut
from logboom.wire.head import sequence_after
from logboom.wire.messages import Produce, Produced
from logboom.wire.session import Reply

MAX_IN_FLIGHT: Final = 5
"""Batches of a queue from the oldest in flight to the newest: the broker's window."""
ATTEMPT_TIMEOUT_S: Final = 10.0
"""Seconds after which an unanswered batch is sent again, because the answer may be lost. They begin
anew while the leader says that it delays the batch because of a quota."""
LONGEST_PAUSE_S: Final = 5.0
"""Maximum seconds of a pause because of a quota; then the leader is asked again."""
OUT_OF_ORDER: Final = "OUT_OF_ORDER_SEQUENCE"


class QueueSender:
    """The core's side of one `QueueAccumulator`."""

    def __init__(
        self,
        accumulator: QueueAccumulator,
        buffer: SendBuffer[Any],
        producer_id: int,
        connections: Connections,
        leaders: LeaderCache,
        turn: CoreTurn,
    ) -> None:
        self._accumulator = accumulator
        self._buffer = buffer
        self._options = buffer.options
        self._producer_id = producer_id
        self._connections = connections
        self._leaders = leaders
        self._turn = turn
        self._topic = accumulator.topic.name
        self._topic_id = accumulator.topic.topic_id
        self._queue = accumulator.queue
        self._waiting: deque[ProducerBatch] = deque()
        """Taken from the accumulator, never sent in this epoch."""
        self._in_flight: deque[ProducerBatch] = deque()
        """In flight, in the order of their sequences."""
        self._taken = 0
        self._epoch = 0
        self._sequence = 0
        self._place = 0
        self._hole = False
        """True if a sequence was given up: settle the batches in flight, then take a new epoch."""
        self._probing = False
        """True if the last answer was a retryable error: only the oldest batch in flight is sent.
        """
        self._endpoint = ""
        """The leader to which the batches in flight were sent."""
        self._pause: Timer | None = None
        self._linger: Timer | None = None
        self._expiry: Timer | None = None
        self._last_error: LogboomError | None = None

    @property
    def epoch(self) -> int:
        """The producer epoch of this queue."""
        return self._epoch

    def idle(self) -> bool:
        """True if no batch is waiting or in flight."""
        return not self._in_flight and not self._waiting

    def batches(self) -> list[ProducerBatch]:
        """Return the batches that are waiting or in flight, each with a result of its own."""
        batches: list[ProducerBatch] = []
        for batch in (*self._in_flight, *self._waiting):
            batches += batch.parts if isinstance(batch, JoinedBatch) else (batch,)
        return batches

    def add(self, batches: list[ProducerBatch]) -> None:
        """Add batches to send; they no longer wait to fill, as in a flush."""
        for batch in batches:
            batch.enqueue(self._taken, batch.born + self._options.delivery_timeout_s)
            self._taken += 1
            self._waiting.append(batch)
        if self._expiry is None and not self.idle():
            self._arm_expiry()

    def pump(self) -> None:
        """Send what may be sent now."""
        if self._pause is not None:
            return
        try:
            endpoint = self._leaders.endpoint(self._topic, self._queue)
        except LogboomError as error:
            self.fail_all(error)
            return
        self._take()
        if endpoint is None or self.idle():
            return  # a new leader pumps again
        if self._options.acks == "none":
            self._tell_all(endpoint)
            return
        self._move(endpoint)
        for batch in islice(self._in_flight, 1 if self._probing else None):
            if batch.ticket is None:
                self._post(batch)
        while self._waiting and not self._hole and self._room() > 0:
            batch = self._waiting.popleft()
            try:
                self._number(batch)
            except LogboomError as error:
                self._refuse(batch, error)
                continue
            self._in_flight.append(batch)
            self._post(batch)

    def rerouted(self) -> None:
        """Follow a metadata change: try a new leader at once."""
        if self._pause is not None and self._moved():
            self._pause.cancel()
            self._pause = None
        self.pump()

    def fail_all(self, error: LogboomError) -> None:
        """Give up all batches for one reason, such as a deleted topic."""
        if self._in_flight:
            self._hole = True
        self.add(self._buffer.take(self._accumulator, 1 << 30, filling=True))
        batches = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for batch in batches:
            self._give_up(batch, error)
        self._settle_hole()

    # Taking batches from the accumulator.

    def _take(self) -> None:
        """Take complete batches; one that still fills only if nothing is in flight and its linger
        is over."""
        accumulator = self._accumulator
        room = self._room() - len(self._waiting)
        if room <= 0 or (accumulator.open is None and not accumulator.closed):
            return
        filling = False
        if accumulator.open is not None and self.idle() and not accumulator.closed:
            ripe = accumulator.open.born + self._buffer.linger_s
            filling = ripe <= self._turn.now
            if not filling and self._linger is None:
                self._linger = self._turn.after(ripe - self._turn.now, self._lingered)
        batches = self._buffer.take(accumulator, room, filling=filling)
        if batches:
            self.add(batches)

    def _room(self) -> int:
        """Return how many more batches may be sent now."""
        if not self._in_flight:
            return 1 if self._probing else MAX_IN_FLIGHT
        return 0 if self._probing else MAX_IN_FLIGHT - (self._place - self._in_flight[0].place)

    def _lingered(self) -> None:
        self._linger = None
        self.pump()

    # Sending.

    def _number(self, batch: ProducerBatch) -> None:
        """Encode a batch and give it the next sequence."""
        producer = (self._producer_id, self._epoch, self._sequence)
        if batch.encoded:
            batch.encoded = set_producer(batch.encoded, *producer)
        else:
            batch.encode(self._turn.wall_ms, self._options.compression, producer)
        self._sequence = sequence_after(self._sequence, batch.count)
        batch.place = self._place
        self._place += 1

    def _post(self, batch: ProducerBatch) -> None:
        left = min(max(batch.deadline - self._turn.now, 0.001), ATTEMPT_TIMEOUT_S)
        batch.attempts += 1
        batch.ticket = self._connections.request(
            self._endpoint,
            Produce(
                0,
                int(left * 1000),
                self._topic,
                self._queue,
                self._options.acks,
                self._topic_id,
                batch.due_ms,
                batch.transaction,
            ),
            [batch.encoded],
            lambda reply: self._answered(batch, reply),
            left,
            batch.deadline,
        )

    def _tell_all(self, endpoint: str) -> None:
        """Send batches with acks="none", without a sequence: nobody answers, so nothing is resent."""
        self._endpoint = endpoint
        while self._waiting:
            delay = self._connections.throttled_s(endpoint)
            if delay:
                # What the leader could not keep until then would be lost.
                self._pause_for(min(delay, LONGEST_PAUSE_S))
                return
            batch = self._waiting[0]
            try:
                if not batch.encoded:
                    batch.encode(self._turn.wall_ms, self._options.compression, NOBODY)
            except LogboomError as error:
                self._refuse(self._waiting.popleft(), error)
                continue
            due_ms = batch.due_ms
            message = Produce(0, 0, self._topic, self._queue, "none", self._topic_id, due_ms)
            if not self._connections.tell(endpoint, message, [batch.encoded]):
                self._connections.when_open(endpoint, self.pump)
                return
            self._waiting.popleft()
            self._buffer.free(batch.size)
            batch.encoded = b""
            batch.resolve(-1)
            if not self._waiting:
                self._take()

    def _moved(self) -> bool:
        try:
            endpoint = self._leaders.endpoint(self._topic, self._queue)
        except LogboomError:
            return True
        return endpoint is not None and endpoint != self._endpoint

    def _move(self, endpoint: str) -> None:
        """Send all batches in flight to the new leader; the old one's answers no longer count."""
        if endpoint == self._endpoint:
            return
        self._endpoint = endpoint
        for batch in self._in_flight:
            if batch.ticket is not None:
                batch.ticket.cancel()
                batch.ticket = None

    # Answers.

    def _answered(self, batch: ProducerBatch, reply: Reply) -> None:
        batch.ticket = None
        message, error = reply.message, reply.error
        self._probing = False
        if isinstance(message, Produced):
            self._in_flight.remove(batch)
            self._buffer.free(batch.size)
            batch.encoded = b""
            self._stored(batch, message)
            self._settle_hole()
            self.pump()
        elif isinstance(error, ProducerError):
            self._out_of_step(batch, error)
        elif error is None or self._leaders.learn(self._topic, self._queue, error):
            self._last_error = error
            self._probing = True
            if not self._moved():
                delay = backoff(batch.attempts, self._turn.rng)
                self._pause_for(max(delay, _quota_delay_s(error)))
            self.pump()
        else:
            # Its sequence is used and was not stored.
            self._in_flight.remove(batch)
            self._hole = True
            self._give_up(batch, error)
            self._settle_hole()
            self.pump()

    def _stored(self, batch: ProducerBatch, message: Produced) -> None:
        self._buffer.throttled_ms += message.throttled_ms
        if message.side < 0:
            batch.resolve(message.base_offset)
            return
        place = (message.base_offset, message.side, batch.due_ms, self._topic_id)
        batch.parked = Parking(self._topic, self._queue, *place)
        batch.resolve(-1)

    def _out_of_step(self, batch: ProducerBatch, error: ProducerError) -> None:
        """Handle a leader that misses an earlier batch, and therefore does not have this one.

        If an earlier batch is in flight, it is sent first and this one after it. Otherwise the
        leader's window does not know the end of our sequence, and this batch starts a new epoch.
        """
        if error.code == OUT_OF_ORDER and not self._hole and self._in_flight[0] is not batch:
            self._last_error = error
            self._probing = True
            self._pause_for(backoff(0, self._turn.rng))
            return
        self._hole = True
        self._in_flight.remove(batch)
        # Put it back in order; others of this sequence may be back already, before or behind it.
        place = sum(1 for other in self._waiting if other.order < batch.order)
        self._waiting.insert(place, batch)
        self._settle_hole()
        self.pump()

    def _settle_hole(self) -> None:
        """Start a new epoch, with sequence 0, once nothing is in flight any longer."""
        if self._hole and not self._in_flight:
            self._hole = False
            self._epoch += 1
            self._sequence = 0

    def _pause_for(self, delay: float) -> None:
        if self._pause is None:
            self._pause = self._turn.after(delay, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.pump()

    # Giving up.

    def _arm_expiry(self) -> None:
        first = min(batch.deadline for batch in (*self._in_flight, *self._waiting))
        self._expiry = self._turn.after(first - self._turn.now, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for batch in [p for p in self._in_flight if p.deadline <= self._turn.now]:
            # Its outcome will never be known, so its sequence must not be used again.
            self._in_flight.remove(batch)
            self._hole = True
            self._give_up(batch, self._timed_out(sent=True))
        for batch in [p for p in self._waiting if p.deadline <= self._turn.now]:
            self._waiting.remove(batch)
            self._give_up(batch, self._timed_out(sent=batch.attempts > 0))
        self._settle_hole()
        if not self.idle():
            self._arm_expiry()
        self.pump()

    def _timed_out(self, *, sent: bool) -> TimedOut:
        why = str(self._last_error) if self._last_error else "its leader did not answer"
        if self._connections.throttled_s(self._endpoint):
            why = "the user is over its quota there, so batches wait: send less, or raise the quota"
        seconds = f"{self._options.delivery_timeout_s:g} s"
        doubt = "it may still have been stored" if sent else "it was not stored"
        text = f"not acknowledged by {self._topic}/{self._queue} within {seconds}, {doubt}: {why}"
        return TimedOut(text, topic=self._topic, queue=self._queue, sent=sent)

    def _refuse(self, batch: ProducerBatch, error: LogboomError) -> None:
        """Give up a batch that cannot be encoded. If it was joined, each part is tried alone."""
        if not isinstance(batch, JoinedBatch):
            self._give_up(batch, error)
            return
        for part in reversed(batch.parts):
            part.enqueue(batch.order, part.born + self._options.delivery_timeout_s)
            self._waiting.appendleft(part)

    def _give_up(self, batch: ProducerBatch, error: LogboomError) -> None:
        if batch.ticket is not None:
            batch.ticket.cancel()
            batch.ticket = None
        self._buffer.free(batch.size)
        batch.encoded = b""
        batch.fail(error)


def _quota_delay_s(error: LogboomError | None) -> float:
    """Return for how many seconds a leader without room for delayed batches wants a pause."""
    delay_ms = error.fields.get("throttled_ms") if error is not None else None
    return min(delay_ms / 1000, LONGEST_PAUSE_S) if isinstance(delay_ms, int) else 0.0
