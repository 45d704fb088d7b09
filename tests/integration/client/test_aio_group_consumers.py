"""Consumers of groups in an event loop: the same as with threads."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from logboom.client import Context, Later, Message
from logboom.client.aio import Client, connect
from logboom.deploy import embedded
from logboom.wire.errors import ClientClosed, GroupError, UnknownResource


async def fill(boom: Client, first: int, count: int) -> None:
    values = [b"%06d" % n for n in range(first, first + count)]
    async with boom.producer() as producer:
        await producer.send_many("t", values, keys=values)


def number(message: Message) -> int:
    return int(message.value or b"-1")


async def until(condition: Callable[[], object], seconds: float = 200.0) -> None:
    """Wait for a condition; fail if it does not come."""

    def wait() -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come"
            # Any condition at all: what makes it true tells nobody.
            time.sleep(0.005)

    await asyncio.to_thread(wait)


def on_a_node(test: Callable[[Client], Awaitable[None]]) -> None:
    """Run a test with a client of an embedded node."""

    async def run(endpoints: list[str]) -> None:
        async with connect(endpoints) as boom:
            await boom.admin.create_topic("t", queues=4)
            await test(boom)

    with embedded() as node:
        asyncio.run(run(node.endpoints))


def test_a_group_goes_on_where_it_was() -> None:
    async def test(boom: Client) -> None:
        await fill(boom, 0, 500)
        seen: list[int] = []
        async with boom.consumer("t", group="g") as consumer:
            async for message in consumer:
                consumer.ack(message)
                seen.append(number(message))
                if len(seen) == 200:
                    break
            await consumer.commit(sync=True)
        async with boom.consumer("t", group="g") as consumer:
            while len(seen) < 500:
                messages = await consumer.poll(100, 5)
                consumer.ack(messages)
                seen += map(number, messages)
            assert await consumer.poll(1, 0.3) == []
            await consumer.seek("t", 0, 0)
            (message,) = await consumer.poll(1, 200)
            assert (message.queue, message.offset) == (0, 0)
            consumer.nack(message, delay_s=0)
            while message.attempt == 1:
                (message,) = await consumer.poll(1, 200)
                consumer.ack(message)
            assert (message.queue, message.offset, message.attempt) == (0, 0, 2)
            await consumer.pause("t", 0)
            await consumer.resume("t", 0)
        with pytest.raises(ClientClosed):
            await consumer.poll(1)
        assert sorted(seen) == list(range(500))

    on_a_node(test)


def test_columns_are_acknowledged_whole() -> None:
    async def test(boom: Client) -> None:
        await fill(boom, 0, 500)
        count = 0
        async with boom.consumer("t", group="g") as consumer:
            while count < 500:
                batches = await consumer.poll_columns(5)
                consumer.ack(batches)
                count += sum(map(len, batches))
            await consumer.commit()
            assert sum(consumer.committed("t", queue) for _, queue in consumer.queues) == 500

    on_a_node(test)


def test_push_with_coroutines() -> None:
    async def test(boom: Client) -> None:
        await fill(boom, 0, 400)
        attempts: Counter[int] = Counter()
        running = most = 0

        async def listener(message: Message, context: Context) -> object:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.002)
            running -= 1
            attempts[number(message)] += 1
            if number(message) == 7 and message.attempt == 1:
                raise ValueError("not now")
            assert not context.cancelled
            return Later(0.01) if number(message) == 9 and message.attempt < 3 else None

        async with boom.push_consumer(
            "t", group="g", listener=listener, threads=8, retry="exponential", retry_first_ms=10
        ) as consumer:
            await until(lambda: sum(attempts.values()) == 403)
            assert len(consumer.queues) == 4
        assert (attempts[7], attempts[9], most) == (2, 3, 8)
        async with boom.consumer("t", group="g") as rest:
            assert await rest.poll(1, 0.5) == []

    on_a_node(test)


def test_orderly_and_by_batches() -> None:
    async def test(boom: Client) -> None:
        await fill(boom, 0, 400)
        seen: dict[int, list[int]] = {queue: [] for queue in range(4)}

        async def listener(message: Message) -> bool:
            await asyncio.sleep(0)
            seen[message.queue].append(message.offset)
            return True

        async with boom.push_consumer("t", group="g", listener=listener, orderly=True):
            await until(lambda: sum(map(len, seen.values())) == 400)
        assert all(offsets == list(range(len(offsets))) for offsets in seen.values())
        sizes: list[int] = []

        def batch_listener(messages: list[Message]) -> None:
            sizes.append(len(messages))

        async with boom.push_consumer("t", group="h", listener=batch_listener, batch=50):
            await until(lambda: sum(sizes) == 400)
        assert max(sizes) == 50

    on_a_node(test)


def test_errors_come_with_open() -> None:
    async def test(boom: Client) -> None:
        with pytest.raises(UnknownResource):
            await boom.consumer("nothing", group="g").open()
        async with boom.consumer("t", group="g", tags="a"):
            with pytest.raises(GroupError, match="replace"):
                await boom.push_consumer("t", group="g", listener=print).open()

    on_a_node(test)


def test_who_polls_no_more_loses_its_queues_until_it_polls_again() -> None:
    async def test(boom: Client) -> None:
        await fill(boom, 0, 40)
        async with boom.consumer("t", group="g", max_poll_interval_ms=1_000) as hung:
            assert await hung.wait_assigned()
            some = await hung.poll(10, 200)
            hung.ack(some)
            await until(lambda: not hung.queues)
            assert await hung.wait_assigned()
            await until(lambda: not hung.queues)
            with pytest.raises(GroupError, match="the next poll joins again"):
                await hung.commit()
            seen = {number(message) for message in some}
            committed = 0
            while committed < 40:
                some = await hung.poll(40, 1.0)
                hung.ack(some)
                seen |= {number(message) for message in some}
                # On a busy machine a second may pass before the commit, too.
                with suppress(GroupError):
                    await hung.commit()
                offsets = await boom.admin.committed("g", "t")
                committed = sum(offset or 0 for offset in offsets.values())
            assert seen == set(range(40))

    on_a_node(test)
