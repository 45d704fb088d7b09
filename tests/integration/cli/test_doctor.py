"""`doctor` on a cluster that has something: each trouble is found, with its fix."""

from typing import Any

from logboom.client import connect
from logboom.deploy import Cluster, embedded
from logboom.wire.group_view import StrategyOptions
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until


def findings(servers: str, code: int) -> dict[str, dict[str, Any]]:
    """What the doctor found, by check."""
    done = logboom("doctor", "-o", "json", servers=servers)
    assert done.code == code, done.out
    return {row["check"]: row for row in done.json}


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


def test_a_group_that_is_stuck_is_a_failure_and_one_that_is_stopped_a_warning() -> None:
    with embedded() as node, connect(node.endpoints, create_topics=True) as boom:
        servers = ",".join(node.endpoints)
        boom.admin.create_topic("orders", queues=2)
        with boom.producer() as producer:
            for queue in (0, 1):
                producer.send("orders", b"x", queue=queue).result()
        well = findings(servers, 0)
        assert well["groups"] == {
            "check": "groups",
            "result": "ok",
            "found": "0 groups, 0 messages behind",
            "fix": "",
        }
        assert well["subscriptions"]["result"] == well["transactions"]["result"] == "ok"

        written = StrategyOptions(config={"me": [("orders", 0)]})
        with boom.consumer(
            "orders", group="billing", instance="me", strategy="by_config", options=written
        ) as consumer:
            wait_until(lambda: consumer.queues == [("orders", 0)], "it has its queue")
            ill = findings(servers, 1)["group billing"]
            assert ill["result"] == "failed"
            assert ill["found"] == "orders/1: by_config gives it to nobody"
            assert "logboom group describe billing" in ill["fix"]
            given = ("--assign", "me=orders/0", "--assign", "me=orders/1")
            assert logboom("group", "alter", "billing", *given, servers=servers).code == 0
            wait_until(lambda: len(consumer.queues) == 2, "it has both")
            assert findings(servers, 0)["groups"]["found"] == "1 group, 2 messages behind"
        stopped = findings(servers, 0)["group billing"]
        assert (stopped["result"], stopped["found"]) == (
            "warning",
            "no member, 2 messages behind",
        )
