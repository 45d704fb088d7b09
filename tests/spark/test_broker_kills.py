"""Readers and writers without a JVM, while the broker that leads a queue is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logboom.client import Client, connect
from logboom.deploy import Cluster
from tests.integration.waiting import wait_until
from tests.spark.test_readers import batch, stream
from tests.spark.test_readers import rows as read_rows
from tests.spark.test_sink_writers import rows, values, writer


@pytest.fixture(name="cluster")
def two_brokers() -> Iterator[Cluster]:
    """Each can do without the other."""
    with Cluster(name_servers=1, brokers=2) as cluster:
        yield cluster


@pytest.fixture(name="boom")
def client_of_it(cluster: Cluster) -> Iterator[Client]:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("copied", queues=2, replicas=2, min_in_sync=1)
        yield boom


def kill_leader(cluster: Cluster, boom: Client) -> None:
    """Kill who leads the first queue, once the other is in sync: a busy machine may stop it too."""

    def in_sync() -> bool:
        return all(len(queue.isr) == 2 for queue in boom.admin.describe_topic("copied").queues)

    wait_until(in_sync, "both replicas in sync")
    cluster.kill(cluster.leader("copied", 0))


def test_a_leader_that_is_killed_costs_no_row(cluster: Cluster, boom: Client) -> None:
    servers = ",".join(cluster.endpoints)
    options = {"txnAppId": "copy", "txnVersion": "0"}
    made = writer(servers, "copied", **options)
    written = [made.write(iter([rows(range(500)), rows(range(500, 1_000))]))]
    kill_leader(cluster, boom)
    # Tasks of the same write go on, and the decision finds what was parked at the dead one.
    written.append(made.write(iter([rows(range(1_000, 1_500)), rows(range(1_500, 2_000))])))
    made.commit(written)
    assert values(boom, "copied") == list(range(2_000))
    again = writer(servers, "copied", **options)
    again.commit([again.write(iter([rows(range(2_000))]))])
    assert values(boom, "copied") == list(range(2_000))


@pytest.mark.thorough
def test_a_leader_that_is_killed_between_tasks_is_read_on_elsewhere(
    cluster: Cluster, boom: Client
) -> None:
    servers = ",".join(cluster.endpoints)
    with boom.producer() as producer:
        for queue in range(2):
            sent = [b"%d" % (1_000 * queue + n) for n in range(1_000)]
            producer.send_many("copied", sent, queue=queue).result()
    reader = batch(servers, "copied", maxRecordsPerPartition="200")
    following = stream(servers, "copied", startingOffsets="earliest")
    start = following.initialOffset()
    parts = reader.partitions()
    found = read_rows(reader, parts[:3])
    kill_leader(cluster, boom)
    found += read_rows(reader, parts[3:])
    assert sorted(value for _, _, value in found) == list(range(2_000))
    end = following.latestOffset(start, ReadAllAvailable())
    assert end == {"copied": {"0": 1_000, "1": 1_000}}
    again = read_rows(following, following.partitions(start, end))
    assert sorted(value for _, _, value in again) == list(range(2_000))
