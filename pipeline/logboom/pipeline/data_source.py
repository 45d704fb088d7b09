"""The data source that Spark knows as "logboom".

Spark looks it up, creates it, plans it and runs it in processes that start anew each time. So what
only readers need is imported where they are created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logboom.pipeline.source_options import SourceOptions, source_options
from logboom.wire.errors import InvalidRequest, LogboomError

if TYPE_CHECKING:
    from logboom.pipeline.record_batches import Field
    from logboom.pipeline.sink_options import SinkOptions

HEADER: Final = StructType(
    [StructField("key", StringType(), True), StructField("value", BinaryType(), True)]
)
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER, True),
    "tag": StringType(),
}
"""All columns. Those up to `timestampType` are the schema of Kafka's source. The
others are added by `includeHeaders` or `.schema(...)`."""
ALWAYS: Final = tuple(COLUMNS)[:7]


class LogboomDataSource(DataSource):
    """`spark.read` and `spark.readStream` from topics, `write` and `writeStream` to topics."""

    @classmethod
    def name(cls) -> str:
        """Return the name that users pass to `format`."""
        return "logboom"

    def schema(self) -> StructType:
        """Return Kafka's columns, with headers if they are requested."""
        headers = str(self.options.get("includeHeaders", "")).strip().lower() == "true"
        names = [*ALWAYS, "headers"] if headers else ALWAYS
        return StructType([StructField(name, COLUMNS[name], True) for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch read.

        Raises:
            InvalidRequest: an option or a column is invalid.
        """
        from logboom.pipeline.batch_reader import BatchReader

        options, fields = self._asked(schema, stream=False)
        return BatchReader(options, fields)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name for it
        """Return a stream read; if an option or a column is invalid, one that says so.

        Where Spark asks for this, it hides an error behind one of its own (UnboundLocalError). So the
        reader raises it as soon as it is asked where to begin.
        """
        from logboom.pipeline.stream_reader import RefusedStream, StreamReader

        try:
            return StreamReader(*self._asked(schema, stream=True))
        except LogboomError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch write.

        Raises:
            InvalidRequest: an option or a column is invalid.
        """
        from logboom.pipeline.sink import BatchWriter

        return BatchWriter(self._wanted(schema, overwrite=overwrite, stream=False))

    def streamWriter(  # noqa: N802 - Spark's name for it
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        """Return the sink of a stream.

        Raises:
            InvalidRequest: an option or a column is invalid.
        """
        from logboom.pipeline.sink import StreamWriter

        return StreamWriter(self._wanted(schema, overwrite=overwrite, stream=True))

    def _wanted(self, schema: StructType, *, overwrite: bool, stream: bool) -> SinkOptions:
        from logboom.pipeline.sink_columns import check_columns
        from logboom.pipeline.sink_options import sink_options

        given: dict[str, Any] = dict(self.options)
        if overwrite:
            how = 'mode("append")'
            if stream:
                how = 'outputMode "append"; a running aggregate by logboom.pipeline.publish_updates'
            raise InvalidRequest(f"what is in a topic stays there: write with {how}")
        options = sink_options(given, stream=stream)
        check_columns([(each.name, each.dataType.simpleString()) for each in schema], options)
        return options

    def _asked(self, schema: StructType, *, stream: bool) -> tuple[SourceOptions, list[Field]]:
        given: dict[str, Any] = dict(self.options)
        return source_options(given, stream=stream), fields_of(schema)


def fields_of(schema: StructType) -> list[Field]:
    """Return the columns of a read, any of ours in any order.

    For example, `.schema("value binary")` reads only the values.

    Raises:
        InvalidRequest: a column does not exist or has another type.
    """
    from logboom.pipeline.record_batches import arrow_schema

    fields = [(field.name, field.nullable) for field in schema.fields]
    arrow_schema(fields)
    for field in schema.fields:
        right = COLUMNS[field.name]
        if field.dataType != right:
            text = f"column {field.name!r} is {right.simpleString()}, not {field.dataType.simpleString()}"
            raise InvalidRequest(f"{text}: cast it after reading")
    return fields
