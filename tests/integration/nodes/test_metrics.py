"""The metrics and health of the nodes of a real cluster, compared with what clients did."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from prometheus_client.core import Metric as Family

from logboom.client import connect
from logboom.client.checks.cluster_checks import cluster_findings
from logboom.client.checks.cluster_health import ClusterStatus
from logboom.deploy import Cluster, embedded
from logboom.deploy.node_client import open_node_client
from logboom.deploy.polling import ask_until
from logboom.deploy.ports import Ports
from logboom.wire.errors import Refused, StartError
from logboom.wire.listeners import METRICS_DISTANCE
from logboom.wire.node_pages import MAX_SCRAPES
from logboom.wire.page_server import MAX_CONNECTIONS
from tests.integration.nodes.scraping import (
    ask,
    check_with_promtool,
    families,
    health,
    scrape,
    value,
)
from tests.integration.waiting import wait_until

MESSAGES = 200
BROKERS = ["broker-1", "broker-2", "broker-3"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three and three."""
    with Cluster(name_servers=3, brokers=3) as running:
        yield running


def total(cluster: Cluster, name: str, suffix: str = "", **labels: str) -> float:
    """Return the sum of a metric over all brokers."""
    return sum(
        value(families(cluster.metrics_endpoint(each), "broker"), name, suffix, **labels)
        for each in BROKERS
    )


