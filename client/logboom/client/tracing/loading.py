"""The only way to tracing: OpenTelemetry is imported when a producer or consumer asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logboom.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from logboom.client.tracing.consumer_tracer import ConsumerTracer
    from logboom.client.tracing.producer_tracer import ProducerTracer


def load_producer_tracer() -> ProducerTracer:
    """Create the tracing of a producer.

    Raises:
        InvalidRequest: OpenTelemetry is not installed.
    """
    try:
        from logboom.client.tracing.producer_tracer import ProducerTracer
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return ProducerTracer()


def load_consumer_tracer(group: str = "", subscription: str = "") -> ConsumerTracer:
    """Create the tracing of a consumer, of a group or a subscription if it has one.

    Raises:
        InvalidRequest: OpenTelemetry is not installed.
    """
    try:
        from logboom.client.tracing.consumer_tracer import ConsumerTracer
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return ConsumerTracer(group, subscription)


def _missing(error: ModuleNotFoundError) -> Exception:
    if error.name is None or not error.name.startswith("opentelemetry"):
        return error
    return InvalidRequest(
        "tracing=True needs the OpenTelemetry API: pip install 'logboom[tracing]'"
    )
