"""The keys of all name servers are changed as docs/SECURITY.md says, and the cluster starts cold."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.node_client import NodeClient
from logboom.deploy.polling import ask_until
from logboom.wire.credentials import Server, format_servers
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import LogboomError
from logboom.wire.sockets import make_key_pair
from tests.integration.cli.command import Done, logboom
from tests.integration.waiting import wait_until

PATIENCE_S = 60.0
ASK_S = 5.0


class Rotation:
    """The documented steps, on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.credentials is not None
        self.cluster = cluster
        self.administrator = cluster.credentials
        self.newest: tuple[Server, ...] = ()
        """The `[[servers]]` of the file that was made last."""

    def try_(self, *words: str | Path) -> Done:
        """Run a command as the administrator."""
        also = {"LOGBOOM_CREDENTIALS": str(self.administrator)}
        return logboom(*words, also=also, cwd=self.cluster.data)

    def run(self, *words: str | Path) -> Done:
        """Run a command that must not fail."""
        done = self.try_(*words)
        assert done.code == 0, done.err
        return done

    def change_key(self, node: str) -> None:
        """Add a key, and restart the node with it."""
        new = self.cluster.data / f"{node}-new.toml"
        self.run("user", "key", "add", f"node:{node}", "--label", "2027", "--file", new)
        self.await_doctor()
        file = self.cluster.data / node / "credentials.toml"
        made, kept = read_credentials(new), read_credentials(file).servers
        self.newest = made.servers
        text, _, _ = new.read_text("utf-8").partition("[[servers]]")
        new.write_text(text + format_servers(kept), "utf-8")
        assert read_credentials(new).key_pair == made.key_pair
        new.replace(file)
        self.cluster.stop(node)
        self.cluster.start(node)
        self.await_doctor()

    def remove_old_key(self, node: str) -> None:
        """Remove the key that the node had first."""
        self.run("user", "key", "remove", f"node:{node}", "initial")

    def append_servers(self, *files: Path) -> None:
        """Let credentials files name the keys that the nodes had when the last one was added."""
        for file in files:
            with file.open("a", encoding="utf-8") as text:
                text.write(format_servers(self.newest))

    def await_doctor(self) -> None:
        """Wait until `logboom doctor` finds nothing wrong."""
        failed: list[object] = []

        def well() -> bool:
            rows = self.try_("doctor", "-o", "json").json
            failed[:] = [row for row in rows if row["result"] == "failed"]
            return not failed

        assert ask_until(well, bool, PATIENCE_S), failed

    def works(self, topic: str) -> None:
        """A topic is created, and a message goes through it and is read."""
        with connect(self.administrator, timeout_s=PATIENCE_S) as boom:

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


def test_a_node_that_has_another_key_by_now_is_found_by_the_metadata_of_the_others() -> None:
    with Cluster(name_servers=1, brokers=1, secure=True) as cluster:
        assert cluster.credentials is not None
        known = read_credentials(cluster.credentials)
        ends = [cluster.endpoint("broker-1"), cluster.endpoint("name-1")]
        strange = make_key_pair().public
        outdated = [
            replace(each, public_key=strange) if each.node == "name-1" else each
            for each in known.servers
        ]
        with NodeClient(replace(known, servers=tuple(outdated))) as node_client:
            assert not node_client.views(ends[1:], ASK_S), "nobody tells the key"
            assert set(node_client.views(ends, PATIENCE_S)) == set(ends)


@pytest.mark.thorough
def test_a_cluster_whose_name_servers_all_have_new_keys_starts_cold() -> None:
    with Cluster(name_servers=3, brokers=1, secure=True) as cluster:
        rotation = Rotation(cluster)
        rotation.works("before")
        *others, last = cluster.nodes[:3]
        for node in others:
            rotation.change_key(node)
            rotation.remove_old_key(node)
        rotation.change_key(last)
        broker = cluster.data / "broker-1" / "credentials.toml"
        rotation.append_servers(rotation.administrator, broker)
        rotation.remove_old_key(last)
        rotation.works("between")
        for node in reversed(cluster.nodes):
            cluster.stop(node)
        for node in cluster.nodes:
            cluster.start(node, wait=False)
        cluster.wait_ready(PATIENCE_S)
        rotation.works("after")
        rotation.await_doctor()
