"""A majority of the name servers is lost for good, and one survivor goes on: OPERATING.md's way."""

import shutil
import tomllib
from collections.abc import Callable

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.config_files import write
from logboom.deploy.ports import Ports
from logboom.deploy.process import NodeProcess, NodeSpec
from logboom.wire.errors import InvalidRequest, Refused
from tests.integration.cli.command import complaint, logboom
from tests.integration.waiting import wait_until


def test_a_survivor_of_three_name_servers_goes_on_alone_and_grows_again() -> None:
    with Cluster(name_servers=3, brokers=2) as cluster:
        key_file = cluster.data / "cluster.key"
        files = {name: cluster.data / name / "node.toml" for name in cluster.nodes[:3]}
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("before", queues=2, replicas=2)
            with boom.producer() as producer:
                producer.send_many("before", [b"%d" % n for n in range(100)]).result(200)
        # While it runs nothing is touched.
        assert "in use" in complaint(logboom("name-server", "recover", files["name-1"], "--yes"))
        for name in files:
            cluster.stop(name)
        # A majority is there: nothing is to be recovered.
        said = logboom("name-server", "recover", files["name-1"], files["name-2"], "--yes")
        assert "majority" in said.err
        assert said.code != 0
        for name in ("name-2", "name-3"):
            shutil.rmtree(cluster.data / name / "data")
        # Nobody is there to be asked, and it was not said.
        said = logboom("name-server", "recover", files["name-1"])
        assert said.code != 0
        assert "--yes" in said.err
        assert "second cluster" in said.err
        said = logboom("name-server", "recover", files["name-1"], "--yes")
        assert said.code == 0, said.err
        assert "name-2, name-3 are out of it for good" in said.err

        cluster.start("name-1", wait=False)
        brokers = [cluster.endpoint(name) for name in ("broker-1", "broker-2")]
        with connect(brokers, timeout_s=200.0) as boom:
            # Each comes back by its own heartbeat.
            wait_until(
                lambda: [each.alive for each in boom.admin.brokers()] == [True, True],
                "the brokers do not come back to the survivor",
            )
            boom.admin.create_topic("after", queues=1, replicas=2)
            assert {server.id for server in boom.admin.name_servers()} == {"name-1"}
            with boom.producer() as producer:
                producer.send("before", b"more").result(200)
                producer.send("after", b"first").result(200)
            with boom.consumer("before", start="first") as consumer:
                read: set[bytes | None] = set()
                while len(read) < 101:
                    read |= {message.value for message in consumer.poll(200, 10.0)}
            assert read == {b"more", *(b"%d" % n for n in range(100))}

        ports = Ports("free")
        joiner = NodeSpec("name-4", "name-server", cluster.data / "name-4", ports.name_server())
        raft = ports.raft()
        config = tomllib.loads(files["name-1"].read_text())
        config |= {
            "id": "name-4",
            "listen": joiner.endpoint,
            "raft_listen": raft,
            "metrics_listen": "off",
            "data": joiner.data_path,
            "name_servers": [m for m in config["name_servers"] if m["id"] == "name-1"],
        }
        write(joiner.config_path, config)
        add = ("name-server", "add", "name-4", joiner.endpoint, raft, "--wait", "30")
        where = ("-s", ",".join(brokers))
        # Not there yet; and not without the key.
        assert "start it first" in complaint(logboom(*add, *where, "--key-file", key_file))
        process = NodeProcess.start(joiner, attached=True)
        try:
            process.wait_listening()
            assert "--key-file" in complaint(logboom(*add, *where))
            said = logboom(*add, *where, also={"LOGBOOM_KEY_FILE": str(key_file)})
            assert said.code == 0, said.err
            with connect(brokers, timeout_s=200.0) as boom:
                members = {server.id for server in boom.admin.name_servers()}
                assert members == {"name-1", "name-4"}
        finally:
            process.stop()
            ports.release()


