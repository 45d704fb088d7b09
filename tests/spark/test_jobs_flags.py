"""Flags of the commands, and that errors name the flags which their command has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.cli.app import run
from logboom.cli.pipeline_runs import checkpoint_of, in_flags
from logboom.client import Client, ParkedHandle
from logboom.pipeline.joined_batches import LARGE
from logboom.pipeline.sink import publish
from logboom.pipeline.sink_delivery import TaskCommit, TransactionUnit
from logboom.pipeline.sink_options import sink_options
from logboom.wire.errors import InvalidRequest, TransactionError
from tests.thorough import few_of

Read = Callable[..., DataFrame]
Fill = Callable[..., None]
Report = Callable[..., dict[str, Any]]


@pytest.fixture(name="report")
def command_report(
    spark: SparkSession,
    servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Report:
    """Run `logboom pipeline …` in a folder of its own; its report, with its exit code and the last
    line of what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGBOOM_SERVERS", servers)

    def told(*words: object) -> dict[str, Any]:
        capsys.readouterr()
        code = run(["pipeline", *map(str, words), "-o", "json"])
        out, said = capsys.readouterr()
        lines = said.splitlines() or [""]
        return {**(json.loads(out) if out else {}), "code": code, "said": lines[-1]}

    return told


def made_anew(boom: Client, fill: Fill, topic: str) -> None:
    """Take away what a topic has, and give it less."""
    boom.admin.delete_topic(topic)
    boom.admin.create_topic(topic, queues=3)
    fill(topic, 0, range(2))


STREAMS = [
    ("archive", "TOPIC", "--to", "archive"),
    ("enrich", "TOPIC", "--to", "TOPIC-copy", "--sql", "SELECT value FROM messages"),
    ("dedup", "TOPIC", "--to", "TOPIC-copy", "--by", "value"),
    ("window", "TOPIC", "--to", "windows", "--schema", "n int", "--slide", "30 seconds"),
]


@pytest.mark.parametrize(
    "words",
    few_of([(words,) for words in STREAMS], [(STREAMS[2],)]),
    ids=lambda words: words[0],
)
def test_a_stream_takes_so_much_at_once_and_skips_what_is_lost_if_it_is_told(
    boom: Client, topic: str, fill: Fill, report: Report, words: tuple[str, ...]
) -> None:
    asked = [word.replace("TOPIC", topic) for word in words]
    if f"{topic}-copy" in asked:
        asked += ["--queues", "1"]
    fill(topic, 0, range(10))
    first = report(*asked, "--at-once", 4)
    assert (first["code"], first["rows"], first["batches"]) == (0, 10, 3), first
    made_anew(boom, fill, topic)
    lost = report(*asked)
    assert lost["code"] == 1
    assert "say --skip-lost to read on without them" in lost["said"]
    assert "failOnDataLoss" not in lost["said"]
    # The audit of an archive then finds two of each.
    assert report(*asked, "--skip-lost")["rows"] == 2


def test_a_table_that_lost_messages_is_begun_anew(
    boom: Client, topic: str, fill: Fill, report: Report
) -> None:
    fill(topic, 0, range(10), keys=[b"k"] * 10)
    assert report("compact", topic, "--to", "latest")["code"] == 0
    made_anew(boom, fill, topic)
    lost = report("compact", topic, "--to", "latest")
    assert lost["code"] == 1
    assert "begin anew with another --to: keys may have changed" in lost["said"]


