"""Queues that go from a member to another: after a kill, a restart, a leave; and no burst follows."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logboom.client import Client, GroupConsumer, Message, connect
from logboom.client.push_options import PushOptions
from logboom.deploy import Cluster, embedded
from logboom.wire.errors import GroupError
from tests.integration.waiting import wait_until
from tests.thorough import few_of

MEMBER = """
import sys
from logboom.client import connect
with connect(sys.argv[1]) as boom:
    consumer = boom.consumer(
        "t", group="g", instance=sys.argv[2], session_ms=8000, heartbeat_ms=1000, commit_every_s=0.1
    )
    for message in consumer:
        consumer.ack(message)
        print(message.queue, message.offset, flush=True)
"""
SESSION_S = 8.0
SETTINGS: dict[str, Any] = {"session_ms": 8_000, "heartbeat_ms": 1_000}
"""A member that does not run for a few seconds, as on a busy machine, keeps its queues."""
EXAMPLE = re.compile(r"^```python\n((?:(?!^```).)*?send_offsets.*?)^```", re.DOTALL | re.MULTILINE)
"""Consume, transform, produce, as CLIENT.md prints it."""
BUSY = 20.0
"""A machine that does other things as well may take so many times as long."""
QUEUES = 4
WINDOW, BATCH = 200, 50


@contextmanager
def member(cluster: Cluster, instance: str = "") -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which says what it gets; it is killed at the end."""
    command = [sys.executable, "-c", MEMBER, cluster.endpoints[0], instance]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[tuple[int, int]]:
    """(queue, offset) of the next `count` messages of a member; waits for them."""
    assert process.stdout is not None
    told = [process.stdout.readline().split() for _ in range(count)]
    return [(int(queue), int(offset)) for queue, offset in told]


def fill(boom: Client, queues: list[int], count: int) -> None:
    """So many messages to each of these queues, in batches of `BATCH` at most."""
    with boom.producer() as producer:
        for first in range(0, count, BATCH):
            for queue in queues:
                values = [b"x"] * min(BATCH, count - first)
                producer.send_many("t", values, queue=queue).result(200)


def committed(boom: Client) -> int:
    """Sum of the group's offsets in all queues."""
    return sum(offset or 0 for offset in boom.admin.committed("g", "t").values())


def shared(consumer: GroupConsumer) -> list[int]:
    """The queues of a member, once it has some but not all."""
    wait_until(lambda: 0 < len(consumer.queues) < QUEUES, "the queues are not shared")
    return [queue for _, queue in consumer.queues]


def test_a_killed_members_queues_are_delivered_by_another_after_its_session() -> None:
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("t", queues=QUEUES)
        every = list(range(QUEUES))
        fill(boom, every, 100)
        with member(cluster) as other, boom.consumer("t", group="g", **SETTINGS) as consumer:
            kept = shared(consumer)
            moving = [queue for queue in every if queue not in kept]
            taken: list[Message] = []
            first: dict[int, float] = {}

            def take() -> None:
                some = consumer.poll(100, 0.05)
                consumer.ack(some)
                taken.extend(some)
                for message in some:
                    if message.queue in moving:
                        first.setdefault(message.queue, time.monotonic())

            def all_is_committed() -> bool:
                take()
                return committed(boom) == QUEUES * 100

            wait_until(all_is_committed, "not everything was consumed")
            of_old, killed = len(taken), time.monotonic()
            first.clear()
            other.kill()
            fill(boom, every, 1)

            def all_have_come() -> bool:
                take()
                return len(taken) >= of_old + QUEUES

            wait_until(all_have_come, "the killed member's queues did not move")
        assert sorted(message.queue for message in taken[of_old:]) == every
        assert {message.offset for message in taken[of_old:]} == {100}, "no committed one again"
        waited = max(first.values()) - killed
        assert SESSION_S / 2 < waited < BUSY * (SESSION_S + 1), waited


def converting(cluster: Cluster, instance: str) -> list[str]:
    """The example of CLIENT.md as a command: it takes five messages at a time, its session is short."""
    page = Path(__file__).parents[3] / "docs" / "CLIENT.md"
    found = EXAMPLE.search(page.read_text("utf-8"))
    assert found is not None
    code = found.group(1).replace("127.0.0.1:7711", cluster.endpoints[0])
    for old, new in (
        ("poll(timeout_s=2)", "poll(5, timeout_s=10)"),
        ("commit_every_s=0", f"commit_every_s=0, instance={instance!r}, **{SETTINGS}"),
    ):
        assert code.count(old) == 1
        code = code.replace(old, new)
    return [sys.executable, "-W", "error", "-c", code]


