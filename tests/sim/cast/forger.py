"""A user who may read and write everything, and sends batches with the producer ids of others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from logboom.wire.batch import encode_batch, validate_batch
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.head import BatchHead, sequence_after
from logboom.wire.messages import AnyMessage, Produce, Produced, Pull, Pulled
from tests.sim.cast.wire_client import WireClient
from tests.sim.world.trace import BrokenProperty, Trace

IDS: Final = "nobody sends in the name of another"
REST_S: Final = 0.3
ANSWER_S: Final = 1.5


class Forger(WireClient):
    """Reads who has written, and goes on in that producer's name."""

    def __init__(
        self, name: str, endpoints: Sequence[str], rng: random.Random, trace: Trace
    ) -> None:
        super().__init__(name, endpoints, rng)
        self._trace = trace
        self._working = False

    def start(self) -> None:
        """Begin; called through a `Call`."""
        self._working = True
        self._rest()

    def stop(self) -> None:
        """Begin nothing new."""
        self._working = False

    def _rest(self) -> None:
        self.later(self.rng.expovariate(1 / REST_S), self._look)

    def _look(self) -> None:
        """Read from anywhere in a queue, and forge what comes after it."""
        if not self._working:
            return
        self._rest()
        topic = self.rng.choice(sorted(self.routes.topics) or [""])
        leader = self.routes.leader(topic, 0)
        if leader is None:
            return
        endpoint = leader[1]

        def answered(
            answer: AnyMessage | None, batches: Sequence[Frame], _error: LogboomError | None
        ) -> None:
            if isinstance(answer, Pulled) and batches:
                self._forge(endpoint, topic, validate_batch(batches[-1]))

        offset = self.rng.choice((0, self.rng.randrange(200)))
        pull = Pull(0, int(ANSWER_S * 1000), topic, 0, offset, 65_536, 0)
        self.request(endpoint, pull, answered, ANSWER_S)

    def _forge(self, endpoint: str, topic: str, head: BatchHead) -> None:
        if head.producer_id < 0:
            return
        epoch, sequence = head.producer_epoch, sequence_after(head.base_sequence, head.count)
        if self.rng.random() < 0.5:
            epoch, sequence = epoch + 1, 0
        batch = encode_batch(
            [b"forged"],
            now_ms=self.now.wall_ms,
            producer_id=head.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

        def answered(
            answer: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if isinstance(answer, Produced):
                raise BrokenProperty(IDS, f"{topic}: producer {head.producer_id}, epoch {epoch}")
            if error is not None and error.code == "FORBIDDEN":
                self._trace.count("forgeries refused")

        self.request(
            endpoint, Produce(0, int(ANSWER_S * 1000), topic, 0, "all"), answered, ANSWER_S, [batch]
        )
