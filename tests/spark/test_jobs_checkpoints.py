"""Checkpoints and folders that do not belong together: told, where Spark would write nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logboom.client import Client
from logboom.pipeline.jobs import archive, dedup, enrich, replay, window
from logboom.pipeline.jobs.job_runs import JobReport
from logboom.pipeline.jobs.publishing import Target
from logboom.wire.errors import InvalidRequest

Fill = Callable[..., None]
NOW_MS = 1_700_000_000_000
OTHER = "was written with another checkpoint than"


@pytest.mark.thorough
def test_an_archive_is_not_begun_anew_in_its_folder(
    spark: SparkSession, servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    source = {"servers": servers, "subscribe": topic}
    fill(topic, 0, range(10))
    assert archive.archive(spark, source, tmp_path).rows == 10
    fill(topic, 0, range(10, 15))
    with pytest.raises(InvalidRequest, match=OTHER):
        archive.archive(spark, source, tmp_path, tmp_path / "another")
    # A run that broke off before Spark noted its end is one that the checkpoint knows.
    for name in ("0", ".0.crc"):
        (tmp_path / "_checkpoint" / "commits" / name).unlink()
    run = archive.archive(spark, source, tmp_path)
    (row,) = archive.audit(spark, tmp_path, run)
    assert (row["messages"], row["missing"], row["doubled"]) == (15, 0, 0)
    shutil.rmtree(tmp_path / "_checkpoint")
    with pytest.raises(InvalidRequest, match=OTHER):
        archive.archive(spark, source, tmp_path)


@pytest.mark.thorough
def test_windows_are_not_begun_anew_in_their_folder(
    spark: SparkSession, servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    source, wanted = {"servers": servers, "subscribe": topic}, window.WindowAggregation("n int")
    fill(topic, 0, range(10))
    window.window(spark, source, wanted, tmp_path)
    shutil.rmtree(tmp_path / "_checkpoint")
    with pytest.raises(InvalidRequest, match=OTHER):
        window.window(spark, source, wanted, tmp_path)


def test_an_audit_misses_what_a_run_has_read_and_is_not_there(
    spark: SparkSession, servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 0, range(10))
    archive.archive(spark, {"servers": servers, "subscribe": topic}, tmp_path)
    run = JobReport("archive", offsets={topic: {"0": 12, "1": 7, "2": 3}})
    run.starts = {topic: {"0": 10, "1": 4, "2": 3}}
    found = archive.audit(spark, tmp_path, run)
    keys = ("topic", "partition", "first", "last", "messages", "missing", "doubled")
    assert [tuple(row[key] for key in keys) for row in found] == [
        (topic, 0, 0, 9, 10, 2, 0),
        (topic, 1, 4, 6, 0, 3, 0),
    ]


@pytest.mark.thorough
def test_a_checkpoint_of_other_topics_is_told(
    spark: SparkSession, servers: str, boom: Client, topic: str, fill: Fill, tmp_path: Path
) -> None:
    other = f"{topic}-other"
    boom.admin.create_topic(other, queues=1)
    fill(topic, 0, range(10))
    fill(other, 0, range(10, 14))
    folder = tmp_path / "archive"
    archive.archive(spark, {"servers": servers, "subscribe": topic}, folder)
    wrong = {"servers": servers, "subscribe": other}
    said = f"is the checkpoint of a job that reads {topic}: ask for all of these"
    with pytest.raises(InvalidRequest, match=said):
        archive.archive(spark, wrong, folder)
    target, place = Target(servers, other), folder / "_checkpoint"
    with pytest.raises(InvalidRequest, match=said):
        dedup.dedup(spark, wrong, target, place)
    with pytest.raises(InvalidRequest, match=said):
        window.window_to_topic(spark, wrong, window.WindowAggregation("n int"), target, place)
    with pytest.raises(InvalidRequest, match=said):
        enrich.enrich(enrich.messages_of(spark, wrong), target, place, source=wrong)
    both = {"servers": servers, "subscribe": f"{topic},{other}"}
    run = archive.archive(spark, both, folder)
    assert run.rows == 4
    found = archive.audit(spark, folder, run)
    assert [(row["topic"], row["messages"]) for row in found] == [(topic, 10), (other, 4)]
    with pytest.raises(InvalidRequest, match=f"reads {topic}, {other}: ask for all of these"):
        archive.archive(spark, wrong, folder)


@pytest.mark.thorough
def test_days_and_names_are_those_of_the_messages(
    spark: SparkSession, servers: str, boom: Client, fill: Fill, tmp_path: Path
) -> None:
    boom.admin.create_topic("007", queues=1)
    # Three in the morning in Greenwich, the evening before in New York.
    early = NOW_MS // 86_400_000 * 86_400_000 + 3 * 3_600_000
    zone = spark.conf.get("spark.sql.session.timeZone") or ""
    fill("007", 0, range(2), timestamps_ms=[early] * 2)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        run = archive.archive(spark, {"servers": servers, "subscribe": "007"}, tmp_path)
        (row,) = archive.audit(spark, tmp_path, run)
        assert (row["topic"], row["messages"], row["missing"]) == ("007", 2, 0)
        held = replay.read_archive(spark, tmp_path)
        wanted = replay.ReplayFilter("007", since_ms=early, until_ms=early + 1)
        assert {row.date for row in replay.selected(held, wanted).collect()} == {date(2023, 11, 14)}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        boom.admin.delete_topic("007")
