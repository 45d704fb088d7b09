"""The asyncio twin, against an embedded node."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from logboom.client.aio import Client, connect
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import ClientClosed, InvalidRequest, TimedOut, UnknownResource


def test_send_and_read(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            await boom.admin.create_topic("aio", queues=1)
            async with boom.producer() as producer:
                first = await producer.send("aio", b"0", key=b"k", tag="t", timestamp_ms=5)
                assert (first.queue, first.offset, first.timestamp_ms) == (0, 0, 5)
                sent = [producer.send("aio", b"%d" % n) for n in range(1, 500)]
                results = await asyncio.gather(*sent)
                assert [result.offset for result in results] == list(range(1, 500))
                assert await producer.send_many("aio", [b"x"] * 100) == [(0, 500, 100)]
            seen = []
            async with boom.consumer("aio") as consumer:
                async for message in consumer:
                    seen.append(message.value)
                    if len(seen) == 500:
                        break
                assert seen == [b"%d" % n for n in range(500)]
                assert consumer.position("aio", 0) == 500
                assert len(await consumer.poll(1_000, 200)) == 100

    asyncio.run(main())


def test_a_wrong_send_that_waits_for_its_topic_fails_alone(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            await boom.admin.create_topic("waits", queues=1)
            async with boom.producer() as producer:
                values: Any = (value for value in [b"no column"])
                wrong = producer.send_many("waits", values)
                right = producer.send("waits", b"v")
                with pytest.raises(TypeError, match="generator"):
                    await asyncio.wait_for(wrong, 200)
                assert (await asyncio.wait_for(right, 200)).offset == 0

    asyncio.run(main())


def test_a_reader_is_woken_by_what_is_sent_later(node: Embedded) -> None:
    async def main() -> None:
        boom = await connect(node.endpoints)
        await boom.admin.create_topic("woken", queues=1)
        consumer, producer = boom.consumer("woken"), boom.producer()
        reading = asyncio.create_task(consumer.poll(10, 200))
        await asyncio.sleep(0.2)
        await producer.send("woken", b"x")
        assert [m.value for m in await reading] == [b"x"]
        await boom.close()
        await boom.close()

    asyncio.run(main())


def test_pull_columns_seek_pause(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            await boom.admin.create_topic("places", queues=1)
            async with boom.producer() as producer:
                await producer.send_many("places", [b"%d" % n for n in range(10)])
            result = await boom.pull("places", 0, 4, max_messages=2)
            assert [m.value for m in result.messages] == [b"4", b"5"]
            async with boom.consumer("places") as consumer:
                (batch,) = await consumer.poll_columns(200)
                assert len(batch) == 10
                await consumer.seek("places", 0, 7)
                assert [m.value for m in await consumer.poll(1, 200)] == [b"7"]
                await consumer.pause("places", 0)
                assert await consumer.poll(10, 0.2) == []
                await consumer.resume("places", 0)
                assert [m.value for m in await consumer.poll(10, 200)] == [b"8", b"9"]
            assert await boom.admin.offsets("places") == {0: (0, 10)}
            assert (await boom.admin.describe_topic("places")).name == "places"

    asyncio.run(main())


def test_errors_are_raised_where_they_are_awaited(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            producer = boom.producer()
            with pytest.raises(UnknownResource):
                await producer.send("never-made", b"x")
            with pytest.raises(UnknownResource):
                await boom.consumer("never-made").poll()
            await boom.admin.create_topic("small", queues=1, max_message_bytes=100)
            with pytest.raises(InvalidRequest, match="at most 100"):
                await producer.send("small", bytes(101))
            await producer.send("small", b"good")
        with pytest.raises(ClientClosed):
            await producer.send("small", b"late")
        with pytest.raises(ClientClosed):
            await boom.admin.topics()
        with pytest.raises(TimedOut):
            await connect("127.0.0.1:1", timeout_s=0.3)

    asyncio.run(main())


def test_a_full_buffer_takes_longer_and_keeps_the_order(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            await boom.admin.create_topic("aio-full", queues=1)
            async with boom.producer(buffer_bytes=20_000, max_batch_bytes=10_000) as producer:
                sent = [producer.send("aio-full", b"%04d" % n + bytes(200)) for n in range(1_000)]
                await producer.flush()
                assert [(await one).offset for one in sent] == list(range(1_000))
            seen: list[bytes] = []
            async with boom.consumer("aio-full") as consumer:
                while len(seen) < 1_000:
                    seen += [(m.value or b"")[:4] for m in await consumer.poll(1_000, 10)]
            assert seen == [b"%04d" % n for n in range(1_000)]

    asyncio.run(main())


def test_a_cancelled_wait_leaves_all_else_alive(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            await boom.admin.create_topic("cancelled", queues=1)
            async with boom.consumer("cancelled") as consumer, boom.producer() as producer:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await consumer.poll(1, 30)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await boom.pull("cancelled", 0, 0, wait_ms=30_000)
                await producer.send("cancelled", b"x")
                assert [m.value for m in await consumer.poll(1, 200)] == [b"x"]

    asyncio.run(main())


def test_nothing_is_left_behind(node: Embedded) -> None:
    async def main() -> Client:
        async with connect(node.endpoints) as boom:
            boom.producer()
            boom.consumer("never-opened")
        return boom

    asyncio.run(main())
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name == "logboom-client"]


def test_queues_that_were_added_can_be_named_at_once(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom, connect(node.endpoints) as other:
            await boom.admin.create_topic("grew", queues=1)
            async with other.producer() as producer:
                await producer.send("grew", b"0")
                for count in range(2, 8):
                    await boom.admin.alter_topic("grew", queues=count)
                    assert (await producer.send("grew", b"x", queue=count - 1)).queue == count - 1
                with pytest.raises(UnknownResource, match="has queues 0 to 6, not 7"):
                    await producer.send("grew", b"x", queue=7)

    asyncio.run(main())
