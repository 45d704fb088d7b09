"""The client for asyncio, with the same names as the client for threads, `logboom.client`.

    from logboom.client.aio import connect

    async with connect("127.0.0.1:7711") as boom:
        await boom.admin.create_topic("flights", queues=8)
        async with boom.producer() as producer:
            sent = await producer.send("flights", b"...", key=b"UA")
        async with boom.consumer("flights", start="first") as consumer:
            async for message in consumer:
                ...

`send` returns an awaitable at once and keeps the order of its calls, so many messages may be in
flight at a time:
`await asyncio.gather(*[producer.send("flights", value) for value in values])`.
"""

from logboom.client.aio.admin import Admin
from logboom.client.aio.app import App
from logboom.client.aio.client import Client, connect
from logboom.client.aio.consumer import Consumer
from logboom.client.aio.futures import ManyFuture
from logboom.client.aio.group_consumer import GroupConsumer
from logboom.client.aio.producer import Producer
from logboom.client.aio.push_consumer import PushConsumer
from logboom.client.aio.subscription_consumer import SubscriptionConsumer
from logboom.client.aio.transaction import Transaction
from logboom.client.aio.transactional_sender import TransactionalSender

__all__ = [
    "Admin",
    "App",
    "Client",
    "Consumer",
    "GroupConsumer",
    "ManyFuture",
    "Producer",
    "PushConsumer",
    "SubscriptionConsumer",
    "Transaction",
    "TransactionalSender",
    "connect",
]
