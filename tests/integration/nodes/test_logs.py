"""The logs of real nodes: a dead leader, a stranger and a deleted topic are told once, as JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.wire.event_table import EVENTS
from logboom.wire.messages import Hello
from tests.integration.fuzz.test_hostile_peers import dealers, tell
from tests.integration.waiting import wait_until

JSON = {"log": "json"}


def events(cluster: Cluster, event: str = "", **wanted: Any) -> list[dict[str, Any]]:
    """The events that all nodes have written, of a name and with these fields."""
    found = []
    for path in sorted(cluster.data.glob("*/node.log")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            told = json.loads(line)
            assert told["node"] == path.parent.name
            assert told["logger"]
            if told["event"] != "message":
                known = {*EVENTS[told["event"]].fields}
                beside = {"time", "level", "node", "event", "logger", "repeated", "exception"}
                assert told.keys() <= known | beside, told
            found.append(told)
    return [
        told for told in found if event in ("", told["event"]) and told.items() >= wanted.items()
    ]


def await_events(cluster: Cluster, event: str, **wanted: Any) -> list[dict[str, Any]]:
    """Those events, once there is one: a node answers, and others know, before it writes."""
    wait_until(lambda: bool(events(cluster, event, **wanted)), f"{event} is not told")
    return events(cluster, event, **wanted)


def test_a_dead_leader_is_told_by_the_others_each_thing_once() -> None:
    with Cluster(
        name_servers=3, brokers=3, name_server_settings=JSON, broker_settings=JSON
    ) as cluster:
        with connect(cluster.endpoints, client_id="tester") as boom:
            boom.admin.create_topic("flights", 1, 3)
        before = cluster.leader("flights", 0, 200.0)
        (created,) = await_events(cluster, "topic_created", topic="flights")
        assert created["by"].startswith("tester")
        led = await_events(cluster, "leadership_gained", topic="flights")
        assert [each["node"] for each in led] == [before]
        cluster.kill(before)
        (fenced,) = await_events(cluster, "broker_fenced", broker=before)
        after = cluster.leader("flights", 0, 200.0)
        assert after != before
        (election,) = await_events(cluster, "election", topic="flights", was=before)
        (shrunk,) = await_events(cluster, "isr_shrunk", topic="flights", left=[before])
        (gained,) = await_events(cluster, "leadership_gained", node=after, topic="flights")
        (leader,) = {each["node"] for each in (fenced, election, shrunk)}
        assert (election["leader"], election["cause"]) == (after, "broker_fenced")
        assert (election["epoch"], shrunk["cause"]) == (gained["epoch"], "broker_fenced")
        assert before not in shrunk["in_sync"]
        assert fenced["level"] == "warning"
        assert len(events(cluster, "raft_leader_elected", node=leader)) >= 1
        with connect(cluster.endpoints, client_id="tester") as boom:
            boom.admin.delete_topic("flights")
        (deleted,) = await_events(cluster, "topic_deleted")
        assert deleted["by"].startswith("tester")
        assert await_events(cluster, "replica_deleted", node=after)


def test_a_stranger_is_told_once_a_second_at_most_and_counted() -> None:
    with Cluster(
        name_servers=1, brokers=1, broker_settings=JSON, name_server_settings=JSON
    ) as cluster:
        begun, sent = time.monotonic(), 0
        with dealers(cluster.endpoint("broker-1"), 1) as (peer,):
            while time.monotonic() - begun < 3.0 or sent < 2:
                # Of another time: it speaks no version of the protocol that there is.
                tell(peer, Hello(1, 99, 99, "a stranger\n\x1b[2J", "client", 0))
                sent += 1
                time.sleep(0.01)  # A stranger has time.

            def told() -> list[dict[str, Any]]:
                return events(cluster, "stranger_refused")

            # With its connection, what has not left yet would be lost.
            wait_until(
                lambda: sum(each.get("repeated", 1) for each in told()) == sent, "not all are told"
            )
        took = time.monotonic() - begun
        assert 2 <= len(told()) <= took + 2
        assert {each["address"] for each in told()} == {"127.0.0.1"}
        assert {each["code"] for each in told()} == {"UNSUPPORTED_VERSION"}
        assert {each["client"] for each in told()} == {"a stranger\n\x1b[2J"}


def test_a_level_counts_at_once_and_a_node_says_when_it_begins_and_ends() -> None:
    with (
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(
            cluster.endpoints,
            client_id="tester",
            cluster_key=read_key(cluster.data / "cluster.key"),
        ) as boom,
    ):
        boom.admin.alter_settings({"log_level.metadata.state": "warning"}, "name-1")
        boom.admin.create_topic("unsaid", 1, 1)
        boom.admin.alter_settings({"log_level.metadata.state": None}, "name-1")
        boom.admin.create_topic("said", 1, 1)
        # A command is answered before its events are written.
        wait_until(lambda: "topic_created topic=said" in cluster.log("name-1"), "it is not told")
        log = cluster.log("name-1")
        assert "INFO name-1 setting_changed scope=name-1 name=log_level.metadata.state" in log
        assert "unsaid" not in log
        # `stop` would kill it after ten seconds.
        os.kill(cluster.pid("broker-1"), signal.SIGTERM)
        wait_until(lambda: not cluster.running("broker-1"), "it goes on")
        lines = cluster.log("broker-1").splitlines()
        said = [line.split()[3] for line in lines]
        assert said[0] == "node_started"
        assert "node_stopping" in said
        assert said[-1] == "node_stopped"


def test_a_node_that_does_not_start_says_why_in_its_form() -> None:
    with Cluster(name_servers=1, brokers=1) as cluster:
        config = cluster.data / "broker-1" / "node.toml"
        command = [sys.executable, "-m", "logboom.deploy.node", "broker", "--config", str(config)]
        text = subprocess.run(command, capture_output=True, text=True, check=False)
        assert text.returncode == 1
        assert text.stderr.splitlines()[-1].startswith("logboom: ")
        said = subprocess.run(
            [*command, "--log", "json"], capture_output=True, text=True, check=False
        )
        assert said.returncode == 1
        lines = [json.loads(line) for line in said.stderr.splitlines()]
        assert (lines[-1]["event"], lines[-1]["node"]) == ("node_failed", "broker-1")
        assert lines[-1]["text"] == text.stderr.splitlines()[-1].removeprefix("logboom: ")
