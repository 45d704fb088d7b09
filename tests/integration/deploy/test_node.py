"""What a node's process sets up for itself."""

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.errors import LogboomError
from tests.integration.waiting import wait_until


@pytest.fixture
def few_files() -> Iterator[int]:
    """A low limit of open files in this process, which its children inherit; the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_node_takes_all_the_connections_it_may(few_files: int) -> None:
    with Cluster(name_servers=1, brokers=1) as cluster:
        for name in cluster.nodes:
            limits = Path(f"/proc/{cluster.pid(name)}/limits").read_text().splitlines()
            (line,) = [line for line in limits if line.startswith("Max open files")]
            assert line.split()[3] == str(few_files)


def test_brokers_of_one_machine_share_a_config_file(tmp_path: Path) -> None:
    with Cluster(name_servers=1, brokers=1) as cluster:
        file = tmp_path / "machine.toml"
        servers = ", ".join(f'"{end}"' for end in cluster.name_server_endpoints)
        key = cluster.data / "cluster.key"
        file.write_text(
            f'id = "machine"\nlisten = "127.0.0.1:0"\ndata = "data"\ncluster_key_file = "{key}"\n'
            f"name_servers = [{servers}]\n"
        )
        command = [sys.executable, "-m", "logboom", "node", "broker", "--config", str(file)]
        nodes = [
            subprocess.Popen([*command, "--instance", number], stdout=subprocess.DEVNULL)
            for number in ("1", "2")
        ]
        try:
            with connect(cluster.endpoints) as boom:
                wanted = {"broker-1", "machine-1", "machine-2"}
                wait_until(
                    lambda: {b.id for b in boom.admin.brokers() if b.alive} == wanted,
                    "they do not register",
                )
                with pytest.raises(LogboomError, match="the 3 live brokers are on 2"):
                    boom.admin.create_topic("t", queues=1, replicas=3)
                boom.admin.create_topic("t", queues=6, replicas=2)
                for number in range(6):
                    assert "broker-1" in cluster.queue("t", number).replicas
        finally:
            for node in nodes:
                node.send_signal(signal.SIGTERM)
        assert [node.wait(200.0) for node in nodes] == [0, 0]
        assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["1", "2"]
