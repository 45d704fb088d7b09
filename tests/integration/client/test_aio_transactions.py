"""The asyncio twins of transactions, half messages, parking and deciding."""

from __future__ import annotations

import asyncio
import gc

import pytest

from logboom.client import Message
from logboom.client.aio import Client, Producer, connect
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import (
    ClientClosed,
    InvalidRequest,
    Refused,
    TransactionError,
    UnknownResource,
)


async def values(boom: Client, topic: str) -> list[bytes | None]:
    """All that can be read, queue by queue."""
    found: list[bytes | None] = []
    for queue, (at, end) in (await boom.admin.offsets(topic)).items():
        while at < end:
            result = await boom.pull(topic, queue, at, max_messages=1_000)
            found += [message.value for message in result.messages]
            at = result.next_offset
    return found


def test_commit_and_abort(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom, boom.producer() as producer:
            await boom.admin.create_topic("aio", queues=2)
            async with producer.transaction("app") as txn:
                sent = [txn.send("aio", b"%d" % n, queue=n % 2) for n in range(6)]
                many = txn.send_many("aio", [b"x"] * 3, queue=1)
            assert (await sent[0]).offset == -1
            assert await many == [(1, -1, 3)]
            assert await values(boom, "aio") == [b"0", b"2", b"4", b"1", b"3", b"5", *[b"x"] * 3]
            with pytest.raises(TransactionError):
                txn.send("aio", b"late")
            with pytest.raises(KeyError):
                await fail(producer)
            again = await producer.transaction("app", 0)
            assert again.duplicate
            assert (await again.send("aio", b"again")).offset == -1
            assert await again.send_many("aio", [b"again"]) == [(-1, -1, 1)]
            await again.commit()
            with pytest.raises(InvalidRequest):
                await producer.transaction("app", -1)
            left = await producer.transaction("app")
            left.send("aio", b"left open")
            with pytest.raises(InvalidRequest, match="is open"):
                await producer.transaction("app")
            await producer.close()
            with pytest.raises(TransactionError):
                await left.commit()
            with pytest.raises(ClientClosed):
                producer.transaction("app")
            assert len(await values(boom, "aio")) == 9

    async def fail(producer: Producer) -> None:
        async with producer.transaction("app") as txn:
            txn.send("aio", b"no")
            raise KeyError

    asyncio.run(main())


def test_a_send_that_fails_unseen_spoils_the_commit(node: Embedded) -> None:
    unseen: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        async with connect(node.endpoints) as boom, boom.producer() as producer:
            await boom.admin.create_topic("spoiled", queues=1)
            txn = await producer.transaction()
            txn.send("spoiled", b"fine")
            txn.send("no-such-topic", b"lost")
            with pytest.raises(UnknownResource):
                await txn.commit()
            assert await values(boom, "spoiled") == []

    asyncio.run(main())
    gc.collect()
    assert unseen == [], "the commit has told: no future is to complain once more"


def test_a_newer_client_fences(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom, connect(node.endpoints) as other:
            await boom.admin.create_topic("fence", queues=1)
            async with boom.producer() as older, other.producer() as newer:
                txn = await older.transaction("one")
                txn.send("fence", b"old")
                async with newer.transaction("one") as winner:
                    winner.send("fence", b"new")
                with pytest.raises(Refused):
                    await txn.commit()
            assert await values(boom, "fence") == [b"new"]

    asyncio.run(main())


def test_offsets_go_with_it(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom, boom.producer() as producer:
            await boom.admin.create_topic("in", queues=1)
            await boom.admin.create_topic("out", queues=1)
            await producer.send_many("in", [b"%d" % n for n in range(10)])
            async with boom.consumer("in", group="aio-mover", commit_every_s=0) as consumer:
                moved = 0
                while moved < 10:
                    messages = await consumer.poll(4, 200)
                    async with producer.transaction("aio-mover") as txn:
                        for message in messages:
                            txn.send("out", message.value)
                        txn.send_offsets(consumer, messages)
                    moved += len(messages)
            assert await values(boom, "out") == [b"%d" % n for n in range(10)]
            assert (await boom.admin.committed("aio-mover", "in"))[0] == 10

    asyncio.run(main())


def test_park_and_decide(node: Embedded) -> None:
    async def main() -> None:
        async with connect(node.endpoints) as boom:
            await boom.admin.create_topic("sink", queues=2)
            parts = [
                boom.park([("sink", queue, [b"%d" % queue] * 2)], "aio-job", 5, 1)
                for queue in range(2)
            ]
            handles = [handle for part in await asyncio.gather(*parts) for handle in part]
            assert (await boom.decide("aio-job", 1, handles)).outcome == "commit"
            assert await values(boom, "sink") == [b"0", b"0", b"1", b"1"]
            with pytest.raises(TransactionError):
                await boom.park([("sink", 0, [b"late"])], "aio-job", 5, 1)

    asyncio.run(main())


@pytest.mark.thorough
def test_half_messages(node: Embedded) -> None:
    async def main() -> None:
        asked: asyncio.Queue[Message] = asyncio.Queue()

        async def check(message: Message) -> str:
            await asked.put(message)
            return "commit"

        async def local(message: Message) -> str:
            await asyncio.sleep(0)
            return "rollback" if message.value == b"no" else "commit"

        async with connect(node.endpoints) as boom, boom.producer() as producer:
            await boom.admin.create_topic("halves", queues=1)
            async with producer.transactional_sender(group="aio-shop", check=check) as sender:
                assert (await sender.send("halves", b"yes", local=local)).outcome == "committed"
                assert (await sender.send("halves", b"no", local=local)).outcome == "aborted"
                await sender.send("halves", b"doubt", local=lambda message: "unknown", key=b"k")
                message = await asyncio.wait_for(asked.get(), 200)
                assert (message.value, message.key, message.offset) == (b"doubt", b"k", -1)
                consumer = boom.consumer("halves")
                async with asyncio.timeout(200):
                    assert [(await anext(aiter(consumer))).value for _ in range(2)] == [
                        b"yes",
                        b"doubt",
                    ]
                await consumer.close()
            with pytest.raises(ClientClosed):
                await sender.send("halves", b"late", local=local)

    asyncio.run(main())
