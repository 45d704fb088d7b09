"""A reader process that checks offsets and a checksum of all values, and measures time.

    python -m bench.reader ENDPOINTS TOPIC COUNT columns|messages|latency

It prints "ready" once it waits at the log's end, and one JSON line when it has read COUNT messages.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from bench.load import Checksum
from logboom.client import Client, connect

if TYPE_CHECKING:
    from collections.abc import Sequence

Mode = Literal["columns", "messages", "latency"]


class ReaderReport(Struct):
    """The report of a reader.

    Times are from this machine's monotonic clock, which is the same in all processes.
    """

    count: int
    crc: int
    first_at: float
    last_at: float
    latencies_ms: list[float]


def read_columns(boom: Client, topic: str, count: int) -> ReaderReport:
    """Read bare columns."""
    seen, expected, first_at = Checksum(), 0, 0.0
    with boom.consumer(topic, queues=[0], start="first") as consumer:
        consumer.poll_columns(timeout_s=0.1)
        print("ready", flush=True)
        while seen.count < count:
            for batch in consumer.poll_columns(timeout_s=1.0):
                first_at = first_at or time.monotonic()
                columns = batch.columns
                if columns.base_offset != expected:
                    raise SystemExit(f"offset {columns.base_offset} where {expected} belongs")
                expected = columns.next_offset
                seen.add(columns.arrow_buffers().value.data, columns.count)
    return ReaderReport(seen.count, seen.crc, first_at, time.monotonic(), [])


def read_messages(boom: Client, topic: str, count: int) -> ReaderReport:
    """Iterate Message objects."""
    values: list[bytes] = []
    expected, first_at = 0, 0.0
    with boom.consumer(topic, queues=[0], start="first") as consumer:
        consumer.poll(timeout_s=0.1)
        print("ready", flush=True)
        for message in consumer:
            if message.offset != expected:
                raise SystemExit(f"offset {message.offset} where {expected} belongs")
            expected += 1
            values.append(message.value or b"")
            if expected == 1:
                first_at = time.monotonic()
            if expected == count:
                break
    last_at = time.monotonic()
    seen = Checksum()
    seen.add_values(values)
    return ReaderReport(seen.count, seen.crc, first_at, last_at, [])


def read_latency(boom: Client, topic: str, count: int) -> ReaderReport:
    """Read values that begin with the monotonic time at which they were sent, in ns."""
    latencies: list[float] = []
    with boom.consumer(topic, queues=[0], start="first") as consumer:
        consumer.poll(timeout_s=0.1)
        print("ready", flush=True)
        first_at = time.monotonic()
        for message in consumer:
            now = time.monotonic_ns()
            latencies.append((now - int.from_bytes((message.value or b"")[:8], "little")) / 1e6)
            if len(latencies) == count:
                break
    return ReaderReport(len(latencies), 0, first_at, time.monotonic(), latencies)


class ReaderProcess:
    """The parent's handle of a reader process."""

    def __init__(self, endpoints: Sequence[str], topic: str, count: int, mode: Mode) -> None:
        command = [sys.executable, "-m", "bench.reader", ",".join(endpoints), topic, str(count)]
        self._process = subprocess.Popen([*command, mode], stdout=subprocess.PIPE)
        if self._line() != b"ready\n":
            self.close()
            raise RuntimeError("the reader did not start: see its error above")

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def report(self, timeout_s: float = 120.0) -> ReaderReport:
        """Wait until it has read all messages, and return its report."""
        try:
            out, _ = self._process.communicate(timeout=timeout_s)
        finally:
            self.close()
        return msgspec.json.decode(out, type=ReaderReport)

    def close(self) -> None:
        """Stop the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def main() -> None:
    """Read and report."""
    endpoints, topic, count, mode = sys.argv[1:]
    read = {"columns": read_columns, "messages": read_messages, "latency": read_latency}[mode]
    with connect(endpoints) as boom:
        report = read(boom, topic, int(count))
    print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
