"""The work of a task: it reads its range directly from the brokers as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from logboom.pipeline.clients import client, renewed
from logboom.pipeline.data_loss import DataLossPolicy
from logboom.pipeline.offset_ranges import OffsetRange
from logboom.pipeline.record_batches import Field, record_batches
from logboom.pipeline.source_options import SourceOptions
from logboom.wire.columns import Columns
from logboom.wire.errors import Unauthenticated, UnknownResource


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
    topic, queue, _, _ = wanted
    source = _Source(options)
    losses = DataLossPolicy(fail=options.fail_on_data_loss)
    stored = source.stored(wanted)
    if not options.fail_on_data_loss:
        stored = _while_there(stored)
    whole = losses.contiguous(stored, wanted, lambda: source.log_start(topic, queue))
    yield from record_batches(whole, topic, queue, fields)


class _Source:
    """The client of a task. If its credentials are refused, it goes on with those in the file now."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._boom = client(options.servers, options.timeout_s)

    def _renew(self) -> None:
        self._boom = renewed(self._options.servers, self._options.timeout_s, self._boom)

    def stored(self, wanted: OffsetRange) -> Iterator[Columns]:
        """Yield the parts of a range."""
        topic, queue, at, stop = wanted
        while True:
            try:
                for part in self._boom.read_range(topic, queue, at, stop):
                    at = part.next_offset
                    yield part
            except Unauthenticated:
                self._renew()
            else:
                return

    def log_start(self, topic: str, queue: int) -> int:
        """Return where the log of a compacted topic begins, or 0 for any other or missing topic."""
        admin = self._boom.admin
        try:
            first, _ = admin.offsets(topic, [queue])[queue]
            kept, _ = admin.offsets(topic, [queue], read_compacted=True)[queue]
        except UnknownResource:
            return 0
        return first if kept < first else 0


def _while_there(parts: Iterator[Columns]) -> Iterator[Columns]:
    """Yield the parts up to where the topic was deleted. The rest is then an ordinary loss."""
    try:
        yield from parts
    except UnknownResource:
        return
