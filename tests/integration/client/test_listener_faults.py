"""Whatever a user's function raises, its message comes again, and the thread that ran it lives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logboom.client import App
from logboom.client.aio import connect as connect_async
from logboom.client.push_options import PushOptions
from logboom.client.results import Message
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from tests.integration.waiting import wait_until


class Hurry(BaseException):
    """A time-out, as gevent and trio have it."""


FAULTS = [KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError, Hurry]


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    with embedded() as made:
        yield made


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_message_whose_listener_raises_comes_again(
    node: Embedded, fault: type[BaseException], batch: int
) -> None:
    name = f"{fault.__name__}-{batch}"
    seen: list[bytes | None] = []

    def listener(given: Any) -> None:
        values = [each.value for each in (given if batch > 1 else [given])]
        seen.extend(values)
        if b"1" in values and seen.count(b"1") == 1:
            raise fault

    with node.connect() as boom:
        boom.admin.create_topic(name, 1, 1)
        with boom.producer() as producer:
            producer.send_many(name, [b"0", b"1", b"2"]).result(200)
        options: dict[str, Any] = {
            "orderly": True,
            "options": PushOptions(suspend_current_queue_ms=10),
        }
        boom.push_consumer(name, group=name, listener=listener, batch=batch, **options)
        wait_until(
            lambda: seen.count(b"1") >= 2 and b"2" in seen, f"it does not come again: {seen}"
        )


@pytest.mark.parametrize("fault", [asyncio.CancelledError, Hurry])
def test_a_message_whose_coroutine_raises_comes_again(
    node: Embedded, fault: type[BaseException]
) -> None:
    name = f"aio-{fault.__name__}"
    seen: list[bytes | None] = []

    async def main() -> None:
        done = asyncio.Event()

        async def listener(message: Message) -> None:
            seen.append(message.value)
            if message.value == b"1" and seen.count(b"1") == 1:
                raise fault
            if message.value == b"2":
                done.set()

        async with connect_async(node.endpoints) as boom:
            await boom.admin.create_topic(name, 1, 1)
            async with boom.producer() as producer:
                await producer.send_many(name, [b"0", b"1", b"2"])
            options: dict[str, Any] = {
                "orderly": True,
                "options": PushOptions(suspend_current_queue_ms=10),
            }
            async with boom.push_consumer(name, group=name, listener=listener, **options):
                await asyncio.wait_for(done.wait(), 200)

    asyncio.run(main())
    assert seen == [b"0", b"1", b"1", b"2"]


def test_a_check_that_raises_leaves_the_others_to_be_decided(node: Embedded) -> None:
    faults = {fault.__name__.encode(): fault for fault in FAULTS}
    asked: set[bytes] = set()

    def check(message: Message) -> str:
        name = bytes(message.value or b"")
        asked.add(name)
        if name in faults:
            raise faults[name]
        return "commit"

    with node.connect() as boom:
        boom.admin.create_topic("halves", 1, 1)
        with (
            boom.producer() as producer,
            producer.transactional_sender(group="till", check=check) as sender,
        ):
            for name in (*faults, b"paid"):
                sender.send("halves", name, local=lambda _: "unknown")
            wait_until(lambda: asked == {*faults, b"paid"}, f"only {asked} were asked about")
            wait_until(lambda: boom.admin.offsets("halves")[0][1] == 1, "none was decided")


def test_an_app_runs_in_another_thread(node: Embedded) -> None:
    app, seen = App(node.endpoints, create_topics=True), threading.Event()

    @app.subscriber("of-an-app", group="of-an-app")
    def handle(value: int) -> None:
        seen.set()

    with node.connect() as boom, ThreadPoolExecutor(1) as pool:
        boom.admin.create_topic("of-an-app", 1, 1)
        with boom.producer() as producer:
            producer.send("of-an-app", b"1").result(200)
        ran = pool.submit(app.run)
        wait_until(lambda: seen.is_set() or ran.done(), "it handles nothing")
        app.stop()
        ran.result(200)
    assert seen.is_set()


ENDS_EARLY = """
import sys
from logboom.client import connect
boom = connect(sys.argv[1])
producer = boom.producer(linger_ms=30_000)
producer.send(sys.argv[2], b"12345")
if sys.argv[2] == "flush":
    producer.flush()
if sys.argv[2] == "forgotten":
    del producer, boom
"""

LOOP_ENDS_EARLY = """
import asyncio, sys
from logboom.client import aio

async def main():
    boom = await aio.connect(sys.argv[1])
    producer = boom.producer(linger_ms=30_000)
    for n in range(3):
        producer.send(sys.argv[2], b"12345")
    match sys.argv[2]:
        case "topic-is-looked-up":
            await asyncio.sleep(0)
        case "buffered":
            await producer.wait_buffered()
        case "loop-flushes":
            await producer.flush()
        case "forgotten-by-a-loop":
            del producer, boom

asyncio.run(main())
"""
NOT_SENT = "3 sends wait for their topic, or for room in the buffer"
NOT_ACKNOWLEDGED = "sent messages are not acknowledged"


@pytest.mark.parametrize(
    ("program", "how", "told"),
    [
        (ENDS_EARLY, "not", NOT_ACKNOWLEDGED),
        (ENDS_EARLY, "forgotten", NOT_ACKNOWLEDGED),
        (ENDS_EARLY, "flush", ""),
        (LOOP_ENDS_EARLY, "at-once", NOT_SENT),
        (LOOP_ENDS_EARLY, "topic-is-looked-up", NOT_SENT),
        (LOOP_ENDS_EARLY, "forgotten-by-a-loop", NOT_SENT),
        (LOOP_ENDS_EARLY, "buffered", NOT_ACKNOWLEDGED),
        (LOOP_ENDS_EARLY, "loop-flushes", ""),
    ],
)
def test_a_program_that_ends_with_unsent_messages_is_told(
    node: Embedded, program: str, how: str, told: str
) -> None:
    with node.connect() as boom:
        boom.admin.create_topic(how, 1, 1)
        command = [sys.executable, "-c", program, node.endpoints[0], how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == bool(told), done.stderr
