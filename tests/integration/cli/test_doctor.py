"""`doctor` on a cluster that has something: each trouble is found, with its fix."""

from typing import Any

import pytest

from logboom.client import connect
from logboom.deploy import Cluster, embedded
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until


def findings(servers: str, code: int) -> dict[str, dict[str, Any]]:
    """What the doctor found, by check."""
    done = logboom("doctor", "-o", "json", servers=servers)
    assert done.code == code, done.out
    return {row["check"]: row for row in done.json}


@pytest.mark.timeout(120)
def test_a_dead_broker_and_a_lost_majority_are_found() -> None:
    with Cluster(name_servers=3, brokers=3) as cluster:
        servers = ",".join(cluster.endpoints)
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("flights", queues=4, replicas=3, min_in_sync=3)
            boom.admin.create_topic("single", queues=3, replicas=1)
            well = findings(servers, 0)
            assert well["node broker-3"]["result"] == "ok"
            assert well["all replicas in sync"]["result"] == "ok"

            cluster.kill("broker-3")
            # Only a session later is it fenced, and its queues without leader.
            cluster.leader("flights", 0)
            wait_until(
                lambda: "broker-3" not in cluster.queue("flights", 0).isr,
                "it stays in the ISR",
                60.0,
            )
            ill = findings(",".join(cluster.endpoints[:2]), 1)
            assert ill["node broker-3"]["result"] == "failed"
            assert "start broker-3" in ill["node broker-3"]["fix"]
            assert ill["all replicas in sync"]["result"] == "warning"
            assert ill["queues take acks=all"]["result"] == "failed"
            assert ill["every queue has a leader"]["result"] == "failed"
            assert "single/" in ill["every queue has a leader"]["found"]

            cluster.start("broker-3")
            leader = cluster.raft_leader()
            for name in [n for n in cluster.nodes[:3] if n != leader]:
                cluster.kill(name)
            lost = findings(servers, 1)
            assert sum(row["result"] == "failed" for row in lost.values()) >= 2


def test_the_room_of_a_broker_that_nobody_has_written_to_is_told() -> None:
    with embedded() as node:
        said = findings(",".join(node.endpoints), 0)["disk of broker-1"]
    assert said["result"] == "ok"
    assert "B free of" in said["found"]
    assert "reserved" in said["found"]
    assert not said["found"].startswith("0 ")
