"""redrive where topics are gone, and where it was told another place than the last time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from logboom.cli.app import run
from logboom.client import Client
from logboom.pipeline.jobs import checkpoints, dead_letters
from logboom.pipeline.jobs.dead_letters import DeadLetterFilter, RedriveState, redrive
from logboom.pipeline.jobs.publishing import Target
from logboom.wire.errors import InvalidRequest

Read = Callable[..., DataFrame]
Fill = Callable[..., None]


@pytest.fixture(name="buried")
def group_that_gave_up(boom: Client, topic: str, fill: Fill) -> str:
    """A group that gave up three messages of each of two topics, and one that was put there by
    hand."""
    other = f"{topic}-other"
    boom.admin.create_topic(other, queues=1)
    fill(topic, 0, range(3))
    fill(other, 0, range(10, 13))
    group = f"{topic}.readers"
    left = 6
    with boom.consumer([topic, other], group=group, start="first") as consumer:
        for message in consumer:
            consumer.reject(message, "time-out")
            left -= 1
            if not left:
                break
    fill(f"%DLQ%{group}", 0, range(99, 100))
    return group


def planned(checkpoint: Path, to: str = "", app_id: str = "") -> None:
    """As it is when the first run broke off just after it was published; under another application
    id just before, since nobody has published under that."""
    state = checkpoints.read(checkpoint, RedriveState)
    assert state is not None
    name = app_id or state.app_id
    checkpoints.write(checkpoint, structs.replace(state, done=0, planned=True, to=to, app_id=name))


def values(batch: Read, topic: str) -> Counter[int]:
    return Counter(int(row.value) for row in batch("value binary", subscribe=topic).collect())


@pytest.mark.thorough
def test_topics_that_are_gone_stop_nothing_but_their_own_letters(
    spark: SparkSession,
    servers: str,
    batch: Read,
    boom: Client,
    topic: str,
    buried: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    back, other = Target(servers), f"{topic}-other"
    place = tmp_path / "one"
    words = ["pipeline", "redrive", buried, "-s", servers, "--checkpoint", str(place)]
    assert run(words) == 0
    said = capsys.readouterr().err
    assert "6 dead letters would be sent back" in said
    assert "1 more do not say where they come from: --to TOPIC sends them" in said
    boom.admin.delete_topic(other)
    gone = f"dead letters of {other}, which does not exist: choose others by --topic"
    with pytest.raises(InvalidRequest, match=gone):
        redrive(spark, back, buried, DeadLetterFilter(), place)
    assert redrive(spark, back, buried, DeadLetterFilter(topic=topic), place).rows == 3
    # It had planned both when one was deleted.
    boom.admin.create_topic(other, queues=1)
    both = tmp_path / "both"
    assert redrive(spark, back, buried, DeadLetterFilter(), both).rows == 6
    planned(both, app_id="never-published")
    boom.admin.delete_topic(other)
    assert redrive(spark, back, buried, DeadLetterFilter(topic=topic), both).rows == 3
    assert values(batch, topic) == Counter(dict.fromkeys(range(3), 4))
    # Its letters were not sent, so they can be sent elsewhere.
    boom.admin.create_topic(f"{topic}-saved", queues=1)
    saved = Target(servers, f"{topic}-saved")
    assert redrive(spark, saved, buried, DeadLetterFilter(topic=other), both).rows == 3
    assert values(batch, saved.topic) == Counter(range(10, 13))


def test_a_run_that_broke_off_goes_where_it_was_planned_to(
    spark: SparkSession,
    servers: str,
    batch: Read,
    boom: Client,
    topic: str,
    buried: str,
    tmp_path: Path,
) -> None:
    boom.admin.create_topic(f"{topic}-saved", queues=1)
    saved = Target(servers, f"{topic}-saved")
    assert redrive(spark, saved, buried, DeadLetterFilter(), tmp_path).rows == 7
    planned(tmp_path, saved.topic, "a-run-that-broke-off")
    assert redrive(spark, Target(servers), buried, DeadLetterFilter(), tmp_path).rows == 7
    assert values(batch, saved.topic) == Counter(dict.fromkeys((*range(3), *range(10, 13), 99), 2))
    assert values(batch, topic) == Counter(range(3))
    left = dead_letters.open_letters(spark, servers, buried, DeadLetterFilter(), tmp_path)
    assert left.count() == 0
