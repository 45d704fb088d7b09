"""Jobs that go on until Ctrl-C, and where they are after it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from logboom.pipeline.jobs import dedup, enrich, job_runs, window
from logboom.pipeline.jobs.job_runs import LOOK_S, JobReport, run_stream
from logboom.pipeline.jobs.publishing import Target
from tests.spark.topic_contents import contents

Fill = Callable[..., None]


def interrupt(done: int) -> None:
    """Ctrl-C, once there is something."""
    if done:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("job", ["dedup", "enrich", "window"])
@pytest.mark.thorough
def test_a_job_that_is_interrupted_has_ended_well_and_goes_on(
    spark: SparkSession,
    servers: str,
    boom: Client,
    topic: str,
    fill: Fill,
    tmp_path: Path,
    job: str,
) -> None:
    source, target = {"servers": servers, "subscribe": topic}, Target(servers, f"{topic}-copy")
    boom.admin.create_topic(target.topic, queues=1)

    def run(**more: Any) -> JobReport:
        if job == "dedup":
            return dedup.dedup(spark, source, target, tmp_path, by=["value"], **more)
        if job == "enrich":
            made = enrich.by_sql(enrich.messages_of(spark, source), "SELECT value FROM messages")
            return enrich.enrich(made, target, tmp_path, source=source, **more)
        wanted = window.WindowAggregation("n int", "1 second", watermark="0 seconds")
        return window.window_to_topic(spark, source, wanted, target, tmp_path, **more)

    before = signal.getsignal(signal.SIGINT)
    for number in range(3):
        first_ms = 1_700_000_000_000 + number * 60_000
        values = range(number * 10, number * 10 + 10)
        fill(topic, 0, values, timestamps_ms=[first_ms + n for n in range(10)])
        go_on = number < 2
        found = run(every="100 milliseconds", on_rows=interrupt) if go_on else run()
        assert (found.stopped, found.rows) == (go_on, 10)
    assert signal.getsignal(signal.SIGINT) == before
    # The window of the last is not over.
    assert len(contents(boom, target.topic)) == (2 if job == "window" else 30)


def slowly(rows: DataFrame, number: int) -> None:
    """Ctrl-C comes while a micro-batch is being written, which takes five looks more."""
    if rows.count():
        os.kill(os.getpid(), signal.SIGINT)
        # Nothing to wait for: the write itself is what takes long.
        time.sleep(5 * LOOK_S)


@pytest.fixture
def frame(spark: SparkSession, servers: str, topic: str, fill: Fill) -> DataFrame:
    """A stream of twenty messages, ten a micro-batch."""
    fill(topic, 0, range(20))
    source = {"servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    source["maxOffsetsPerTrigger"] = "10"
    return spark.readStream.format("logboom").options(**source).load()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does other work, too, has the time that it takes."""
    monkeypatch.setattr(job_runs, "FINISH_S", 120.0)


@pytest.mark.usefixtures("patient")
def test_a_micro_batch_that_is_being_written_at_ctrl_c_is_one_of_the_run(
    frame: DataFrame, tmp_path: Path
) -> None:
    writer = frame.writeStream.foreachBatch(slowly).option("checkpointLocation", str(tmp_path))
    run = run_stream("slow", writer, every="1 hour")
    assert (run.rows, run.stopped) == (10, True)


@pytest.mark.usefixtures("patient")
def test_a_stream_that_always_has_more_ends_at_ctrl_c_with_its_micro_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The next one begins before anybody saw the end of the first, and may be cancelled."""
    written: list[int] = []

    def write(rows: DataFrame, number: int) -> None:
        slowly(rows, number)
        written.append(number)

    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "5").load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    run = run_stream("busy", writer, every="0 seconds")
    assert run.stopped
    assert run.rows >= 5
    # It did not go on for as long as it may wait for the end of one, with a second for each.
    assert len(written) <= 20


def test_a_micro_batch_that_goes_on_for_too_long_after_ctrl_c_is_cancelled(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runs, "FINISH_S", LOOK_S)

    def endless(rows: DataFrame, number: int) -> None:
        if rows.count():
            jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public name for it
            os.kill(os.getpid(), signal.SIGINT)
            # This sleeps in the thread of the query, which the cancellation interrupts: the
            # micro-batch cannot end in any other way, however slow the machine is.
            jvm.java.lang.Thread.sleep(600_000)

    writer = frame.writeStream.foreachBatch(endless).option("checkpointLocation", str(tmp_path))
    run = run_stream("endless", writer, every="1 hour")
    assert (run.rows, run.stopped) == (0, True)
