"""Messages per second that are produced, acknowledged from disk, and read by another process."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import load
from bench.figures import Figure
from bench.raw import measure
from bench.reader import Mode, ReaderProcess
from logboom.client import connect
from logboom.deploy import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logboom.client import Client, ManyFuture, Producer

IN_FLIGHT: Final = 64
"""Batches in flight; the client sends at most five of them per queue."""

Send = "Callable[[Producer, str, Sequence[bytes]], None]"


def send_batches(producer: Producer, topic: str, items: Sequence[bytes]) -> None:
    """Send with send_many, 1,000 per batch."""
    waiting: deque[ManyFuture] = deque()
    for chunk in load.chunks(items):
        waiting.append(future := producer.send_many(topic, chunk, queue=0))
        if len(waiting) >= IN_FLIGHT:
            waiting.popleft().result(60)
        del future
    producer.flush()


def send_singly(producer: Producer, topic: str, items: Sequence[bytes]) -> None:
    """Send one by one from one thread."""
    send = producer.send
    last = None
    for item in items:
        last = send(topic, item, queue=0)
    producer.flush()
    assert last is not None
    last.result(60)


def once(
    boom: Client,
    endpoints: Sequence[str],
    topic: str,
    items: Sequence[bytes],
    send: Callable[[Producer, str, Sequence[bytes]], None],
    mode: Mode,
    replicas: int,
) -> tuple[float, float]:
    """Return produced and read messages per second of one run, or raise if anything differs."""
    boom.admin.create_topic(topic, queues=1, replicas=replicas)
    expected = load.Checksum()
    expected.add(b"".join(items), len(items))
    before = boom.admin.describe_topic(topic).queues[0]
    reader = ReaderProcess(endpoints, topic, len(items), mode)
    with boom.producer(acks="all") as producer:
        began = time.monotonic()
        send(producer, topic, items)
        produced = time.monotonic() - began
    report = reader.report()
    after = boom.admin.describe_topic(topic).queues[0]
    if (after.leader_epoch, sorted(after.isr)) != (before.leader_epoch, sorted(before.isr)):
        raise RuntimeError(f"{topic}: an election or ISR change fell into the run")
    if (report.count, report.crc) != (expected.count, expected.crc):
        raise RuntimeError(f"{topic}: the reader's checksum differs")
    boom.admin.delete_topic(topic)
    return len(items) / produced, len(items) / (report.last_at - began)


def raw_rate(count: int) -> float:
    """Return messages per second directly into the store, over a comparable time."""
    with tempfile.TemporaryDirectory(prefix="logboom-raw-") as folder:
        return measure(Path(folder), count / 1e6).messages_s


def best(runs: int, measure: Callable[[int], tuple[float, float]]) -> tuple[float, float]:
    """Return the run with the greatest rate of its slower side, because the machine is shared."""
    return max((measure(n) for n in range(runs)), key=min)


def one_broker(count: int, runs: int) -> list[Figure]:
    """Return all throughput figures with one broker."""
    items = load.values(count)
    raw = max(raw_rate(count) for _ in range(runs))
    rows = [Figure("raw: WriteBatch + flush_wal, 8 batches a sync", raw, "msg/s")]
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:

        def run(
            name: str,
            send: Callable[[Producer, str, Sequence[bytes]], None],
            mode: Mode,
            used: Sequence[bytes],
        ) -> tuple[float, float]:
            return best(
                runs,
                lambda n: once(boom, cluster.endpoints, f"{name}-{n}", used, send, mode, 1),
            )

        sent, read = run("many", send_batches, "columns", items)
        rows.append(
            Figure(
                "send_many 1,000 x 100 B, produced",
                sent,
                "msg/s",
                1.5e6,
                ratio=sent / raw,
                ratio_bar=0.5,
            )
        )
        rows.append(
            Figure("  … and read as columns", read, "msg/s", 1.5e6, ratio=read / raw, ratio_bar=0.5)
        )
        sent, read = run("objects", send_batches, "messages", items[: count // 2])
        rows.append(
            Figure(
                "  … and read as Message objects", read, "msg/s", ratio=read / raw, ratio_bar=0.25
            )
        )
        sent, read = run("singly", send_singly, "columns", items[: count // 2])
        rows.append(Figure("send one by one, produced", sent, "msg/s", 300_000, ratio=sent / raw))
        rows.append(Figure("  … and read as columns", read, "msg/s", 300_000, ratio=read / raw))
    return rows


def three_replicas(count: int, runs: int) -> list[Figure]:
    """Measure three broker processes with acks=all and an fsync on each."""
    items = load.values(count)
    with Cluster(name_servers=1, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        sent, read = best(
            runs,
            lambda n: once(
                boom, cluster.endpoints, f"three-{n}", items, send_batches, "columns", 3
            ),
        )
    return [
        Figure("3 replicas, acks=all, produced", sent, "msg/s", 400_000),
        Figure("  … and read as columns", read, "msg/s", 400_000),
    ]
