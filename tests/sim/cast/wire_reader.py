"""A reader on the wire: long polls every queue from offset 0 and checks every answer (Q8)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from logboom.wire.batch import open_batch, validate_batch
from logboom.wire.errors import DamagedBatch, LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, Offsets, OffsetsResult, Pull, Pulled
from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty

WAIT_MS: Final = 1_000
ANSWER_S: Final = 2.0
RETRY_S: Final = (0.05, 0.4)
"""A reader waits this long after an error: twice as long each time, until it reads again."""
ASK_END_S: Final = 1.0
TAKES_ALL: Final = "* WHERE _timestamp >= 0 OR KEYS IS NULL OR KEYS IS NOT NULL"


class WireReader(WireClient):
    """Reads all queues it is given, each from 0."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        history: History,
        queues: Sequence[Queue],
        anywhere: bool = False,
    ) -> None:
        """`anywhere`: it asks followers too."""
        super().__init__(name, endpoints, rng)
        self._anywhere = anywhere
        self._history = history
        self._queues = list(queues)
        self._begun: set[Queue] = set()
        self._rests: dict[Queue, float] = {}

    def changed(self, topics: Sequence[str]) -> None:
        """Begin with queues that are known now."""
        for queue in self._queues:
            if queue.topic in topics and queue not in self._begun:
                self._begun.add(queue)
                self._pull(queue)
                self._ask_end(queue)

    def _whom(self, queue: Queue) -> str | None:
        """Endpoint of a broker that may answer pulls."""
        if self._anywhere and self.rng.random() < 0.7:
            names = self.routes.queue(*queue).replicas
            brokers = [self.routes.brokers[name] for name in names if name in self.routes.brokers]
            return self.rng.choice(brokers).endpoint if brokers else None
        leader = self.routes.leader(*queue)
        return leader[1] if leader is not None else None

    def _pull(self, queue: Queue) -> None:
        endpoint = self._whom(queue)
        if endpoint is None:
            self._rest(queue)
            return
        offset = self._history.place(self.name, queue)

        def answered(
            message: AnyMessage | None, batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if isinstance(message, Pulled):
                self._rests.pop(queue, None)
                self._pulled(queue, offset, message, batches)
                self._pull(queue)
            else:
                assert error is not None, message
                if not error.retryable:
                    raise BrokenProperty("pulls succeed", f"{self.name} {queue} {offset}: {error}")
                self._rest(queue)

        size = self.rng.choice((1, 4096, 1 << 20))
        # Every other pull by a filter that takes everything: what it judges must not be less.
        wanted = TAKES_ALL if offset % 2 else ""
        message = Pull(0, 2_000, *queue, offset, size, WAIT_MS, filter=wanted)
        self.request(endpoint, message, answered, ANSWER_S)

    def _rest(self, queue: Queue) -> None:
        rest = self._rests.get(queue, RETRY_S[0])
        self._rests[queue] = min(2 * rest, RETRY_S[1])
        self.later(rest * self.rng.uniform(0.5, 2), lambda: self._pull(queue))

    def _pulled(self, queue: Queue, offset: int, message: Pulled, batches: Sequence[Frame]) -> None:
        if message.status == "OFFSET_ILLEGAL":
            self._history.illegal(self.name, queue, offset, message.next_offset)
            return
        if message.status == "FOUND" and not batches:
            raise BrokenProperty("FOUND has batches", f"{queue} {offset}")
        self._history.tell(queue, message.max_offset)
        if any(message.matches or ()):
            raise BrokenProperty("a filter that takes all judges so", f"{queue} {message}")
        messages: list[tuple[int, bytes]] = []
        for batch in batches:
            try:
                columns = open_batch(batch, validate_batch(batch)).from_offset(offset)
            except DamagedBatch as error:
                text = f"{self.name} {queue} {offset}: {error}"
                raise BrokenProperty("nothing damaged is served", text) from error
            first = columns.base_offset
            messages += [(first + n, value or b"") for n, value in enumerate(columns.values())]
        if messages and messages[-1][0] >= message.max_offset:
            raise BrokenProperty(
                "readers see what lies below the HW", f"{queue} {messages[-1][0]}: {message}"
            )
        self._history.read(self.name, queue, messages)

    def _ask_end(self, queue: Queue) -> None:
        leader = self.routes.leader(*queue)
        self.later(ASK_END_S, lambda: self._ask_end(queue))
        if leader is None:
            return
        asked_at = self._history.least_end(queue)

        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], _error: LogboomError | None
        ) -> None:
            if isinstance(message, OffsetsResult):
                self._history.end(self.name, queue, message.offsets[0][1], asked_at)

        self.request(leader[1], Offsets(0, 500, queue.topic, [queue.number]), answered, 0.5)
