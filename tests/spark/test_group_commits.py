"""What the listener commits, told by hand what Spark would tell it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from logboom.client import Client
from logboom.pipeline.commit_target import marked
from logboom.pipeline.group_commit_listener import GroupCommitListener
from logboom.pipeline.source_options import source_options

Fill = Callable[..., None]


def told(group: str, servers: str, **reached: dict[str, int]) -> SimpleNamespace:
    """The progress of a query that commits for a group, and of another source beside it."""
    given = {"servers": servers, "subscribe": "t", "commitGroup": group, "timeoutMs": "10000"}
    mark = marked({}, source_options(given, stream=True))
    ours = SimpleNamespace(latestOffset=json.dumps(mark), endOffset=json.dumps(reached))
    other = SimpleNamespace(latestOffset="at 7", endOffset="7")
    return SimpleNamespace(progress=SimpleNamespace(sources=[other, ours]))


def committed(boom: Client, group: str, topic: str) -> list[int | None]:
    """Of each queue."""
    return list(boom.admin.committed(group, topic).values())


def test_a_group_is_made_and_only_goes_forward(
    boom: Client, servers: str, topic: str, fill: Fill
) -> None:
    group = f"{topic}.group"
    fill(topic, 0, range(10))
    fill(topic, 1, range(10))
    listener = GroupCommitListener()
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 4, "1": 0}}))
    assert committed(boom, group, topic)[:2] == [4, 0]
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 6, "1": 5, "2": 0}}))
    assert committed(boom, group, topic) == [6, 5, 0]
    # Another query, or this one from an older checkpoint, with a listener that knows nothing.
    for each in (listener, GroupCommitListener()):
        each.onQueryProgress(told(group, servers, **{topic: {"0": 2, "1": 7}}))
        each.onQueryProgress(told(group, servers, **{topic: {"0": 3, "1": 7}}))
        assert committed(boom, group, topic) == [6, 7, 0]


def test_topics_that_come_are_joined(boom: Client, servers: str, topic: str, fill: Fill) -> None:
    group, other = f"{topic}.group", f"{topic}.other"
    boom.admin.create_topic(other, queues=1)
    fill(topic, 0, range(3))
    fill(other, 0, range(3))
    listener = GroupCommitListener()
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 3}}))
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 3}, other: {"0": 2}}))
    assert committed(boom, group, other) == [2]
    lags = {each.topic: each.lag for each in boom.admin.describe_group(group).queues}
    assert lags[other] == 1


def test_a_group_with_members_is_left_alone(
    boom: Client,
    servers: str,
    topic: str,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = f"{topic}.taken"
    fill(topic, 0, range(5))
    with boom.consumer(topic, group=group), caplog.at_level(logging.WARNING, "logboom.pipeline"):
        GroupCommitListener().onQueryProgress(told(group, servers, **{topic: {"0": 5}}))
        assert f"group '{group}' has members: give the query a group of its own" in caplog.text
        assert 5 not in committed(boom, group, topic)
    GroupCommitListener().onQueryProgress(told(group, servers, **{topic: {"0": 5}}))
    assert committed(boom, group, topic)[0] == 5


def test_a_member_that_joins_later_is_not_moved_back(
    boom: Client,
    servers: str,
    topic: str,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = f"{topic}.joined"
    fill(topic, 0, range(20))
    listener = GroupCommitListener()
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 5}}))
    assert committed(boom, group, topic)[0] == 5
    with boom.consumer(topic, group=group) as consumer:
        read = 5
        while read < 10:
            for message in consumer.poll(10 - read, 10.0):
                consumer.ack(message)
                read += 1
        consumer.commit(sync=True)
        assert committed(boom, group, topic)[0] == 10
        with caplog.at_level(logging.WARNING, "logboom.pipeline"):
            listener.onQueryProgress(told(group, servers, **{topic: {"0": 6}}))
        assert "has members" in caplog.text
        assert committed(boom, group, topic)[0] == 10
    # Nor is the group, once the member has left; what is really further counts.
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 7}}))
    assert committed(boom, group, topic)[0] == 10
    listener.onQueryProgress(told(group, servers, **{topic: {"0": 12}}))
    assert committed(boom, group, topic)[0] == 12


SCRIPT = """
import sys
from logboom.pipeline import session

servers, topic, group, checkpoint = sys.argv[1:]
source = {"servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
spark = session("a script", "local[1]")
rows = spark.readStream.format("logboom").options(**source, commitGroup=group).load()
writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("last", ["", "spark.stop()"])
def test_a_script_that_ends_has_committed(
    boom: Client, servers: str, topic: str, fill: Fill, tmp_path: Path, last: str
) -> None:
    """Also if it does not stop its session: Spark's last words to the listener reached nobody, and it
    said so at length."""
    fill(topic, 0, range(10))
    group = f"{topic}.group"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + last, servers, topic, group, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert [word for word in ("ERROR", "Exception", "Traceback") if word in done.stderr] == []
    assert committed(boom, group, topic)[0] == 10
