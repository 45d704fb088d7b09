"""Rolling restarts: of a group of eight (pauses, messages handled twice), and of a cluster (gaps)."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from logboom.client import Client, Message, PushConsumer
    from logboom.client.futures import SendFuture

QUEUES: Final = 16
MEMBERS: Final = 8
EVERY_S: Final = 0.01
"""Seconds between two messages of one queue."""
BEGUN_S: Final = 60.0
"""Seconds within which all members have their queues, and every queue its first message."""


class ArrivalLog:
    """The times at which messages arrived, by queue and member."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, tuple[float, int]] = {}
        self.seen: Counter[bytes | None] = Counter()
        self.stayed_s = 0.0
        """Longest time between two messages of a queue that stayed where it was."""
        self.moved_s = 0.0
        """The same for queues that moved."""

    @property
    def queues(self) -> int:
        """How many queues messages have arrived from."""
        return len(self._last)

    def listener(self, member: int) -> Callable[[Message], None]:
        """Return the listener of a member."""

        def listen(message: Message) -> None:
            now = time.monotonic()
            with self._lock:
                self.seen[message.value] += 1
                before, who = self._last.get(message.queue, (now, member))
                self._last[message.queue] = (now, member)
                if who == member:
                    self.stayed_s = max(self.stayed_s, now - before)
                else:
                    self.moved_s = max(self.moved_s, now - before)

        return listen


def restart_all(boom: Client, watch: ArrivalLog) -> int:
    """Close and replace eight members in turn while messages flow. Return how many were sent."""
    boom.admin.create_topic("rolling", queues=QUEUES)
    names = itertools.count()

    def begin() -> PushConsumer:
        listener = watch.listener(next(names))
        return boom.push_consumer("rolling", group="rolling", listener=listener, threads=2)

    members = [begin() for _ in range(MEMBERS)]
    if not ask_until(lambda: _share_evenly(members), bool, BEGUN_S):
        raise TimeoutError("the members do not share the queues")
    stop, sent = threading.Event(), 0

    def produce() -> None:
        nonlocal sent
        with boom.producer() as producer:
            while not stop.wait(EVERY_S):
                for queue in range(QUEUES):
                    producer.send("rolling", b"%d" % sent, queue=queue)
                    sent += 1

    sender = threading.Thread(target=produce)
    sender.start()
    ask_until(lambda: watch.queues, lambda heard: heard == QUEUES, BEGUN_S)
    for _ in range(MEMBERS):
        members.pop(0).close()
        members.append(begin())
        # The pause between members, as in an operator's rolling restart.
        time.sleep(0.3)
    stop.set()
    sender.join()
    ask_until(lambda: len(watch.seen), lambda seen: seen >= sent, 30.0)
    for member in members:
        member.close()
    return sent


def _share_evenly(members: list[PushConsumer]) -> bool:
    return all(len(member.queues) == QUEUES // MEMBERS for member in members)


class GapLog:
    """The longest times between two events of each queue."""

    def __init__(self) -> None:
        self._last: dict[int, float] = {}
        self.longest_s: dict[int, float] = {}
        """Queue → the longest."""

    def note(self, queue: int) -> None:
        """Note an event of a queue."""
        now = time.monotonic()
        gap = now - self._last.get(queue, now)
        self._last[queue] = now
        self.longest_s[queue] = max(gap, self.longest_s.get(queue, 0.0))


class SteadyLoad:
    """One producer and one consumer of all queues of a topic, until it is closed.

    Each queue gets a message every 10 ms, acknowledged by all replicas in sync, with the client's
    usual retries.
    """

    def __init__(self, boom: Client, topic: str) -> None:
        self.acked, self.read = GapLog(), GapLog()
        """Acknowledgements and arrivals."""
        self.errors: list[BaseException] = []
        self.sent = 0
        self._seen: Counter[bytes | None] = Counter()
        self._boom, self._topic = boom, topic
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    @property
    def lost(self) -> int:
        """How many of the messages that were sent have not arrived."""
        return self.sent - len(self._seen)

    @property
    def doubled(self) -> int:
        """How many arrived more than once."""
        return sum(times > 1 for times in self._seen.values())

    def await_flow(self, queues: int) -> None:
        """Wait until messages of so many queues were acknowledged and have arrived: by then the
        connections are open and the routes found.

        Raises:
            TimeoutError: they do not flow within a minute.
        """

        def flows() -> bool:
            return min(len(self.acked.longest_s), len(self.read.longest_s)) == queues

        if not ask_until(flows, bool, BEGUN_S):
            raise TimeoutError(f"messages do not flow in all {queues} queues: {self.errors[:1]}")

    def close(self) -> None:
        """Send no more, and wait until all have arrived, or for half a minute."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        with self._boom.producer(acks="all") as producer:
            while not self._stop.wait(EVERY_S):
                for queue in range(QUEUES):
                    sent = producer.send(self._topic, b"%d" % self.sent, queue=queue)
                    self.sent += 1
                    sent.add_done_callback(partial(self._acknowledged, queue))

    def _acknowledged(self, queue: int, sent: SendFuture) -> None:
        error = sent.exception()
        if error is None:
            self.acked.note(queue)
        else:
            self.errors.append(error)

    def _consume(self) -> None:
        with self._boom.consumer(self._topic, start="first") as consumer:
            over_at = float("inf")
            while not (self._stop.is_set() and not self.lost) and time.monotonic() < over_at:
                for message in consumer.poll(timeout_s=0.1):
                    self._seen[message.value] += 1
                    self.read.note(message.queue)
                if self._stop.is_set():
                    over_at = min(over_at, time.monotonic() + 30)


def roll_cluster() -> list[Figure]:
    """Restart the nodes of a cluster of 3 + 3 one by one under load; the longest gaps of a queue."""
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("rolled", queues=QUEUES, replicas=3)
        load = SteadyLoad(boom, "rolled")
        load.await_flow(QUEUES)
        begun = time.monotonic()
        cluster.roll()
        took = time.monotonic() - begun
        load.close()
    if load.errors or load.lost:
        raise RuntimeError(f"{len(load.errors)} errors, {load.lost} lost: {load.errors[:1]}")
    acked, read = (max(log.longest_s.values()) for log in (load.acked, load.read))
    return [
        Figure("cluster roll of 3 + 3 under load", took, "s"),
        Figure(
            "  … longest gap between acknowledgements of a queue", acked * 1000, "ms", 500, "less"
        ),
        Figure(
            "  … longest gap between messages read from a queue", read * 1000, "ms", 500, "less"
        ),
    ]


def rows() -> list[Figure]:
    """Return the longest pauses and gaps in ms, and the number of duplicates."""
    return [*restart_group(), *roll_cluster()]


def restart_group() -> list[Figure]:
    """Restart the members of a group one by one."""
    watch = ArrivalLog()
    with (
        Cluster(name_servers=3, brokers=1) as cluster,
        connect(cluster.endpoints) as boom,
    ):
        sent = restart_all(boom, watch)
    if len(watch.seen) != sent:
        raise RuntimeError(f"{sent - len(watch.seen)} of {sent} messages were not handled")
    doubles = sum(watch.seen.values()) - sent
    return [
        Figure("rolling restart of 8: messages handled twice", doubles, "", 0, "less"),
        Figure("  … longest pause of a queue that stays", watch.stayed_s * 1000, "ms"),
        Figure("  … longest pause of a queue that moves", watch.moved_s * 1000, "ms"),
    ]
