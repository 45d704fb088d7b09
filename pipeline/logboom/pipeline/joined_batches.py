"""Small parked batches, joined into large ones if there are too many for one decision.

Each task parks a batch per queue. Many tasks with few rows for many queues make more batches than
one decision can name, however small they are. Before such a decision the driver fetches the small
batches of a queue, in the order of the tasks, and parks them again as one. The decision drops the
batches that it does not name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from logboom.client import Client, ParkedHandle, Producer
from logboom.client.futures import wait
from logboom.client.transactions.parked_batches import handle_of, parks_of
from logboom.pipeline.sink_batches import LARGE_TARGET, MAX_ROWS
from logboom.wire.batch import encode_batch
from logboom.wire.columns import Columns
from logboom.wire.transactions import MAX_HANDLES


class Parked(NamedTuple):
    """A parked batch, and its size in bytes."""

    handle: ParkedHandle
    size: int


LARGE: Final = LARGE_TARGET // 2
"""Bytes from which joining a batch is not worthwhile."""


def join_batches(
    boom: Client, sender: Producer, parked: Sequence[Parked], codec: str
) -> list[ParkedHandle]:
    """Return handles of the same messages in the same order, in fewer batches per queue.

    Raises:
        TransactionError: UNKNOWN_HANDLES: a batch is not parked (any longer). TRANSACTION_CLOSED.
        TimedOut: a broker does not answer; the text names it.
    """
    if len(parked) <= MAX_HANDLES:
        return [each.handle for each in parked]
    by_queue: dict[tuple[int, int], list[Parked]] = {}
    for each in parked:
        by_queue.setdefault((each.handle.topic_id, each.handle.queue), []).append(each)
    found = []
    for of_queue in by_queue.values():
        for run in runs(of_queue):
            one = run[0].handle
            found.append(one if len(run) == 1 else _parked_again(boom, sender, run, codec))
    return found


def runs(parked: Sequence[Parked]) -> Iterator[list[Parked]]:
    """Return runs of small consecutive batches, each to be joined into one batch."""
    run: list[Parked] = []
    size = rows = 0
    for each in parked:
        size += each.size
        rows += each.handle.count
        if run and (
            size > LARGE_TARGET or rows > MAX_ROWS or max(each.size, run[-1].size) >= LARGE
        ):
            yield run
            run, size, rows = [], each.size, each.handle.count
        run.append(each)
    if run:
        yield run


def _parked_again(
    boom: Client, sender: Producer, run: Sequence[Parked], codec: str
) -> ParkedHandle:
    handles = [each.handle for each in run]
    parts: list[Columns] = []
    while len(parts) < len(handles):
        parts += boom.read_parked(handles[len(parts) :])
    batch = encode_batch(
        list(chain.from_iterable(part.values() for part in parts)),
        list(chain.from_iterable(part.keys() for part in parts)),
        list(chain.from_iterable(part.tags() for part in parts)),
        list(chain.from_iterable(part.all_headers() for part in parts)),
        list(chain.from_iterable(part.timestamps() for part in parts)),
        now_ms=time.time_ns() // 1_000_000,
        codec=codec,
    )
    one = handles[0]
    parks = parks_of(one.app_id, one.attempt, one.sequence)
    pile = sender.buffer.send_batch(
        one.topic, one.queue, batch, sum(len(part) for part in parts), parks
    )
    wait(pile)
    return handle_of(pile)
