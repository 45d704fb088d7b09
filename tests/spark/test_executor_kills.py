"""Executors and Python workers that die in the middle of a write lose and double nothing.

One job, sent to a real cluster by `spark-submit`, copies a topic: two micro-batches of a stream, then a
batch. In each, both tasks are held when they have written more than half of their rows, and killed in
another way.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom.client import Client
from tests.spark import held_copy
from tests.spark.spark_cluster import SparkCluster, below, eventually, kill, processes
from tests.spark.topic_contents import contents

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]

Fill = Callable[..., None]
QUEUES = 2
BATCHES = 2
EACH = held_copy.ROWS * BATCHES // QUEUES
"""Messages of a queue."""
PADDING = b"." * 2_000
"""So that what a task hands on before it holds does not stay in buffers."""


@contextmanager
def submitted(cluster: SparkCluster, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job, on the cluster."""
    script = str(Path(held_copy.__file__))
    command = [f"{cluster.environment['SPARK_HOME']}/bin/spark-submit"]
    command += ["--master", cluster.master]
    command += ["--conf", "spark.sql.execution.arrow.maxRecordsPerBatch=250", script, *words]
    log = cluster.folder / "job.log"
    with log.open("wb") as said:
        job = subprocess.Popen(command, stdout=said, stderr=said, env=cluster.environment)
    try:
        yield job
    finally:
        job.terminate()
        job.wait()


class Struck:
    """Waits until both tasks of a write hold, and strikes where they run."""

    def __init__(self, cluster: SparkCluster, folder: Path, job: subprocess.Popen[bytes]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.job = job

    def held(self, unit: str) -> list[int]:
        """Python workers that hold."""

        def look() -> list[int] | None:
            assert self.job.poll() is None, (self.cluster.folder / "job.log").read_text("utf-8")
            files = [self.folder / f"{unit}-{number}" for number in range(QUEUES)]
            # By another process.
            return (
                [int(file.read_text()) for file in files] if all(map(Path.exists, files)) else None
            )

        return eventually(look, f"tasks of {unit} that hold", 300)

    def go_on(self, unit: str) -> None:
        """Let those go on that are still there."""
        (self.folder / f"go-on-{unit}").touch()

    def executor_of(self, worker: int) -> int:
        """The executor that a Python worker belongs to."""
        (found,) = [
            executor
            for executor in self.cluster.executors()
            if worker in {each.pid for each in below(executor)}
        ]
        return found


def count(boom: Client, topic: str) -> int:
    """Messages that readers see."""
    return sum(end for _, end in boom.admin.offsets(topic).values())


def parked(boom: Client, topic: str) -> int:
    """Messages that wait for a decision, once there are any."""

    def look() -> int | None:
        waiting = boom.admin.transactions().transactions
        places = [each for one in waiting for each in one.parked if each.topic == topic]
        return sum(each.count for each in places) or None

    return eventually(look, f"parked messages of {topic}")


def test_killed_executors_lose_and_double_nothing(
    cluster: SparkCluster, boom: Client, servers: str, topic: str, tmp_path: Path
) -> None:
    source, streamed, batched = (f"{topic}-{name}" for name in ("from", "streamed", "batched"))
    for name in (source, streamed, batched):
        boom.admin.create_topic(name, queues=QUEUES)
    wanted = [[b"%d.%d" % (queue, n) + PADDING for n in range(EACH)] for queue in range(QUEUES)]
    with boom.producer() as producer:
        for queue, values in enumerate(wanted):
            keys = [b"queue-%d" % queue] * EACH
            producer.send_many(source, values, keys, queue=queue).result()

    with submitted(cluster, servers, source, streamed, batched, str(tmp_path)) as job:
        struck = Struck(cluster, tmp_path, job)

        # The first micro-batch: both executors, and all that belongs to them.
        struck.held("0")
        assert parked(boom, streamed) < held_copy.ROWS
        assert count(boom, streamed) == 0
        both = struck.cluster.executors()
        assert len(both) == QUEUES
        kill(*both, *(each.pid for each in below(*both)))
        struck.go_on("0")

        # The second: an executor and what starts its Python workers. They live on, and write on for
        # nobody, while the task runs again elsewhere.
        zombie, _ = struck.held("1")
        assert count(boom, streamed) == held_copy.ROWS
        executor = struck.executor_of(zombie)
        kill(*(each.pid for each in processes() if each.parent == executor), executor)
        struck.go_on("1")

        # The batch: the Python workers alone.
        workers = struck.held("batch")
        assert parked(boom, batched) < held_copy.ROWS * BATCHES
        kill(*workers)
        assert count(boom, streamed) == held_copy.ROWS * BATCHES
        assert count(boom, batched) == 0
        struck.go_on("batch")
        assert job.wait(300) == 0, (cluster.folder / "job.log").read_text("utf-8")

    for name in (streamed, batched):
        found = [message.value or b"" for message in contents(boom, name)]
        for values in wanted:
            start = values[0].split(b".")[0]
            # Each once, and in their order.
            assert [each for each in found if each.split(b".")[0] == start] == values
        assert len(found) == EACH * QUEUES
    eventually(lambda: True if not _runs(zombie) else None, "end of the worker without a task")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
