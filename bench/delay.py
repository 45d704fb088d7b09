"""Lateness and cost of delayed messages while very many others wait."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from bench.figures import Figure, compared, percentile
from bench.idle import resident_mb
from bench.references import compare
from logboom.client import connect
from logboom.deploy import Cluster

if TYPE_CHECKING:
    from logboom.client import Client, ManyFuture

QUEUES = 128
SAMPLES = 5_000
SPREAD_S = 10.0
"""Seconds over which the samples become due."""
UNDER_WAY = 4_000
USUAL: Final = "the same while none wait, ms"
LATE: Final = 20.0


def rows(count: int) -> list[Figure]:
    """Park `count` messages, each alone, and measure others that become due."""
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        for topic in ("usual", "waiting"):
            boom.admin.create_topic(topic, queues=QUEUES, replicas=1)
        usual_ms = lateness(boom, "usual")
        before_mb = resident_mb(cluster.pid("broker-1"))
        seconds = park(boom, count)
        grown_mb = resident_mb(cluster.pid("broker-1")) - before_mb
        late_ms = lateness(boom, "waiting")
    return [
        Figure("delayed messages parked, each alone", count / seconds, "/s"),
        *(
            compared(
                f"{count:,} wait, release late p{100 * share:.0f}",
                compare(USUAL, [percentile(late_ms, share)], [percentile(usual_ms, share)]),
                "ms",
                bar,
                "less",
            )
            for share, bar in ((0.5, None), (0.99, LATE))
        ),
        Figure(f"{count:,} wait, broker's memory grew", grown_mb, "MiB", 768.0, "less"),
    ]


def park(boom: Client, count: int) -> float:
    """Park this many messages, due in an hour, and return the seconds."""
    begun = time.monotonic()
    with boom.producer() as producer:
        sent: deque[ManyFuture] = deque()
        for n in range(count):
            sent.append(
                producer.send_many("waiting", [b"x" * 100], queue=n % QUEUES, delay_s=3_600)
            )
            if len(sent) > UNDER_WAY:
                sent.popleft().result(60)
    return time.monotonic() - begun


def lateness(boom: Client, topic: str) -> list[float]:
    """Return the ms from the due time of each sample to its receipt."""
    late: list[float] = []
    first_ms = time.time() * 1_000 + 4_000
    with boom.producer() as producer:
        for n in range(SAMPLES):
            due_ms = int(first_ms + 1_000 * SPREAD_S * n / SAMPLES)
            producer.send(topic, b"%d" % due_ms, queue=n % QUEUES, deliver_at=due_ms)
    with boom.consumer(topic) as consumer:
        while len(late) < SAMPLES:
            messages = consumer.poll(1_000, timeout_s=30)
            now_ms = time.time() * 1_000
            assert messages, f"{len(late)} of {SAMPLES} came"
            late += [now_ms - int(message.value or b"") for message in messages]
    return late
