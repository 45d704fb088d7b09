"""One cluster for all that is hostile: a name server, a broker, and a topic "f" with 30 MB in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from tests.chaos.node_logs import faults

PATIENT_S: Final = 10.0
"""A healthy client that waits longer has given up. Far more than it takes, for this may run on a busy
machine; that it comes before whoever asks for more is tested without clocks, in
tests/unit/nodes/requests/test_postponed_pulls.py."""


@pytest.fixture(scope="package", name="cluster")
def cluster_of_one() -> Iterator[Cluster]:
    """Attacked by many tests, and up to the end; its logs tell of no fault."""
    with Cluster(name_servers=1, brokers=1) as cluster:
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("f", 1, 1)
            with boom.producer() as producer:
                for sent in [producer.send("f", b"x" * 1_000_000) for _ in range(30)]:
                    sent.result(200)
        pids = {name: cluster.pid(name) for name in cluster.nodes}
        yield cluster
        for name, pid in pids.items():
            assert cluster.running(name)
            assert cluster.pid(name) == pid
            assert not faults(cluster.log(name).encode())


def slowest_pull(boom: Client, seconds: float) -> float:
    """The longest that a healthy client waits for a message, over some seconds."""
    slowest, until = 0.0, time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        assert boom.pull("f", queue=0, offset=0, wait_ms=0).status == "FOUND"
        slowest = max(slowest, time.monotonic() - began)
        # The pace: the probe must not be the load.
        time.sleep(0.02)
    return slowest
