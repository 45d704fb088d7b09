"""What a task does: read its range straight from the brokers, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logboom.pipeline.clients import client
from logboom.pipeline.limits import Range
from logboom.pipeline.losses import Losses
from logboom.pipeline.rows import Field, record_batches
from logboom.pipeline.source_options import SourceOptions
from logboom.wire.columns import Columns
from logboom.wire.errors import UnknownResource


def read(options: SourceOptions, fields: Sequence[Field], wanted: Range | None) -> Iterator[Any]:
    """Record batches of a range; None: of nothing.

    Raises:
        TimedOut: a broker is away; names it.
        OffsetOutOfRange: messages are missing, and `failOnDataLoss` stands.
    """
    if wanted is None:
        return
    boom = client(options.servers, options.timeout_s)
    topic, queue, start, stop = wanted
    losses = Losses(fail=options.fail_on_data_loss)
    stored = boom.read_range(topic, queue, start, stop)
    if not options.fail_on_data_loss:
        stored = _while_there(stored)
    yield from record_batches(losses.contiguous(stored, wanted), topic, queue, fields)


def _while_there(parts: Iterator[Columns]) -> Iterator[Columns]:
    """The parts up to where the topic was deleted; what is missing then is found like any loss."""
    try:
        yield from parts
    except UnknownResource:
        return
