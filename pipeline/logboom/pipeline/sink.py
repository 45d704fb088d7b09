"""The writers of `write` and `writeStream`, which Spark calls in tasks and on the driver.

For exactly once, each task parks its rows invisibly (`logboom.pipeline.sink_delivery`). Spark
passes the driver one message from each successful task, and the driver writes one decision to the
name servers' log that lists exactly what these tasks parked. A micro-batch has a number within its
query, for which only the first decision ever counts. If Spark runs it again because it did not see
the end, nothing changes. Rows of failed tasks are dropped by the decision, or by the brokers as
orphans.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from logboom.client import Client, ParkedHandle
from logboom.pipeline.clients import again, producer
from logboom.pipeline.joined_batches import Parked, join_batches
from logboom.pipeline.sink_delivery import (
    CLOSED,
    TaskCommit,
    TransactionUnit,
    application_id,
    stream_unit,
    write,
)
from logboom.pipeline.sink_epochs import epoch_of
from logboom.pipeline.sink_options import SinkOptions
from logboom.wire.errors import (
    InternalError,
    InvalidRequest,
    LogboomError,
    Refused,
    TransactionError,
)
from logboom.wire.transactions import MADE_UP

LOG: Final = logging.getLogger("logboom.pipeline")
ATTEMPT_BITS: Final = 62
TAKEN: Final = "APPLICATION_TAKEN"
UNPARKED: Final = ("TRANSACTION_ABORTED", "UNKNOWN_HANDLES")


class BatchWriter(DataSourceArrowWriter):
    """The writer of `frame.write`. It is sent to the tasks and back to the driver's commit."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.attempt = new_attempt()
        self.unit: TransactionUnit | None = None
        if options.exactly_once and options.version is not None:
            self.unit = TransactionUnit(options.app_id, options.version)
        elif options.exactly_once:
            # The name is never used again, so nothing of it has to be kept forever.
            self.unit = TransactionUnit(f"{MADE_UP}spark-write-{uuid.uuid4()}", 0)

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """Write a task's rows, in the task."""
        return write(self.options, self.unit, self.attempt, iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        """Publish what the tasks have parked, on the driver."""
        publish(self.options, messages)

    def abort(self, messages: Sequence[Any]) -> None:
        """Drop what the tasks have parked unless it is published, on the driver."""
        drop(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `frame.writeStream`.

    It is sent to the tasks; the driver commits with another one.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.attempt = new_attempt()

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """Write a task's rows, in the task."""
        unit = stream_unit(self.options) if self.options.exactly_once else None
        return write(self.options, unit, self.attempt, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name for it
        """Publish what the tasks of a micro-batch have parked, on the driver."""
        _check_batch(messages, batchId)
        publish(self.options, messages)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name for it
        """Drop what the tasks have parked unless it is published, on the driver."""
        drop(self.options, messages)


def new_attempt() -> int:
    """Return a number that no other run of the same unit has."""
    return uuid.uuid4().int >> (128 - ATTEMPT_BITS)


def publish(options: SinkOptions, messages: Iterable[Any]) -> None:
    """Publish what the tasks of a unit have parked.

    Raises:
        TransactionError: the parked batches no longer exist, because the write took too long.
        TransactionError: APPLICATION_TAKEN: the `txnAppId` belongs to another query.
        Refused: FENCED: a newer run of this query writes.
        TimedOut: it is unknown whether the decision was made and carried out.
        InvalidRequest: TOO_LARGE: more batches than one decision may list.
    """
    messages = list(messages)
    unit, handles = _parked(messages)
    if unit is None:
        return
    # To join and to decide once more changes nothing.
    again(
        options.servers,
        options.timeout_s,
        lambda boom: _publish(boom, options, unit, handles, messages),
    )


def _publish(
    boom: Client,
    options: SinkOptions,
    unit: TransactionUnit,
    handles: list[Any],
    messages: list[Any],
) -> None:
    written = [each for each in messages if isinstance(each, TaskCommit)]
    before = any(each.closed for each in written)
    if handles or (before and written[0].query):
        # A queue that had no part in the first decision accepts parked batches. A task that parks
        # nothing more may still be of another query, or fenced.
        joined = handles and _joined(boom, options, unit, written)
        before |= _decide(boom, options, unit, joined, written[0])
    if before and options.app_id:
        _tell_closed(options, unit)


def _joined(
    boom: Client, options: SinkOptions, unit: TransactionUnit, written: list[TaskCommit]
) -> list[ParkedHandle]:
    """Return handles that fit into a decision. There may be too many of small batches."""
    parked = [
        Parked(handle, size)
        for one in written
        for handle, size in zip(one.handles, one.sizes, strict=True)
    ]
    sender = producer(boom, options.timeout_s)
    try:
        return join_batches(boom, sender, parked, options.compression)
    except TransactionError as error:
        if error.code == CLOSED:
            return []  # another run has published it meanwhile, as the decision will show
        raise _unparked(unit, error) from error


def _unparked(unit: TransactionUnit, error: TransactionError) -> TransactionError:
    if error.code not in UNPARKED:
        return error
    text = (
        f"write {unit.sequence} of {unit.app_id!r} is not published: it was not decided within "
        "the brokers' transaction_timeout_ms after its first rows came. Run it again with fewer "
        "rows at once, or raise transaction_timeout_ms"
    )
    return TransactionError(f"{text}. ({error.text})", error.code)


def _decide(
    boom: Client,
    options: SinkOptions,
    unit: TransactionUnit,
    handles: list[Any],
    by: TaskCommit,
) -> bool:
    """Decide for the query of a task; whether somebody had before."""
    app_id = application_id(options, unit)
    try:
        epoch = None
        if by.query:
            epoch = epoch_of(boom, options.servers, app_id, by.query, by.run, options.replaces)
        return boom.decide(app_id, unit.sequence, handles, epoch=epoch).again
    except Refused as error:
        if error.code != "FENCED":
            raise
        text = (
            f"write {unit.sequence} of {unit.app_id!r} is not published: a newer query, or this one "
            "started anew from its checkpoint or a copy of it, writes under the same txnAppId. Stop "
            "one of them, and start the other in a new Spark session"
        )
        raise Refused(f"{text}. ({error.text})", "FENCED") from error
    except InvalidRequest as error:
        if error.code != "TOO_LARGE":
            raise
        text = (
            f"write {unit.sequence} of {unit.app_id!r} parked {len(handles)} batches, more than one "
            "decision can name: nothing is published. Bound a stream by maxOffsetsPerTrigger or "
            "maxBytesPerTrigger, write from fewer tasks (coalesce), or say delivery=at-least-once"
        )
        raise InvalidRequest(f"{text}. ({error.text})", "TOO_LARGE") from error
    except TransactionError as error:
        if error.code == TAKEN:
            raise _taken(unit, by.query, error) from error
        raise _unparked(unit, error) from error


def _taken(unit: TransactionUnit, query: str, error: TransactionError) -> TransactionError:
    owner, committed = error.fields.get("owner"), error.fields.get("committed")
    text = (
        f"write {unit.sequence} of {unit.app_id!r} is not published: this txnAppId belongs to query "
        f"{owner}, and this is query {query}. A query with a new checkpoint needs a txnAppId of its "
        f"own. If this one continues the numbers of that one, say txnReplaces={owner}: its "
        f"micro-batches up to number {committed} count as published, and are not written"
    )
    return TransactionError(text, TAKEN, **error.fields)


def drop(options: SinkOptions, messages: Iterable[Any]) -> None:
    """Drop what was parked, unless it is published. What this does not reach, the brokers drop."""
    try:
        unit, handles = _parked(messages)
        if unit is not None and handles:
            app_id = application_id(options, unit)
            again(
                options.servers,
                options.timeout_s,
                lambda boom: boom.decide(app_id, unit.sequence, handles, commit=False),
            )
    except LogboomError as error:
        # Spark is about to tell why the write failed; this must not hide it.
        LOG.warning("what a failed write has parked is left to the brokers: %s", error)


def _parked(messages: Iterable[Any]) -> tuple[TransactionUnit | None, list[Any]]:
    """Return the unit and all handles in the order of the tasks. None stands for a failed task."""
    written = [message for message in messages if isinstance(message, TaskCommit)]
    units = {message.unit for message in written}
    if len(units) > 1:
        raise InternalError(f"tasks of one write parked for {len(units)}: please report it")
    return units.pop() if units else None, [each for one in written for each in one.handles]


def _tell_closed(options: SinkOptions, unit: TransactionUnit) -> None:
    """Log that nothing is written, because two writes may have been given the same name."""
    text = f"write {unit.sequence} of {unit.app_id!r} was published before: nothing is written now"
    way = "with a new checkpoint" if options.version is None else "of other rows"
    name = "txnAppId" if options.version is None else "txnVersion, a higher one"
    LOG.warning("%s. So it is right after a crash; a write %s needs another %s", text, way, name)


def _check_batch(messages: Iterable[Any], batch: int) -> None:
    unit, _ = _parked(messages)
    if unit is not None and unit.sequence != batch:
        text = f"Spark told tasks of micro-batch {unit.sequence}, and commits {batch}"
        raise InternalError(f"{text}: please report it")
