"""The demo's second part on a few flights: what it makes, and that it sees what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from pyspark.sql import SparkSession

from demo.scenario import TOPIC, Steps
from demo.spark_scenario import (
    DELAYS,
    OFTEN,
    CarrierWeek,
    LookupTables,
    PipelineReport,
    carrier_lines,
    different,
    work,
)
from logboom.client import Client
from tests.spark.topic_contents import contents

HOUR = 3_600_000
FIRST = 1_357_034_400_000
"""2013-01-01, 10:00 UTC."""
COUNT = 4_000
NAMES = LookupTables(
    {"UA": "United Air Lines Inc.", "AA": "American Airlines Inc."},
    {"IAH": "George Bush Intercontinental", "MIA": "Miami Intl"},
)


def flight(row: int) -> bytes:
    """Every second is United's, which is late to Houston; every tenth never left."""
    carrier, dest = ("UA", "IAH") if row % 2 else ("AA", "MIA")
    delay = None if row % 10 == 0 else (20 if dest == "IAH" else 1)
    return msgspec.json.encode({"carrier": carrier, "dest": dest, "dep_delay": delay, "row": row})


class Heard(Steps):
    """Keeps what was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def step(self, text: str, total: int | None) -> None:
        """Keep the step."""
        self.lines.append(text)


@pytest.fixture(name="piped", scope="module")
def done(
    spark: SparkSession, boom: Client, servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[PipelineReport, Heard]]:
    """The second part, on flights of some weeks, one an hour."""
    folder = tmp_path_factory.mktemp("demo")
    for old in ("flights", "checkpoint"):
        (folder / old).mkdir()
        (folder / old / "of-last-time").touch()
    boom.admin.create_topic(TOPIC, queues=3)
    with boom.producer() as producer:
        values = [flight(row) for row in range(COUNT)]
        keys = [b"UA" if row % 2 else b"AA" for row in range(COUNT)]
        times = [FIRST + row * HOUR for row in range(COUNT)]
        producer.send_many(TOPIC, values, keys, timestamps_ms=times).result()
    heard = Heard()
    yield work(spark, servers, NAMES, COUNT, folder, heard), heard
    for name in (TOPIC, DELAYS):
        boom.admin.delete_topic(name)


def test_flights_are_archived_joined_and_counted(piped: tuple[PipelineReport, Heard]) -> None:
    found, heard = piped
    assert found.clean
    assert (found.archived, found.lost, found.doubled, found.wrong_weeks) == (COUNT, 0, 0, 0)
    # Weeks begin on Thursdays. The last one is not over, so it is not told.
    over = (FIRST + (COUNT - 1) * HOUR - HOUR) // (168 * HOUR) - FIRST // (168 * HOUR)
    assert found.weeks == 2 * over
    united, american = found.lines if found.lines[0].carrier == "UA" else found.lines[::-1]
    assert united[:4] == ("UA", "United Air Lines Inc.", COUNT // 2, 20.0)
    assert united.worst_destination == "George Bush Intercontinental"
    assert american[:4] == ("AA", "American Airlines Inc.", COUNT // 2, 1.0)
    assert american.worst_destination == "Miami Intl"
    assert COUNT // 2 >= OFTEN
    assert heard.lines[0] == "archiving to Parquet"
    assert not (found.archive / "of-last-time").exists()
    days = list(found.archive.glob("topic=*/date=*"))
    assert len(list(found.archive.glob("topic=*/date=*/*.parquet"))) == len(days)


def test_the_plot_has_a_line_for_each_carrier(piped: tuple[PipelineReport, Heard]) -> None:
    tree = ElementTree.parse(piped[0].plot)
    lines = list(tree.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 2
    assert all(line.get("points") for line in lines)


def test_each_message_of_the_weeks_has_its_carrier_as_key(
    piped: tuple[PipelineReport, Heard], boom: Client
) -> None:
    messages = contents(boom, DELAYS)
    assert len(messages) == piped[0].weeks
    assert {message.key for message in messages} == {b"UA", b"AA"}
    week = msgspec.json.decode(messages[0].value or b"", type=CarrierWeek)
    assert week.end - week.begin == timedelta(days=7)


def test_a_week_that_is_missing_doubled_or_changed_is_seen(spark: SparkSession) -> None:
    begin = datetime(2013, 1, 3, tzinfo=UTC)
    weeks = [
        CarrierWeek(
            "UA", begin + timedelta(days=7 * n), begin + timedelta(days=7 * n + 7), 2, 6, 3.0
        )
        for n in range(3)
    ]
    assert different(weeks, weeks) == 0
    assert different(weeks[:2], weeks) == 1
    assert different([*weeks, weeks[0]], weeks) == 1
    assert (
        different([*weeks[:2], CarrierWeek("UA", weeks[2].begin, weeks[2].end, 2, 7, 3.5)], weeks)
        == 2
    )
    schema = "carrier string, airline string, flights int, mean_delay_min double, worst_destination string"
    empty = spark.createDataFrame([("HA", None, 1, None, None)], schema)
    (line,) = carrier_lines(empty, [])
    assert line == ("HA", None, 1, None, "-", None)


def test_without_java_or_when_told_so_the_demo_says_what_is_missing(tmp_path: Path) -> None:
    # The data cannot be had either, so that it ends there.
    words = [sys.executable, "-m", "demo", "--data", str(tmp_path)]
    root = str(Path(__file__).parents[2])
    offline = {"PYTHONPATH": root, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}

    def said(*more: str, **environment: str) -> str:
        done = subprocess.run(
            [*words, *more],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
            env={**os.environ, **offline, **environment},
        )
        assert done.returncode == 1
        return done.stderr

    assert "goes without its part on Spark: Spark needs Java 17: sudo apt-get install" in said(
        PATH=str(tmp_path), JAVA_HOME=""
    )
    assert "goes without its part on Spark: as asked" in said("--no-spark")
    assert "goes without" not in said()
