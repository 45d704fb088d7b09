"""The tracing of a producer.

A message that is sent within a sampled span gets a span `create {topic}`, whose context goes into
its headers. Messages that are sent to a topic in a row within one span share it, because a span
costs more than sending many messages. A batch that holds such messages gets a span `send {topic}`, from its first of them to
its acknowledgement, with links to their creations.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context

from logboom import __version__
from logboom.client.argument_checks import BytesLike
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.tracing import instruments
from logboom.client.tracing.instruments import SCOPE, Instruments, operation
from logboom.client.tracing.trace_headers import MOST_LINKS, PARENT, headers_of

LOG = logging.getLogger("logboom.client")

F = TypeVar("F")

SHARED_S: Final = 0.1
"""Seconds for which messages of one topic, sent within the same span, share one creation."""


class Creation:
    """The creation of messages that are being sent. It fails with what is raised within `with`."""

    __slots__ = ("_ended", "_span", "_tracer", "began", "context", "failed", "headers", "topic")

    def __init__(self, tracer: ProducerTracer, context: Context, topic: str, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._ended = False
        self.failed = False
        """True if messages were refused before any was in a batch."""
        self.context = context
        """The context within which the messages are sent."""
        self.topic = topic
        self.began = time.monotonic()
        self.headers = headers_of(span)
        """The headers to add."""

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        # Whatever refuses the messages; it is raised again.
        if error is not None:
            self.fail(error)

    def spread(
        self, headers: Sequence[Mapping[str, bytes] | None] | None, count: int
    ) -> Sequence[Mapping[str, bytes] | None]:
        """Return the headers of `count` messages. A message that names a trace keeps it."""
        if headers is None:
            return [self.headers] * count
        if not all(each is None or isinstance(each, Mapping) for each in headers):
            return headers  # the buffer refuses them
        return [
            each if each is not None and PARENT in each else {**(each or {}), **self.headers}
            for each in headers
        ]

    def added(self, batches: Iterable[ProducerBatch]) -> None:
        """End the creation: the messages are in these batches."""
        for batch in batches:
            if batch.traced is None or batch.traced.last is not self:
                self._tracer.link(batch, self, self._span)
        if not self._ended:
            self._ended = True
            self._span.end()

    def fail(self, error: BaseException) -> None:
        """End the creation, unless it has ended: the messages were refused."""
        if self._ended:
            return
        self._ended = self.failed = True
        self._span.record_exception(error)
        self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()


class ProducerTracer:
    """Spans and metrics of one producer. Threads create, the core's thread acknowledges."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer(SCOPE, __version__)
        self._instruments = Instruments()
        self._lock = threading.Lock()
        self._last: Creation | None = None
        self.unsampled: Context | None = None
        """A context whose span is not sampled. Contexts never change, and most sends have the same as
        the one before, so most need only one comparison."""

    def create(self, topic: str, headers: object = None, *, shared: bool = True) -> Creation | None:
        """Begin the creation of messages; None if nothing is to be traced: the current span is not
        sampled, or the message names a trace already.

        Args:
            shared: return the creation of the message before, if it was sent to the same topic
                within the same span just now, and was not refused.
        """
        context = get_current()
        if context is self.unsampled:
            return None
        if not trace.get_current_span(context).get_span_context().trace_flags.sampled:
            self.unsampled = context
            return None
        if headers is not None and (not isinstance(headers, Mapping) or PARENT in headers):
            return None  # what is no map, the buffer refuses
        last = self._last
        if (
            shared
            and last is not None
            and not last.failed
            and last.context is context
            and last.topic == topic
            and time.monotonic() - last.began < SHARED_S
        ):
            return last
        span = self._tracer.start_span(
            f"create {topic}",
            kind=SpanKind.PRODUCER,
            attributes=operation("create", "create", topic),
        )
        creation = Creation(self, context, topic, span)
        if shared:
            self._last = creation
        return creation

    def shorten(self, send: Callable[..., F], traced: Callable[..., F]) -> Callable[..., F]:
        """Return a function that calls `send` while the current span is not sampled, with as little
        as possible in between, and else `traced`."""

        def choose(
            topic: str,
            value: BytesLike | None,
            *,
            key: BytesLike | None = None,
            queue: int | None = None,
            **options: Any,
        ) -> F:
            if options or get_current() is not self.unsampled:
                return traced(topic, value, key=key, queue=queue, **options)
            return send(topic, value, key=key, queue=queue)

        return choose

    def link(self, batch: ProducerBatch, creation: Creation, created: Span) -> None:
        """Link the span of a batch to the creation of one of its messages."""
        context = created.get_span_context()
        with self._lock:
            first = batch.traced is None
            if first:
                attributes = operation("send", "send", batch.topic)
                attributes[instruments.PARTITION] = str(batch.queue)
                span = self._tracer.start_span(
                    f"send {batch.topic}",
                    set_span_in_context(created),
                    SpanKind.CLIENT,
                    attributes,
                    [Link(context)],
                )
                batch.traced = _BatchSpan(span)
            elif not batch.done and batch.traced.links < MOST_LINKS:
                batch.traced.span.add_link(context)
                batch.traced.links += 1
            batch.traced.last = creation
        if first:
            batch.add_callback(lambda: _observe(self._end, batch))

    def watch(self, batch: ProducerBatch) -> None:
        """Count a batch once it is acknowledged or given up."""
        batch.add_callback(lambda: _observe(self._count, batch))

    def _end(self, batch: ProducerBatch) -> None:
        with self._lock:
            span: Span = batch.traced.span
        span.set_attribute(instruments.COUNT, batch.count)
        if batch.error is not None:
            span.record_exception(batch.error)
            span.set_attribute(instruments.ERROR, type(batch.error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(batch.error)))
        elif batch.value >= 0:
            span.set_attribute(instruments.OFFSET, batch.value)
        span.end()

    def _count(self, batch: ProducerBatch) -> None:
        attributes = operation("send", "send", batch.topic)
        if batch.error is not None:
            attributes[instruments.ERROR] = type(batch.error).__name__
        taken_s = time.monotonic() - batch.born
        self._instruments.operation_duration.record(taken_s, attributes)
        self._instruments.sent.add(batch.count, attributes)


def _observe(observe: Callable[[ProducerBatch], None], batch: ProducerBatch) -> None:
    try:
        observe(batch)
    # Processors and exporters of the program may raise anything, and must not end the thread that
    # runs the core.
    except BaseException:
        LOG.exception("the tracing of a batch of %s/%s failed", batch.topic, batch.queue)


class _BatchSpan:
    """The span of a batch."""

    __slots__ = ("last", "links", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.links = 1
        self.last: Creation | None = None
        """The creation of its latest message."""
