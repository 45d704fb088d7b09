"""`logboom bench`: throughput and latency of a cluster, with random values."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from logboom.cli.connection import open_client
from logboom.cli.output import note, show_json
from logboom.cli.parameters import Figures, Servers
from logboom.cli.progress_bar import progress
from logboom.client import Client
from logboom.client.written_values import bytes_text
from logboom.wire.errors import AlreadyExists, InvalidRequest

app = App(name="bench", help="Measure the cluster: produce, consume, e2e.")

TOPIC: Final = "bench"
_IN_FLIGHT: Final = 64
"""The most unacknowledged batches."""
_STAMP: Final = 8
"""Bytes at the head of a value that contain its send time."""
_LAST_WORD_S: Final = 10.0
"""Seconds that e2e waits for the last messages."""

Topic = Annotated[str, Parameter(name=["--topic", "-t"])]


@app.command
def produce(
    *,
    topic: Topic = TOPIC,
    messages: Annotated[int, Parameter(name=["--messages", "-m"])] = 1_000_000,
    size: int = 100,
    batch: int = 1_000,
    one_by_one: Annotated[bool, Parameter(negative="")] = False,
    acks: Literal["none", "leader", "all"] = "all",
    compression: Literal["none", "lz4", "zstd"] = "none",
    json: Figures = False,
    servers: Servers = None,
) -> None:
    """Send random values as fast as they are acknowledged.

    For example:

        logboom bench produce --messages 5000000 --size 100

    Parameters
    ----------
    topic
        The topic to send to, created with 4 queues if it does not exist.
    messages
        How many messages.
    size
        Bytes of each value.
    batch
        Messages per send_many.
    one_by_one
        Use send for each message.
    acks
        none, leader or all.
    compression
        none, lz4 or zstd.
    """
    _check(messages=messages, size=size, batch=batch)
    values = _values(batch, size)
    latencies: list[float] = []
    with (
        open_client(servers) as boom,
        _topic(boom, topic, keep=True),
        boom.producer(acks=acks, compression=compression) as producer,
        progress("producing", messages) as bar,
    ):
        begun = time.perf_counter()
        waiting: deque[tuple[float, Any]] = deque()
        for done in range(0, messages, batch):
            chunk = values[: min(batch, messages - done)]
            sent_at = time.perf_counter()
            if one_by_one:
                futures = [producer.send(topic, value) for value in chunk]
                waiting.append((sent_at, futures[-1]))
            else:
                waiting.append((sent_at, producer.send_many(topic, chunk)))
            while len(waiting) > _IN_FLIGHT or (waiting and waiting[0][1].done()):
                _finish(waiting, latencies)
            bar.to(done)
        producer.flush()
        while waiting:
            _finish(waiting, latencies)
        took = time.perf_counter() - begun
    _report("produce", messages, size, took, latencies, json)


def _finish(waiting: deque[tuple[float, Any]], latencies: list[float]) -> None:
    sent_at, future = waiting.popleft()
    future.result()
    latencies.append(time.perf_counter() - sent_at)


@app.command
def consume(
    *,
    topic: Topic = TOPIC,
    messages: Annotated[int | None, Parameter(name=["--messages", "-m"])] = None,
    json: Figures = False,
    servers: Servers = None,
) -> None:
    """Read a topic from its first message on, as whole columns.

    For example:

        logboom bench produce && logboom bench consume

    Parameters
    ----------
    topic
        The topic to read.
    messages
        How many; by default all that exist now.
    """
    with open_client(servers) as boom:
        queues = list(range(len(boom.admin.describe_topic(topic).queues)))
        held = sum(end - first for first, end in boom.admin.offsets(topic, queues).values())
        total = held if messages is None else min(messages, held)
        if not total:
            text = f"topic {topic} is empty: fill it with `logboom bench produce -t {topic}`"
            raise InvalidRequest(text)
        read = 0
        sample: list[bytes | None] = []
        with (
            boom.consumer(topic, queues=queues, start="first") as consumer,
            progress("consuming", total) as bar,
        ):
            begun = time.perf_counter()
            while read < total:
                for batch in consumer.poll_columns(timeout_s=1.0):
                    read += len(batch)
                    if not sample:
                        sample = batch.columns.values()
                bar.to(read)
            took = time.perf_counter() - begun
    # Inspecting each value would be measured too.
    size = sum(len(value or b"") for value in sample) / len(sample)
    _report("consume", read, size, took, [], json)


@app.command
def e2e(
    *,
    topic: Topic = TOPIC,
    rate: int = 1_000,
    seconds: float = 5.0,
    size: int = 100,
    json: Figures = False,
    servers: Servers = None,
) -> None:
    """Measure the time from send to receipt at a steady rate.

    For example:

        logboom bench e2e --rate 1000 --seconds 10

    Parameters
    ----------
    topic
        The topic to send to, created with 4 queues if it does not exist.
    rate
        Messages per second.
    seconds
        How long to measure.
    size
        Bytes of each value, at least 8.
    """
    _check(rate=rate, size=size - _STAMP + 1)
    total = max(1, int(rate * seconds))
    latencies: list[float] = []
    with (
        open_client(servers) as boom,
        _topic(boom, topic, keep=False),
        boom.consumer(topic, start="last") as consumer,
        boom.producer() as producer,
        progress("measuring", total) as bar,
    ):
        # The first poll opens the queues.
        consumer.poll(1, 0.5)
        filler = random.randbytes(size - _STAMP)

        def send() -> None:
            begun = time.perf_counter()
            for number in range(total):
                # This is no wait but the pace of the open loop: `rate` messages per second.
                time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
                stamp = time.perf_counter_ns().to_bytes(_STAMP, "little")
                producer.send(topic, stamp + filler)

        sender = Thread(target=send, name="bench-sender")
        began = time.perf_counter()
        sender.start()
        end = began + seconds + _LAST_WORD_S
        while len(latencies) < total and time.perf_counter() < end:
            for message in consumer.poll(1_000, 0.5):
                sent_ns = int.from_bytes((message.value or b"")[:_STAMP], "little")
                latencies.append((time.perf_counter_ns() - sent_ns) / 1e9)
            bar.to(len(latencies))
        sender.join()
        took = time.perf_counter() - began
    _report("e2e", len(latencies), size, took, latencies, json)


def _check(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise InvalidRequest(f"--{name} is too small: give 1 or more")


def _values(count: int, size: int) -> list[bytes]:
    """Return distinct random values, cut from one block."""
    block = random.randbytes(count * size)
    return [block[at : at + size] for at in range(0, count * size, size)]


@contextmanager
def _topic(boom: Client, topic: str, *, keep: bool) -> Iterator[None]:
    """Create the topic if it does not exist. Delete it again unless it is to be kept."""
    try:
        boom.admin.create_topic(topic, queues=4)
    except AlreadyExists:
        yield
        return
    yield
    if keep:
        note(f"topic {topic} stays: logboom topic delete {topic} --yes")
    else:
        boom.admin.delete_topic(topic)


def _report(
    name: str, messages: int, size: float, took: float, latencies: Sequence[float], json: bool
) -> None:
    figures: dict[str, Any] = {
        "bench": name,
        "messages": messages,
        "seconds": round(took, 3),
        "messages_per_s": round(messages / took),
        "bytes_per_s": round(messages * size / took),
    }
    if latencies:
        ordered = sorted(latencies)
        for percent in (50, 95, 99, 99.9):
            rank = min(len(ordered) - 1, int(len(ordered) * percent / 100))
            figures[f"latency_ms_p{percent:g}"] = round(ordered[rank] * 1000, 3)
    if json:
        show_json(figures)
        return
    rate = f"{figures['messages_per_s']:,} msg/s, {bytes_text(figures['bytes_per_s'])}/s"
    print(f"{name}: {messages:,} messages in {took:.2f} s: {rate}")
    if latencies:
        parts = [f"p{key.rpartition('_p')[2]} {figures[key]} ms" for key in figures if "_p" in key]
        print("latency: " + ", ".join(part for part in parts if "per_s" not in part))
