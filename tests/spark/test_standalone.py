"""A job on a real cluster of Spark: a master and two workers, as processes of their own. And what is
said where Spark does not start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.spark_cluster import SparkCluster, pipeline

Fill = Callable[..., None]


@pytest.mark.thorough
def test_a_command_runs_on_the_workers_of_a_cluster(
    spark: SparkSession, cluster: SparkCluster, servers: str, topic: str, fill: Fill, tmp_path: Path
) -> None:
    for queue in range(3):
        fill(topic, queue, range(queue * 1_000, queue * 1_000 + 1_000))
    words = ("archive", topic, "--to", str(tmp_path), "--servers", servers)
    done = pipeline(*words, "--master", cluster.master)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["rows"] == 3_000
    assert [(row["messages"], row["missing"], row["doubled"]) for row in report["audit"]] == [
        (1_000, 0, 0)
    ] * 3
    values = [int(row.value) for row in spark.read.parquet(str(tmp_path)).collect()]
    assert sorted(values) == list(range(3_000))
    # Each worker leaves a folder for each of its executors.
    assert list(cluster.folder.glob("work-*/app-*/*/stdout"))


@pytest.mark.thorough
def test_a_master_that_is_none_is_told(tmp_path: Path) -> None:
    done = pipeline("archive", "any", "--to", str(tmp_path), "--master", "spork://host:7077")
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert "Spark did not start at master 'spork://host:7077': what it said stands above" in last
    assert any("Master must either be" in line for line in before)


def test_a_java_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = pipeline("archive", "any", "--to", str(tmp_path))
    assert done.returncode == 1
    assert "it needs Java 17 or newer" in done.stderr.splitlines()[-1]
