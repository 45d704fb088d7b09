"""A thousand topics on real processes: created, a broker restarted, one failed over."""

from __future__ import annotations

import pytest

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
