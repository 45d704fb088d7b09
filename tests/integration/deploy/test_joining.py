"""A name server joins a cluster that encrypts, as docs/SECURITY.md and OPERATING.md say, by commands."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.config_files import write
from logboom.deploy.node_credentials import curve_listener
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess, NodeSpec
from logboom.wire.credentials import format_servers
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import LogboomError
from tests.integration.cli.command import Done, logboom
from tests.integration.waiting import wait_until

PATIENCE_S = 60.0


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Free ports, held until the end."""
    held = Ports("free")
    yield held
    held.release()


class Newcomer:
    """The files of name-4, made by the documented steps, and its process."""

    def __init__(self, cluster: Cluster, ports: Ports) -> None:
        assert cluster.credentials is not None
        self.cluster = cluster
        self.administrator = cluster.credentials
        self.raft = ports.raft()
        folder = cluster.data / "name-4"
        self.spec = NodeSpec("name-4", "name-server", folder, ports.name_server())
        self.credentials = folder / "credentials.toml"
        folder.mkdir(mode=0o700)

    def run(self, *words: str | Path) -> Done:
        """Run a command that must not fail, as the administrator."""
        also = {"LOGBOOM_CREDENTIALS": str(self.administrator)}
        done = logboom(*words, also=also, cwd=self.cluster.data)
        assert done.code == 0, done.err
        return done

    def make_files(self, like: str, without: str) -> None:
        """Make its key and its files from those of another name server, and create its user."""
        made = self.run("user", "key", "generate", "node:name-4", "--file", self.credentials)
        public = made.out.decode().strip()
        self.run("user", "create", "node:name-4", "--public-key", public)
        other = read_credentials(self.cluster.data / like / "credentials.toml")
        with self.credentials.open("a", encoding="utf-8") as file:
            file.write(format_servers(other.servers))
        text = (self.cluster.data / like / "node.toml").read_text("utf-8")
        settings = tomllib.loads(text)
        settings |= {
            "id": "name-4",
            "data": self.spec.data_path,
            "listeners": [
                curve_listener("main", self.spec.endpoint),
                curve_listener("raft", self.raft, for_raft=True),
            ],
            "name_servers": [m for m in settings["name_servers"] if m["id"] != without],
        }
        write(self.spec.config_path, settings)

    def start(self) -> NodeProcess:
        """Start it, and wait until it listens."""
        process = NodeProcess.start(self.spec, attached=True)
        process.wait_listening()
        return process


def works(administrator: Path, topic: str) -> None:
    """A topic is created, and a message goes through it."""
    with connect(administrator, timeout_s=PATIENCE_S) as boom:

        def created() -> bool:
            try:
                boom.admin.create_topic(topic, queues=1, replicas=1)
            except LogboomError as error:
                return error.code == "TOPIC_EXISTS"
            return True

        wait_until(created, f"{topic} is not created")
        with boom.producer(acks="all") as producer:
            producer.send(topic, b"x").result(PATIENCE_S)
        with boom.consumer(topic, queues=[0], start="first") as consumer:
            assert [each.value for each in consumer.poll(1, PATIENCE_S)] == [b"x"]


@pytest.mark.thorough
def test_a_name_server_joins_a_cluster_that_encrypts(ports: Ports) -> None:
    with Cluster(name_servers=3, brokers=1, secure=True) as cluster:
        new = Newcomer(cluster, ports)
        lost = next(name for name in cluster.nodes[:3] if name != cluster.raft_leader())
        stays = [name for name in cluster.nodes[:3] if name != lost]
        cluster.kill(lost)
        key = ("--key-file", cluster.data / "cluster.key")
        new.run("name-server", "remove", lost, "--yes", *key)
        new.make_files(stays[0], lost)
        process = new.start()
        try:
            add = ("name-server", "add", "name-4", new.spec.endpoint, new.raft, *key)
            assert "has caught up" in new.run(*add).err
            rows = new.run("name-server", "list", "-o", "json").json
            states = {row["name_server"]: row["state"] for row in rows}
            assert states == dict.fromkeys([*stays, "name-4"], "up")
            # The administrator's file still names the one that was lost.
            new.run("doctor", "--servers", cluster.endpoint("broker-1"))

            # It counts: with it and one more there is a majority.
            leader = cluster.raft_leader()
            cluster.kill(leader)
            works(new.administrator, "with-the-new-one")

            # After a stop of all nodes, too.
            process.stop()
            for name in (*(name for name in stays if name != leader), "broker-1"):
                cluster.stop(name)
            process = new.start()
            for name in (*stays, "broker-1"):
                cluster.start(name, wait=False)
            works(new.administrator, "after-a-cold-start")
        finally:
            process.stop()
