"""How Spark gets to know the format, and what is said where Spark cannot run."""

from __future__ import annotations

import importlib
import inspect
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from pyspark import daemon
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import DataFrame, SparkSession

from logboom.pipeline import worker_daemon
from logboom.pipeline.spark_errors import reason
from logboom.pipeline.spark_session import check_spark, register, share_wheels
from logboom.wire.errors import StartError

Read = Callable[..., DataFrame]


def test_spark_finds_the_format_by_itself(
    spark: SparkSession, servers: str, topic: str, fill: Callable[..., None]
) -> None:
    fill(topic, 0, range(3))
    fresh = spark.newSession()
    frame = fresh.read.format("logboom").options(servers=servers, subscribe=topic).load()
    assert frame.count() == 3


def test_registering_twice_is_harmless(spark: SparkSession) -> None:
    register(spark)
    register(spark)


def test_a_session_of_spark_connect_has_no_context_to_share_wheels_with() -> None:
    class Remote:
        @property
        def sparkContext(self) -> Any:  # noqa: N802 - Spark's name for it
            raise PySparkAttributeError("it has no JVM")

    share_wheels(cast("SparkSession", Remote()))


def test_the_extra_has_what_stateful_operators_need() -> None:
    # PySpark's own extras leave protobuf out, and transformWithState imports it in its tasks.
    state = importlib.import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
    assert state.StateRequest(version=1).SerializeToString()
    importlib.import_module("pyspark.sql.streaming.stateful_processor_api_client")


def test_sparks_processes_import_what_is_installed(spark: SparkSession) -> None:
    # From its zip, PySpark would be compiled in each of them anew.
    (where,) = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert where == pyspark.__file__
    assert ".zip" not in where


def test_a_worker_acknowledges_each_task_at_once(spark: SparkSession) -> None:
    # That its daemon is ours, which it was forked from; Spark's own would be silently slower.
    def told(_: int) -> tuple[bytes, str]:
        from pyspark import daemon

        return Path("/proc/self/cmdline").read_bytes(), daemon.worker.__name__

    ((command, runs),) = spark.sparkContext.parallelize([0], 1).map(told).collect()
    assert worker_daemon.MODULE.encode() in command.split(b"\0")
    assert runs == worker_daemon.run_task.__name__


def test_acknowledging_at_once_lasts_until_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:

            def at_once() -> int:
                return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)

            for _ in range(9):
                theirs.send(b"a task")
                ours.recv(9)
                ours.send(b"an answer")
                theirs.recv(9)
            assert at_once() == 0
            # Before the task, which is all that comes of one.
            monkeypatch.setattr(worker_daemon, "_run_task", lambda _sock, _known: at_once())
            assert worker_daemon.run_task(ours, authenticated=True) == 1
    one, other = socket.socketpair()
    with one, other:
        # As Spark does over Unix sockets: nothing to wait for.
        worker_daemon.acknowledge_at_once(one)


def test_spark_still_calls_what_is_replaced() -> None:
    # Names of Spark's own: `worker` runs a task, and `manager` finds it under this name.
    assert list(inspect.signature(daemon.worker).parameters) == ["sock", "authenticated"]
    assert "worker" in daemon.manager.__code__.co_names


def test_nothing_of_spark_is_imported_before_it_is_used() -> None:
    script = "import sys, logboom.pipeline; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_missing_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check_spark()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartError, match="there is no bin/java in it: unset or mend it"):
        check_spark()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match="Spark needs Java 17: sudo apt-get install openjdk-17"):
        check_spark()


def test_a_missing_extra_is_told(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from logboom.pipeline import session\n"
        "session()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "the pipeline needs its extra: pip install 'logboom[spark]'" in done.stderr


WRONG = [
    ({"subscribes": "x"}, "the source has no option 'subscribes': did you mean subscribe?"),
    ({}, "say what to read with one of subscribe, subscribePattern, assign, not with none of them"),
    ({"subscribe": "none-such"}, "topic 'none-such' does not exist: create it with"),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=[said[:30] for _, said in WRONG])
def test_a_wrong_batch_is_told_on_the_driver(
    batch: Read, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        batch(**options).collect()
    assert reason(caught.value).startswith(said)


def test_a_wrong_stream_is_told_on_the_driver(stream: Read, topic: str, tmp_path: Path) -> None:
    def said(schema: str = "", **options: str) -> str:
        writer = stream(schema, **options).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(PySparkException) as caught:
            writer.start().awaitTermination()
        # Where Spark makes a stream's reader, it hides an error behind one of its own.
        assert "UnboundLocalError" not in str(caught.value)
        return reason(caught.value)

    assert said("value string", subscribe=topic).startswith("column 'value' is binary, not string")
    assert said(subscribe="none-such").startswith("topic 'none-such' does not exist")
    assert said(subscribe=topic, endingOffsets="latest").startswith("endingOffsets has no meaning")


def test_a_wrong_column_is_told_on_the_driver(batch: Read, topic: str) -> None:
    with pytest.raises(PySparkException) as caught:
        batch("value string", subscribe=topic).collect()
    assert reason(caught.value).startswith("column 'value' is binary, not string")


def test_brokers_that_are_away_are_named(spark: SparkSession) -> None:
    options = {"servers": "127.0.0.1:9", "subscribe": "x", "timeoutMs": "500"}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("logboom").options(**options).load().collect()
    assert reason(caught.value).startswith("no node answered at 127.0.0.1:9")
