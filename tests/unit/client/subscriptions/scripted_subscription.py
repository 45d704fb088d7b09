"""Leaders by script that serve one shared subscription, "s" of topic "t", queue by queue."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from logboom.client.calls import FindTopic
from logboom.client.promise import Promise
from logboom.client.results import Message
from logboom.client.subscriptions.subscriber_reader import SubscriberReader
from logboom.client.subscriptions.subscriber_state import (
    CloseSubscriber,
    FlushSubscriber,
    OpenSubscriber,
    SubscriberOptions,
    SubscriberState,
)
from logboom.wire.base import WireMessage
from logboom.wire.batch import open_batch
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, Failure, Ok
from logboom.wire.subscription_messages import (
    Delivered,
    Detach,
    Receive,
    Settled,
    SettleMessages,
    Span,
    Start,
    Subscribe,
    Subscribed,
    SubscriptionConfig,
)
from tests.unit.client.scripted import Cluster

SHARED = SubscriptionConfig(kind="shared")


@dataclass
class ServedQueue:
    """What a queue's leader knows of the subscription."""

    begin: int
    """Where it began."""
    sessions: dict[str, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    held: dict[int, str] = field(default_factory=dict)


class SubscriptionCluster(Cluster):
    """Nodes of a script with one topic, "t"."""

    def __init__(self, seed: int = 1, queues: int = 1) -> None:
        super().__init__(seed)
        self.add_topic("t", queues)
        self.served: dict[int, ServedQueue] = {}
        """Queue → the subscription, where it exists."""
        self.begun: list[tuple[int, Start]] = []
        """(queue, start) as it was created, in order."""
        self.refused: set[int] = set()
        """Offsets that leaders refuse to settle, whoever has them."""
        self._receiving: list[tuple[float, str, Receive]] = []

    def fail_over(self, queue: int) -> None:
        """The leader forgets who holds what, as its successor does."""
        served = self.served[queue]
        served.sessions.clear()
        served.held.clear()

    def _reply(
        self, endpoint: str, message: AnyMessage, batches: Sequence[Frame]
    ) -> tuple[WireMessage | None, Sequence[Frame]]:
        kinds = (Subscribe, Receive, SettleMessages, Detach)
        if not isinstance(message, kinds):
            return super()._reply(endpoint, message, batches)
        log = self._leads(endpoint, message.topic, message.queue)
        if isinstance(log, Failure):
            return log, ()
        if isinstance(message, Subscribe):
            return self._subscribe(message), ()
        served = self.served.get(message.queue)
        if served is None or served.sessions.get(message.consumer) != message.session:
            return Failure(0, "UNKNOWN_CONSUMER", "subscribe again", retryable=False), ()
        if isinstance(message, Receive):
            self._receiving.append((self.now + message.wait_ms / 1000, endpoint, message))
            return None, ()
        if isinstance(message, SettleMessages):
            return Settled(0, self._settle(served, message)), ()
        self._let_go(served, message.consumer)
        return Ok(0), ()

    def _subscribe(self, message: Subscribe) -> WireMessage:
        served = self.served.get(message.queue)
        if served is None:
            if not message.create:
                return Failure(0, "UNKNOWN_SUBSCRIPTION", "no such", retryable=False)
            end = self.log("t", message.queue).end
            begin = end if message.start == "last" else 0
            served = self.served[message.queue] = ServedQueue(begin)
            self.begun.append((message.queue, message.start))
        self._let_go(served, message.consumer)
        served.sessions[message.consumer] = message.session
        return Subscribed(0, served.begin)

    def _let_go(self, served: ServedQueue, consumer: str) -> None:
        served.sessions.pop(consumer, None)
        served.held = {n: who for n, who in served.held.items() if who != consumer}

    def _settle(self, served: ServedQueue, message: SettleMessages) -> list[Span]:
        refused: list[Span] = []
        for start, stop in message.acked:
            for offset in range(start, stop):
                mine = served.held.get(offset) == message.consumer
                if offset in self.refused or not (mine or offset in served.acked):
                    refused.append((offset, offset + 1))
                    continue
                served.acked.add(offset)
                served.held.pop(offset, None)
        for start, stop, _ in message.again:
            refused += [
                (offset, offset + 1)
                for offset in range(start, stop)
                if offset in self.refused or served.held.pop(offset, None) is None
            ]
        return refused

    def _answer_holds(self) -> None:
        super()._answer_holds()
        for item in list(self._receiving):
            until, endpoint, message = item
            served = self.served.get(message.queue)
            if served is None or served.sessions.get(message.consumer) != message.session:
                answer: WireMessage = Failure(
                    message.id, "UNKNOWN_CONSUMER", "subscribe again", retryable=False
                )
                frames: list[bytes] = []
            else:
                chosen, frames = self._unheld(served, message)
                if not frames and until > self.now:
                    continue
                answer = Delivered(message.id, chosen, [], active=True)
            self._receiving.remove(item)
            if endpoint not in self.dead:
                self._answer(endpoint, answer, frames)

    def _unheld(self, served: ServedQueue, message: Receive) -> tuple[list[bytes], list[bytes]]:
        chosen: list[bytes] = []
        frames: list[bytes] = []
        for entry in self.log("t", message.queue).entries:
            columns = open_batch(entry)
            bits = 0
            for place in range(len(columns)):
                offset = columns.base_offset + place
                if offset >= served.begin and offset not in served.acked | served.held.keys():
                    bits |= 1 << place
                    served.held[offset] = message.consumer
            if bits:
                chosen.append(bits.to_bytes(-(-len(columns) // 8), "little"))
                frames.append(entry)
        return chosen, frames

    def run(self, seconds: float, until: Any = lambda: False) -> bool:
        """As `Cluster.run`, in steps that notice the script's changes."""
        end = self.now + seconds
        while self.now < end:
            if super().run(min(0.05, end - self.now), until):
                return True
        return bool(until())


class Consumer:
    """A consumer of the subscription, and its caller."""

    def __init__(
        self,
        cluster: SubscriptionCluster,
        start: Start = "last",
        *,
        config: SubscriptionConfig = SHARED,
        name: str = "me",
        timeout: float = 30.0,
    ) -> None:
        self.cluster = cluster
        found = FindTopic("t", 5.0)
        cluster.call(found)
        assert cluster.run(5, lambda: found.outcome.done)
        options = SubscriberOptions("t", "s", name, config, start=start)
        self.state = SubscriberState(options, lambda: None, threading.RLock())
        self.reader = SubscriberReader(self.state, cluster.call)
        self.opening = OpenSubscriber(self.state, timeout)
        cluster.call(self.opening)

    def opened(self) -> Consumer:
        """Wait until it is attached to all queues."""
        assert self.cluster.run(40, lambda: self.opening.outcome.done)
        self.opening.outcome.get()
        return self

    def read(self, count: int, seconds: float = 15.0) -> list[Message]:
        """The next `count` messages; fewer if they do not come."""
        taken: list[Message] = []

        def enough() -> bool:
            taken.extend(self.reader.take(count - len(taken)))
            return len(taken) == count

        self.cluster.run(seconds, enough)
        return taken

    def flush(self, seconds: float = 20.0) -> Promise[None]:
        """A flush that has ended, or was given `seconds`."""
        call = FlushSubscriber(self.state, 30.0)
        self.cluster.call(call)
        self.cluster.run(seconds, lambda: call.outcome.done)
        return call.outcome

    def close(self, timeout: float = 5.0) -> float:
        """Close; the seconds that it took."""
        begun = self.cluster.now
        call = CloseSubscriber(self.state, timeout)
        self.cluster.call(call)
        assert self.cluster.run(timeout + 10, lambda: call.outcome.done)
        return self.cluster.now - begun
