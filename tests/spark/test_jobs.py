"""The jobs that only read: archive, window, lag."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logboom.client import Client
from logboom.pipeline.jobs import archive as archiving
from logboom.pipeline.jobs import latency as lagging
from logboom.pipeline.jobs.window import WindowAggregation, window, windowed
from logboom.pipeline.lags import group_lags
from logboom.wire.errors import InvalidRequest

Fill = Callable[..., None]
NOW = 1_700_000_000_000


def command(*words: str, timeout: float = 350) -> subprocess.CompletedProcess[str]:
    """Run `logboom pipeline …`."""
    return subprocess.run(
        [sys.executable, "-m", "logboom.cli", "pipeline", *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_an_archive_holds_each_message_once_however_often_it_runs(
    spark: SparkSession, servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    day = 86_400_000
    fill(topic, 0, range(10), timestamps_ms=[NOW + day * (n // 5) for n in range(10)])
    fill(topic, 1, range(10, 14), keys=[b"k"] * 4, tags=["t"] * 4, headers=[{"h": b"1"}] * 4)
    source = {"servers": servers, "subscribe": topic}
    assert archiving.audit(spark, tmp_path) == []
    seen: list[int] = []
    first = archiving.archive(spark, source, tmp_path, on_rows=seen.append)
    assert (first.rows, first.batches, first.stopped) == (14, 1, False)
    assert first.offsets == {topic: {"0": 10, "1": 4, "2": 0}}
    fill(topic, 0, range(14, 16))
    assert archiving.archive(spark, source, tmp_path).rows == 2
    assert archiving.archive(spark, source, tmp_path).rows == 0
    found = archiving.audit(spark, tmp_path)
    keys = ("partition", "first", "last", "messages", "missing", "doubled")
    assert [tuple(row[key] for key in keys) for row in found] == [
        (0, 0, 11, 12, 0, 0),
        (1, 0, 3, 4, 0, 0),
    ]
    days = sorted(path.name for path in (tmp_path / f"topic={topic}").iterdir())
    assert days[:2] == ["date=2023-11-14", "date=2023-11-15"]
    (row,) = spark.read.parquet(str(tmp_path)).where("partition = 1 AND offset = 0").collect()
    assert (row.key, row.value, row.tag, row.headers) == (b"k", b"10", "t", [("h", b"1")])


def test_an_audit_finds_what_is_missing_and_what_is_there_twice(spark: SparkSession) -> None:
    rows = [("t", 0, n) for n in (0, 1, 4, 5, 5, 9)] + [("t", 1, n) for n in (7, 8)]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    found = [tuple(row) for row in archiving.audited(frame).collect()]
    assert found == [("t", 0, 0, 9, 6, 5, 1), ("t", 1, 7, 8, 2, 0, 0)]
    missing = [tuple(row) for row in archiving.gaps(frame).collect()]
    assert missing == [("t", 0, 2, 3), ("t", 0, 6, 8)]


def flight(carrier: str, delay: float, minute: int) -> tuple[bytes, datetime]:
    """A message of a flight, as a row."""
    value = json.dumps({"carrier": carrier, "delay": delay}).encode()
    return value, datetime(2023, 1, 1, 12, minute, tzinfo=UTC)


def test_windows_count_and_measure_by_fields(spark: SparkSession) -> None:
    rows = [flight("UA", 3, 1), flight("UA", 5, 4), flight("AA", 1, 4), flight("UA", 9, 11)]
    frame = spark.createDataFrame(rows, "value binary, timestamp timestamp")
    wanted = WindowAggregation(
        "carrier string, delay double", "10 minutes", "", ["carrier"], ["delay"]
    )
    found = windowed(frame, wanted).orderBy("begin", "carrier")
    assert found.columns == [
        *("begin", "end", "carrier", "count"),
        *(f"delay_{kind}" for kind in ("sum", "avg", "min", "max")),
    ]
    assert [(r.begin.minute, r.end.minute, *tuple(r)[2:]) for r in found.collect()] == [
        (0, 10, "AA", 1, 1.0, 1.0, 1.0, 1.0),
        (0, 10, "UA", 2, 8.0, 4.0, 3.0, 5.0),
        (10, 20, "UA", 1, 9.0, 9.0, 9.0, 9.0),
    ]
    with pytest.raises(InvalidRequest, match="no field 'carier': there are carrier, delay, event"):
        windowed(frame, WindowAggregation("carrier string, delay double", by=["carier"]))


def test_windows_of_a_topic_are_written_once_they_are_over(
    spark: SparkSession, servers: str, boom: Client, topic: str, tmp_path: Path
) -> None:
    source = {"servers": servers, "subscribe": topic}
    wanted = WindowAggregation("n int, at bigint", "10 seconds", time="at", watermark="1 second")

    def send(*seconds: int) -> None:
        values = [json.dumps({"n": 1, "at": second}).encode() for second in seconds]
        with boom.producer() as producer:
            producer.send_many(topic, values, queue=0).result()

    send(100, 101, 115)
    assert window(spark, source, wanted, tmp_path).rows == 3
    send(130)
    window(spark, source, wanted, tmp_path)
    found = spark.read.parquet(str(tmp_path)).orderBy("begin").collect()
    assert [(int(row.begin.timestamp()) % 1000, row.count_) for row in _renamed(found)] == [
        (100, 2),
        (110, 1),
    ]


def _renamed(rows: list[Any]) -> list[Any]:
    """Rows whose `count` is no method."""

    class Counted:
        def __init__(self, row: Any) -> None:
            self.begin, self.count_ = row["begin"], row["count"]

    return [Counted(row) for row in rows]


def test_lags_of_groups_are_told(spark: SparkSession, boom: Client, topic: str, fill: Fill) -> None:
    fill(topic, 0, range(10))
    fill(topic, 1, range(4))
    group = f"{topic}.lag"
    boom.admin.alter_group(group, subscription={topic: ""}, create=True)
    boom.admin.reset_offsets(group, {(topic, 0): 7, (topic, 1): 4}, dry_run=False)
    rows = [row for row in group_lags(boom, [group]) if row["topic"] == topic]
    assert [(row["queue"], row["committed"], row["end"], row["lag"]) for row in rows[:2]] == [
        (0, 7, 10, 3),
        (1, 4, 4, 0),
    ]
    schema = "group string, topic string, queue int, committed bigint, end bigint, lag bigint, age_ms bigint"
    (total,) = lagging.lag_totals(spark.createDataFrame(rows, schema)).collect()
    assert (total.lag, total.worst_queue_lag) == (3, 3)


def test_latencies_are_percentiles_of_age(spark: SparkSession) -> None:
    times = [(datetime.fromtimestamp((NOW - age) / 1000, UTC),) for age in range(1, 101)]
    frame = spark.createDataFrame(times, "timestamp timestamp")
    (row,) = lagging.latencies(frame, NOW).collect()
    assert (row.messages, row.percentiles, row.max) == (100, [50, 95, 99], 100)


@pytest.mark.thorough
def test_latencies_of_a_topic_are_those_of_what_comes(
    spark: SparkSession, servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 0, range(5))  # before: not measured
    done = threading.Event()

    def send() -> None:
        n = 0
        while not done.wait(0.2):
            fill(topic, 0, range(n, n + 1))
            n += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        source = {"servers": servers, "subscribe": topic}
        found = lagging.watch_latency(spark, source, str(tmp_path), 200, batches=2)
    finally:
        done.set()
        sender.join()
    assert found
    assert all(0 <= each.p50 <= each.p95 <= each.p99 <= each.max for each in found)
    lines = lagging.latency_lines(found)
    assert [line.name for line in lines] == ["p50", "p95", "p99"]
    assert len(lines[0].points) == len(found)


def processes_with(name: str, value: Path) -> list[str]:
    """The commands of all processes that have this in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # Of another user, or gone meanwhile.
        with suppress(OSError):
            if f"{name}={value}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text(encoding="utf-8")[:200])
    return found


