"""An idempotent producer on the wire: numbered batches, five in flight per queue, all retried."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from logboom.wire.batch import encode_batch
from logboom.wire.commands import AllocateProducerIds, CommandResult
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import Acks, AnyMessage, Produce, Produced
from logboom.wire.parking import AT_ONCE
from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty

IN_FLIGHT: Final = 5
ANSWER_S: Final = 3.0
RETRY_S: Final = (0.05, 0.8)
"""A lane rests this long after an error: twice as long each time, until something is acked."""


@dataclass(slots=True, eq=False)
class _Batch:
    values: list[bytes]
    sequence: int
    due_ms: int = AT_ONCE
    encoded: bytes = b""
    tries: int = 0
    asked: bool = False
    """Whether an answer to the newest try is awaited."""
    endpoint: str = ""
    """Of the newest try."""
    acked: bool = False
    """It stays in its lane until all before it are acked too: the five in flight are in a row."""


@dataclass(slots=True, eq=False)
class _Lane:
    """What waits for one queue, in order."""

    queue: Queue
    batches: deque[_Batch] = field(default_factory=deque)
    next_sequence: int = 0
    resting: bool = False
    """Whether all must wait a little after an error."""
    probing: bool = False
    """The last answer was an error: the first goes alone until it is acked."""
    rest_s: float = RETRY_S[0]


class WireProducer(WireClient):
    """Sends with acks=all until each batch is acknowledged."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        history: History,
        acks: Acks = "all",
    ) -> None:
        super().__init__(name, endpoints, rng)
        self._history = history
        self._acks: Acks = acks
        self._lanes: dict[Queue, _Lane] = {}
        self._producer_id: int | None = None
        self._asked_id = False

    def send(self, queue: Queue, values: list[bytes], due_ms: int = AT_ONCE) -> None:
        """Append one batch, perhaps one that waits; called through a `Call`."""
        lane = self._lanes.setdefault(queue, _Lane(queue))
        lane.batches.append(_Batch(values, lane.next_sequence, due_ms))
        lane.next_sequence += len(values)
        for value in values:
            self._history.send(queue, value)
        self._fill(lane)

    def changed(self, topics: Sequence[str]) -> None:
        """Send again what was sent to a leader of before: its answers say nothing any more."""
        for lane in self._lanes.values():
            if lane.queue.topic in topics:
                leader = self.routes.leader(*lane.queue)
                for batch in lane.batches:
                    if batch.asked and leader is not None and batch.endpoint != leader[1]:
                        batch.asked = False
                        batch.tries += 1
                self._fill(lane)

    def _fill(self, lane: _Lane) -> None:
        if self._producer_id is None:
            if not self._asked_id:
                self._asked_id = True
                self.propose(AllocateProducerIds(1), self._identified)
            return
        if lane.queue.topic not in self.routes.topics or lane.resting:
            return
        leader = self.routes.leader(*lane.queue)
        if leader is None:
            return
        for batch in list(islice(lane.batches, 1 if lane.probing else IN_FLIGHT)):
            if not batch.asked and not batch.acked:
                self._post(lane, batch, leader[1])

    def _identified(self, result: CommandResult) -> None:
        assert isinstance(result.value, int), result
        self._producer_id = result.value
        for lane in self._lanes.values():
            self._fill(lane)

    def _post(self, lane: _Lane, batch: _Batch, endpoint: str) -> None:
        assert self._producer_id is not None
        batch.asked = True
        batch.endpoint = endpoint
        batch.tries += 1
        number = batch.tries

        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if batch.tries == number and not batch.acked:
                self._answered(lane, batch, message, error)

        batch.encoded = batch.encoded or encode_batch(
            self.bodies_of(batch.values),
            self.keys_of(batch.values),
            now_ms=self._time_of(batch),
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )
        wait_ms = int(ANSWER_S * 1000)
        message = Produce(0, wait_ms, lane.queue.topic, lane.queue.number, self._acks)
        message.due_ms = batch.due_ms
        self.request(endpoint, message, answered, ANSWER_S, [batch.encoded])

    def _time_of(self, batch: _Batch) -> int:
        """Return the time of a batch: of some in the past, of a few far in the future."""
        # Dice of their own: all else that a seed does stays as it was.
        dice = random.Random(f"time of {self.name} {batch.values[0]!r}")
        now_ms = self.now.wall_ms
        wrong = (max(0, now_ms - dice.randrange(60_000)), now_ms * 1_000)
        return dice.choices((now_ms, *wrong), weights=(80, 15, 5))[0]

    def _answered(
        self, lane: _Lane, batch: _Batch, message: AnyMessage | None, error: LogboomError | None
    ) -> None:
        if isinstance(message, Produced):
            batch.acked = True
            lane.probing = False
            lane.rest_s = RETRY_S[0]
            while lane.batches and lane.batches[0].acked:
                lane.batches.popleft()
            self.stored(lane.queue, batch.values, message)
            self._fill(lane)
            return
        batch.asked = False
        assert error is not None, message
        first = lane.batches[0] is batch
        if not error.retryable and (first or error.code != "OUT_OF_ORDER_SEQUENCE"):
            raise BrokenProperty(
                "retries succeed", f"{self.name} {lane.queue} batch {batch.sequence}: {error}"
            )
        lane.probing = True
        if not lane.resting:
            lane.resting = True
            self.later(lane.rest_s * self.rng.uniform(0.5, 2), lambda: self._rested(lane))
            lane.rest_s = min(2 * lane.rest_s, RETRY_S[1])

    def keys_of(self, values: Sequence[bytes]) -> list[bytes | None] | None:
        """Keys of a batch that is sent; None: it has none."""
        return None

    def bodies_of(self, values: Sequence[bytes]) -> Sequence[bytes | None]:
        """What a batch carries for the values that are sent; None: a tombstone."""
        return values

    def stored(self, queue: Queue, values: list[bytes], answer: Produced) -> None:
        """A batch was acknowledged."""
        for place, value in enumerate(values):
            self._history.ack(value, queue, answer.base_offset + place)

    def _rested(self, lane: _Lane) -> None:
        lane.resting = False
        self._fill(lane)
