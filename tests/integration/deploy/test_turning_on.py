"""A cluster that runs turns encryption on, changes keys, and turns it off: SECURITY.md's way.

One node is restarted at a time, and producers and consumers work meanwhile.
"""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.deploy.config_files import write
from logboom.deploy.node_client import open_node_client
from logboom.deploy.node_credentials import SecureNode, ensure_credentials
from logboom.deploy.ports import Ports
from logboom.wire.credentials import Credentials
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.sockets import make_key_pair
from tests.integration.waiting import wait_until
from tests.thorough import few_of

OPEN, CURVE = "none", "curve"


class Nodes:
    """The nodes of a cluster, each with an open and an encrypted address."""

    def __init__(self, cluster: Cluster, ports: Ports) -> None:
        self.cluster = cluster
        self.first = {name: self.settings(name) for name in cluster.nodes}
        self.servers = [name for name in cluster.nodes if name.startswith("name")]
        self.brokers = [name for name in cluster.nodes if name.startswith("broker")]
        self.ends = {
            name: {OPEN: cluster.endpoint(name), CURVE: ports.broker()} for name in cluster.nodes
        }
        self.rafts = {
            name: {OPEN: self.first[name]["raft_listen"], CURVE: ports.raft()}
            for name in self.servers
        }
        self.admin = cluster.data / "admin.toml"
        self.keys = ensure_credentials(
            [
                SecureNode(
                    name,
                    self.credentials(name),
                    self.ends[name][CURVE],
                    self.rafts[name][CURVE] if name in self.servers else "",
                )
                for name in cluster.nodes
            ],
            "admin",
            self.admin,
        )

    def file(self, name: str) -> Path:
        """The config file of a node."""
        return self.cluster.data / name / "node.toml"

    def credentials(self, name: str) -> Path:
        """The credentials file of a node."""
        return self.cluster.data / name / "credentials.toml"

    def settings(self, name: str) -> dict[str, Any]:
        """The config file of a node, read."""
        return tomllib.loads(self.file(name).read_text("utf-8"))

    def configure(self, name: str, *kinds: str) -> None:
        """Write the config file of a node with an open listener, an encrypted one, or both."""
        settings = dict(self.first[name])
        for key in ("listen", "raft_listen"):
            settings.pop(key, None)
        called = {OPEN: "main", CURVE: "secure"}
        listeners: list[dict[str, Any]] = [
            {"name": called[kind], "listen": self.ends[name][kind], "security": kind}
            for kind in kinds
        ]
        # Others dial the encrypted listeners once there are some.
        dialled = CURVE if CURVE in kinds else OPEN
        if name in self.servers:
            listeners += [
                {
                    "name": f"raft-{called[kind]}",
                    "listen": self.rafts[name][kind],
                    "security": kind,
                    "for_raft": True,
                }
                for kind in kinds
            ]
            settings["name_servers"] = [
                {
                    "id": server,
                    "endpoint": self.ends[server][kinds[0]],
                    "raft_endpoint": self.rafts[server][kinds[0]],
                }
                for server in self.servers
            ]
        else:
            settings["name_servers"] = [self.ends[server][dialled] for server in self.servers]
        if CURVE in kinds:
            settings["credentials_file"] = "credentials.toml"
            if name in self.servers:
                settings["administrators"] = self.keys.administrators
                settings["initial_nodes"] = self.keys.nodes
        write(self.file(name), settings | {"listeners": listeners})

    def restart(self, name: str, by: str) -> None:
        """Restart a node, and wait until all that could is in sync again, asking by a mechanism."""
        epoch = self.cluster_epochs(by).get(name, -1)
        self.cluster.stop(name)
        self.cluster.start(name, wait=False)
        ends = [self.ends[each][by] for each in self.cluster.nodes]
        with open_node_client(self.admin if by == CURVE else None) as nodes:

            def settled() -> bool:
                views, stats = nodes.views(ends, 1.0), nodes.stats(ends, 1.0)
                if len(views) < len(ends) or len(stats) < len(ends):
                    return False
                servers = [stats[self.ends[each][by]] for each in self.servers]
                links = len(servers) - 1
                if not all(each.counters["raft_links_up"] == links for each in servers):
                    return False
                return all(
                    {b.id: b.instance_epoch for b in view.brokers if b.alive}.get(name, 0) > epoch
                    or name in self.servers
                    for view in views.values()
                ) and all(
                    len(queue.isr) == 2
                    for view in views.values()
                    for topic in view.topics
                    for queue in topic.queues
                )

            wait_until(settled, f"{name} is not back")

    def cluster_epochs(self, by: str) -> dict[str, int]:
        """The instance epochs of the brokers."""
        with open_node_client(self.admin if by == CURVE else None) as nodes:
            views = nodes.views([self.ends[self.servers[0]][by]], 60.0, topics=[])
        return {b.id: b.instance_epoch for view in views.values() for b in view.brokers}

    def await_open(self) -> None:
        """Wait until every node tells clients of open listeners that all have one again."""
        ends = [self.ends[each][OPEN] for each in self.cluster.nodes]
        with open_node_client(None) as nodes:

            def told() -> bool:
                views = nodes.views(ends, 1.0)
                seen = {broker.endpoint for view in views.values() for broker in view.brokers}
                seen |= {each.endpoint for view in views.values() for each in view.name_servers}
                return len(views) == len(ends) and seen == set(ends)

            wait_until(told, "an encrypted listener is told")

    def roll(self, names: Sequence[str], *kinds: str, by: str) -> None:
        """Give nodes listeners of these kinds, one node at a time."""
        for name in names:
            self.configure(name, *kinds)
            self.restart(name, by)


