"""Traces of clients on an embedded node, collected by OpenTelemetry's SDK in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    use_span,
)

from logboom.client import App, Client, Message, aio
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import InvalidRequest, UnknownResource
from tests.integration.waiting import wait_until

HASTY: dict[str, Any] = {
    "heartbeat_ms": 100,
    "session_ms": 30_000,
    "retry": "exponential",
    "retry_first_ms": 1,
    "commit_every_s": 0.1,
}


class ByName(Sampler):
    """Samples all roots but those that are called "dull"."""

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        """Decide by the name."""
        decision = Decision.DROP if name == "dull" else Decision.RECORD_AND_SAMPLE
        return SamplingResult(decision, attributes)

    def get_description(self) -> str:
        """Return its name."""
        return "by name"


class Collected:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        provider = TracerProvider(sampler=ParentBased(ByName()))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider([self.reader]))
        self.tracer = trace.get_tracer("tests")

    def spans(self, name: str) -> list[ReadableSpan]:
        """The finished spans of a name."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def wait(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Wait for spans of a name."""
        wait_until(lambda: len(self.spans(name)) >= count, f"{count} spans {name}")
        return self.spans(name)

    def count(self, name: str, topic: str) -> int:
        """The value of a counter, or the number of values of a histogram, for a topic."""
        data = self.reader.get_metrics_data()
        total = 0
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name != name:
                        continue
                    for point in metric.data.data_points:
                        if (point.attributes or {}).get("messaging.destination.name") == topic:
                            total += int(getattr(point, "value", getattr(point, "count", 0)))
        return total


@pytest.fixture(scope="module")
def collected() -> Collected:
    """The providers of this process, which can be set only once."""
    return Collected()


@pytest.fixture(autouse=True)
def _clear(collected: Collected) -> None:
    collected.exporter.clear()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def header_of(span: ReadableSpan) -> bytes:
    """The header that names a span, written as the standard says."""
    context = span.context
    flags = int(context.trace_flags)
    assert flags & 1
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}".encode()


def ids(span: ReadableSpan) -> list[int]:
    """The spans that a span links to."""
    return [link.context.span_id for link in span.links]


def read(boom: Client, topic: str, count: int) -> list[Message]:
    """Read the first messages of a topic."""
    found: list[Message] = []
    with boom.consumer(topic) as consumer:
        while len(found) < count:
            found += consumer.poll(timeout_s=5)
    return found


