"""The work of a task of a write: it parks its rows for one decision, or stores them at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from logboom.client import Client, ParkedHandle, Producer
from logboom.client.futures import wait
from logboom.client.send.producer_batch import ProducerBatch
from logboom.client.send.transaction_batches import TransactionBatches
from logboom.client.transactions.parked_batches import handle_of, parks_of
from logboom.pipeline.clients import client, producer
from logboom.pipeline.sink_batches import Batcher
from logboom.pipeline.sink_options import SinkOptions
from logboom.wire.errors import InternalError, LogboomError, TransactionError, UnknownResource

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Internal names under which Spark tells tasks of a stream their query."""
SPARK_APP_ID: Final = "spark.app.id"
"""The same of Spark's application. A query runs once in an application, and, unlike the job group, no
user sets this property."""
CLOSED: Final = "TRANSACTION_CLOSED"


@dataclass(frozen=True, slots=True)
class TransactionUnit:
    """A unit that is published completely or not at all: one sequence of one application."""

    app_id: str
    """As users know it: the name servers may know it by another name (`application_id`)."""
    sequence: int


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The message from a task to the driver: the positions that it parked, not their content."""

    unit: TransactionUnit | None
    """None: its rows are stored and there is nothing to decide."""
    attempt: int
    handles: tuple[ParkedHandle, ...] = ()
    closed: bool = False
    """The unit was published before, so that nothing was parked."""
    rows: int = 0
    sizes: tuple[int, ...] = ()
    """The bytes of the batch of each handle."""
    query: str = ""
    """The id of the query that writes with a user's application id; "": there is no such query."""
    run: str = ""
    """That query in this application of Spark."""


def stream_unit(options: SinkOptions) -> TransactionUnit:
    """Return the unit of a micro-batch from the context of the running task.

    Raises:
        InternalError: this version of Spark has no such context.
    """
    task = TaskContext.get()
    query = options.app_id or (task and task.getLocalProperty(QUERY_ID))
    batch = task.getLocalProperty(BATCH_ID) if task else None
    if not query or batch is None:
        text = (
            f"this Spark does not tell tasks their micro-batch ({QUERY_ID}, {BATCH_ID}): say "
            "delivery=at-least-once, or write in foreachBatch with txnAppId and txnVersion"
        )
        raise InternalError(text)
    return TransactionUnit(options.app_id or f"spark-{query}", int(batch))


def application_id(options: SinkOptions, unit: TransactionUnit) -> str:
    """Return the application id of a unit in the cluster.

    A user's id is one for each topic, as that of a Delta table is: so the two writes of one
    `foreachBatch` to two topics, with the same id and version, are both published.
    """
    return options.named_id if unit.app_id == options.app_id else unit.app_id


def write(
    options: SinkOptions, unit: TransactionUnit | None, attempt: int, record_batches: Iterable[Any]
) -> TaskCommit:
    """Write the rows of a task.

    Args:
        unit: the unit to park them for; None: they are stored at once.
        attempt: distinguishes runs of the same unit; all tasks of a run have the same.

    Raises:
        TimedOut: a broker does not answer; the text names it.
        InvalidRequest: some rows cannot be written.
        UnknownResource: there is no such topic or queue.
    """
    parks = None
    if unit is not None:
        parks = parks_of(application_id(options, unit), attempt, unit.sequence)
    query, run = _query() if options.app_id else ("", "")
    rest = iter(record_batches)
    try:
        piles = list(_sent(options, rest, parks, attempt))
        for pile in piles:
            wait(pile)
            pile.get()
    except TransactionError as error:
        if error.code != CLOSED:
            raise
        # Published by an earlier run whose end Spark has not seen. Spark needs all rows to be
        # consumed.
        for _ in rest:
            continue
        return TaskCommit(unit, attempt, closed=True, query=query, run=run)
    handles = () if parks is None else tuple(map(handle_of, piles))
    rows = sum(pile.count for pile in piles)
    sizes = tuple(pile.size for pile in piles) if handles else ()
    return TaskCommit(unit, attempt, handles, rows=rows, sizes=sizes, query=query, run=run)


def _query() -> tuple[str, str]:
    """Return the query that this task works for, also in `foreachBatch`, and its run, or "" twice."""
    task = TaskContext.get()
    query = task.getLocalProperty(QUERY_ID) if task is not None else None
    if task is None or not query:
        return "", ""
    return query, f"{task.getLocalProperty(SPARK_APP_ID)} {query}"


def _sent(
    options: SinkOptions,
    record_batches: Iterable[Any],
    parks: TransactionBatches | None,
    attempt: int,
) -> Iterator[ProducerBatch]:
    # One client for the whole task: it stays open until the next one asks for a client.
    boom = client(options.servers, options.timeout_s)
    sender = producer(boom, options.timeout_s)
    task = TaskContext.get()
    # Tasks of a write begin at neighbouring queues, and each write elsewhere: a small one fills one
    # queue.
    first = attempt + (0 if task is None else task.partitionId())
    now_ms = time.time_ns() // 1_000_000
    batcher = Batcher(options, lambda topic: _queues(options, boom, sender, topic), now_ms, first)
    unsettled: list[ProducerBatch] = []
    for topic, queue, batch, count in batcher.batches(record_batches):
        pile = sender.buffer.send_batch(topic, queue, batch, count, parks)
        unsettled.append(pile)
        if unsettled[0].done:
            unsettled.pop(0).get()  # it is useless to send the others if this one failed
        yield pile


def _queues(options: SinkOptions, boom: Client, sender: Producer, topic: str) -> int:
    known = sender.buffer.topics.get(topic)
    if known is None:
        try:
            known = sender.buffer.find_topic(topic)
        except UnknownResource:
            if not options.queues:
                raise
            _create(options, boom, topic)
            known = sender.buffer.find_topic(topic)
    return len(known.queues)


def _create(options: SinkOptions, boom: Client, topic: str) -> None:
    try:
        boom.admin.create_topic(topic, queues=options.queues)
    except LogboomError as error:
        if error.code != "TOPIC_EXISTS":
            raise