class Work:
    """A producer and a consumer that count, each in a thread of its own."""

    def __init__(self, boom: Client, topic: str) -> None:
        self._boom, self._topic = boom, topic
        self._sent = 0
        self._enough = threading.Event()
        self.read: list[int] = []
        self.faults: list[BaseException] = []
        boom.admin.create_topic(topic, queues=1, replicas=2, min_in_sync=1)
        self._threads = [
            threading.Thread(target=self._guard, args=(work,)) for work in (self._send, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised by `finish`
            self.faults.append(error)
            self._enough.set()

    def _send(self) -> None:
        with self._boom.producer(acks="all") as producer:
            while not self._enough.is_set():
                producer.send(self._topic, b"%d" % self._sent).result(200)
                self._sent += 1
            producer.send(self._topic, b"-1").result(200)

    def _read(self) -> None:
        with self._boom.consumer(self._topic, queues=[0], start="first") as consumer:
            for message in consumer:
                if message.value == b"-1":
                    return
                self.read.append(int(message.value or b""))

    def finish(self) -> None:
        """End; everything that was acknowledged was read, once and in order."""
        self._enough.set()
        for thread in self._threads:
            thread.join(200)
        assert not self.faults, self.faults
        assert not any(thread.is_alive() for thread in self._threads)
        assert self.read == list(range(self._sent))
        assert self._sent > 0


@contextmanager
def working(boom: Client, topic: str) -> Iterator[None]:
    """A producer and a consumer work during the block, and miss nothing."""
    work = Work(boom, topic)
    try:
        yield
    finally:
        work.finish()


def change_key(nodes: Nodes, boom: Client, name: str) -> None:
    """Give a node another key: add it, restart the node with it, remove the old one."""
    user = f"node:{name}"
    old = read_credentials(nodes.credentials(name))
    (label,) = (key.label for key in boom.admin.describe_user(user).keys)
    pair = make_key_pair()
    boom.admin.add_user_key(user, pair.public, label="second")
    nodes.credentials(name).unlink()
    write_credentials(nodes.credentials(name), Credentials(user, old.cluster_id, pair, old.servers))
    nodes.restart(name, CURVE)
    boom.admin.remove_user_key(user, label)


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Free ports, held until the end."""
    held = Ports("free")
    yield held
    held.release()


@pytest.mark.parametrize("name_servers", few_of([1, 3], [1]))
def test_security_is_turned_on_and_off_while_clients_work(ports: Ports, name_servers: int) -> None:
    """With a single name server there is a pause while it restarts, and nothing is lost either."""
    with Cluster(name_servers=name_servers, brokers=2) as cluster:
        nodes = Nodes(cluster, ports)
        everybody = [*nodes.servers, *nodes.brokers]

        with connect(cluster.endpoints) as boom, working(boom, "while-open"):
            nodes.roll(everybody, OPEN, CURVE, by=OPEN)
        with connect(nodes.admin) as boom:
            with working(boom, "turning-on"):
                nodes.roll(everybody, CURVE, by=CURVE)
            # Nobody is served without a key any more.
            with open_node_client(None) as stranger:
                assert stranger.views([nodes.ends[each][CURVE] for each in everybody], 1.0) == {}
            if name_servers > 1:
                with working(boom, "new-keys"):
                    change_key(nodes, boom, "broker-1")
                    change_key(nodes, boom, "name-1")
            with working(boom, "turning-off"):
                nodes.roll(list(reversed(everybody)), OPEN, CURVE, by=CURVE)
        nodes.await_open()
        with connect(cluster.endpoints) as boom:
            with working(boom, "open-again"):
                nodes.roll(list(reversed(everybody)), OPEN, by=OPEN)
            with boom.consumer("turning-on", queues=[0], start="first") as consumer:
                assert next(iter(consumer)).value == b"0"
