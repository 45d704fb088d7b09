"""Latency of Spark from topic to topic, exactly once, with its default trigger.

A child process does the work, because Spark keeps one JVM for the life of a process, and its
compilation mode is chosen when it starts. Here it is the default of
`logboom.pipeline.spark_session`, and not that of a long job as in the other figures of Spark. With
three name servers the decision would need another round trip. Here there are one name server and
one broker, on the same machine as Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from typing import Final

from bench.figures import Figure, compared, percentile
from bench.references import compare
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.pipeline import session

EMPTY_JOB: Final = "an empty Spark job, ms"
LATENCY: Final = 2.75
WARM_UP: Final = 10
"""Messages that are not counted, because Spark's first micro-batches take seconds."""
PAUSE_S: Final = 0.4
"""Seconds between two messages, so that none waits for the previous micro-batch."""


def rows(messages: int) -> list[Figure]:
    """Measure the latency of this many messages.

    Raises:
        CalledProcessError: the child failed; its error output has the reason.
    """
    command = [sys.executable, "-m", "bench.spark_latency", str(messages)]
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    taken, empty = json.loads(told)
    note = f"p90 {percentile(taken, 0.9):.0f} ms, n={messages}, default trigger, 1 broker"
    name = "Spark, produce to sink commit, p50"
    return [compared(name, compare(EMPTY_JOB, taken, empty), "ms", LATENCY, "less", note)]


def measured(messages: int) -> tuple[list[float], list[float]]:
    """Return the ms from each send to the receipt of what the query passed on, and of empty jobs.

    A job follows each message.
    """
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        for topic in ("in", "out"):
            boom.admin.create_topic(topic, queues=1, replicas=1)
        spark = session("bench", "local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        servers = ",".join(cluster.endpoints)
        source = spark.readStream.format("logboom").options(servers=servers, subscribe="in")
        taken: list[float] = []
        empty: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            frame = source.option("startingOffsets", "earliest").load().select("key", "value")
            sink = frame.writeStream.format("logboom")
            sink = sink.options(servers=servers, topic="out", checkpointLocation=folder)
            query = sink.start()
            try:
                with boom.producer() as producer, boom.consumer("out") as consumer:
                    for number in range(WARM_UP + messages):
                        began = time.perf_counter()
                        producer.send("in", b"%d" % number)
                        while not consumer.poll(timeout_s=10.0):
                            query.awaitTermination(0)  # raises the query's error
                        taken.append((time.perf_counter() - began) * 1000)
                        began = time.perf_counter()
                        spark.range(1).write.format("noop").mode("overwrite").save()
                        empty.append((time.perf_counter() - began) * 1000)
                        # Between two messages the query has to become idle, which no event
                        # announces.
                        time.sleep(PAUSE_S)
            finally:
                query.stop()
                spark.stop()
    return taken[WARM_UP:], empty[WARM_UP:]


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
