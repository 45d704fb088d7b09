"""`spark.read.format("logboom")`: one read of the messages that exist when it is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from logboom.client import Client
from logboom.pipeline.clients import again
from logboom.pipeline.cluster_offsets import Bounds, QueueBounds
from logboom.pipeline.data_loss import DataLossPolicy
from logboom.pipeline.offset_ranges import OffsetRange, ranges
from logboom.pipeline.partition_reader import read
from logboom.pipeline.queue_offsets import Offsets
from logboom.pipeline.record_batches import Field
from logboom.pipeline.source_options import SourceOptions


class BatchReader(DataSourceReader):
    """A batch read, planned on the driver and executed in tasks.

    It is pickled for the tasks, and connects only where it is used.
    """

    def __init__(self, options: SourceOptions, fields: Sequence[Field]) -> None:
        self.options = options
        self.fields = fields

    def partitions(self) -> list[Any]:
        """Return one partition per queue, or as many as the options ask for."""
        options = self.options
        bounds, start, end = again(options.servers, options.timeout_s, self._plan)
        losses = DataLossPolicy(fail=options.fail_on_data_loss)
        # If the start is after the end, as with a group that is further than the end of a day,
        # nothing is requested, so nothing is lost.
        wanted = {
            place: stop
            for place, stop in end.items()
            if not stop <= start[place] <= bounds[place][1]
        }
        start, end = losses.within(start, wanted, bounds, named=True)
        parts = ranges(start, end, options.min_partitions, options.max_records)
        return [InputPartition(part) for part in parts]

    def _plan(self, boom: Client) -> tuple[Bounds, Offsets, Offsets]:
        cluster = QueueBounds(boom, self.options)
        bounds = cluster.bounds()
        return bounds, cluster.start(bounds), cluster.end(bounds)

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        wanted: OffsetRange | None = partition.value
        return read(self.options, self.fields, wanted)
