"""Readers without a JVM: what is gone, what came late, and how far a look goes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logboom.client import Client
from logboom.pipeline import stream_reader
from logboom.pipeline.queue_offsets import Offsets
from logboom.pipeline.stream_reader import StreamReader
from logboom.wire.errors import InvalidRequest, OffsetOutOfRange, UnknownResource
from tests.spark.conftest import Trimmed
from tests.spark.test_readers import batch, rows, stream

Fill = Callable[..., None]
ALL = ReadAllAvailable()


def told(parts: list[tuple[int, int, int]]) -> list[int]:
    """The values of rows, in order."""
    return sorted(value for _, _, value in parts)


def wait_until_gone(servers: str, topic: str) -> None:
    """Until no broker offers a topic that was deleted."""
    while True:
        try:
            batch(servers, topic).partitions()
        except UnknownResource:
            return
        # They hear of it in their own time, and nobody tells us.
        time.sleep(0.02)


# Trigger.AvailableNow.


def test_available_now_forgets_no_queue_of_the_checkpoint(
    servers: str, boom: Client, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(5))
    reader = stream(servers, topic)
    reader.prepareForTriggerAvailableNow()
    # It may hear of a queue later than whoever wrote the checkpoint.
    boom.admin.alter_topic(topic, queues=4)
    fill(topic, 3, range(10, 20))
    start = {topic: {"0": 5, "1": 0, "2": 0, "3": 7}}
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 5, "1": 0, "2": 0, "3": 10}}
    assert told(rows(reader, reader.partitions(start, end))) == [17, 18, 19]
    fill(topic, 3, range(20, 25))
    assert reader.latestOffset(end, ALL) == end


@pytest.mark.parametrize("now", [True, False])
def test_a_queue_that_is_gone_is_told_with_every_trigger(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    monkeypatch.setattr(stream_reader, "NEWS_S", 0.0)
    reader = stream(servers, topic)
    if now:
        reader.prepareForTriggerAvailableNow()
    start = {topic: {"0": 0, "1": 0, "2": 0, "9": 7}}
    with pytest.raises(OffsetOutOfRange, match=r"queue 9 of topic .* is gone"):
        reader.latestOffset(start, ALL)


# failOnDataLoss=false.


@pytest.mark.parametrize("now", [True, False])
def test_the_loss_of_one_topic_does_not_end_the_others(
    servers: str, boom: Client, topic: str, fill: Fill, now: bool
) -> None:
    gone = f"{topic}.gone"
    boom.admin.create_topic(gone, queues=1)
    fill(gone, 0, range(10))
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    start = stream(servers, f"{topic},{gone}", **options).initialOffset()
    assert start == {topic: {"0": 0, "1": 0, "2": 0}, gone: {"0": 0}}
    boom.admin.delete_topic(gone)
    wait_until_gone(servers, gone)
    fill(topic, 1, range(3))
    reader = stream(servers, f"{topic},{gone}", **options)
    if now:
        reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset({**start, gone: {"0": 10}}, ALL)
    assert end == {topic: {"0": 0, "1": 3, "2": 0}}
    assert told(rows(reader, reader.partitions(start, end))) == [0, 1, 2]
    assert reader.latestOffset(end, ALL) == end
    # Made anew, it is read like any topic that comes.
    boom.admin.create_topic(gone, queues=1)
    fill(gone, 0, range(30, 32))
    reader = stream(servers, f"{topic},{gone}", **options)
    while (last := reader.latestOffset(end, ALL)) == end:
        continue  # it waits by itself, until it is told of the new topic
    assert last == {topic: {"0": 0, "1": 3, "2": 0}, gone: {"0": 2}}
    assert told(rows(reader, reader.partitions(end, last))) == [30, 31]


def test_assigned_queues_that_a_topic_has_no_more_are_passed_over(
    servers: str, boom: Client, topic: str, fill: Fill
) -> None:
    options = {"assign": json.dumps({topic: [0, 2]}), "failOnDataLoss": "false"}
    boom.admin.delete_topic(topic)
    boom.admin.create_topic(topic, queues=1)
    fill(topic, 0, range(4))
    start = {topic: {"0": 9, "2": 5}}
    reader = stream(servers, "", **options)
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 4}}
    assert told(rows(reader, reader.partitions(start, end))) == [0, 1, 2, 3]


def test_a_new_query_has_to_name_topics_that_are_there(servers: str) -> None:
    reader = stream(servers, "none-such", failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(UnknownResource, match="'none-such' does not exist"):
        reader.initialOffset()
    with pytest.raises(UnknownResource, match="'none-such' does not exist"):
        batch(servers, "none-such", failOnDataLoss="false").partitions()


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_deleted_after_the_plan(
    servers: str, boom: Client, topic: str, fill: Fill, fail: bool
) -> None:
    fill(topic, 0, range(10))
    reader = batch(servers, topic, failOnDataLoss=str(fail))
    parts = reader.partitions()
    boom.admin.delete_topic(topic)
    wait_until_gone(servers, topic)
    if fail:
        with pytest.raises(UnknownResource, match="does not exist"):
            rows(reader, parts)
    else:
        assert rows(reader, parts) == []


# Where a queue begins by now.


@pytest.mark.parametrize("kind", [batch, stream])
def test_what_lies_before_the_first_message_is_told_or_passed_over(
    servers: str, trimmed: Trimmed, kind: Callable[..., Any]
) -> None:
    begin, end = {trimmed.topic: {"0": 0}}, {trimmed.topic: {"0": trimmed.end}}
    for fail in (True, False):
        options = {"startingOffsets": json.dumps(begin), "failOnDataLoss": str(fail)}
        reader = kind(servers, trimmed.topic, **options)

        def parts(reader: Any = reader) -> list[Any]:
            bounds = (reader.initialOffset(), end) if isinstance(reader, StreamReader) else ()
            found: list[Any] = reader.partitions(*bounds)
            return found

        if fail:
            said = f"begins at offset {trimmed.first} now, messages from 0 are gone: say failOn"
            with pytest.raises(OffsetOutOfRange, match=said):
                parts()
        else:
            assert told(rows(reader, parts())) == list(range(trimmed.first, trimmed.end))


@pytest.mark.parametrize(
    ("option", "most", "count"),
    [("maxOffsetsPerTrigger", 7, 7), ("maxBytesPerTrigger", 8 * 500, 8)],
)
def test_a_micro_batch_is_bounded_also_where_messages_are_gone(
    servers: str, trimmed: Trimmed, option: str, most: int, count: int
) -> None:
    reader = stream(servers, trimmed.topic, failOnDataLoss="false", **{option: str(most)})
    start = {trimmed.topic: {"0": 0}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = told(rows(reader, reader.partitions(start, end)))
    assert found == list(range(trimmed.first, trimmed.first + len(found)))
    assert 0 < len(found) <= count


def test_a_micro_batch_of_a_topic_made_anew_is_bounded(
    servers: str, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(20))
    reader = stream(servers, topic, failOnDataLoss="false", maxOffsetsPerTrigger="6")
    start = {topic: {"0": 50, "1": 0, "2": 0}}
    found = []
    for _ in range(4):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found.append(told(rows(reader, reader.partitions(start, end))))
        start = end
    assert found == [[*range(6)], [*range(6, 12)], [*range(12, 18)], [18, 19]]


# Bounds of a batch.


@pytest.mark.parametrize("fail", [True, False])
def test_a_batch_that_begins_behind_its_end_has_no_rows(
    servers: str, topic: str, fill: Fill, fail: bool
) -> None:
    fill(topic, 0, range(10))
    fill(topic, 1, range(10, 20))
    start = {topic: {"0": 8, "1": 2, "2": 0}}
    end = {topic: {"0": 5, "1": 4, "2": 0}}
    options = {"startingOffsets": json.dumps(start), "endingOffsets": json.dumps(end)}
    reader = batch(servers, topic, failOnDataLoss=str(fail), **options)
    assert rows(reader, reader.partitions()) == [(1, 2, 12), (1, 3, 13)]


# Waiting.


class Counted(StreamReader):
    """Counts its looks; while the first is under way, something may happen."""

    looks = 0

    def _look(self, begin: Offsets) -> Offsets:
        self.looks += 1
        found = super()._look(begin)
        if self.looks == 1:
            self.happens()
        return found

    def happens(self) -> None:
        """Nothing."""


def counted(servers: str, topic: str, **options: str) -> Counted:
    """A reader that counts."""
    plain = stream(servers, topic, **options)
    return Counted(plain.options, plain.fields)


def test_news_is_waited_for_and_not_asked_for_again_and_again(
    servers: str, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "WAIT_S", 60.0)
    reader = counted(servers, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    monkeypatch.setattr(reader, "happens", lambda: fill(topic, 2, range(4)))
    end = reader.latestOffset(start, ALL)
    # It was not there at the first look, and the same question found it.
    assert (end[topic]["2"], reader.looks) == (4, 2)


def test_without_news_a_question_is_one_look(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "WAIT_S", 0.01)
    reader = counted(servers, topic)
    start = reader.initialOffset()
    for _ in range(3):
        assert reader.latestOffset(start, ALL) == start
    assert reader.looks == 3


def test_too_little_is_waited_for_until_the_delay_is_over(
    servers: str, topic: str, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "WAIT_S", 0.05)
    fill(topic, 0, range(3))
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    patient = stream(servers, topic, maxTriggerDelay="1h", **options)
    start = patient.initialOffset()
    for _ in range(5):
        assert patient.latestOffset(start, ALL) == start
    hasty = stream(servers, topic, maxTriggerDelay="200ms", **options)
    while (end := hasty.latestOffset(start, ALL)) == start:
        continue  # it waits by itself
    assert end == {topic: {"0": 3, "1": 0, "2": 0}}


def test_a_stream_begins_at_times_and_with_what_is_assigned(
    servers: str, topic: str, fill: Fill
) -> None:
    for queue in (0, 1):
        fill(topic, queue, range(10), timestamps_ms=[1_000 * n for n in range(10)])
    assigned = json.dumps({topic: [1, 2]})
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    reader = stream(servers, "", assign=assigned, startingTimestamp="6500", **late)
    assert reader.initialOffset() == {topic: {"1": 7, "2": 0}}
    times = json.dumps({topic: {"1": 2_000, "2": 0}})
    reader = stream(servers, "", assign=assigned, startingOffsetsByTimestamp=times, **late)
    assert reader.initialOffset() == {topic: {"1": 2, "2": 0}}
    reader = stream(servers, "", assign=assigned, startingTimestamp="6500")
    with pytest.raises(InvalidRequest, match=r"queue 2 of topic .* has no message at or after"):
        reader.initialOffset()


# The first micro-batch, of which Spark records the end alone.

MOVING = [
    {"startingOffsets": "latest"},
    {"startingOffsets": "group:mover"},
    {"startingOffsets": "AT_END"},
    {"startingTimestamp": "9999999999999", "startingOffsetsByTimestampStrategy": "latest"},
]


def named_end(options: dict[str, str], topic: str) -> dict[str, str]:
    """The options, with the end of queue 0 by its number for "the latest"."""
    at_end = json.dumps({topic: {"0": -1, "1": 0, "2": -2}})
    return {name: text.replace("AT_END", at_end) for name, text in options.items()}


def follow(reader: StreamReader, start: Any) -> tuple[Any, list[int]]:
    """The next micro-batch of a running query: its end, and its values."""
    end = reader.latestOffset(start, ALL)
    return end, told(rows(reader, reader.partitions(start, end)))


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("options", MOVING)
def test_a_query_that_died_in_its_first_micro_batch_goes_on_from_its_start(
    servers: str, boom: Client, topic: str, fill: Fill, options: dict[str, str], fail: str
) -> None:
    options = {**named_end(options, topic), "failOnDataLoss": fail}
    fill(topic, 0, range(5))
    boom.admin.alter_group("mover", subscription={topic: ""}, create=True)
    boom.admin.reset_offsets("mover", {(topic, 0): 5}, dry_run=False)
    first = stream(servers, topic, **options)
    start = first.initialOffset()
    fill(topic, 0, range(5, 8))
    end, values = follow(first, start)
    assert (end, values) == (start, [])
    # It died before Spark noted that the micro-batch is done: Spark has its end alone.
    fill(topic, 0, range(8, 12))
    boom.admin.reset_offsets("mover", {(topic, 0): 11}, dry_run=False)
    again = stream(servers, topic, **options)
    assert rows(again, again.partitions(again.initialOffset(), end)) == []
    end, values = follow(again, end)
    assert values == list(range(5, 12))
    # And a third micro-batch is an ordinary one.
    fill(topic, 0, range(12, 14))
    assert follow(again, end)[1] == [12, 13]


def test_a_start_that_stays_is_read_in_the_first_micro_batch(
    servers: str, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(5))
    first = stream(servers, topic, startingOffsets="earliest")
    start = first.initialOffset()
    end, values = follow(first, start)
    assert values == list(range(5))
    again = stream(servers, topic, startingOffsets="earliest")
    assert told(rows(again, again.partitions(again.initialOffset(), end))) == values
    fill(topic, 0, range(5, 7))
    assert follow(again, end)[1] == [5, 6]


def test_a_start_beyond_the_end_reads_nothing_before_it(
    servers: str, boom: Client, topic: str, fill: Fill
) -> None:
    fill(topic, 0, range(5))
    offsets = json.dumps({topic: {"0": 9, "1": 0, "2": 0}})
    options = {"startingOffsets": offsets, "failOnDataLoss": "false"}
    assert batch(servers, topic, **options).partitions() == []
    reader = stream(servers, topic, **options, maxOffsetsPerTrigger="100")
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert rows(reader, reader.partitions(start, end)) == []
    # As Kafka's source it goes on from the end.
    fill(topic, 0, range(5, 7))
    last = reader.latestOffset(end, limit)
    assert told(rows(reader, reader.partitions(end, last))) == [5, 6]
    said = "ends at offset 7, not at 9: startingOffsets or"
    with pytest.raises(OffsetOutOfRange, match=said):
        batch(servers, topic, startingOffsets=offsets).partitions()
    reader = stream(servers, topic, startingOffsets=offsets)
    start = reader.initialOffset()
    with pytest.raises(OffsetOutOfRange, match=said):
        reader.latestOffset(start, ALL)
