"""A cluster full of groups, subscriptions, dead letters, transactions and delayed messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from logboom.client import Client, GroupConsumer, Message, SubscriptionConsumer, connect
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import LogboomError
from tests.integration.waiting import wait_until

HOSTILE: Final = "<img src=x onerror=alert(1)>\"'&amp;<script>alert(2)</script>"
"""A text that would run in a page that shows it unescaped."""
CAUSES: Final = (
    "OSError: the bank is closed",
    "KeyError: 'iban'",
    f"ValueError: {HOSTILE}",
)


@contextmanager
def consumer_stage(node: Embedded) -> Iterator[Client]:
    """Set everything up; members and consumers stay until the end."""
    with ExitStack() as stack:
        boom = stack.enter_context(connect(node.endpoints, create_topics=True))
        for topic, queues in (("orders", 4), ("payments", 3), ("clicks", 6), ("shipments", 2)):
            boom.admin.create_topic(topic, queues=queues)
        produce(boom, 400)
        _groups(boom, stack)
        _subscriptions(boom, stack)
        bury(boom, "billing", 24)
        bury(boom, "orders%invoices", 3)
        _park(boom)
        yield boom


def produce(boom: Client, count: int) -> None:
    """Send messages to all topics, with values of several kinds."""
    with boom.producer() as producer:
        for number in range(count):
            order = {"order": number, "price": 19.9 + number, "country": "NO"}
            producer.send("orders", json.dumps(order).encode(), key=b"customer-%d" % (number % 40))
            producer.send("payments", b"%d" % number, key=b"%d" % number)
            producer.send("clicks", b"/page/%d" % number)
            if number % 4 == 0:
                producer.send("shipments", bytes([number % 256, 255, 0]) * 8)


def _groups(boom: Client, stack: ExitStack) -> None:
    for name, topics, paused in (
        ("shipping", ["shipments", "orders"], False),
        ("fraud-detection", ["payments"], True),
        ("search-index", ["clicks", "orders"], False),
        ("ledger", ["payments"], False),
    ):
        subscription = dict.fromkeys(topics, "")
        boom.admin.alter_group(name, subscription=subscription, create=True, paused=paused)
    boom.admin.reset_offsets("ledger", "last", dry_run=False)
    for _ in range(2):
        consumer = stack.enter_context(boom.consumer(["orders", "payments"], group="billing"))
        consumer.ack(take(consumer, 10))
        consumer.commit()
    recommender = stack.enter_context(boom.consumer("clicks", group="recommender"))
    recommender.ack(take(recommender, 400))
    recommender.commit()


def take(consumer: GroupConsumer | SubscriptionConsumer, count: int) -> list[Message]:
    """Return exactly so many messages; a poll may return fewer."""
    got: list[Message] = []
    while len(got) < count:
        got += consumer.poll(count - len(got), 20.0)
    return got


def _subscriptions(boom: Client, stack: ExitStack) -> None:
    invoices = stack.enter_context(
        boom.subscribe(
            "orders", subscription="invoices", type="shared", name="printer-1", start="first"
        )
    )
    got = take(invoices, 50)
    invoices.ack(got[:20])
    invoices.nack(got[20:25])
    invoices.flush()
    with boom.subscribe(
        "clicks", subscription="heatmap", type="failover", name="map-1", start="first"
    ) as heatmap:
        heatmap.ack(take(heatmap, 100))
        heatmap.flush()


def bury(boom: Client, owner: str, count: int) -> None:
    """Write dead letters, as a consumer does that gives messages up."""
    with boom.producer() as producer:
        for number in range(count):
            headers = {
                "boom-attempt": b"16",
                "boom-origin": b"orders/%d/%d" % (number % 4, number),
                "boom-cause": CAUSES[min(2, number % 5)].encode(),
                "traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                HOSTILE: HOSTILE.encode(),
            }
            value = json.dumps({"order": number, "iban": None, "note": HOSTILE}).encode()
            if number % 6 == 5:
                value = b"\x82\xa5order\x07\xa4note\xc4\x02\xff\x00"
            producer.send(
                f"%DLQ%{owner}", value, key=b"customer-%d" % number, headers=headers
            ).result(60)


def _park(boom: Client) -> None:
    boom.park([("payments", 0, [b"a", b"b"]), ("payments", 1, [b"c"])], "settlement", 0, 7)
    boom.park(
        [("orders", 0, [HOSTILE.encode()])], "spark-6f1c2f7e-1d0a-4a53-9d1e-77f0d1a3c001", 3, 41
    )
    with boom.producer() as producer:
        for number in range(12):
            producer.send("orders", b"remind %d" % number, delay_s=600 * (number + 1)).result(60)
        with producer.transactional_sender(group="shop", check=_undecided) as sender:
            sender.send("orders", b"half", local=_undecided)


def _undecided(message: Message) -> str:
    return "unknown"


def settled(boom: Client) -> None:
    """Wait until the group `billing` has its members and their queues."""

    def whole() -> bool:
        try:
            group = boom.admin.describe_group("billing")
        except LogboomError:
            return False
        return len(group.members) == 2 and all(each.owner for each in group.queues[:7])

    wait_until(whole, "the members of billing have their queues")
    time.sleep(0.1)  # the coordinator hears what they report
