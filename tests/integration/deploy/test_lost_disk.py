"""A lost disk, mended as docs/OPERATING.md says: of a broker, and of a name server."""

import shutil
import tomllib

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.config_files import write
from logboom.deploy.node_client import NodeClient
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess, NodeSpec
from logboom.wire.errors import StartError
from logboom.wire.view import QueueView
from tests.integration.waiting import wait_until

COUNT = 2_000


def test_a_broker_with_an_empty_disk_copies_everything() -> None:
    with (
        Cluster(name_servers=1, brokers=2) as cluster,
        connect(cluster.endpoints, timeout_s=200) as boom,
    ):

        def flights() -> QueueView:
            return boom.admin.describe_topic("flights").queues[0]

        boom.admin.create_topic("flights", queues=1, replicas=2, min_in_sync=1)
        with boom.producer() as producer:
            producer.send_many("flights", [b"%d" % n for n in range(COUNT)]).result()
        # With `min_in_sync=1` a follower that was slow may lack what was acknowledged.
        wait_until(lambda: len(flights().isr) == 2, "both are not in sync")
        lost = cluster.leader("flights", 0)
        other = next(n for n in ("broker-1", "broker-2") if n != lost)
        cluster.kill(lost)
        shutil.rmtree(cluster.data / lost / "data")
        cluster.start(lost)
        wait_until(lambda: lost in flights().isr, "it is not in sync again")
        # Now the copy is the only one.
        cluster.kill(other)
        wait_until(lambda: flights().leader == lost, "it does not lead")
        with boom.consumer("flights", queues=[0]) as consumer:
            read: list[bytes | None] = []
            while len(read) < COUNT:
                read += [message.value for message in consumer.poll(COUNT, 10.0)]
        assert read == [b"%d" % n for n in range(COUNT)]


def test_a_name_server_with_an_empty_disk_is_replaced() -> None:
    with (
        Cluster(name_servers=3, brokers=1) as cluster,
        connect(
            cluster.endpoints,
            cluster_key=read_key(cluster.data / "cluster.key"),
            timeout_s=200,
        ) as boom,
    ):
        lost = next(name for name in cluster.nodes[:3] if name != cluster.raft_leader())
        cluster.kill(lost)
        shutil.rmtree(cluster.data / lost / "data")
        with pytest.raises(StartError, match=f"{lost} did not start: .*is empty"):
            cluster.start(lost)

        boom.admin.remove_name_server(lost)
        ports = Ports("free")
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
        process = NodeProcess.start(joiner, attached=True)
        try:
            process.wait_listening()
            boom.admin.add_name_server("name-4", joiner.endpoint, raft)
            boom.admin.create_topic("after")

            def knows_it() -> bool:
                with NodeClient() as asker:
                    views = asker.views([joiner.endpoint], 0.5)
                return any(topic.name == "after" for v in views.values() for topic in v.topics)

            wait_until(knows_it, "the new name server does not follow")
            members = {server.id for server in boom.admin.name_servers()}
            assert members == {"name-1", "name-2", "name-3", "name-4"} - {lost}
        finally:
            process.stop()
            ports.release()
