"""`logboom.client`'s own core at work: a producer and a reader, fed by `Call`s as the API feeds it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from logboom.client.core import ClientConfig, ClientCore
from logboom.client.fetch.fetch_buffer import FetchBuffer, OpenFetch, QueueFetch, WakeFetch
from logboom.client.producer_options import ProducerOptions
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.send_buffer import OpenProducer, OpenTopic, SendBuffer
from logboom.wire.actor import Call, Effects, Event, Instant
from logboom.wire.messages import Acks
from tests.sim.judges.history import History, Queue

NEVER = 1e6
"""Seconds: longer than any run."""
RETRY_S = 0.2
BATCH_BYTES = 1024
SHARE_BYTES = 2_000
"""Of a queue that may wait unread: little, so that reading stalls and goes on."""


class ApiClient:
    """A `ClientCore` and what the API would do with it: a `Core` for a simulated process."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        history: History,
        queues: Sequence[Queue],
        acks: Acks = "all",
    ) -> None:
        """With other acks than all it only produces, and may lose what it sends."""
        self.name = name
        self._reads = acks == "all"
        self._history = history
        self._queues = list(queues)
        self._now = Instant(0.0, 0)
        self._calls: list[Call] = []
        self._retries: list[tuple[float, str]] = []
        self._waiting: list[tuple[Queue, list[bytes]]] = []
        self._config = ClientConfig(tuple(endpoints), name)
        self._rng = rng
        self._core: ClientCore | None = None
        options = ProducerOptions(acks, delivery_timeout_s=NEVER, max_batch_bytes=BATCH_BYTES)
        self._buffer: SendBuffer[None] = SendBuffer(
            options, _no_future, nullcontext(), lambda: self._now.mono, _ignore
        )
        self._inbox = FetchBuffer(1 << 20, _ignore)
        self._fetches: dict[Queue, QueueFetch] = {}

    # -- the core ---------------------------------------------------------------------------

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn of the core, then of the API's threads."""
        self._now = now
        if self._core is None:
            self._core = ClientCore(self._config, self._rng, now)
            self._begin()
        while self._retries and self._retries[0][0] <= now.mono:
            self._open_topic(self._retries.pop(0)[1])
        own = [event for event in events if isinstance(event, Call)]
        for call in own:
            call.request()
        calls, self._calls = self._calls, []
        others = [event for event in events if not isinstance(event, Call)]
        effects = self._core.handle([*others, *calls], now)
        self._take_arrivals()
        return effects

    def deadline(self) -> float | None:
        """At once if the API asked for something."""
        if self._calls or self._core is None:
            return self._now.mono
        wanted = [self._core.deadline(), *(at for at, _ in self._retries)]
        return min((at for at in wanted if at is not None), default=None)

    def _begin(self) -> None:
        opened = OpenProducer(self._buffer, NEVER)
        opened.outcome.add_callback(self._open_topics)
        self._calls.append(Call(opened))

    # -- producing --------------------------------------------------------------------------

    def send(self, queue: Queue, values: list[bytes]) -> None:
        """Send values to a queue; called through a `Call`."""
        for value in values:
            self._history.send(queue, value)
        self._waiting.append((queue, values))
        self._send_waiting()

    def _open_topics(self) -> None:
        for topic in sorted({queue.topic for queue in self._queues}):
            self._open_topic(topic)

    def _open_topic(self, topic: str) -> None:
        call = OpenTopic(self._buffer, topic, NEVER)

        def opened() -> None:
            if call.outcome.error is not None:
                # Not created yet: the API would raise, and its user try again.
                self._retries.append((self._now.mono + RETRY_S, topic))
                return
            self._send_waiting()
            for queue in self._queues if self._reads else ():
                if queue.topic == topic:
                    fetch = QueueFetch(topic, queue.number, "first", self._inbox, SHARE_BYTES)
                    self._fetches[queue] = fetch
                    self._calls.append(Call(OpenFetch(fetch)))

        call.outcome.add_callback(opened)
        self._calls.append(Call(call))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for queue, values in waiting:
            if queue.topic not in self._buffer.topics:
                self._waiting.append((queue, values))
                continue
            start = 0
            for pile in self._buffer.send_many(queue.topic, list(values), queue=queue.number):
                part = values[start : start + len(pile.values)]
                start += len(part)
                pile.add_callback(self._outcome(queue, pile, part))

    def _outcome(
        self, queue: Queue, pile: ProducerBatch, values: list[bytes]
    ) -> Callable[[], None]:
        def done() -> None:
            if pile.error is not None:
                for value in values:
                    self._history.fail(value, str(pile.error))
                return
            for place, value in enumerate(values):
                self._history.ack(value, queue, pile.get() + place)

        return done

    # -- reading ----------------------------------------------------------------------------

    def _take_arrivals(self) -> None:
        while self._inbox.arrivals:
            arrival = self._inbox.arrivals.popleft()
            queue = Queue(arrival.fetch.topic, arrival.fetch.queue)
            fetch = arrival.fetch
            if arrival.error is not None or arrival.columns is None:
                continue
            columns = arrival.columns
            first = columns.base_offset
            place = self._history.place(self.name, queue)
            if first != place and (fetch.corrections or queue.topic in self._history.kept_bytes):
                self._history.illegal(self.name, queue, place, first)
            values = columns.values()
            messages = [(first + n, bytes(value or b"")) for n, value in enumerate(values)]
            self._history.read(self.name, queue, messages)
            fetch.consumed += arrival.size
            if fetch.stalled:
                self._calls.append(Call(WakeFetch(fetch)))


def _no_future(_batch: ProducerBatch, _place: int) -> None:
    return None


def _ignore() -> None:
    return None
