"""A thousand topics on real processes: created, a broker restarted, one failed over; 18,000 queues at once."""

from __future__ import annotations

import pytest

from bench import queues
from bench.metadata_scale import create, fail_over, restart, wait_in_sync
from logboom.client import connect
from logboom.deploy import Cluster


@pytest.mark.thorough
def test_a_thousand_topics_survive_a_restart_and_a_fail_over() -> None:
    with Cluster(name_servers=3, brokers=3) as cluster, connect(cluster.endpoints) as boom:
        create(boom, 1_000)
        assert len(boom.admin.topics()) == 1_000
        wait_in_sync(boom, 3)
        served, whole = restart(cluster, boom, "broker-2")
        assert served < 10.0
        assert whole < 20.0
        assert fail_over(cluster, boom) <= 10.0
        with boom.producer(acks="all") as producer:
            assert producer.send("t7", b"after it all", queue=1).result(200).offset == 0


@pytest.mark.parametrize(
    ("topics", "nodes"),
    [
        (2, 3),
        pytest.param(18, 1, marks=pytest.mark.thorough),
        pytest.param(18, 3, marks=pytest.mark.thorough),
    ],
)
def test_many_queues_at_once_cost_no_broker_its_session(topics: int, nodes: int) -> None:
    found = queues.rows(topics, 5.0, nodes)
    assert [each for each in found if each.verdict == "MISSED"] == []
