"""The logboom client: `connect`, then producers, consumers and `admin`.

    from logboom.client import connect

    with connect("127.0.0.1:7711") as boom:
        boom.admin.create_topic("flights", queues=8)
        with boom.producer() as producer:
            producer.send("flights", b"...", key=b"UA").result()

`logboom.client.aio` is the client for asyncio. All errors derive from LogboomError, and are defined
in `logboom.wire.errors`.
"""

from logboom.client.app import App
from logboom.client.client import Client, connect
from logboom.client.consumer import Consumer
from logboom.client.delays import Parking, delay_level
from logboom.client.futures import ManyFuture, SendFuture
from logboom.client.group_consumer import GroupConsumer
from logboom.client.producer import Producer
from logboom.client.push.listener_task import Context, Dead, Done, Later
from logboom.client.push_consumer import PushConsumer
from logboom.client.push_options import PushOptions
from logboom.client.results import ColumnBatch, Message, NodeStats, PullResult, SendResult
from logboom.client.subscription_consumer import SubscriptionConsumer
from logboom.client.transaction import Transaction
from logboom.client.transactional_sender import TransactionalSender
from logboom.client.transactions.decisions import Decision, ParkedHandle
from logboom.client.transactions.half_messages import HalfSendResult, Resolution
from logboom.wire.errors import LogboomError, RetryableError
from logboom.wire.group_view import StrategyOptions

__all__ = [
    "App",
    "Client",
    "ColumnBatch",
    "Consumer",
    "Context",
    "Dead",
    "Decision",
    "Done",
    "GroupConsumer",
    "HalfSendResult",
    "Later",
    "LogboomError",
    "ManyFuture",
    "Message",
    "NodeStats",
    "ParkedHandle",
    "Parking",
    "Producer",
    "PullResult",
    "PushConsumer",
    "PushOptions",
    "Resolution",
    "RetryableError",
    "SendFuture",
    "SendResult",
    "StrategyOptions",
    "SubscriptionConsumer",
    "Transaction",
    "TransactionalSender",
    "connect",
    "delay_level",
]
