"""A group of eight on a real cluster: rolling restarts and fail-overs give nothing twice."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.errors import LogboomError

QUEUES = 16
SETTINGS: dict[str, Any] = {"session_ms": 60_000, "heartbeat_ms": 1_000}
"""Members end in good order alone. A busy machine must end no session: then messages come twice."""


class Crew:
    """Members in threads; all that they were given, and when."""

    def __init__(self, endpoints: list[str]) -> None:
        self.endpoints = endpoints
        self.seen: Counter[tuple[int, int]] = Counter()
        self.longest: dict[int, float] = defaultdict(float)
        """Queue → longest time between two messages for the same member, in seconds."""
        self.moves = 0
        self._last: dict[int, tuple[int, float]] = {}
        self._lock = threading.Lock()
        self._members: dict[int, tuple[threading.Thread, threading.Event]] = {}
        self._numbers = count()
        self.errors: list[LogboomError] = []
        self.joined = 0

    def start(self) -> int:
        """One more member; its number."""
        number, stop = next(self._numbers), threading.Event()
        thread = threading.Thread(target=self._run, args=(number, stop))
        self._members[number] = (thread, stop)
        thread.start()
        return number

    def end(self, number: int) -> None:
        """A member leaves in good order."""
        thread, stop = self._members.pop(number)
        stop.set()
        thread.join(200)
        assert not thread.is_alive()

    @property
    def members(self) -> list[int]:
        """Numbers of those that are there."""
        return list(self._members)

    def _run(self, number: int, stop: threading.Event) -> None:
        try:
            self._consume(number, stop)
        except LogboomError as error:
            self.errors.append(error)

    def _consume(self, number: int, stop: threading.Event) -> None:
        with (
            connect(self.endpoints) as boom,
            boom.consumer("t", group="crew", **SETTINGS) as consumer,
        ):
            self.joined += 1
            while not stop.is_set():
                messages = consumer.poll(500, 0.1)
                now = time.monotonic()
                with self._lock:
                    for message in messages:
                        self._see(number, message.queue, message.offset, now)
                consumer.ack(messages)

    def _see(self, number: int, queue: int, offset: int, now: float) -> None:
        self.seen[queue, offset] += 1
        member, at = self._last.get(queue, (number, now))
        if member == number:
            self.longest[queue] = max(self.longest[queue], now - at)
        else:
            self.moves += 1
        self._last[queue] = (number, now)


def until(condition: Callable[[], object], seconds: float = 200.0) -> None:
    """Wait for a condition; fail if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        # Any condition at all: what makes it true tells nobody.
        time.sleep(0.01)


def test_restarts_and_fail_overs_under_a_group_of_eight_double_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("t", queues=QUEUES, replicas=3)
        crew = Crew(cluster.endpoints)
        stop, sent = threading.Event(), [0]

        def produce() -> None:
            with boom.producer() as producer:
                while not stop.is_set():
                    for queue in range(QUEUES):
                        producer.send("t", b"%d" % sent[0], queue=queue)
                        sent[0] += 1
                    # A steady load, not as much as goes.
                    time.sleep(0.01)

        def caught_up() -> bool:
            return len(crew.seen) >= sent[0]

        producing = threading.Thread(target=produce)
        producing.start()
        gaps: dict[str, float] = {}

        def step(what: str) -> None:
            before = sent[0]
            until(lambda: len(crew.seen) >= before or crew.errors)
            assert crew.errors == []
            gaps[what] = max(crew.longest.values(), default=0.0)
            crew.longest.clear()

        try:
            for _ in range(8):
                crew.start()
            until(lambda: crew.joined == 8 or crew.errors)
            step("eight members join")
            for number in crew.members:
                crew.end(number)
                crew.start()
                step("rolling restart")
            coordinator = boom.admin.describe_group("crew").coordinator
            cluster.stop(coordinator)
            step("the coordinator stops")
            cluster.start(coordinator)
            coordinator = boom.admin.describe_group("crew").coordinator
            cluster.kill(coordinator)
            step("the coordinator is killed")
            cluster.start(coordinator)
            leader = cluster.raft_leader(200.0)
            cluster.kill(leader)
            step("the raft leader is killed")
            cluster.start(leader)
        finally:
            stop.set()
            producing.join(200)
            assert not producing.is_alive()
            until(lambda: caught_up() or crew.errors)
            for number in crew.members:
                crew.end(number)
        assert crew.errors == []
        assert [where for where, times in crew.seen.items() if times > 1] == []
        assert len(crew.seen) == sent[0]
        with capsys.disabled():
            sys.stderr.write(
                f"\n{sent[0]} messages, {crew.moves} moves, nothing twice; longest gap of a queue "
                f"that stayed: { {what: round(gap, 2) for what, gap in gaps.items()} } s\n"
            )
