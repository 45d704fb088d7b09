"""`doctor` on a cluster that has something: each trouble is found, with its fix."""

from collections.abc import Callable
from typing import Any

from logboom.client import connect
from logboom.deploy import Cluster, embedded
from logboom.deploy.polling import ask_until
from logboom.wire.group_view import StrategyOptions
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until

Findings = dict[str, dict[str, Any]]


def findings(servers: str, code: int, holds: Callable[[Findings], bool] = bool) -> Findings:
    """What the doctor found, by check, once it ends with this code and it holds: a node that is slow
    to answer fails too, and members and replicas are told of a little later."""

    def ask() -> tuple[int, Findings]:
        done = logboom("doctor", "-o", "json", servers=servers)
        return done.code, {row["check"]: row for row in done.json}

    ended, found = ask_until(ask, lambda told: told[0] == code and holds(told[1]), 200.0)
    assert ended == code, found
    return found


def told(check: str, word: str) -> Callable[[Findings], bool]:
    """True once the doctor says it of this check."""
    return lambda found: word in found.get(check, {"found": ""})["found"]


def test_a_dead_broker_and_a_lost_majority_are_found() -> None:
    with Cluster(name_servers=3, brokers=3) as cluster:
        servers = ",".join(cluster.endpoints)
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("flights", queues=4, replicas=3, min_in_sync=3)
            boom.admin.create_topic("single", queues=3, replicas=1)
            well = findings(servers, 0, told("all replicas in sync", "all"))
            assert well["node broker-3"]["result"] == "ok"
            assert well["all replicas in sync"]["result"] == "ok"

            cluster.kill("broker-3")
            # Only a session later is it fenced, and its queues without leader.
            cluster.leader("flights", 0, 200.0)
            wait_until(
                lambda: "broker-3" not in cluster.queue("flights", 0).isr, "it stays in the ISR"
            )
            ill = findings(
                ",".join(cluster.endpoints[:2]), 1, told("every queue has a leader", "single/")
            )
            assert ill["node broker-3"]["result"] == "failed"
            assert "start broker-3" in ill["node broker-3"]["fix"]
            assert ill["all replicas in sync"]["result"] == "warning"
            assert ill["queues take acks=all"]["result"] == "failed"
            assert ill["every queue has a leader"]["result"] == "failed"
            assert "single/" in ill["every queue has a leader"]["found"]

            cluster.start("broker-3")
            leader = cluster.raft_leader(200.0)
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
        well = findings(servers, 0, told("groups", "0 groups"))
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
            ill = findings(servers, 1, told("group billing", "orders/1: by_config"))[
                "group billing"
            ]
            assert ill["result"] == "failed"
            assert ill["found"] == "orders/1: by_config gives it to nobody"
            assert "logboom group describe billing" in ill["fix"]
            given = ("--assign", "me=orders/0", "--assign", "me=orders/1")
            assert logboom("group", "alter", "billing", *given, servers=servers).code == 0
            wait_until(lambda: len(consumer.queues) == 2, "it has both")
            both = findings(servers, 0, told("groups", "2 messages behind"))
            assert both["groups"]["found"] == "1 group, 2 messages behind"
        stopped = findings(servers, 0, told("group billing", "no member"))["group billing"]
        assert (stopped["result"], stopped["found"]) == (
            "warning",
            "no member, 2 messages behind",
        )
