"""Latency from `send` to the reader, at 1,000 messages per second."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from bench.reader import ReaderProcess
from logboom.client import connect
from logboom.deploy import Cluster


def fdatasync_p50_ms(rounds: int = 200) -> float:
    """Return the median ms of a 4 KiB write with fdatasync where clusters keep their data."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        handle = os.open(Path(folder) / "probe", os.O_CREAT | os.O_WRONLY)
        for _ in range(rounds):
            os.write(handle, bytes(4096))
            began = time.perf_counter()
            os.fdatasync(handle)
            times.append(time.perf_counter() - began)
        os.close(handle)
    return statistics.median(times) * 1000


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(brokers: int, seconds: float) -> list[float]:
    """Return the ms of each message, without the first half second, when nothing is warm."""
    count = int(1_000 * (seconds + 0.5))
    with Cluster(name_servers=1, brokers=brokers) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("latency", queues=1, replicas=brokers)
        reader = ReaderProcess(cluster.endpoints, "latency", count, "latency")
        with boom.producer(acks="all") as producer:
            due = time.monotonic()
            for _ in range(count):
                while (wait := due - time.monotonic()) > 0:
                    # This is no wait but the pace of the open loop: 1,000 messages per second.
                    time.sleep(wait)
                producer.send("latency", time.monotonic_ns().to_bytes(8, "little"), queue=0)
                due += 0.001
            producer.flush()
        return reader.report().latencies_ms[500:]


def rows(seconds: float) -> list[Figure]:
    """Return p50 and p99 with one broker and with three replicas."""
    sync = fdatasync_p50_ms()
    found = [Figure("fdatasync p50", sync, "ms", note="latency bars hold where this is ≤ 0.5 ms")]
    for brokers, bars in ((1, (2.0, 10.0)), (3, (5.0, 25.0))):
        values = latencies(brokers, seconds)
        name = f"produce → consume, {brokers} broker" + ("s, 3 replicas" if brokers > 1 else "")
        for share, bar in zip((0.50, 0.99), bars, strict=True):
            value = percentile(values, share)
            found.append(Figure(f"{name}, p{share * 100:.0f}", value, "ms", bar, "less"))
    return found
