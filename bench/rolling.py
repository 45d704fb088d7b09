"""A rolling restart of a group of eight: pauses of queues, and messages handled twice."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from bench.figures import Figure
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from logboom.client import Client, Message, PushConsumer

QUEUES: Final = 16
MEMBERS: Final = 8
EVERY_S: Final = 0.01
"""Seconds between two messages of one queue."""


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
    # The group runs steadily for a moment before the restart begins.
    time.sleep(1)
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


def rows() -> list[Figure]:
    """Return the longest pauses in ms, and the number of duplicates."""
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
