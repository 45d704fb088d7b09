"""The tracing of a consumer: spans `receive` of polls and `process {topic}` of handling, which link
to the creations of the messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, get_current_span

from logboom import __version__
from logboom.client.results import Message
from logboom.client.tracing import instruments
from logboom.client.tracing.instruments import SCOPE, Instruments, operation
from logboom.client.tracing.trace_headers import sampled_contexts
from logboom.wire.copy_receipts import ORIGIN
from logboom.wire.names import is_reserved


class ConsumerTracer:
    """Spans and metrics of one consumer."""

    def __init__(self, group: str = "", subscription: str = "") -> None:
        """Create the tracing of a consumer.

        Args:
            group: its consumer group; "": none.
            subscription: its subscription; "": none.
        """
        self._tracer = trace.get_tracer(SCOPE, __version__)
        self._instruments = Instruments()
        self._reader: dict[str, str | int] = {}
        if group:
            self._reader[instruments.GROUP] = group
        if subscription:
            self._reader[instruments.SUBSCRIPTION] = subscription

    def begin(self) -> int:
        """Return the time at which a poll begins, in ns since 1970."""
        return time.time_ns()

    def received(self, messages: Sequence[Message], began_ns: int) -> None:
        """Tell of a poll that returned messages. It gets a span if the trace of one of them is
        sampled, or that of the caller."""
        if not messages:
            return
        counts: dict[str, int] = {}
        for message in messages:
            counts[message.topic] = counts.get(message.topic, 0) + 1
        attributes = {
            **operation("receive", "receive", next(iter(counts)) if len(counts) == 1 else ""),
            **self._reader,
        }
        taken_s = max(0, time.time_ns() - began_ns) / 1e9
        self._instruments.operation_duration.record(taken_s, attributes)
        for topic, count in counts.items():
            of_topic = {**attributes, instruments.DESTINATION: topic}
            self._instruments.consumed.add(count, of_topic)
        contexts = sampled_contexts(messages)
        if contexts or get_current_span().get_span_context().trace_flags.sampled:
            name = f"receive {next(iter(counts))}" if len(counts) == 1 else "receive"
            span = self._tracer.start_span(
                name,
                kind=SpanKind.CLIENT,
                attributes={**attributes, instruments.COUNT: len(messages)},
                links=[_link(context) for context in contexts],
                start_time=began_ns,
            )
            span.end()

    @contextmanager
    def process(self, messages: Sequence[Message], *, count: bool = False) -> Iterator[Span | None]:
        """Trace the handling of messages, if the trace of one of them or of the caller is sampled.

        One message alone continues its trace; several are linked only. An exception is recorded
        and raised again.

        Args:
            count: count the messages as delivered, too, because nobody polls for them.
        """
        if not messages:  # of a poll that returned nothing
            yield None
            return
        first = messages[0]
        attributes = {**operation("process", "process", first.topic), **self._reader}
        contexts = sampled_contexts(messages)
        if count:
            self._instruments.consumed.add(len(messages), attributes)
        began = time.monotonic()
        measured = dict(attributes)
        try:
            if contexts or get_current_span().get_span_context().trace_flags.sampled:
                with self._tracer.start_as_current_span(
                    f"process {first.topic}",
                    contexts[0] if contexts and len(messages) == 1 else None,
                    SpanKind.CONSUMER,
                    {**attributes, **_place(messages)},
                    [_link(context) for context in contexts],
                ) as span:
                    yield span
            else:
                yield None
        # Whatever ends the handling is counted, a cancellation too, and raised again.
        except BaseException as error:
            measured[instruments.ERROR] = type(error).__name__
            raise
        finally:
            self._instruments.process_duration.record(time.monotonic() - began, measured)


def note_outcome(span: Span | None, result: object) -> None:
    """Note what a listener returned, if it does not finish its message."""
    if span is not None and result is not None and result is not True:
        span.set_attribute(instruments.OUTCOME, repr(result))


def _link(context: Context) -> Link:
    return Link(get_current_span(context).get_span_context())


def _place(messages: Sequence[Message]) -> dict[str, str | int]:
    first = messages[0]
    attributes: dict[str, str | int] = {instruments.PARTITION: str(first.queue)}
    if len(messages) > 1:
        attributes[instruments.COUNT] = len(messages)
        return attributes
    attributes[instruments.OFFSET] = first.offset
    if first.attempt > 1:
        attributes[instruments.ATTEMPT_NUMBER] = first.attempt
    origin = (first.headers or {}).get(ORIGIN)
    # In any other topic whoever wrote the message may have said so.
    if origin is not None and (first.read_from is not None or is_reserved(first.topic)):
        attributes[instruments.ORIGIN_PLACE] = origin.decode("utf-8", "replace")
    return attributes