@pytest.mark.parametrize("instance", few_of(["", "converter-1"], [""]))
def test_what_is_killed_and_started_again_at_once_converts_each_message_once(instance: str) -> None:
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        for topic in ("celsius", "fahrenheit"):
            boom.admin.create_topic(topic, queues=2)

        def send(first: int, end: int) -> None:
            with boom.producer() as producer:
                values = [b"%d" % n for n in range(first, end)]
                producer.send_many("celsius", values).result(200)

        send(0, 200)
        command = converting(cluster, instance)
        results: list[Message] = []
        with boom.consumer("fahrenheit") as consumer:
            with subprocess.Popen(command) as process:
                while len(results) < 20:
                    results += consumer.poll(timeout_s=5)
                process.kill()
            # However long it ran before the kill, something is left for the next one.
            send(200, 300)
            done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
            assert not done.stderr
            # Each process has sent three of its own before.
            wanted = [*range(300), 0, 100, 37, 0, 100, 37]
            while len(results) < len(wanted):
                some = consumer.poll(timeout_s=200)
                assert some, f"{len(results)} of {len(wanted)} came"
                results += some
            assert consumer.poll(timeout_s=0.5) == []
        converted = Counter(bytes(message.value or b"") for message in results)
        assert converted == Counter(b"%.1f" % (float(n) * 1.8 + 32) for n in wanted)


def test_a_static_member_keeps_its_queues_over_a_restart() -> None:
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("t", queues=QUEUES)
        with boom.consumer("t", group="g", **SETTINGS) as consumer:
            with member(cluster, "static-1"):
                kept = shared(consumer)
            with member(cluster, "static-1") as second:
                free = next(queue for queue in range(QUEUES) if queue not in kept)
                fill(boom, [free], 1)
                assert lines(second, 1) == [(free, 0)]
                assert [queue for _, queue in consumer.queues] == kept
                end = time.monotonic() + SESSION_S + 1.5
                while time.monotonic() < end:
                    assert [queue for _, queue in consumer.queues] == kept
                    consumer.poll(10, 0.1)


@pytest.mark.thorough
def test_two_processes_of_one_name_do_not_throw_each_other_out() -> None:
    with embedded() as node, connect(node.endpoints) as boom, connect(node.endpoints) as other:
        boom.admin.create_topic("t", queues=QUEUES)
        fill(boom, list(range(QUEUES)), 10)
        with (
            boom.consumer("t", group="g", instance="left", **SETTINGS) as older,
            other.consumer("t", group="g", instance="left", **SETTINGS) as newer,
        ):

            def told() -> bool:
                older.poll(1, 0.1)
                return False

            with pytest.raises(GroupError, match="instance 'left'") as caught:
                wait_until(told, "the older one is not told")
            assert caught.value.code == "INSTANCE_TAKEN"
            wait_until(lambda: len(newer.queues) == QUEUES, "the newer one has not all queues")
            (before,) = boom.admin.describe_group("g").members
            taken: list[Message] = []

            def all_came() -> bool:
                taken.extend(newer.poll(100, 0.1))
                return len(taken) == QUEUES * 10

            wait_until(all_came, "not everything was read")
            newer.ack(taken)
            (after,) = boom.admin.describe_group("g").members
            assert (after.id, after.epoch) == (newer.member_id, before.epoch)


def test_a_hand_over_brings_no_burst() -> None:
    most: Counter[tuple[str, int]] = Counter()
    go_on = threading.Event()

    def listener(message: Message) -> None:
        go_on.wait(200)
        for place, count in second.cached.items():
            most[place] = max(most[place], count)

    with embedded() as node, connect(node.endpoints) as boom:
        boom.admin.create_topic("t", queues=QUEUES)
        fill(boom, list(range(QUEUES)), 1_000)
        first = boom.consumer("t", group="g")
        wait_until(lambda: len(first.queues) == QUEUES, "a single member has not all queues")
        options = PushOptions(pull_threshold_for_queue=WINDOW)
        second = boom.push_consumer("t", group="g", listener=listener, options=options)
        try:
            wait_until(lambda: full(second.cached) >= 1, "nothing was handed over")
            first.close()
            wait_until(lambda: full(second.cached) == QUEUES, "the rest was not handed over")
            assert max(second.cached.values()) <= WINDOW + BATCH
            go_on.set()
            wait_until(lambda: second.handled == QUEUES * 1_000, "not everything was consumed")
        finally:
            go_on.set()
            second.close()
    assert sorted(most) == [("t", queue) for queue in range(QUEUES)]
    assert WINDOW < max(most.values()) <= WINDOW + BATCH


def full(cached: dict[tuple[str, int], int]) -> int:
    """How many queues have as much as they may have."""
    return sum(count > WINDOW for count in cached.values())
