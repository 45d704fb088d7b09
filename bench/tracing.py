"""What tracing costs a producer: the same sends with and without it, by turns, on one cluster.

Each thousand messages are sent within a span of the application, of which one in a hundred is
sampled. Both sides make these spans, so that only the producer differs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench import load
from bench.figures import Figure, compared
from bench.references import with_and_without
from bench.throughput import IN_FLIGHT
from logboom.client import connect
from logboom.deploy import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.trace import Tracer

    from logboom.client import Client, Producer

SAMPLED: Final = 0.95
"""Part of the rate without tracing that is reached with 1 % sampled, by `send_many`."""
SINGLY: Final = 0.6
"""The same for `send`: each call looks at the current span, which takes a third of a call."""
SHARE: Final = 0.01
"""Part of the application's spans that is sampled."""


def rows(count: int, rounds: int) -> list[Figure]:
    """Return the rates with tracing beside those without."""
    # Imported here: the SDK is needed for this group only.
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
    from opentelemetry.trace import get_tracer_provider, set_tracer_provider

    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(SHARE))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    set_tracer_provider(provider)
    tracer = get_tracer_provider().get_tracer("bench")
    items = load.values(count)
    figures = []
    with (
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(cluster.endpoints, timeout_s=60) as boom,
    ):
        for name, send, bar in (
            ("send_many 1,000 x 100 B", _many, SAMPLED),
            ("send one by one", _singly, SINGLY),
        ):
            rate = _rates(boom, tracer, items, send, name.partition(" ")[0])
            comparison = with_and_without("without tracing, msg/s", rounds, rate)
            figures.append(compared(f"traced, 1 % sampled: {name}", comparison, "msg/s", bar))
    provider.shutdown()
    return figures


def _rates(
    boom: Client,
    tracer: Tracer,
    items: Sequence[bytes],
    send: Callable[[Producer, str, Sequence[bytes], Tracer], None],
    name: str,
) -> Callable[[bool, str], float]:
    """Return a function that measures the messages per second of one run."""

    def rate(tracing: bool, run: str) -> float:
        topic = f"{name}-{run}"
        boom.admin.create_topic(topic, queues=1)
        with boom.producer(tracing=tracing) as producer:
            began = time.monotonic()
            send(producer, topic, items, tracer)
            producer.flush()
            took = time.monotonic() - began
        boom.admin.delete_topic(topic)
        return len(items) / took

    return rate


def _many(producer: Producer, topic: str, items: Sequence[bytes], tracer: Tracer) -> None:
    waiting = []
    for chunk in load.chunks(items):
        with tracer.start_as_current_span("load"):
            waiting.append(producer.send_many(topic, chunk, queue=0))
        if len(waiting) >= IN_FLIGHT:
            waiting.pop(0).result(60)
    for future in waiting:
        future.result(60)


def _singly(producer: Producer, topic: str, items: Sequence[bytes], tracer: Tracer) -> None:
    last = None
    for chunk in load.chunks(items):
        with tracer.start_as_current_span("load"):
            for item in chunk:
                last = producer.send(topic, item, queue=0)
    if last is not None:
        last.result(60)
