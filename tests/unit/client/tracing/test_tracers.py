"""Which messages are traced, and which share a creation; without an SDK, so nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from logboom.client.results import Message
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.tracing import producer_tracer
from logboom.client.tracing.consumer_tracer import ConsumerTracer
from logboom.client.tracing.producer_tracer import ProducerTracer
from logboom.client.tracing.trace_headers import MOST_LINKS, PARENT, sampled_contexts

SAMPLED = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def span(sampled: bool) -> NonRecordingSpan:
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return NonRecordingSpan(SpanContext(7, 9, is_remote=False, trace_flags=flags))


def message(**headers: bytes) -> Message:
    return Message("t", 0, 1, None, b"v", None, headers or None, 5)


@pytest.fixture(name="tracer")
def _tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProducerTracer]:
    monkeypatch.setattr(producer_tracer, "SHARED_S", float("inf"))
    with use_span(span(sampled=True)):
        yield ProducerTracer()


def test_messages_in_a_row_share_a_creation(tracer: ProducerTracer) -> None:
    first = tracer.create("t")
    assert first is not None
    assert tracer.create("t", {"other": b"1"}) is first
    assert tracer.create("u") is not first
    assert tracer.create("t") is not first
    alone = tracer.create("t", shared=False)
    assert tracer.create("t") is not alone
    with use_span(span(sampled=True)):
        assert tracer.create("t") is not first


def test_a_creation_that_failed_is_not_shared(tracer: ProducerTracer) -> None:
    refused = tracer.create("t")
    assert refused is not None
    refused.fail(ValueError("too large"))
    assert tracer.create("t") is not refused
    sent = tracer.create("t")
    assert sent is not None
    sent.added([])
    sent.fail(ValueError("another one is too large"))
    assert tracer.create("t") is sent, "its first message was sent"


def test_a_creation_is_not_shared_for_long(
    tracer: ProducerTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tracer.create("t")
    monkeypatch.setattr(producer_tracer, "SHARED_S", 0.0)
    assert tracer.create("t") is not first


class Failing(SpanProcessor):
    """A processor of the program, which does not expect a span to end."""

    def on_end(self, span: ReadableSpan) -> None:
        """Fail."""
        if span.name == "send t":
            raise RuntimeError("no exporter")


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_a_processor_of_spans_raises_ends_no_batch(
    acknowledged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called in the thread that runs the core."""
    provider = TracerProvider()
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    tracer = ProducerTracer()
    with provider.get_tracer("tests").start_as_current_span("work"):
        creation = tracer.create("t")
        assert creation is not None
        batch = ProducerBatch("t", 0, 0.0)
        creation.added([batch])
        tracer.watch(batch)
        told: list[int] = []
        batch.add_callback(lambda: told.append(1))
        provider.add_span_processor(Failing())
        if acknowledged:
            batch.resolve(7)
        else:
            batch.fail(ValueError("given up"))
        assert told == [1]
        provider.shutdown()


def test_what_is_not_sampled_or_names_a_trace_has_no_creation(tracer: ProducerTracer) -> None:
    assert tracer.create("t", {PARENT: SAMPLED}) is None
    assert tracer.create("t", "no map") is None
    with use_span(span(sampled=False)):
        assert tracer.create("t") is None
        assert tracer.create("t") is None
    assert tracer.create("t") is not None


def test_of_many_messages_each_keeps_the_trace_that_it_names(tracer: ProducerTracer) -> None:
    creation = tracer.create("t", shared=False)
    assert creation is not None
    named, plain = {PARENT: b"own"}, {"a": b"1"}
    assert creation.spread(None, 2) == [creation.headers] * 2
    assert creation.spread([named, plain, None], 3) == [
        named,
        {**plain, **creation.headers},
        creation.headers,
    ]


def test_only_sampled_traces_are_linked_and_not_too_many() -> None:
    off = SAMPLED[:-2] + b"00"
    found = sampled_contexts(
        [message(), message(a=b"1"), *(message(traceparent=t) for t in (b"", off, b"x1", SAMPLED))]
    )
    assert len(found) == 1
    many = [message(traceparent=SAMPLED)] * (MOST_LINKS + 1)
    assert len(sampled_contexts(many)) == MOST_LINKS


def test_a_poll_that_returned_nothing_may_be_processed() -> None:
    tracer = ConsumerTracer()
    with tracer.process([]) as found:
        assert found is None


def test_an_error_of_the_handling_is_raised_again() -> None:
    tracer = ConsumerTracer()
    with pytest.raises(OSError, match="closed"), tracer.process([message()]):
        raise OSError("closed")