def test_a_name_server_restored_from_an_older_copy_destroys_nothing() -> None:
    with Cluster(name_servers=1, brokers=1) as cluster:
        key_file = cluster.data / "cluster.key"
        file, data = cluster.data / "name-1" / "node.toml", cluster.data / "name-1" / "data"
        where = ("-s", cluster.endpoint("name-1"))
        cluster.stop("name-1")
        shutil.copytree(data, cluster.data / "copy")
        cluster.start("name-1")
        with connect(cluster.endpoints, timeout_s=200.0) as boom:
            boom.admin.create_topic("later", queues=1, replicas=1)
            with boom.producer() as producer:
                producer.send_many("later", [b"%d" % n for n in range(100)]).result(200)
            lost = boom.admin.describe_topic("later").id
        cluster.stop("broker-1")
        cluster.stop("name-1")
        shutil.rmtree(data)
        shutil.copytree(cluster.data / "copy", data)
        cluster.start("name-1", wait=False)
        cluster.start("broker-1", wait=False)

        def found(check: str) -> str:
            findings = logboom("doctor", *where, "-o", "json").json
            return " ".join(each["found"] for each in findings if each["check"] == check)

        # It would be given this id again, and the broker has messages of it.
        wait_until(
            lambda: f"has a replica of topic {lost}" in found("registration of broker-1"),
            "the broker is not refused",
        )
        cluster.stop("name-1")
        assert "--restored" in complaint(logboom("name-server", "recover", file, "--yes"))
        said = logboom("name-server", "recover", file, "--restored", "--yes")
        assert said.code == 0, said.err
        cluster.start("name-1", wait=False)
        kept = "lost topics of broker-1"
        wait_until(lambda: f"ids {lost}" in found(kept), "the lost topic is not told of")
        discard = ("topic", "discard-lost", str(lost), "--yes", *where)
        assert "--key-file" in complaint(logboom(*discard))
        with connect(cluster.endpoints, timeout_s=200.0) as boom:
            boom.admin.create_topic("later", queues=1, replicas=1)
            assert boom.admin.describe_topic("later").id > lost
            with boom.producer() as producer:
                assert producer.send("later", b"another").result(200).offset == 0
        assert f"ids {lost}" in found(kept)
        said = logboom(*discard, "--key-file", key_file)
        assert said.code == 0, said.err
        wait_until(lambda: found(kept) == "", "the lost topic is not deleted")


def test_only_who_holds_the_cluster_key_changes_who_is_a_name_server() -> None:
    with Cluster(name_servers=3, brokers=1) as cluster:
        key = read_key(cluster.data / "cluster.key")
        with connect(cluster.endpoints) as stranger:
            changes: list[Callable[[], None]] = [
                lambda: stranger.admin.add_name_server("name-9", "127.0.0.1:1", "127.0.0.1:2"),
                lambda: stranger.admin.remove_name_server("name-2"),
                lambda: stranger.admin.remove_broker("broker-1"),
            ]
            for change in changes:
                with pytest.raises(Refused, match="cluster key") as caught:
                    change()
                assert caught.value.code == "UNAUTHENTICATED"
        with pytest.raises(Refused, match="key file"):
            connect(cluster.endpoints, cluster_key=b"k" * 64)
        with connect(cluster.endpoints, cluster_key=key, timeout_s=200.0) as boom:
            with pytest.raises(InvalidRequest, match="start it first"):
                boom.admin.add_name_server("name-9", "127.0.0.1:1", "127.0.0.1:2")
            lost = next(name for name in cluster.nodes[:3] if name != cluster.raft_leader())
            other = next(
                name for name in cluster.nodes[:3] if name not in (lost, cluster.raft_leader())
            )
            cluster.kill(lost)

            def refusal() -> str:
                try:
                    boom.admin.remove_name_server(other)
                except Refused as error:
                    return error.code
                return "removed"

            # The link to it is down after 2 s without a word.
            wait_until(lambda: cluster.raft_leader() is not None, "nobody leads")
            wait_until(lambda: _links_up(cluster) == 1, "the dead one is thought to be alive")
            assert refusal() == "NO_MAJORITY"
            boom.admin.remove_name_server(lost)
            boom.admin.create_topic("after")


def _links_up(cluster: Cluster) -> int:
    leader = cluster.raft_leader()
    with connect(cluster.endpoints) as boom:
        told = {stats.node: stats.counters for stats in boom.admin.stats()}
    return int(told.get(leader or "", {}).get("raft_links_up", -1))
