"""The work of a task: it reads its range directly from the brokers as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logboom.client import Client
from logboom.pipeline.clients import client
from logboom.pipeline.data_loss import DataLossPolicy
from logboom.pipeline.offset_ranges import OffsetRange
from logboom.pipeline.record_batches import Field, record_batches
from logboom.pipeline.source_options import SourceOptions
from logboom.wire.columns import Columns
from logboom.wire.errors import UnknownResource


def read(
    options: SourceOptions, fields: Sequence[Field], wanted: OffsetRange | None
) -> Iterator[Any]:
    """Record batches of a range; None: of nothing.

    Raises:
        TimedOut: a broker does not answer; the text names it.
        OffsetOutOfRange: messages are missing, and `failOnDataLoss` is true.
    """
    if wanted is None:
        return
    boom = client(options.servers, options.timeout_s)
    topic, queue, start, stop = wanted
    losses = DataLossPolicy(fail=options.fail_on_data_loss)
    stored = boom.read_range(topic, queue, start, stop)
    if not options.fail_on_data_loss:
        stored = _while_there(stored)
    whole = losses.contiguous(stored, wanted, lambda: _log_start(boom, topic, queue))
    yield from record_batches(whole, topic, queue, fields)


def _log_start(boom: Client, topic: str, queue: int) -> int:
    """Return where the log of a compacted topic begins, or 0 for any other or missing topic."""
    try:
        first, _ = boom.admin.offsets(topic, [queue])[queue]
        kept, _ = boom.admin.offsets(topic, [queue], read_compacted=True)[queue]
    except UnknownResource:
        return 0
    return first if kept < first else 0


def _while_there(parts: Iterator[Columns]) -> Iterator[Columns]:
    """Yield the parts up to where the topic was deleted. The rest is then an ordinary loss."""
    try:
        yield from parts
    except UnknownResource:
        return
