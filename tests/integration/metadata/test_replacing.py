"""A name server is replaced by a new member under load, as docs/OPERATING.md says, by commands.

Its journal, or its snapshot, is damaged: it refuses to start (R9) and says how to mend it. A broker
with an empty disk catches up under load too, and `cluster status` tells how far it is.
"""

from __future__ import annotations

import shutil
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.config_files import write
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess, NodeSpec
from logboom.wire.errors import StartError
from tests.integration.cli.command import fail, succeed
from tests.integration.waiting import wait_until


class Load:
    """A producer that works until it is told to stop; every send must be acknowledged."""

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.acked: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with connect(self._endpoints) as boom, boom.producer(acks="all") as producer:
                while not self._over.is_set():
                    first = len(self.acked)
                    values = [b"%d" % n + bytes(500) for n in range(first, first + 20)]
                    producer.send_many("flights", values, keys=[b"one"] * 20).result()
                    self.acked += values
                    # The pace: a load that leaves a core for the replacement.
                    time.sleep(0.02)
        # Ends only this thread: `stop` raises it in the test's.
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self._failure = error

    def stop(self) -> list[bytes]:
        """End it; all that was acknowledged, in order."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.acked


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three and three."""
    with Cluster(name_servers=3, brokers=3) as running:
        with connect(running.endpoints) as boom:
            boom.admin.create_topic("flights", queues=1, replicas=3)
        yield running


def flip(file: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def test_r9_r12_a_damaged_name_server_is_replaced_under_load(cluster: Cluster) -> None:
    servers = ",".join(cluster.endpoints)
    load = Load(cluster.endpoints)
    ports = Ports("free")
    process: NodeProcess | None = None
    try:
        lost = next(name for name in cluster.nodes[:3] if name != cluster.raft_leader(200.0))
        cluster.kill(lost)
        journal = cluster.data / lost / "data" / "journal"
        flip(max(journal.glob("*.log"), key=lambda file: file.stat().st_size))
        with pytest.raises(StartError, match="join again under a new raft id"):
            cluster.start(lost)

        key = ("--key-file", cluster.data / "cluster.key")
        remove = ("name-server", "remove", *key)
        assert "say --yes" in fail(*remove, lost, servers=servers)
        assert "no name server" in fail(*remove, "name-9", "-y", servers=servers)
        assert lost in succeed(*remove, lost, "--yes", servers=servers).err

        joiner = NodeSpec("name-4", "name-server", cluster.data / "name-4", ports.name_server())
        config = tomllib.loads((cluster.data / lost / "node.toml").read_text())
        raft = ports.raft()
        config |= {
            "id": "name-4",
            "listen": joiner.endpoint,
            "raft_listen": raft,
            "data": joiner.data_path,
            "name_servers": [m for m in config["name_servers"] if m["id"] != lost],
        }
        write(joiner.config_path, config)
        add = ("name-server", "add", "name-4", joiner.endpoint, raft, *key)
        assert "start it first" in fail(*add, servers=servers)
        process = NodeProcess.start(joiner, attached=True)
        process.wait_listening()
        assert "has caught up" in succeed(*add, servers=servers).err
        wanted = dict.fromkeys({"name-1", "name-2", "name-3", "name-4"} - {lost}, "up")

        def all_are_up() -> bool:
            rows = succeed("name-server", "list", "-o", "json", servers=servers).json
            states = {row["name_server"]: row["state"] for row in rows}
            assert states.keys() == wanted.keys()
            return states == wanted

        # A busy one may not answer within the two seconds that it is given.
        wait_until(all_are_up, "not all are up")

        # Brokers find it after a restart, though their files do not list it.
        folders = [cluster.data / broker / "data" for broker in cluster.nodes[3:]]
        noted = [folder / "identity.json" for folder in folders]

        def all_know_it() -> bool:
            return all(joiner.endpoint in file.read_text() for file in noted)

        wait_until(all_know_it, "it is not noted")

        # It counts: with it and one more there is a majority.
        cluster.kill(cluster.raft_leader(200.0))
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("after")
            assert "after" in {topic.name for topic in boom.admin.topics()}
    finally:
        acked = load.stop()
        if process is not None:
            process.stop()
        ports.release()
    assert len(acked) > 100
    with connect(cluster.endpoints) as boom, boom.consumer("flights", queues=[0]) as consumer:
        read: list[bytes] = []
        while len(read) < len(acked):
            messages = consumer.poll(1_000, 200.0)
            assert messages
            read += [bytes(message.value or b"") for message in messages]
    assert read == acked


def test_a_damaged_snapshot_stops_the_node(cluster: Cluster) -> None:
    lost = cluster.nodes[0]
    cluster.kill(lost)
    snapshot = cluster.data / lost / "data" / "snapshot"
    snapshot.write_bytes(b"LBSNAP" + bytes(100))
    with pytest.raises(StartError, match=r"snapshot is damaged.*new raft id"):
        cluster.start(lost)


def test_a_broker_with_an_empty_disk_catches_up_under_load(cluster: Cluster) -> None:
    servers = ",".join(cluster.endpoints)
    load = Load(cluster.endpoints)
    try:
        lost = cluster.leader("flights", 0, 200.0)
        cluster.kill(lost)
        shutil.rmtree(cluster.data / lost / "data")
        cluster.start(lost)

        def has_caught_up() -> bool:
            rows = succeed("cluster", "status", "-s", servers, "-o", "json").json
            assert len(rows) == 6
            row = next(row for row in rows if row["node"] == lost)
            share = row["caught_up_percent"]
            # A busy broker may not answer within the two seconds that it is given.
            assert share is None or 0 <= share <= 100
            assert share != 100 or row["caught_up"] == "100 %"
            return bool(share == 100 and row["in_sync"] == 1)

        wait_until(has_caught_up, "it does not catch up")
    finally:
        acked = load.stop()
    wait_until(lambda: lost in cluster.queue("flights", 0).isr, "it is out of the ISR again")
    # Byte for byte: it answers alone.
    for other in cluster.nodes[3:]:
        if other != lost:
            cluster.stop(other)
    with connect(cluster.endpoint(lost)) as boom:
        read: list[bytes] = []
        with boom.consumer("flights", queues=[0]) as consumer:
            while len(read) < len(acked):
                messages = consumer.poll(1_000, 200.0)
                assert messages
                read += [bytes(message.value or b"") for message in messages]
    assert read == acked