def test_what_brokers_count_is_what_clients_did(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("counted", queues=3, replicas=3)
        produced = total(cluster, "produced_messages_total")
        pulled = total(cluster, "pulled_messages_total")
        commits = total(cluster, "request_seconds", "_count", type="commit")
        bytes_before = total(cluster, "produced_bytes_total")
        with boom.producer(acks="all") as producer:
            for number in range(MESSAGES):
                producer.send("counted", b"x" * 100, key=str(number).encode())
            producer.flush()
        seen = 0
        with boom.consumer("counted", group="readers") as consumer:
            while seen < MESSAGES:
                got = consumer.poll(timeout_s=30)
                seen += len(got)
                consumer.ack(got)
            consumer.commit()
        assert total(cluster, "produced_messages_total") - produced == MESSAGES
        size = total(cluster, "produced_bytes_total") - bytes_before
        assert 100 * MESSAGES < size < 300 * MESSAGES
        # Messages that were handed out twice, as after a rebalance, count twice.
        assert MESSAGES <= total(cluster, "pulled_messages_total") - pulled <= 2 * MESSAGES
        assert total(cluster, "request_seconds", "_count", type="commit") > commits
        assert total(cluster, "groups_coordinated") >= 1
        batches = total(cluster, "produced_batches_total")
        assert total(cluster, "request_seconds", "_count", type="produce") >= batches > 0

        # Two followers have fetched each batch; a slow one, that is not waited for, later.
        def is_replicated() -> bool:
            told = [
                total(cluster, "replicated_bytes_total", direction=way) for way in ("out", "in")
            ]
            return min(told) >= 2 * size

        wait_until(is_replicated, "not all is replicated")
        assert total(cluster, "produce_replication_seconds", "_count") > 0
        wait_until(lambda: total(cluster, "replicas") >= 9, "replicas are missing")
        wait_until(lambda: total(cluster, "queues_led") >= 3, "leaders are missing")
        wait_until(
            lambda: total(cluster, "queues_below_min_in_sync") == 0, "too few replicas are in sync"
        )


def test_a_subscription_counts_as_pulled_and_what_failed_as_redelivered(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("shared-out", queues=1, replicas=1)
        before = total(cluster, "pulled_messages_total")
        with boom.producer(acks="all") as producer:
            producer.send("shared-out", b"once").result()
        with boom.subscribe(
            "shared-out", subscription="takers", type="shared", start="first"
        ) as consumer:
            (message,) = consumer.poll(timeout_s=60)
            consumer.nack(message, delay_s=0)
            (again,) = consumer.poll(timeout_s=60)
            consumer.ack(again)
            consumer.flush()
            assert total(cluster, "subscription_consumers") == 1
        assert total(cluster, "pulled_messages_total") - before == 2
        assert total(cluster, "redelivered_total") == 1
        assert total(cluster, "request_seconds", "_count", type="settle") >= 1


def test_a_held_pull_counts_with_and_without_its_hold(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("held", queues=1, replicas=1)
        # Who finds the leader late waits less there.
        boom.pull("held", 0, 0)
        holds = total(cluster, "hold_seconds", "_count")
        held_s = total(cluster, "hold_seconds", "_sum")
        pulls_s = total(cluster, "request_seconds", "_sum", type="pull")
        assert not boom.pull("held", 0, 0, wait_ms=500).messages
        assert total(cluster, "hold_seconds", "_count") - holds >= 1
        assert total(cluster, "hold_seconds", "_sum") - held_s >= 0.4
        assert total(cluster, "request_seconds", "_sum", type="pull") - pulls_s >= 0.4


def test_errors_count_by_code(cluster: Cluster) -> None:
    def refused() -> float:
        """Return how often the one consumer of a subscription was in the way."""
        count = 0.0
        for broker in BROKERS:
            found = families(cluster.metrics_endpoint(broker), "broker")
            for sample in found["logboom_failures"].samples if "logboom_failures" in found else ():
                count += sample.value if sample.labels["code"] == "CONSUMER_BUSY" else 0
        return count

    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("taken", queues=1, replicas=1)
        assert refused() == 0
        wait_until(lambda: total(cluster, "subscription_consumers") == 0, "somebody is attached")
        with boom.subscribe("taken", subscription="one", name="first") as first:
            first.poll(timeout_s=0.1)
            wait_until(lambda: total(cluster, "subscription_consumers") == 1, "nobody attached")
            with pytest.raises(Refused), boom.subscribe("taken", subscription="one") as second:
                second.poll(timeout_s=200)
        assert refused() >= 1


def test_name_servers_tell_one_raft_leader_and_the_whole_cluster(cluster: Cluster) -> None:
    names = ["name-1", "name-2", "name-3"]

    def look() -> list[dict[str, Family]]:
        return [families(cluster.metrics_endpoint(each), "name-server") for each in names]

    def agree(found: list[dict[str, Family]]) -> bool:
        """One leads, and all know all brokers, which stand in session with the leader."""
        leaders = [each for each in found if value(each, "raft_is_leader")]
        return (
            len(leaders) == 1
            and {value(each, "brokers", state="alive") for each in found} == {3}
            and {value(each, "brokers", state="fenced") for each in found} == {0}
            and {value(each, "queues_leaderless") for each in found} == {0}
            and value(leaders[0], "sessions", kind="broker") == 3
        )

    found = ask_until(look, agree, 200.0)
    assert agree(found)
    assert {value(each, "raft_members") for each in found} == {3}
    assert all(value(each, "raft_commit_index") > 0 for each in found)
    leader = next(each for each in found if value(each, "raft_is_leader"))
    assert value(leader, "raft_commit_seconds", "_count") > 0
    assert value(leader, "sync_seconds", "_count") > 0
    for name, each in zip(names, found, strict=True):
        (info,) = each["logboom_build"].samples
        assert (info.labels["kind"], info.labels["node"]) == ("name-server", name)
        assert len(info.labels["cluster"]) == 32


def test_promtool_has_nothing_to_say(cluster: Cluster) -> None:
    for node in cluster.nodes:
        check_with_promtool(scrape(cluster.metrics_endpoint(node))[1])


def test_stats_tell_where_metrics_are(cluster: Cluster) -> None:
    with open_node_client(None) as nodes:
        told = nodes.stats([cluster.endpoint("broker-2")], 60.0)
    (answer,) = told.values()
    assert answer.counters["metrics_endpoint"] == cluster.metrics_endpoint("broker-2")


def test_every_node_is_live_and_ready(cluster: Cluster) -> None:
    for node in cluster.nodes:
        endpoint = cluster.metrics_endpoint(node)
        assert health(endpoint, "/live")[0] == 200

        def ready(endpoint: str = endpoint) -> bool:
            return health(endpoint, "/ready")[0] == 200

        wait_until(ready, f"{node} is not ready: {health(endpoint, '/ready')}")
        status, _, text = ask(endpoint, "/")
        assert status == 200
        assert node.encode() in text


def test_restart_says_who_may_be_stopped(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("alone", queues=1, replicas=1)
    holder = cluster.leader("alone", 0, 200.0)
    endpoint = cluster.metrics_endpoint(holder)

    def is_told() -> bool:
        status, found = health(endpoint, "/restart")
        only = any(each.startswith("alone/0: only-copy") for each in found["reasons"])
        return status == 503 and only

    wait_until(is_told, "the only copy may be stopped")
    name = cluster.metrics_endpoint("name-1")
    wait_until(lambda: health(name, "/restart")[0] == 200, "one of three may not be stopped")


def test_a_lost_majority_shows(cluster: Cluster) -> None:
    cluster.pause("name-2")
    cluster.pause("name-3")
    try:
        name = cluster.metrics_endpoint("name-1")
        wait_until(lambda: health(name, "/ready")[0] == 503, "ready without a majority")
        wait_until(lambda: health(name, "/restart")[0] == 503, "the only one may be stopped")
        assert health(name, "/live")[0] == 200
        broker = cluster.metrics_endpoint("broker-1")
        wait_until(lambda: health(broker, "/ready")[0] == 503, "ready without a lease")
        assert health(broker, "/live")[0] == 200
    finally:
        cluster.resume("name-2")
        cluster.resume("name-3")
    wait_until(lambda: health(broker, "/ready")[0] == 200, "not ready with a lease")


def test_a_slow_client_holds_nobody_up(cluster: Cluster) -> None:
    host, _, port = cluster.metrics_endpoint("broker-1").rpartition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(MAX_CONNECTIONS - 4)]
    try:
        for each in slow:
            # Where we are slow ourselves, the first ones are ended already.
            with suppress(ConnectionError):
                each.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        families(cluster.metrics_endpoint("broker-1"), "broker")
        with connect(cluster.endpoints) as boom, boom.producer() as producer:
            boom.admin.create_topic("meanwhile", queues=1, replicas=1)
            producer.send("meanwhile", b"x").result()
        # Whoever does not end its request is not waited for.
        for each in slow:
            each.settimeout(60)
            with suppress(ConnectionError):
                assert each.recv(1024) == b""
    finally:
        for each in slow:
            each.close()


def test_unfinished_requests_keep_no_scraper_out(cluster: Cluster) -> None:
    host, _, port = cluster.metrics_endpoint("broker-3").rpartition(":")
    with ExitStack() as held:
        for _ in range(3 * MAX_CONNECTIONS):
            one = held.enter_context(socket.create_connection((host, int(port))))
            # The first ones have given way already.
            with suppress(ConnectionError):
                one.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        families(cluster.metrics_endpoint("broker-3"), "broker")


def test_of_many_scrapes_at_once_two_are_served(cluster: Cluster) -> None:
    endpoint = cluster.metrics_endpoint("broker-2")
    # A broker that does not turn keeps them waiting.
    cluster.pause("broker-2")
    timer = threading.Timer(0.5, cluster.resume, ["broker-2"])
    timer.start()
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: ask(endpoint, "/metrics"), range(8))]
    timer.join()
    statuses = [status for status, _, _ in answers]
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= MAX_SCRAPES
    for status, head, _ in answers:
        assert (head.get("Retry-After") == "1") == (status == 503)


def test_a_stopping_broker_is_not_ready_first() -> None:
    with Cluster(name_servers=1, brokers=2) as cluster:
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("moved", queues=64, replicas=2)
        endpoint = cluster.metrics_endpoint("broker-1")
        wait_until(lambda: health(endpoint, "/ready")[0] == 200, "not ready")
        cluster.stop("broker-1")
        with pytest.raises(ConnectionRefusedError):
            ask(endpoint, "/live")
        cluster.start("broker-1")
        wait_until(lambda: health(endpoint, "/ready")[0] == 200, "not ready after a restart")


def test_a_paused_node_is_not_answered_and_a_turning_one_is_live(cluster: Cluster) -> None:
    endpoint = cluster.metrics_endpoint("broker-1")
    # It would have ended by now if an idle loop counted as one that stands still.
    time.sleep(1.0)  # the loop has nothing to do meanwhile
    assert health(endpoint, "/live")[0] == 200


def test_an_exposed_port_of_a_cluster_with_users_is_a_finding() -> None:
    settings = {"metrics_listen": "0.0.0.0:0"}
    with Cluster(name_servers=1, brokers=2, secure=True, broker_settings=settings) as cluster:
        with open_node_client(cluster.credentials) as nodes:
            stats = nodes.stats(cluster.endpoints + cluster.name_server_endpoints, 60.0)
            view = next(iter(nodes.views(cluster.endpoints, 60.0).values()))
        answers = {answer.node: answer for answer in stats.values()}
        found = {each.check: each for each in cluster_findings(ClusterStatus(view, answers))}
    assert found["metrics of broker-1"].result == "warning"
    assert "0.0.0.0:" in found["metrics of broker-1"].found
    assert "metrics of name-1" not in found


def test_a_port_that_somebody_has_is_no_reason_not_to_start() -> None:
    with ExitStack() as held:
        ports = Ports("free")
        held.callback(ports.release)
        # Both are reserved, so that no other cluster has the lower one.
        below = ports.broker()
        port = int(below.rpartition(":")[2]) + METRICS_DISTANCE
        held.enter_context(socket.create_server(("127.0.0.1", port)))

        def usual(config: dict[str, Any]) -> dict[str, Any]:
            """Let the broker's usual port for metrics be the one that is taken."""
            if config["id"] != "broker-1":
                return config
            return {**config, "listen": below, "metrics_listen": "auto"}

        with Cluster(name_servers=1, brokers=1, adjust=usual) as cluster:
            assert "metrics_not_served" in cluster.log("broker-1")
            with connect(cluster.endpoints) as boom:
                boom.admin.create_topic("served", queues=1, replicas=1)
        named = {"metrics_listen": f"127.0.0.1:{port}"}
        with pytest.raises(StartError, match="in use"):
            Cluster(name_servers=1, brokers=1, broker_settings=named)


def test_embedded_nodes_at_free_ports_have_no_metrics_port() -> None:
    with embedded() as node, open_node_client(None) as nodes:
        (answer,) = nodes.stats(node.endpoints, 60.0).values()
    assert answer.counters["metrics_endpoint"] == ""
