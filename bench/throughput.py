"""Messages per second that are produced, acknowledged from disk, and read by another process."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import load
from bench.figures import Comparison, Figure, compared
from bench.reader import Mode, ReaderProcess
from bench.references import PYTHON, STORED, STORED_THRICE, Reference, compare
from logboom.client import connect
from logboom.deploy import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from logboom.client import Client, ManyFuture, Producer

IN_FLIGHT: Final = 64
"""Batches in flight; the client sends at most five of them per queue."""

MEMORY_BYTES: Final = 1 << 30
"""The memory that a broker may use, which is the default too."""
PRODUCED: Final = 0.5
READ: Final = 0.5
OBJECTS: Final = 0.25
SINGLY: Final = 0.12
REPLICATED: Final = 0.38


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


def loaded_cluster(brokers: int) -> Cluster:
    """Start a cluster with one name server, whose brokers' memory is measured."""
    settings = {"memory_bytes": MEMORY_BYTES}
    return Cluster(name_servers=1, brokers=brokers, broker_settings=settings)


def peak_memory_mb(pid: int) -> float:
    """Return the greatest resident memory of a process so far, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def memory(cluster: Cluster, name: str) -> Figure:
    """Return the peak memory of the largest broker, beside what it is configured to use."""
    brokers = [node for node in cluster.nodes if node.startswith("broker-")]
    peak = max(peak_memory_mb(cluster.pid(node)) for node in brokers)
    comparison = compare("configured memory_bytes, MiB", [peak], [MEMORY_BYTES / 2**20])
    return compared(name, comparison, "MiB", 1.1, "less")


def one_broker(count: int, rounds: int) -> list[Figure]:
    """Return all throughput figures with one broker."""
    items = load.values(count)
    with loaded_cluster(1) as cluster, connect(cluster.endpoints) as boom:

        def run(
            name: str,
            reference: Reference,
            send: Callable[[Producer, str, Sequence[bytes]], None],
            mode: Mode,
            used: Sequence[bytes],
        ) -> list[Comparison]:
            return reference.beside(
                rounds,
                lambda n: once(boom, cluster.endpoints, f"{name}-{n}", used, send, mode, 1),
            )

        half = items[: count // 2]
        sent, read = run("many", STORED, send_batches, "columns", items)
        _, objects = run("objects", STORED, send_batches, "messages", half)
        singly, read_singly = run("singly", PYTHON, send_singly, "columns", half)
        peak = memory(cluster, "  … the broker's greatest memory meanwhile")
    return [
        compared("send_many 1,000 x 100 B, produced", sent, "msg/s", PRODUCED),
        compared("  … and read as columns", read, "msg/s", READ),
        compared("  … and read as Message objects", objects, "msg/s", OBJECTS),
        compared("send one by one, produced", singly, "msg/s", SINGLY),
        compared("  … and read as columns", read_singly, "msg/s", SINGLY),
        peak,
    ]


def three_replicas(count: int, rounds: int) -> list[Figure]:
    """Measure three broker processes with acks=all and an fsync on each."""
    items = load.values(count)
    with loaded_cluster(3) as cluster, connect(cluster.endpoints) as boom:
        sent, read = STORED_THRICE.beside(
            rounds,
            lambda n: once(
                boom, cluster.endpoints, f"three-{n}", items, send_batches, "columns", 3
            ),
        )
        peak = memory(cluster, "  … the largest broker's greatest memory meanwhile")
    return [
        compared("3 replicas, acks=all, produced", sent, "msg/s", REPLICATED),
        compared("  … and read as columns", read, "msg/s", REPLICATED),
        peak,
    ]