def test_too_much_at_once_is_told_in_the_words_of_the_command(
    servers: str, boom: Client, topic: str
) -> None:
    unit = TransactionUnit("too-much", 0)
    handles = tuple(ParkedHandle("too-much", 0, 1, "t", 1, 0, n, 0, 1) for n in range(4_000))
    options = sink_options({"servers": servers, "topic": "t"}, stream=True)
    with pytest.raises(InvalidRequest) as raised:
        # Too large to be joined: there are more bytes than one decision can name.
        publish(options, [TaskCommit(unit, 1, handles, sizes=(LARGE,) * len(handles))])
    text = raised.value.text
    for job in ("archive", "enrich", "dedup", "window", "compact", "redrive"):
        assert "nothing is published. " in in_flags(job, text)
    assert "Run it once with --delivery at-least-once" in in_flags("enrich", text)
    assert "say --at-once N from then on. (a transaction of 4000" in in_flags("enrich", text)
    assert "Say --at-once N with a new --checkpoint" in in_flags("dedup", text)
    assert "PerTrigger" not in in_flags("dedup", text) + in_flags("compact", text)
    # Nor does what took too long become less by running it again.
    late = ParkedHandle("too-late", 0, 1, topic, boom.admin.describe_topic(topic).id, 0, 0, 0, 1)
    with pytest.raises(TransactionError) as slow:
        publish(options, [TaskCommit(TransactionUnit("too-late", 0), 1, (late,), sizes=(1,))])
    said = in_flags("enrich", slow.value.text)
    assert "first rows came. Run it once with --delivery at-least-once" in said
    assert "say --at-once N from then on, or raise transaction_timeout_ms" in said


def test_each_job_has_a_checkpoint_of_its_own() -> None:
    asked = [
        ("enrich", "flights", "late-named"),
        ("enrich", "flights-late", "named"),
        ("redrive", "a|b"),
        ("redrive", "a%b"),
        ("redrive", "a_b"),
    ]
    places = [checkpoint_of(None, job, *about) for job, *about in asked]
    assert len(set(places)) == len(asked)
    assert places[0].parts[-5:] == (".logboom", "pipeline", "enrich", "flights", "late-named")


@pytest.mark.thorough
def test_a_query_with_tables_is_cheaper_at_least_once(
    batch: Read, topic: str, fill: Fill, report: Report, tmp_path: Path
) -> None:
    (tmp_path / "names.csv").write_text("n,name\n1,one\n3,three\n", "utf-8")
    fill(topic, 0, range(5))
    query = "SELECT name FROM messages m JOIN names t ON string(m.value) = t.n"
    asked = ["enrich", topic, "--to", f"{topic}-copy", "--queues", 1, "--sql", query]
    asked += ["--table", "names=names.csv", "--delivery", "at-least-once"]
    assert report(*asked)["rows"] == 5
    found = batch("value binary", subscribe=f"{topic}-copy").collect()
    assert sorted(json.loads(row.value)["name"] for row in found) == ["one", "three"]


@pytest.mark.thorough
def test_some_of_an_archive_is_replayed_slowly_to_its_queues(
    batch: Read, boom: Client, topic: str, fill: Fill, report: Report
) -> None:
    for queue in range(3):
        fill(topic, queue, range(20), keys=[b"%02d" % n for n in range(20)])
    assert report("archive", topic, "--to", "archive")["rows"] == 60
    copy = f"{topic}-copy"
    boom.admin.create_topic(copy, queues=3)
    asked = ["replay", "archive", "--to", copy, "--keep-queues", "--queue", "1-2", "--rate", 4]
    done = report(*asked, "--offsets", "5:15", "--keys", "07:")
    # 8 of each of two queues; pieces are as large as a second may have.
    assert (done["rows"], done["batches"]) == (16, 4)
    assert done["seconds"] >= 3
    rows = batch("value binary, partition int", subscribe=copy).collect()
    assert sorted((row.partition, int(row.value)) for row in rows) == [
        (queue, n) for queue in (1, 2) for n in range(7, 15)
    ]


def test_the_latencies_of_a_topic_are_drawn(topic: str, report: Report, tmp_path: Path) -> None:
    assert report("lag", topic, "--seconds", 1, "--plot", "lag.svg")["code"] == 0
    text = ElementTree.parse(tmp_path / "lag.svg").getroot().itertext()
    assert any(f"From producer to reader: {topic}" in part for part in text)
