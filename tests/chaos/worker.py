"""A process of producers or of readers: `python -m tests.chaos.worker ROLE NAME …`.

It runs until its standard input ends. Producers then wait for what is in flight; readers read on
until they are at the end offsets that it holds, a JSON object of queue and offset.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from logboom.client import Client, Producer, connect
from logboom.client.results import ColumnBatch
from logboom.wire.errors import LogboomError
from tests.chaos.payload import keys, runs, values
from tests.chaos.record import Acked, Failed, Read, Sent, Writer, Wrong
from tests.sim.judges.logs import Stream

ROUND_S: Final = 0.06
"""Between two chunks that a producer sends to one queue."""
IN_FLIGHT: Final = 8
"""Chunks of one stream that may wait for their answer: a queue that is down must not fill the
buffer that the others share."""
DELIVERY_S: Final = 120.0
CATCH_UP_S: Final = 120.0
"""A reader that is not at the end by then has missed something."""
CONNECT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """What to do, as the command line says."""

    name: str
    endpoints: str
    topic: str
    queues: int
    folder: Path
    rate: float
    """Messages per second of each producer, all its queues together."""
    threads: int


class Sender:
    """One producer in one thread."""

    def __init__(self, load: Load, name: str, client: Client, ended: threading.Event) -> None:
        self._load = load
        self._name = name
        self._ended = ended
        self._client = client
        self._writer = Writer(load.folder / f"{name}.jsonl")
        self._lock = threading.Lock()
        self._next = [0] * load.queues
        self._waiting = [0] * load.queues

    def run(self) -> None:
        """Send until told to end, then wait for the answers."""
        size = max(1, round(self._load.rate * ROUND_S / self._load.queues))
        with self._client.producer(
            acks="all", delivery_timeout_s=DELIVERY_S, buffer_bytes=256 * 1024 * 1024
        ) as producer:
            due = time.monotonic()
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                due = max(due + ROUND_S, time.monotonic() - 1.0)
                for queue in range(self._load.queues):
                    if self._waiting[queue] < IN_FLIGHT:
                        self._send(producer, queue, size)
        for queue, count in enumerate(self._next):
            self._writer.write(Sent(self._name, queue, count))
        self._writer.close()

    def _send(self, producer: Producer, queue: int, count: int) -> None:
        stream, first = Stream(self._name, queue), self._next[queue]
        self._next[queue] += count
        with self._lock:
            self._waiting[queue] += 1
        sent_at = time.monotonic()
        future = producer.send_many(
            self._load.topic,
            [*values(stream, first, count)],
            [*keys(stream, first, count, self._load.queues)],
        )
        future.add_done_callback(lambda done: self._answered(stream, first, count, sent_at, done))

    def _answered(
        self, stream: Stream, first: int, count: int, sent_at: float, done: object
    ) -> None:
        """In the client's own thread."""
        now = time.monotonic()
        with self._lock:
            self._waiting[stream.queue] -= 1
            try:
                stored = done.result(0)  # type: ignore[attr-defined]  # a ManyFuture
            except LogboomError as error:
                failed = Failed(stream.producer, stream.queue, first, count, now, str(error)[:200])
                self._writer.write(failed)
                return
            for queue, offset, part in stored:
                self._writer.write(Acked(stream.producer, queue, first, offset, part, sent_at, now))
                first += part


class Reader:
    """One consumer of some queues in one thread."""

    def __init__(
        self, load: Load, name: str, queues: Sequence[int], client: Client, ended: threading.Event
    ) -> None:
        self._load = load
        self._name = name
        self._queues = list(queues)
        self._client = client
        self._ended = ended
        self._writer = Writer(load.folder / f"{name}.jsonl")
        self._place = dict.fromkeys(queues, 0)
        self.ends: dict[int, int] = {}
        """Queue → the offset to read up to, once known."""

    def run(self) -> None:
        """Read until told to end, then up to `ends`."""
        with self._client.consumer(self._load.topic, queues=self._queues) as consumer:
            while not self._ended.is_set():
                self._take(consumer.poll_columns(0.2))
            deadline = time.monotonic() + CATCH_UP_S
            while any(self._place[q] < self.ends.get(q, 0) for q in self._queues):
                if time.monotonic() > deadline:
                    self._wrong("everything is read at last", f"at {self._place} of {self.ends}")
                    break
                self._take(consumer.poll_columns(0.2))
            if consumer.corrections:
                detail = f"{consumer.corrections} times told that an offset does not exist"
                self._wrong("a fail-over never rewinds a reader", detail)
        self._writer.close()

    def _take(self, batches: list[ColumnBatch]) -> None:
        now = time.monotonic()
        for batch in batches:
            offset = batch.columns.base_offset
            place = self._place[batch.queue]
            if offset != place:
                detail = f"queue {batch.queue}: offset {offset}, expected {place}"
                self._wrong("readers see every offset once, in order", detail)
            self._place[batch.queue] = offset + len(batch)
            try:
                found = runs(
                    [value or b"" for value in batch.columns.values()],
                    batch.columns.keys(),
                    self._load.queues,
                )
            except ValueError as error:
                self._wrong("reads were sent", f"queue {batch.queue} from {offset} on: {error}")
                continue
            for stream, first, count in found:
                self._writer.write(
                    Read(
                        self._name,
                        batch.queue,
                        offset,
                        stream.producer,
                        stream.queue,
                        first,
                        count,
                        now,
                    )
                )
                offset += count

    def _wrong(self, name: str, detail: str) -> None:
        self._writer.write(Wrong(self._name, name, detail, time.monotonic()))


def main() -> int:
    """Run the workers of one process."""
    parser = argparse.ArgumentParser(prog="tests.chaos.worker")
    parser.add_argument("role", choices=["producer", "reader"])
    parser.add_argument("name")
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--threads", type=int, default=1)
    given = vars(parser.parse_args())
    role = given.pop("role")
    load = Load(**given)
    ended = threading.Event()
    with connect(load.endpoints, timeout_s=CONNECT_S, client_id=load.name) as client:
        names = [f"{load.name}-{n}" for n in range(load.threads)]
        if role == "producer":
            workers: list[Sender | Reader] = [Sender(load, n, client, ended) for n in names]
        else:
            # The first reads everything, the others share the queues.
            shares = [list(range(load.queues))]
            shares += [
                list(range(n, load.queues, load.threads - 1)) for n in range(load.threads - 1)
            ]
            workers = [
                Reader(load, name, share, client, ended)
                for name, share in zip(names, shares, strict=True)
                if share
            ]
        threads = [threading.Thread(target=worker.run) for worker in workers]
        for thread in threads:
            thread.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        said = sys.stdin.read()
        for worker in workers:
            if isinstance(worker, Reader):
                worker.ends = {int(q): end for q, end in json.loads(said).items()}
        ended.set()
        for thread in threads:
            thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
