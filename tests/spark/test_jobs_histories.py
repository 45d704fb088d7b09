"""The audit of histories, as the chaos runs write them: it finds what is wrong, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from logboom.pipeline.jobs import histories
from logboom.wire.errors import InvalidRequest
from tests.chaos import ledger
from tests.chaos.payload import values
from tests.chaos.record import Acked, Failed, Read, Record, Sent, Writer, Wrong
from tests.sim.judges import logs
from tests.sim.judges.logs import Stream

ONE, TWO = Stream("p0", 0), Stream("p1", 1)


def write(folder: Path, records: Iterable[Record]) -> list[str]:
    """Histories as a worker writes them; its last line is torn."""
    writer = Writer(folder / "worker.jsonl")
    for record in records:
        writer.write(record)
    writer.close()
    with (folder / "worker.jsonl").open("ab") as file:
        file.write(b'["a", "p0", 0, 0,')
    return [str(folder)]


def topic(spark: SparkSession, rows: Iterable[tuple[int, int, Stream, int]]) -> DataFrame:
    """A topic out of (queue, offset, stream, number)."""
    held = [("t", queue, at, values(stream, n, 1)[0]) for queue, at, stream, n in rows]
    return spark.createDataFrame(held, histories.SCHEMA)


def right() -> list[Record]:
    return [
        Sent("p0", 0, 6),
        Sent("p1", 1, 3),
        Acked("p0", 0, 0, 0, 4, 1.0, 2.0),
        Failed("p0", 0, 4, 2, 3.0, "no answer"),
        Acked("p1", 1, 0, 0, 3, 1.0, 2.0),
        Read("r-0", 0, 0, "p0", 0, 0, 2, 4.0),
        Read("r-0", 0, 2, "p0", 0, 2, 4, 4.0),
        Read("r-0", 1, 0, "p1", 1, 0, 3, 4.0),
    ]


def lying() -> list[tuple[int, int, Stream, int]]:
    # What was given up is stored all the same: that may be.
    return [(0, n, ONE, n) for n in range(6)] + [(1, n, TWO, n) for n in range(3)]


def test_the_words_are_those_of_the_chaos_runs() -> None:
    assert set(histories.PROPERTIES) >= {
        logs.LOST,
        logs.DOUBLED,
        logs.REORDERED,
        logs.PHANTOM,
        logs.UNSTABLE,
        logs.GAPS,
        ledger.UNREAD,
        logs.OUTCOMES,
    }


@pytest.mark.thorough
def test_nothing_is_found_where_all_is_right(spark: SparkSession, tmp_path: Path) -> None:
    files = write(tmp_path, right())
    # What retention took is not missed.
    held = [row for row in lying() if row[1] >= 2]
    figures, sums = histories.audit(spark, files, topic(spark, held))
    assert figures == {"sent": 9, "acked": 7, "failed": 2, "read": 9, "stored": 5}
    assert {row["broken"] for row in sums} == {0}


@pytest.mark.thorough
def test_all_that_is_wrong_is_found(spark: SparkSession, tmp_path: Path) -> None:
    records = [
        *right(),
        Acked("p0", 0, 4, 6, 1, 1.0, 2.0),  # lies at 4, and was given up
        Read("r-1", 1, 0, "p1", 1, 1, 1, 5.0),  # another message than what lies there
        Read("r-1", 1, 0, "p1", 1, 0, 1, 6.0),  # once more
        Wrong("r-1", "reads were sent", "a value of nobody", 7.0),
    ]
    held = [
        *lying(),
        (1, 4, TWO, 2),  # again, behind a gap
        (1, 5, ONE, 9),  # in another queue, and never sent
    ]
    # Two in the wrong order, and one instead of another.
    instead = {0: 1, 1: 0, 5: 2}
    held = [(q, at, who, instead.get(n, n) if q == 0 and at < 6 else n) for q, at, who, n in held]
    _, sums = histories.audit(spark, write(tmp_path, records), topic(spark, held))
    assert [row["property"] for row in sums][:-1] == [*histories.PROPERTIES]
    assert {row["property"]: row["broken"] for row in sums} == {
        histories.LOST: 3,
        histories.DOUBLED: 2,
        histories.REORDERED: 1,
        histories.PHANTOM: 1,
        histories.UNSTABLE: 4,
        histories.GAPS: 1,
        histories.UNREAD: 2,
        histories.ONCE: 1,
        histories.OUTCOMES: 1,
        "reads were sent": 1,
    }


def test_histories_that_are_not_there_are_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there are no histories in"):
        histories.audit(spark, [str(tmp_path)], topic(spark, []))
