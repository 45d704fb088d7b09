"""W3C Trace Context in the headers of messages.

`traceparent` and `tracestate` are text bytes, as Kafka clients write them, so that a gateway need
not change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from logboom.client.results import Message

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
MOST_LINKS: Final = 128
"""Links of one span, as the limit of OpenTelemetry's SDKs."""
_SAMPLED: Final = frozenset(b"13579bdf")
"""Last digits of the flags of what was sampled."""
_W3C: Final = TraceContextTextMapPropagator()


def headers_of(span: Span) -> dict[str, bytes]:
    """Return the headers that name a span."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    return {name: text.encode("ascii") for name, text in carrier.items() if text}


def context_of(headers: Mapping[str, bytes]) -> Context | None:
    """Return the context that headers name; None if they name none."""
    carrier = {
        name: headers[name].decode("ascii", "replace")
        for name in (PARENT, STATE)
        if name in headers
    }
    context = _W3C.extract(carrier, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def sampled_contexts(messages: Iterable[Message]) -> list[Context]:
    """Return the contexts of messages whose traces are sampled, at most as many as a span has
    links."""
    found: list[Context] = []
    for message in messages:
        headers = message.headers
        if headers is None:
            continue
        parent = headers.get(PARENT)
        if not parent or parent[-1] not in _SAMPLED:
            continue
        context = context_of(headers)
        if context is not None:
            found.append(context)
            if len(found) == MOST_LINKS:
                break
    return found
