"""Transactions over a network that loses what it likes: each is published whole, once, or not at all."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.client.flows import Flow
from logboom.client.send.send_buffer import SendBuffer
from logboom.client.transactions.transaction_work import TransactionWork
from logboom.wire.errors import LogboomError, TimedOut
from logboom.wire.messages import AnyMessage, Failure, Produce, Propose
from logboom.wire.transactions import AwaitDecided
from tests.thorough import examples
from tests.unit.client.scripted import BROKERS, WALL_MS, Cluster
from tests.unit.client.send.test_queue_sender import Sent
from tests.unit.client.transactions.test_transactions import Desk, drive, published

QUEUES = 3
WEATHER = (0.0, 0.2, 0.6, 0.9, 1.0)
"""Shares of messages that are lost."""
LOST = (Produce, Propose, AwaitDecided)


class Storm:
    """One client, one application after the other, on a network that gets worse and better."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(seed)
        self.cluster.add_topic("t", queues=QUEUES)
        self.desk = Desk(self.cluster, delivery_timeout_s=20)
        self.loss = 0.0
        self.sent: dict[int, list[bytes]] = {}
        """What each transaction sent, by the place in `works`."""
        self.works: list[TransactionWork] = []
        self.ends: dict[int, str] = {}
        self.cluster.intercept = self._meet

    def _meet(self, _: str, message: AnyMessage) -> Failure | bool | None:
        if not isinstance(message, LOST) or self.rng.random() >= self.loss:
            return None
        return self.rng.choice((True, False, Failure(0, "BUSY", "later", retryable=True)))

    def run(self) -> None:
        """Some transactions in foul weather; what is left in doubt is settled in fair weather."""
        for number in range(self.rng.randrange(2, 6)):
            self.loss = 0.0
            work, buffer = self.desk.begin(app_id=self.rng.choice(("a", "b")))
            self.works.append(work)
            self.sent[number] = []
            self.loss = self.rng.choice(WEATHER)
            self._send(number, buffer)
            if self.rng.random() < 0.5:  # all is parked, and then the weather changes
                self.loss = self.rng.choice(WEATHER[:3])
                self.cluster.run(10)
                self.loss = self.rng.choice(WEATHER)
            self._end(number, work)
        self.loss = 0.0
        for number, work in enumerate(self.works):
            if self.ends[number] == "unknown":
                self._end(number, work)
        self.cluster.run(30)
        self._check()

    def _send(self, number: int, buffer: SendBuffer[Sent]) -> None:
        for n in range(self.rng.randrange(6)):
            value = b"%d.%d" % (number, n)
            buffer.send("t", value, queue=self.rng.randrange(QUEUES))
            self.sent[number].append(value)
            if self.rng.random() < 0.3:
                self.cluster.run(self.rng.random() * 3)
            if self.rng.random() < 0.1:
                self.cluster.move("t", self.rng.randrange(QUEUES), self.rng.choice(BROKERS))

    def _end(self, number: int, work: TransactionWork) -> None:
        commits = self.rng.random() < 0.7
        flow: Flow[None] = work.commit(WALL_MS, 15) if commits else work.abort(WALL_MS, 15)
        caught: LogboomError | None = None
        try:
            drive(self.cluster, flow)
        except LogboomError as error:
            caught = error
        assert work.over
        assert not work.duplicate
        if caught is None:
            assert work.state == ("committed" if commits else "aborted")
        elif isinstance(caught, TimedOut) and "decided" not in caught.fields:
            assert work.state in ("unknown", "aborted")
        else:
            assert work.state == "committed"
        self.ends[number] = work.state

    def _check(self) -> None:
        wanted = Counter(
            value
            for number, end in self.ends.items()
            if end == "committed"
            for value in self.sent[number]
        )
        assert Counter(published(self.cluster)) == wanted
        for log in self.cluster.topics["t"]:
            values = [value for value in log.values() if value is not None]
            keys = [tuple(map(int, value.split(b"."))) for value in values]
            for number in {key[0] for key in keys}:
                own = [key for key in keys if key[0] == number]
                assert own == sorted(own)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 1 << 32))
def test_each_is_published_whole_once_or_not_at_all(seed: int) -> None:
    Storm(seed).run()