@pytest.mark.thorough
def test_a_continuous_command_goes_on_until_it_is_interrupted(
    servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 0, range(20))
    words = ["archive", topic, "--to", str(tmp_path / "out"), "--servers", servers, "-o", "json"]
    started = [sys.executable, "-m", "logboom.cli", "pipeline", *words, "--master", "local[1]"]
    marked = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*started, "--continuous"], stdout=subprocess.PIPE, env=marked) as job:
        try:
            written = tmp_path / "out" / "_spark_metadata" / "0"
            end = time.monotonic() + 300.0
            while not written.exists():
                assert job.poll() is None
                assert time.monotonic() < end
                # Another process writes it, and tells nobody.
                time.sleep(0.1)
            job.send_signal(signal.SIGINT)
            # Not `communicate`, which waits for Spark's process too: it has the same output.
            job.wait(timeout=200)
            left = processes_with("TMPDIR", tmp_path)
            out, _ = job.communicate(timeout=200)
        finally:
            job.kill()
    assert job.returncode == 0
    assert left == []
    report = json.loads(out)
    assert (report["rows"], report["stopped"], report["audit"]) == (20, True, [])


def test_the_lag_of_groups_needs_no_spark(servers: str, boom: Client, topic: str) -> None:
    group = f"{topic}.command"
    boom.admin.alter_group(group, subscription={topic: ""}, create=True)
    words = ("lag", "--group", group, "--servers", servers, "-o", "json")
    done = command(*words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {row["topic"] for row in report["groups"]} >= {topic}
    assert report["latencies"] == []
