"""The project for Spark's declarative pipelines: its definitions are those that Spark takes, and its
queries give what they say. Spark's own runner needs packages beyond the extra."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output, Sink
from pyspark.sql import DataFrame, SparkSession

from logboom.cli.app import run
from logboom.client import Client

NOW_MS = 1_700_000_000_000


class Registry(GraphElementRegistry):
    """Keeps what transformations define."""

    def __init__(self) -> None:
        self.outputs: dict[str, Any] = {}
        self.flows: dict[str, Callable[[], DataFrame]] = {}

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow.func

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise NotImplementedError

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise NotImplementedError


@pytest.fixture(name="defined")
def definitions_of_a_project(
    spark: SparkSession, boom: Client, topic: str, servers: str, tmp_path: Path
) -> Registry:
    """What a project defines that `logboom pipeline init` writes."""
    sent = [b'{"carrier": "UA", "delay": %d}' % n for n in range(10)]
    times = [NOW_MS + n * 60_000 for n in range(10)]
    with boom.producer() as producer:
        producer.send_many(topic, sent, [b"UA", b"AA"] * 5, timestamps_ms=times).result()
    with boom.consumer(topic, group=f"{topic}.g", start="first") as consumer:
        consumer.reject(next(iter(consumer)), "order 17 is not known")
    words = ["pipeline", "init", str(tmp_path / "made"), "--topic", topic, "-s", servers]
    words += ["--schema", "carrier string, delay int", "--by", "carrier", "--measure", "delay"]
    assert run([*words, "--width", "1 minute", "--group", f"{topic}.g"]) == 0
    names = {"servers": servers, "topic": topic, "schema": "carrier string, delay int"}
    for name, value in names.items():
        spark.conf.set(f"logboom.{name}", value)
        line = f"  logboom.{name}: {json.dumps(value)}\n"
        assert line in (tmp_path / "made" / "spark-pipeline.yml").read_text("utf-8")
    registry = Registry()
    with graph_element_registration_context(registry):
        for path in sorted((tmp_path / "made" / "transformations").glob("*.py")):
            runpy.run_path(str(path), {"spark": spark})
    return registry


def test_a_project_defines_tables_and_sinks(defined: Registry, topic: str, servers: str) -> None:
    assert set(defined.outputs) == {
        *("archive", "counted", "dead_letters", "latest", "once", "windows")
    }
    sinks = {name: out for name, out in defined.outputs.items() if isinstance(out, Sink)}
    assert {name: (out.format, out.options["topic"]) for name, out in sinks.items()} == {
        "once": ("logboom", f"{topic}-once"),
        "counted": ("logboom", f"{topic}-windows"),
    }
    streams = {name for name, made in defined.flows.items() if made().isStreaming}
    assert streams == {"archive", "windows", "windows_to_topic", "without_doubles"}
    latest = {bytes(row.key): json.loads(row.value) for row in defined.flows["latest"]().collect()}
    assert {key: value["delay"] for key, value in latest.items()} == {b"UA": 8, b"AA": 9}
    (kind,) = defined.flows["dead_letters"]().collect()
    assert (kind.cause, kind.topic, kind.letters) == ("order # is not known", topic, 1)
    assert defined.flows["windows_to_topic"]().columns == ["key", "value", "timestamp"]


def test_a_project_is_written_over_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").touch()
    words = ["pipeline", "init", str(tmp_path), "--topic", "t", "--schema", "n int"]
    assert run(words) == 1
    assert "exists already: name a new folder, or an empty one" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