def test_a_sampled_message_carries_its_trace(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("traced", queues=1)
    with boom.producer(tracing=True) as producer:
        with collected.tracer.start_as_current_span("order") as order:
            producer.send("traced", b"one", headers={"a": b"b"}).result()
            kept = {"traceparent": b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"}
            producer.send("traced", b"kept", headers=kept).result()
        with collected.tracer.start_as_current_span("dull"):
            producer.send("traced", b"dull").result()
        producer.send("traced", b"none").result()
    one, own, dull, none = read(boom, "traced", 4)
    (create,) = collected.spans("create traced")
    (send,) = collected.wait("send traced")
    assert one.headers == {"a": b"b", "traceparent": header_of(create)}
    assert own.headers == kept
    assert dull.headers is None
    assert none.headers is None
    assert create.kind is SpanKind.PRODUCER
    assert create.parent is not None
    assert create.parent.span_id == order.get_span_context().span_id
    assert send.kind is SpanKind.CLIENT
    assert ids(send) == [create.context.span_id]
    told = attributes(send)
    assert told["messaging.system"] == "logboom"
    assert told["messaging.operation.name"] == told["messaging.operation.type"] == "send"
    assert told["messaging.destination.name"] == "traced"
    assert told["messaging.destination.partition.id"] == "0"
    assert told["messaging.batch.message_count"] == 1
    assert told["logboom.offset"] == 0
    assert collected.count("messaging.client.sent.messages", "traced") == 4
    assert collected.count("messaging.client.operation.duration", "traced") == 4


def test_the_state_of_a_trace_travels_too(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("stated", queues=1)
    state = TraceState([("vendor", "a1"), ("other", "b2")])
    remote = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    with boom.producer(tracing=True) as producer, use_span(NonRecordingSpan(remote)):
        producer.send("stated", b"").result()
    (message,) = read(boom, "stated", 1)
    assert message.headers is not None
    assert message.headers["tracestate"] == b"vendor=a1,other=b2"
    assert message.headers["traceparent"].startswith(b"00-" + b"0" * 31 + b"7-")


def test_columns_get_the_trace_of_their_call(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("columns", queues=1)
    own = {"traceparent": b"mine"}
    span = collected.tracer.start_as_current_span("load")
    with boom.producer(tracing=True) as producer, span:
        producer.send_many("columns", [b"1", b"2"]).result()
        producer.send_many("columns", [b"3", b"4"], headers=[None, own]).result()
    found = read(boom, "columns", 4)
    first, second = collected.spans("create columns")
    expected = [header_of(first)] * 2 + [header_of(second), b"mine"]
    assert [(message.headers or {})["traceparent"] for message in found] == expected


def test_a_batch_links_to_at_most_128_creations(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("many", queues=1)
    with boom.producer(tracing=True, linger_ms=200) as producer:
        futures = []
        for _ in range(300):
            with collected.tracer.start_as_current_span("order"):
                futures.append(producer.send("many", b"x"))
        for future in futures:
            future.result()
    sends = collected.wait("send many")
    assert len(collected.spans("create many")) == 300
    assert max(len(send.links) for send in sends) <= 128
    assert sum(attributes(send)["messaging.batch.message_count"] for send in sends) == 300


def test_messages_in_a_row_may_share_a_creation(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("row", queues=1)
    with boom.producer(tracing=True) as producer:
        with collected.tracer.start_as_current_span("order"):
            for _ in range(50):
                producer.send("row", b"x")
        with collected.tracer.start_as_current_span("other"):
            producer.send("row", b"x").result()
    named = {(message.headers or {})["traceparent"] for message in read(boom, "row", 51)}
    creations = collected.spans("create row")
    # As many as time took, and none that is not sent.
    assert {header_of(each) for each in creations} == named
    linked = {one for send in collected.wait("send row") for one in ids(send)}
    assert linked == {each.context.span_id for each in creations}
    assert len({each.parent.span_id for each in creations if each.parent is not None}) == 2


def test_a_refused_message_ends_its_span(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("small", queues=1, max_message_bytes=1_024)
    span = collected.tracer.start_as_current_span("order")
    with boom.producer(tracing=True) as producer, span, pytest.raises(InvalidRequest):
        producer.send("small", bytes(5_000))
    (create,) = collected.spans("create small")
    assert create.status.status_code is StatusCode.ERROR


def test_a_good_message_does_not_share_the_creation_of_a_refused_one(
    boom: Client, collected: Collected
) -> None:
    boom.admin.create_topic("mixed", queues=1, max_message_bytes=1_024)
    with boom.producer(tracing=True) as producer, collected.tracer.start_as_current_span("order"):
        with pytest.raises(InvalidRequest):
            producer.send("mixed", bytes(5_000))
        producer.send("mixed", b"good").result()
    refused, good = collected.spans("create mixed")
    assert refused.status.status_code is StatusCode.ERROR
    assert good.status.status_code is StatusCode.UNSET
    (message,) = read(boom, "mixed", 1)
    assert (message.headers or {})["traceparent"] == header_of(good)


def test_polls_and_handling(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("polled", queues=1)
    with boom.producer(tracing=True) as producer:
        with collected.tracer.start_as_current_span("order"):
            producer.send("polled", b"1").result()
        producer.send("polled", b"2").result()
    got: list[Message] = []
    with boom.consumer("polled", group="pollers", tracing=True) as consumer:
        while len(got) < 2:
            got += consumer.poll(timeout_s=5)
        for message in got:
            with consumer.process(message):
                consumer.ack(message)
        with pytest.raises(ValueError, match="bad"), consumer.process(got[:1]):
            raise ValueError("bad")
    (create,) = collected.spans("create polled")
    receive = collected.spans("receive polled")[0]
    assert receive.kind is SpanKind.CLIENT
    assert ids(receive) == [create.context.span_id]
    assert attributes(receive)["messaging.consumer.group.name"] == "pollers"
    first, failed = collected.spans("process polled")
    assert first.kind is SpanKind.CONSUMER
    assert first.context.trace_id == create.context.trace_id
    assert ids(first) == [create.context.span_id]
    assert failed.status.status_code is StatusCode.ERROR
    assert collected.count("messaging.client.consumed.messages", "polled") == 2
    assert collected.count("messaging.process.duration", "polled") == 3


def test_a_subscription_is_traced(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("shared", queues=1)
    span = collected.tracer.start_as_current_span("order")
    with boom.producer(tracing=True) as producer, span:
        producer.send("shared", b"1").result()
    with boom.subscribe("shared", subscription="s", start="first", tracing=True) as consumer:
        got: list[Message] = []
        while not got:
            got = consumer.poll(timeout_s=5)
        consumer.ack(got)
    (receive,) = collected.spans("receive shared")
    assert attributes(receive)["messaging.destination.subscription.name"] == "s"


def test_retries_and_dead_letters_keep_the_trace(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("failing", queues=1)

    def refuse(message: Message) -> None:
        raise OSError("closed")

    span = collected.tracer.start_as_current_span("order")
    with boom.producer(tracing=True) as producer, span:
        producer.send("failing", b"1").result()
    options = {**HASTY, "max_attempts": 2}
    with boom.push_consumer("failing", group="f", listener=refuse, tracing=True, **options):
        first, second = collected.wait("process failing", 2)
        wait_until(lambda: boom.admin.offsets("%DLQ%f")[0][1] == 1, "it is a dead letter")
    (create,) = collected.spans("create failing")
    for each in (first, second):
        assert each.context.trace_id == create.context.trace_id
        assert ids(each) == [create.context.span_id]
        assert each.status.status_code is StatusCode.ERROR
    assert "logboom.attempt" not in attributes(first)
    assert attributes(second)["logboom.attempt"] == 2
    assert attributes(second)["logboom.origin"] == "failing/0/0"
    dead = boom.admin.get_message("%DLQ%f", 0, 0)
    assert (dead.headers or {})["traceparent"] == header_of(create)
    # It is sent again, and is handled in the same trace.
    assert boom.dead_letters.redrive("f") == 1
    with boom.push_consumer("failing", group="f", listener=print, tracing=True, **options):
        again = collected.wait("process failing", 3)[-1]
    assert again.context.trace_id == create.context.trace_id
    assert again.status.status_code is not StatusCode.ERROR
    assert attributes(again)["logboom.origin"] == "failing/0/0"


def test_batch_listeners_only_link(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("batched", queues=1)
    with boom.producer(tracing=True) as producer:
        for name in ("a", "b"):
            with collected.tracer.start_as_current_span(name):
                producer.send("batched", b"1", queue=0).result()
    seen: list[int] = []
    with boom.push_consumer(
        "batched",
        group="b",
        batch=10,
        listener=lambda found: seen.append(len(found)),
        tracing=True,
        **HASTY,
    ):
        wait_until(lambda: sum(seen) == 2, "both were handled")
        spans = collected.wait("process batched", len(seen))
    created = {span.context.span_id for span in collected.spans("create batched")}
    assert {one for span in spans for one in ids(span)} == created


def test_an_app(boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("orders", queues=1)
    boom.admin.create_topic("bills", queues=1)
    app = App(tracing=True)

    @app.subscriber("orders", group="billing", **HASTY)
    def bill(order: dict[str, int]) -> None:
        app.publish("bills", {"sum": order["price"]}).result()

    app.start(boom)
    try:
        with collected.tracer.start_as_current_span("order"):
            app.publish("orders", {"price": 3}).result()
        collected.wait("send bills")
        (process,) = collected.wait("process orders")
    finally:
        app.close()
    (ordered,) = collected.spans("create orders")
    (billed,) = collected.spans("create bills")
    # One trace leads from the order over its handling to the bill.
    assert process.context.trace_id == ordered.context.trace_id == billed.context.trace_id
    assert billed.parent is not None
    assert billed.parent.span_id == process.context.span_id


def test_asyncio(node: Embedded, boom: Client, collected: Collected) -> None:
    boom.admin.create_topic("loop", queues=1)

    async def go() -> Message:
        handled: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def handle(message: Message) -> None:
            await asyncio.sleep(0)
            if not handled.done():
                handled.set_result(message)

        async with aio.connect(node.endpoints) as client:
            async with client.producer(tracing=True) as producer:
                # The first waits for the producer to open, in a task with another context.
                with collected.tracer.start_as_current_span("order"):
                    late = producer.send("loop", b"1")
                await late
                with collected.tracer.start_as_current_span("order"):
                    await producer.send("loop", b"2")
                    await producer.send_many("loop", [b"3"])
            async with client.push_consumer(
                "loop", group="l", listener=handle, tracing=True, **HASTY
            ):
                return await handled

    message = asyncio.run(go())
    creates = collected.wait("create loop", 3)
    assert len(collected.wait("send loop", 3)) == 3
    assert (message.headers or {})["traceparent"] in {header_of(each) for each in creates}
    assert len({span.context.trace_id for span in creates}) == 2
    process = collected.wait("process loop")[0]
    assert attributes(process)["messaging.consumer.group.name"] == "l"


def test_in_asyncio_what_fails_before_it_is_in_a_batch_ends_its_span(
    node: Embedded, collected: Collected
) -> None:
    async def go() -> None:
        wrong: Any = 1
        async with aio.connect(node.endpoints, create_topics=False) as client:
            with collected.tracer.start_as_current_span("order"):
                async with client.producer(tracing=True) as producer:
                    with pytest.raises(UnknownResource):
                        await producer.send("nowhere", b"1")
                    with pytest.raises(UnknownResource):
                        await producer.send_many("nowhere", [b"1"])
                    with pytest.raises(TypeError):
                        producer.send_many("nowhere", wrong)
                other = client.producer(tracing=True)
                late = other.send("shut", b"1")
                await other.close(timeout_s=0)
                assert late.cancelled()

    asyncio.run(go())
    spans = collected.spans("create nowhere") + collected.spans("create shut")
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 4


def test_off_imports_nothing_and_adds_no_header(node: Embedded, collected: Collected) -> None:
    script = f"""
import sys
from logboom.client import connect
with connect({node.endpoints!r}, create_topics=True) as boom:
    with boom.producer() as producer:
        producer.send("off", b"1").result()
    with boom.consumer("off", group="off") as consumer:
        got = []
        while not got:
            got = consumer.poll(timeout_s=5)
        with consumer.process(got[0]):
            pass
        assert got[0].headers is None
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_without_opentelemetry_the_remedy_is_named() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
from logboom.client.tracing.loading import load_consumer_tracer
from logboom.wire.errors import InvalidRequest
try:
    load_consumer_tracer()
except InvalidRequest as error:
    assert "logboom[tracing]" in str(error)
else:
    raise AssertionError
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
