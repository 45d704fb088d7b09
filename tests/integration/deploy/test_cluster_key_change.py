"""The cluster key is changed as docs/SECURITY.md says, while messages flow and nothing restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.layout import KEY_FILE
from logboom.deploy.node_client import open_node_client
from logboom.wire.cluster_keys import key_mark, read_cluster_keys
from logboom.wire.errors import LogboomError
from logboom.wire.key_pair import SecretBytes
from tests.integration.waiting import wait_until

NEW = SecretBytes(b"n" * 64)
PATIENCE_S = 200.0


def put(path: Path, *keys: bytes) -> None:
    """Replace the key file in one step."""
    new = path.with_suffix(".new")
    new.write_bytes(b"\n".join(bytes(key) for key in keys) + b"\n")
    new.chmod(0o600)
    new.replace(path)


class Load:
    """A producer that sends one message after the other, and counts what is stored."""

    def __init__(self) -> None:
        self.stored = 0
        self.errors: list[BaseException] = []

    @contextmanager
    def running(self, cluster: Cluster) -> Iterator[None]:
        """Send until the block ends."""
        stop = threading.Event()

        def send() -> None:
            try:
                with connect(cluster.endpoints, credentials=cluster.credentials) as boom:
                    producer = boom.producer(acks="all")
                    while not stop.is_set():
                        producer.send("flow", b"%d" % self.stored).result(PATIENCE_S)
                        self.stored += 1
                    producer.close()
            except BaseException as error:  # noqa: BLE001 - raised by the test
                self.errors.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def await_more(self) -> None:
        """Wait until some more messages are stored."""
        wanted = self.stored + 20
        wait_until(lambda: bool(self.errors) or self.stored >= wanted, "nothing is stored any more")
        assert not self.errors


@pytest.mark.parametrize("secure", [False, True])
def test_the_cluster_key_is_changed_under_load(secure: bool) -> None:
    with Cluster(name_servers=3, brokers=3, secure=secure) as cluster:
        path = cluster.data / KEY_FILE
        (old,) = read_cluster_keys(path)
        with connect(cluster.endpoints, credentials=cluster.credentials) as boom:
            boom.admin.create_topic("flow", queues=3, replicas=3)
        pids = {node: cluster.pid(node) for node in cluster.nodes}
        load = Load()
        with load.running(cluster):
            for keys in ((old, NEW), (NEW, old), (NEW,)):
                put(path, *keys)
                await_keys(cluster, *keys)
                load.await_more()
                if not secure:
                    assert may_operate(cluster, old + b"\n" + NEW)
        assert {node: cluster.pid(node) for node in cluster.nodes} == pids
        for node in cluster.nodes:
            log = cluster.log(node)
            assert "node_failed" not in log
            assert "broker_fenced" not in log
            assert "stranger_refused" not in log
        if not secure:
            assert not may_operate(cluster, old)
            assert may_operate(cluster, NEW)
        for node in ("name-1", "broker-1"):
            cluster.stop(node)
            cluster.start(node)
        with connect(cluster.endpoints, credentials=cluster.credentials) as boom:
            ends = boom.admin.offsets("flow").values()
            assert sum(end for _, end in ends) >= load.stored


def await_keys(cluster: Cluster, *keys: bytes) -> None:
    """Wait until all nodes have these keys."""
    marks = [key_mark(key) for key in keys] + [""] * (2 - len(keys))

    def have() -> bool:
        with open_node_client(cluster.credentials) as nodes:
            told = nodes.stats(cluster.endpoints + cluster.name_server_endpoints, 5.0)
        return len(told) == len(cluster.nodes) and all(
            [each.counters["cluster_key"], each.counters["other_cluster_key"]] == marks
            for each in told.values()
        )

    wait_until(have, f"not all nodes have the keys {marks}")


def may_operate(cluster: Cluster, key: bytes) -> bool:
    """Return whether a key lets an operator in."""
    try:
        with connect(cluster.endpoints, cluster_key=key, timeout_s=20.0) as boom:
            boom.admin.topics()
    except LogboomError:
        return False
    return True
