"""What the stopped brokers of a cluster hold: compared with each other, and as runs of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import zip_longest
from pathlib import Path

from logboom.nodes.disk.rocks_storage import RocksStorage
from logboom.nodes.log.keys import log_key, position_of, queue_end
from logboom.wire.batch import open_batch, validate_batch
from logboom.wire.errors import DamagedBatch
from tests.chaos.ledger import Verdict
from tests.chaos.payload import runs
from tests.sim.judges.logs import ALIKE, GAPS, WHOLE, Stored


def stored(
    folders: Mapping[str, Path],
    topic_id: int,
    replicas: Sequence[Sequence[str]],
    verdict: Verdict,
) -> dict[int, list[Stored]]:
    """Queue → its messages; every difference between its replicas goes into `verdict`.

    `replicas`: of each queue, the brokers that are to hold it.
    """
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(closing(RocksStorage(folder, name)))
            for name, folder in folders.items()
        }
        return {
            queue: list(
                _queue(
                    {name: stores[name] for name in names}, topic_id, queue, len(replicas), verdict
                )
            )
            for queue, names in enumerate(replicas)
        }


def _queue(
    stores: Mapping[str, RocksStorage], topic_id: int, queue: int, queues: int, verdict: Verdict
) -> Iterator[Stored]:
    begin, end = log_key(topic_id, queue, 0), queue_end(topic_id, queue)
    scans = [storage.scan("log", begin, end) for storage in stores.values()]
    place = 0
    for rows in zip_longest(*scans):
        if any(row != rows[0] for row in rows):
            held = {
                name: None if row is None else (position_of(row[0]), len(row[1]))
                for name, row in zip(stores, rows, strict=True)
            }
            verdict.found(ALIKE, f"queue {queue}: {held}")
            # Behind the first difference every row would differ.
            return
        key, entry = rows[0]
        try:
            head = validate_batch(entry)
        except DamagedBatch as error:
            verdict.found(WHOLE, f"queue {queue} {position_of(key)}: {error}")
            continue
        if head.is_control:
            continue
        if (position_of(key).offset, head.base_offset) != (place, place):
            verdict.found(GAPS, f"queue {queue} {position_of(key)} with base {head.base_offset}")
        columns = open_batch(entry, head)
        for stream, first, count in runs(
            [value or b"" for value in columns.values()], columns.keys(), queues
        ):
            yield Stored(place, stream, first, count)
            place += count
