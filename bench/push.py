"""Messages per second that a push consumer delivers to a listener that does nothing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from bench import load
from bench.figures import Figure, compared
from bench.references import MOVED, PYTHON, ROUND_TRIP_THRICE
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.client import Client, Message

QUEUES: Final = 4
SINGLE: Final = 0.43
BATCHES: Final = 0.12
COMMIT: Final = 17.0


class Tally:
    """A count of messages from any number of threads, which reports when all have arrived."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._counts: dict[int, int] = {}
        self.all_came = threading.Event()

    def add(self, count: int) -> None:
        """Add `count` messages that the calling thread received."""
        me = threading.get_ident()
        self._counts[me] = self._counts.get(me, 0) + count
        if sum(self._counts.values()) >= self._wanted:
            self.all_came.set()

    @property
    def total(self) -> int:
        """The number of messages received."""
        return sum(self._counts.values())


def fill(boom: Client, topic: str, items: Sequence[bytes]) -> None:
    """Create a topic with the items in it, 1,000 per batch."""
    boom.admin.create_topic(topic, queues=QUEUES, replicas=1)
    with boom.producer() as producer:
        for number, chunk in enumerate(load.chunks(items)):
            producer.send_many(topic, chunk, queue=number % QUEUES)


def single(boom: Client, topic: str, count: int) -> float:
    """Return messages per second to a listener of single messages that does nothing."""

    def listener(message: Message) -> None:
        return None

    began = time.monotonic()
    with boom.push_consumer(topic, group=f"{topic}-single", listener=listener) as consumer:
        # It polls rarely, so that it does not take time from the measured work.
        handled = ask_until(lambda: consumer.handled, lambda handled: handled >= count, 120, 0.005)
        if handled < count:
            raise TimeoutError(f"{handled} of {count} messages were handled")
        return count / (time.monotonic() - began)


def batches(boom: Client, topic: str, count: int) -> float:
    """Return messages per second to a listener of lists."""
    tally = Tally(count)

    def listener(messages: list[Message]) -> None:
        tally.add(len(messages))

    began = time.monotonic()
    group = f"{topic}-batches"
    with boom.push_consumer(topic, group=group, listener=listener, batch=1_000):
        if not tally.all_came.wait(120):
            raise RuntimeError(f"only {tally.total} of {count} messages came")
        return count / (time.monotonic() - began)


def commits(boom: Client, topic: str) -> float:
    """Return the median ms of a synchronous commit."""
    times = []
    with boom.consumer(topic, group=f"{topic}-commits", commit_every_s=0) as consumer:
        for _ in range(200):
            consumer.ack(consumer.poll(1, timeout_s=10))
            began = time.monotonic()
            consumer.commit(sync=True)
            times.append(time.monotonic() - began)
    return sorted(times)[len(times) // 2] * 1000


def rows(count: int, rounds: int) -> list[Figure]:
    """Return the figures of push consumers, and of commits with three name servers."""
    items = load.values(count)
    with Cluster(name_servers=3, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        for number in range(rounds):
            fill(boom, f"push-{number}", items)
        (one,) = PYTHON.beside(rounds, lambda n: [single(boom, f"push-{n}", count)])
        (many,) = MOVED.beside(rounds, lambda n: [batches(boom, f"push-{n}", count)])
        (commit,) = ROUND_TRIP_THRICE.beside(rounds, lambda n: [commits(boom, f"push-{n}")])
    return [
        compared("push consumer, listener that does nothing", one, "msg/s", SINGLE),
        compared("push consumer, listener of batches", many, "msg/s", BATCHES),
        compared("commit(sync=True), 3 name servers, p50", commit, "ms", COMMIT, "less"),
    ]
