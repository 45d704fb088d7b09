"""The jobs that write to topics: each message once, in its order, whatever broke off between."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from logboom.client import Client
from logboom.pipeline.jobs import (
    archive,
    checkpoints,
    compact,
    dead_letters,
    dedup,
    enrich,
    replay,
    window,
)
from logboom.pipeline.jobs.message_frames import HEADERS
from logboom.pipeline.jobs.publishing import Target
from logboom.wire.errors import InvalidRequest

Read = Callable[..., DataFrame]
Fill = Callable[..., None]
NOW_MS = 1_700_000_000_000
_COPIES = count()


@pytest.fixture(name="copy")
def target_topic(boom: Client, servers: str) -> Target:
    """A topic to write to, with another number of queues than the others."""
    name = f"copy-{next(_COPIES)}"
    boom.admin.create_topic(name, queues=4)
    return Target(servers, name)


def by_key(batch: Read, topic: str) -> dict[bytes | None, list[bytes]]:
    """Values by key, in the order of their queues."""
    found = defaultdict(list)
    rows = batch("key binary, value binary, partition int, offset long", subscribe=topic)
    for row in rows.orderBy("partition", "offset").collect():
        found[None if row.key is None else bytes(row.key)].append(bytes(row.value or b""))
    return dict(found)


def keys(numbers: range) -> list[bytes]:
    return [b"k%d" % (n % 3) for n in numbers]


def values(numbers: range, remainder: int) -> list[bytes]:
    return [b"%d" % n for n in numbers if n % 3 == remainder]


def test_an_archive_is_replayed_once_however_often_it_breaks_off(
    spark: SparkSession,
    servers: str,
    batch: Read,
    topic: str,
    fill: Fill,
    copy: Target,
    tmp_path: Path,
) -> None:
    many = range(90)
    times = [NOW_MS + n for n in many]
    fill(topic, 0, many, keys=keys(many), timestamps_ms=times, tags=["t"] * 90)
    folder, place = tmp_path / "archive", tmp_path / "replay"
    archive.archive(spark, {"servers": servers, "subscribe": topic}, folder)
    wanted = replay.ReplayFilter(topic, until_ms=NOW_MS + 60)
    # 20 messages a second: three pieces, and it broke off when it had written two and noted one.
    run = replay.replay(spark, folder, wanted, copy, place, rate=20)
    assert (run.rows, run.batches) == (60, 3)
    plan = checkpoints.read(place, replay.ReplayState)
    assert plan is not None
    assert (plan.done, plan.pieces) == (3, 3)
    checkpoints.write(place, structs.replace(plan, done=1))
    assert replay.replay(spark, folder, wanted, copy, place).batches == 2
    assert replay.replay(spark, folder, wanted, copy, place).rows == 0
    assert by_key(batch, copy.topic) == {b"k%d" % n: values(range(60), n) for n in range(3)}
    row = batch("timestamp timestamp, tag string, value binary", subscribe=copy.topic)
    (first,) = row.where("value = '7'").collect()
    assert (first.tag, first.timestamp.microsecond) == ("t", 7_000)
    with pytest.raises(InvalidRequest, match="remembers another replay"):
        replay.replay(spark, folder, replay.ReplayFilter(topic), copy, place)
    with pytest.raises(InvalidRequest, match="remembers another replay"):
        replay.replay(spark, folder, wanted, copy, place, keep_queues=True)
    (place / replay.PIECES).unlink()
    with pytest.raises(InvalidRequest, match=r"lacks pieces\.parquet"):
        replay.replay(spark, folder, wanted, copy, place)
    with pytest.raises(InvalidRequest, match="there is no archive in"):
        replay.replay(spark, tmp_path / "none", wanted, copy)


def test_doubles_are_left_out_and_order_is_kept(
    spark: SparkSession,
    servers: str,
    batch: Read,
    topic: str,
    boom: Client,
    copy: Target,
    tmp_path: Path,
) -> None:
    source = {"servers": servers, "subscribe": topic}

    def send(*numbers: int, at_ms: int = NOW_MS) -> None:
        sent = [json.dumps({"order": {"id": n}}).encode() for n in numbers]
        times = [at_ms + n for n in range(len(numbers))]
        with boom.producer() as producer:
            producer.send_many(topic, sent, [b"k"] * len(sent), timestamps_ms=times).result()
            # Without an id there are no doubles.
            producer.send(topic, b"x", key=b"none", timestamp_ms=at_ms).result()

    def run() -> Any:
        return dedup.dedup(spark, source, copy, tmp_path, by=["order.id"], within="10 seconds")

    send(*range(40), 3, 4)
    assert run().rows == 43
    send(5, 40, 41, 6, at_ms=NOW_MS + 1_000)
    assert run().late == 0
    found = by_key(batch, copy.topic)
    assert [json.loads(value)["order"]["id"] for value in found[b"k"]] == [*range(42)]
    assert found[b"none"] == [b"x", b"x"]


def test_a_field_is_looked_up_from_topic_to_topic(
    spark: SparkSession,
    servers: str,
    batch: Read,
    topic: str,
    boom: Client,
    copy: Target,
    tmp_path: Path,
) -> None:
    table = tmp_path / "airlines.csv"
    table.write_text("code,name\nUA,United\nAA,American\n", "utf-8")
    sent = [b'{"carrier": "%s", "n": %d}' % (c, n) for n in range(20) for c in (b"UA", b"AA")]
    with boom.producer() as producer:
        producer.send_many(topic, sent, [b"UA", b"AA"] * 20).result()
    messages = enrich.messages_of(spark, {"servers": servers, "subscribe": topic})
    wanted = enrich.Lookup(enrich.read_table(spark, table), "carrier", "code")
    made = enrich.by_lookup(messages, "carrier string, n int", wanted)
    assert enrich.enrich(made, copy, tmp_path / "checkpoint").rows == 40
    assert enrich.enrich(made, copy, tmp_path / "checkpoint").rows == 0
    found = by_key(batch, copy.topic)
    assert [json.loads(value) for value in found[b"AA"]] == [
        {"carrier": "AA", "n": n, "name": "American"} for n in range(20)
    ]
    (tmp_path / "airlines.txt").touch()
    with pytest.raises(InvalidRequest, match="ends in one of csv, json, parquet, orc"):
        enrich.read_table(spark, tmp_path / "airlines.txt")


def test_windows_go_to_a_topic_once(
    spark: SparkSession,
    servers: str,
    batch: Read,
    topic: str,
    boom: Client,
    copy: Target,
    tmp_path: Path,
) -> None:
    source = {"servers": servers, "subscribe": topic}
    wanted = window.WindowAggregation(
        "c string, n int, at bigint", "10 seconds", "", ["c"], ["n"], "at", "0 seconds"
    )

    def send(*seconds: int) -> None:
        sent = [json.dumps({"c": "UA", "n": n, "at": n}).encode() for n in seconds]
        with boom.producer() as producer:
            producer.send_many(topic, sent, queue=0).result()

    for seconds in ((100, 101, 115, 121), (130,)):
        send(*seconds)
        window.window_to_topic(spark, source, wanted, copy, tmp_path)
    (told,) = by_key(batch, copy.topic).values()
    assert [(json.loads(each)["n_sum"], json.loads(each)["count"]) for each in told] == [
        (201, 2),
        (115, 1),
        (121, 1),
    ]


def test_snapshots_are_whole_and_published_once(
    spark: SparkSession,
    servers: str,
    batch: Read,
    topic: str,
    boom: Client,
    copy: Target,
    tmp_path: Path,
) -> None:
    def send(**given: bytes | None) -> None:
        with boom.producer() as producer:
            for key, value in given.items():
                producer.send(topic, value, key=key.encode()).result()

    def run() -> int:
        return compact.compact(spark, servers, topic, tmp_path, copy).rows

    def published(number: int) -> dict[bytes, bytes]:
        rows = batch("key binary, value binary, headers " + HEADERS, subscribe=copy.topic)
        return {
            bytes(row.key): bytes(row.value)
            for row in rows.collect()
            if row.headers == [("boom-snapshot", bytearray(b"%d" % number))]
        }

    with pytest.raises(InvalidRequest, match="there is no snapshot in"):
        compact.read_snapshot(spark, tmp_path)
    (tmp_path / "snapshot-backup").mkdir()
    (tmp_path / "snapshot-000000").touch()
    send(a=b"1", b=b"2", c=b"3")
    assert run() == 3
    before = checkpoints.read(tmp_path, compact.CompactJobState)
    assert before is not None
    send(a=b"4", b=None, d=b"5")
    assert run() == 3
    assert published(1) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert published(2) == {b"a": b"4", b"c": b"3", b"d": b"5"}
    # It crashed when the second was published, and nothing was noted but where that ends.
    after = checkpoints.read(tmp_path, compact.CompactJobState)
    assert after is not None
    crashed = compact.CompactJobState(before.app_id, topic, 1, before.ends, after.ends)
    checkpoints.write(tmp_path, crashed)
    send(e=b"6")
    assert run() == 3
    assert published(2) == {b"a": b"4", b"c": b"3", b"d": b"5"}
    assert batch(subscribe=copy.topic).count() == 6
    assert run() == 4
    kept = sorted(path.name for path in tmp_path.glob("snapshot-*"))
    ours = ["snapshot-000002", "snapshot-000003"]
    assert kept == ["snapshot-000000", *ours, "snapshot-backup"]
    assert compact.read_snapshot(spark, tmp_path).count() == 4
    with pytest.raises(InvalidRequest, match="has snapshots of topic"):
        compact.compact(spark, servers, "another", tmp_path)


@pytest.fixture(name="buried")
def group_with_dead_letters(boom: Client, topic: str, fill: Fill) -> str:
    """A group that gave up six messages, for two reasons."""
    fill(topic, 0, range(6), headers=[{"own": b"1"}] * 6)
    group = f"{topic}.readers"
    causes = iter([f"order {n} is not known" if n % 2 else "time-out" for n in range(6)])
    left = 6
    with boom.consumer(topic, group=group, start="first") as consumer:
        for message in consumer:
            consumer.reject(message, next(causes))
            left -= 1
            if not left:
                break
    return group


def test_dead_letters_go_back_once(
    spark: SparkSession,
    servers: str,
    batch: Read,
    topic: str,
    buried: str,
    tmp_path: Path,
) -> None:
    everything = dead_letters.DeadLetterFilter()
    found = dead_letters.triage(spark, servers, buried, everything, ["cause"], "1 hour")
    told = {row["cause"]: row["letters"] for row in found}
    assert told == {"time-out": 3, "order # is not known": 3}
    timeouts = dead_letters.DeadLetterFilter(cause="^time-out$")
    back = Target(servers)

    def run(wanted: dead_letters.DeadLetterFilter) -> int:
        return dead_letters.redrive(spark, back, buried, wanted, tmp_path).rows

    assert dead_letters.open_letters(spark, servers, buried, everything, tmp_path).count() == 6
    assert run(timeouts) == 3
    assert run(timeouts) == 0
    # It crashed when they were published, and nothing was noted but which they are.
    state = checkpoints.read(tmp_path, dead_letters.RedriveState)
    assert state is not None
    checkpoints.write(tmp_path, dead_letters.RedriveState(state.app_id, buried, 0, True))
    assert run(everything) == 6
    rows = batch("value binary, headers " + HEADERS, subscribe=topic).collect()
    assert sorted(int(row.value) for row in rows) == sorted([*range(6), *range(6)])
    assert [row.headers for row in rows] == [[("own", bytearray(b"1"))]] * 12
    with pytest.raises(InvalidRequest, match="remembers group"):
        dead_letters.redrive(spark, back, "others", everything, tmp_path)
