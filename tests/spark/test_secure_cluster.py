"""A job of its own user: the option `credentials` of source and sink, with the rules of the manual."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logboom.client import Client
from logboom.deploy import embedded
from logboom.pipeline.spark_errors import reason
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.sockets import make_key_pair
from tests.integration.waiting import wait_until


@pytest.fixture(name="nightly")
def credentials_of_a_job(tmp_path: Path) -> Iterator[tuple[Client, str]]:
    """The administrator's client, and the credentials file of a user who may do what docs say."""
    with embedded(secure=True) as node, node.connect(create_topics=False) as boom:
        assert node.credentials is not None
        for topic in ("orders.eu", "orders.us", "sums"):
            boom.admin.create_topic(topic, queues=2)
            with boom.producer() as producer:
                if topic != "sums":
                    producer.send_many(topic, [b"%d" % n for n in range(100)], queue=1).result(60)
        pair = make_key_pair()
        boom.admin.create_user("nightly", pair.public)
        boom.admin.add_rule("user:nightly", "allow", "read", "topic", "orders.eu")
        boom.admin.add_rule("user:nightly", "allow", "write", "topic", "sums")
        boom.admin.add_rule("user:nightly", "allow", "write", "transaction", "nightly-*")
        mine = msgspec.structs.replace(
            read_credentials(node.credentials), user="nightly", key_pair=pair
        )
        write_credentials(tmp_path / "nightly.toml", mine)
        yield boom, str(tmp_path / "nightly.toml")


def test_a_job_reads_and_writes_what_its_user_may(
    spark: SparkSession, nightly: tuple[Client, str], tmp_path: Path
) -> None:
    boom, credentials = nightly

    def read(topic: str) -> list[bytes]:
        options = {"credentials": credentials, "subscribe": topic}
        frame = spark.read.format("logboom").options(**options).load()
        return sorted(bytes(row.value) for row in frame.select("value").collect())

    expected = sorted(b"%d" % n for n in range(100))
    assert read("orders.eu") == expected
    with pytest.raises(PySparkException) as refused:
        read("orders.us")
    # As if it did not exist: it may not even be described.
    assert "topic 'orders.us' does not exist" in reason(refused.value)
    stream = (
        spark.readStream.format("logboom")
        .options(credentials=credentials, subscribe="orders.eu", startingOffsets="earliest")
        .load()
        .select("value")
        .writeStream.format("logboom")
        .options(credentials=credentials, topic="sums", txnAppId="nightly-sums")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(300)
    assert stream.exception() is None
    written: list[bytes | None] = []
    for queue in range(2):
        pulled = boom.pull("sums", queue=queue, offset=0, max_messages=1_000, wait_ms=0)
        written += [message.value for message in pulled.messages]
    assert sorted(value or b"" for value in written) == expected


def test_a_key_is_replaced_under_a_running_stream_and_between_two_reads(
    spark: SparkSession, nightly: tuple[Client, str], tmp_path: Path
) -> None:
    boom, credentials = nightly
    options = {"credentials": credentials, "subscribe": "orders.eu"}

    def read() -> int:
        return int(spark.read.format("logboom").options(**options).load().count())

    def written(count: int) -> bool:
        ends = boom.admin.offsets("sums")
        assert stream.exception() is None
        return sum(end for _, end in ends.values()) >= count

    assert read() == 100
    stream = (
        spark.readStream.format("logboom")
        .options(**options, startingOffsets="earliest")
        .load()
        .select("value")
        .writeStream.format("logboom")
        .options(credentials=credentials, topic="sums", txnAppId="nightly-sums")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: written(100), "the stream writes", 500.0)
        old, pair = read_credentials(credentials), make_key_pair()
        boom.admin.add_user_key("nightly", pair.public, label="second")
        write_credentials(tmp_path / "second.toml", msgspec.structs.replace(old, key_pair=pair))
        (tmp_path / "second.toml").replace(credentials)
        # What the stream does next it does with the new key, so nobody needs the old one any more.
        with boom.producer() as producer:
            producer.send_many("orders.eu", [b"x"] * 10, queue=0).result(60)
            wait_until(lambda: written(110), "the stream writes with the new key", 500.0)
            boom.admin.remove_user_key("nightly", "first")
            producer.send_many("orders.eu", [b"x"] * 10, queue=0).result(60)
        wait_until(lambda: written(120), "the stream writes without the old key", 500.0)
    finally:
        stream.stop()
    assert read() == 120
    assert sum(end for _, end in boom.admin.offsets("sums").values()) == 120
