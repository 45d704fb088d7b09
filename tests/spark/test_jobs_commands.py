"""The commands of docs/PIPELINE.md run as they stand, one after the other, in one session."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.cli.app import run
from logboom.client import Client
from tests.chaos.payload import values
from tests.chaos.record import Acked, Sent, Writer
from tests.sim.judges.logs import Stream

Read = Callable[..., DataFrame]
PAGE = Path(__file__).parents[2] / "docs" / "PIPELINE.md"
NOW_MS = 1_700_000_000_000
CHAPTER = re.search(r"^## Jobs\n(.*?)^## ", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
BLOCK = re.search(r"^```sh\n(.*?)^```", CHAPTER[1] if CHAPTER else "", re.DOTALL | re.MULTILINE)
COMMANDS = shlex.split(BLOCK[1].replace("\\\n", " ").replace("\n", " ; ")) if BLOCK else []


def commands() -> list[list[str]]:
    """Each command of the chapter as words, without `logboom`."""
    found: list[list[str]] = [[]]
    for word in COMMANDS:
        if word == ";":
            found.append([])
        else:
            found[-1].append(word)
    return [words[1:] for words in found if words]


@pytest.fixture(name="flights")
def topic_of_the_examples(boom: Client) -> str:
    """What the examples need: flights in two hours, and a group that gave up two of them."""
    boom.admin.create_topic("flights", queues=2)
    carriers = [b"UA", b"AA"] * 20
    sent = [
        json.dumps({"carrier": carrier.decode(), "dep_delay": 3.0 * n}).encode()
        for n, carrier in enumerate(carriers)
    ]
    times = [NOW_MS + n * 180_000 for n in range(40)]
    with boom.producer() as producer:
        producer.send_many("flights", sent, carriers, timestamps_ms=times).result()
    with boom.consumer("flights", group="billing", start="first") as consumer:
        for number, message in enumerate(consumer):
            consumer.reject(message, "time-out" if number else "no such carrier")
            if number == 1:
                break
    return "flights"


@pytest.mark.thorough
def test_the_commands_of_the_page_do_what_it_says(
    spark: SparkSession,
    servers: str,
    batch: Read,
    flights: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGBOOM_SERVERS", servers)
    (tmp_path / "airlines.csv").write_text("carrier,name\nUA,United\nAA,American\n", "utf-8")
    named = commands()
    assert len(named) >= 10
    for words in named:
        assert run(words) == 0, (words, capsys.readouterr())

    def count(topic: str) -> int:
        return int(batch(subscribe=topic).count())

    counts = {name: count(name) for name in ("again", "named", "late", "once", "latest")}
    assert counts == {"again": 20, "named": 40, "late": 19, "once": 40, "latest": 2}
    assert count("delays") >= 2
    assert count(flights) == 41  # one came back
    (row,) = batch("value binary, key binary", subscribe="named").where("key = 'AA'").head(1)
    assert json.loads(row.value)["name"] == "American"
    shown = capsys.readouterr().out
    assert re.search(r"flights +0 +0 +19 +20 +0 +0", shown)
    assert re.search(r"no such carrier +flights +1", shown)
    # A second run of a stream has only what came since: the one that was sent back.
    assert run([*named[2], "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == 1
    assert report["checkpoint"].endswith("/.logboom/pipeline/enrich/flights/named")


@pytest.mark.thorough
def test_an_audit_tells_what_is_broken(
    spark: SparkSession,
    servers: str,
    boom: Client,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = Stream("p0", 0)
    with boom.producer() as producer:
        producer.send_many(topic, [*values(stream, 0, 5)], queue=0).result()
    writer = Writer(tmp_path / "p0.jsonl")
    writer.write(Sent("p0", 0, 6))
    writer.write(Acked("p0", 0, 0, 0, 6, 1.0, 2.0))
    writer.close()
    words = ["pipeline", "audit", str(tmp_path), "--topic", topic, "-s", servers, "-o", "json"]
    assert run(words) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["counts"]["acked"], report["counts"]["stored"], report["broken"]) == (6, 5, 1)
    (lost,) = [row for row in report["found"] if row["broken"]]
    assert lost["property"] == "nothing acknowledged is lost"
    assert "offset 5" in lost["details"][0]
    archived = ["pipeline", "archive", topic, "--to", str(tmp_path / "archive"), "-s", servers]
    assert run(archived) == 0
    capsys.readouterr()
    assert run([*words, "--archive", str(tmp_path / "archive")]) == 1
    again = json.loads(capsys.readouterr().out)
    assert (again["counts"], again["found"]) == (report["counts"], report["found"])


WRONG = [
    ("enrich t --to u", "say either --lookup FILE --on FIELD, or --sql QUERY"),
    ("enrich t --to u --lookup x.csv", "--lookup needs --on FIELD, and --schema with the fields"),
    ("window t --schema 'n int'", "say either --to FOLDER or --to-topic TOPIC"),
    (
        "replay a --to u --offsets 7",
        "--offsets is FIRST:END, such as 100:200, 100: or :200, not '7'",
    ),
    ("replay a --to u --rate -1", "--rate is a number of messages a second, not -1"),
    (
        "replay none/ --to u --from soon",
        "--from 'soon' is no time: write 2026-11-21T10:00:00Z or ms",
    ),
    ("replay none/ --to u", "/none: `logboom pipeline archive` makes one"),
    ("dedup t --to u --every '1 minute'", "--every is how often a --continuous job looks for more"),
    ("dedup none-such --to u --checkpoint CHECKPOINT", "topic 'none-such' does not exist"),
    ("archive no-such --to a --checkpoint b", "create it with `logboom topic create no-such`"),
    ("archive t --to a --every '1 minute'", "--every is how often a --continuous job looks for"),
    ("dlq nobody", "topic '%DLQ%nobody' does not exist"),
    ("archive t --to s3a://bucket/archive", "s3a:/bucket/archive is below s3a:, and a job needs"),
    (
        "archive t --to a --checkpoint hdfs://name/c",
        "is below hdfs:, and a job needs a folder on",
    ),
    ("window t --schema 'n int' --to file:///tmp/w", "is below file:, and a job needs a folder"),
    (
        "compact t --to s3://bucket/x",
        "is below s3:, and a job needs a folder on this machine",
    ),
    ("replay s3a://bucket/archive --to t", "is below s3a:, and a job needs a folder"),
    ("archive t --to a --at-once -1", "--at-once is a number of messages, not -1"),
    ("lag none-such", "topic 'none-such' does not exist"),
    ("lag --plot lag.svg", "--plot draws the latencies of topics: name some"),
    ("audit none/ --topic t", "/none: give files, or a folder of *.jsonl"),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[line for line, _ in WRONG])
def test_what_cannot_be_is_told_in_one_line(
    spark: SparkSession,
    servers: str,
    line: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGBOOM_SERVERS", servers)
    assert run(["pipeline", *shlex.split(line)]) == 1
    (told,) = capsys.readouterr().err.splitlines()[-1:]
    assert said in told
    assert not [path.name for path in tmp_path.iterdir() if ":" in path.name]
