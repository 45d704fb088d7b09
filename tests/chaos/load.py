"""Producers and readers at work on a cluster that is being broken, and what they may object to.

Every value is unique: `<producer>/<number>`. Producers are idempotent and send with acks=all; each
of the readers reads every queue from its first offset. At the end all that was acknowledged must
have been read by each, once, in the order of its producer, at the offset that was acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from typing import TYPE_CHECKING, Final

from logboom.client import SendFuture, connect
from logboom.wire.errors import LogboomError

if TYPE_CHECKING:
    from logboom.deploy import Cluster

QUEUES: Final = 4
PACE_S: Final = 0.002
DRAIN_S: Final = 60.0


@dataclass(slots=True)
class Sent:
    """One value on its way."""

    queue: int
    value: bytes
    future: SendFuture


@dataclass(slots=True)
class Verdict:
    """What was found; every list is empty when the promises held."""

    acked: int = 0
    errors: list[str] = field(default_factory=list)
    lost: list[bytes] = field(default_factory=list)
    doubled: list[bytes] = field(default_factory=list)
    reordered: list[bytes] = field(default_factory=list)
    phantoms: list[bytes] = field(default_factory=list)
    moved: list[bytes] = field(default_factory=list)
    """Read at another offset than was acknowledged, or by two readers at two offsets."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """(queue, offset) that did not follow on what was read before."""
    longest_pause_s: float = 0.0
    """Longest time in which no value of some queue was acknowledged."""

    @property
    def clean(self) -> bool:
        """Whether every promise held."""
        found = (self.errors, self.lost, self.doubled, self.reordered, self.phantoms)
        return not any(found) and not self.moved and not self.gaps


class Producer(threading.Thread):
    """Sends to all queues in turn until told to stop."""

    def __init__(self, cluster: Cluster, topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._cluster, self._topic = cluster, topic
        self._stop_asked = threading.Event()
        self.sent: list[Sent] = []
        self.acked_at: dict[int, list[float]] = {queue: [] for queue in range(QUEUES)}
        self.errors: list[str] = []

    def run(self) -> None:
        """Send, and wait for every outcome at the end."""
        with connect(self._cluster.endpoints) as boom, boom.producer(acks="all") as producer:
            for number in count():
                if self._stop_asked.is_set():
                    break
                queue, value = number % QUEUES, b"%s/%d" % (self.name.encode(), number)
                future = producer.send(self._topic, value, queue=queue)
                future.add_done_callback(partial(self._acked, queue))
                self.sent.append(Sent(queue, value, future))
                time.sleep(PACE_S)
            for sent in self.sent:
                try:
                    sent.future.result(DRAIN_S)
                except LogboomError as error:
                    self.errors.append(f"{sent.value!r}: {error}")

    def _acked(self, queue: int, _: object) -> None:
        self.acked_at[queue].append(time.monotonic())

    def end(self) -> None:
        """Stop sending and wait for the outcomes."""
        self._stop_asked.set()
        self.join(2 * DRAIN_S)
        if self.is_alive():
            self.errors.append(f"{self.name} did not end")


class Reader(threading.Thread):
    """Reads every queue from its first offset."""

    def __init__(self, cluster: Cluster, topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._cluster, self._topic = cluster, topic
        self._stop_asked = threading.Event()
        self.read: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
        self.gaps: list[tuple[int, int]] = []

    def run(self) -> None:
        """Read until told to stop."""
        with (
            connect(self._cluster.endpoints) as boom,
            boom.consumer(self._topic, queues=list(range(QUEUES)), start="first") as consumer,
        ):
            while not self._stop_asked.is_set():
                for message in consumer.poll(5_000, 0.2):
                    seen = self.read[message.queue]
                    if message.offset != len(seen):
                        self.gaps.append((message.queue, message.offset))
                    seen.append(message.value or b"")

    def await_values(self, wanted: int) -> None:
        """Wait until it has read so many, or nothing comes any more."""
        end = time.monotonic() + DRAIN_S
        while sum(map(len, self.read.values())) < wanted and time.monotonic() < end:
            time.sleep(0.05)
        # What was doubled would come now.
        time.sleep(1.0)
        self._stop_asked.set()
        self.join(DRAIN_S)


class Load:
    """Producers and readers of one topic, while the caller breaks the cluster."""

    def __init__(self, cluster: Cluster, topic: str, producers: int = 3, readers: int = 2) -> None:
        """Create the topic and begin."""
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic(topic, queues=QUEUES, replicas=3)
        self._producers = [Producer(cluster, topic, f"producer-{n}") for n in range(producers)]
        self._readers = [Reader(cluster, topic, f"reader-{n}") for n in range(readers)]
        for thread in (*self._producers, *self._readers):
            thread.start()

    def finish(self) -> Verdict:
        """End the producers, let the readers catch up, and judge."""
        for producer in self._producers:
            producer.end()
        sent = [one for producer in self._producers for one in producer.sent]
        for reader in self._readers:
            reader.await_values(len(sent))
        verdict = judge(sent, [reader.read for reader in self._readers])
        verdict.errors += [error for producer in self._producers for error in producer.errors]
        verdict.gaps += [gap for reader in self._readers for gap in reader.gaps]
        verdict.longest_pause_s = max(
            longest_pause(sorted(at for p in self._producers for at in p.acked_at[queue]))
            for queue in range(QUEUES)
        )
        return verdict


def longest_pause(times: list[float]) -> float:
    """Longest time between two in a row."""
    return max((b - a for a, b in pairwise(times)), default=0.0)


def judge(sent: list[Sent], readings: list[dict[int, list[bytes]]]) -> Verdict:
    """Hold what each reader saw against what was sent and acknowledged."""
    verdict = Verdict()
    queue_of = {one.value: one.queue for one in sent}
    acked = {
        one.value: one.future.result(0).offset
        for one in sent
        if one.future.done() and one.future.exception() is None
    }
    verdict.acked = len(acked)
    for reading in readings:
        times = Counter(value for values in reading.values() for value in values)
        verdict.lost += [value for value in acked if value not in times]
        verdict.doubled += [value for value, number in times.items() if number > 1]
        for queue, values in reading.items():
            latest: dict[bytes, int] = {}
            for offset, value in enumerate(values):
                if queue_of.get(value) != queue:
                    verdict.phantoms.append(value)
                    continue
                if acked.get(value, offset) != offset:
                    verdict.moved.append(value)
                producer, _, number = value.rpartition(b"/")
                if int(number) <= latest.get(producer, -1):
                    verdict.reordered.append(value)
                latest[producer] = int(number)
    return verdict
