"""A cluster of the release before is upgraded node by node under load, while nodes of both are killed.

The release before is packed in tests/data/releases; it runs with this environment's dependencies.
"""

from __future__ import annotations

import random
import sys
import sysconfig
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.rolling import SteadyLoad
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE
from logboom.deploy.node_client import open_node_client
from logboom.deploy.rolling import RollingRestart
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.features import FEATURES, SOFTWARE
from tests.integration.waiting import wait_until

BEFORE = Path(__file__).parents[2] / "data" / "releases" / "f157b9e.tar.xz"
SERVERS = ["name-1", "name-2", "name-3"]
BROKERS = ["broker-1", "broker-2", "broker-3"]
# The .pth file of the editable install names this tree's folders; without `site` nobody reads it.
BARE = ("sh", "-c", 'python=$1; shift; exec "$python" -S "$@"', "sh")


class Releases:
    """Which nodes run the release before, from their next start on."""

    def __init__(self, folder: Path) -> None:
        with tarfile.open(BEFORE) as packed:
            packed.extractall(folder, filter="data")
        self.before = {*SERVERS, *BROKERS}
        self._path = f"PYTHONPATH={folder}:{sysconfig.get_path('purelib')}"

    def words(self, name: str) -> tuple[str, ...]:
        """What comes before the command of a node."""
        return ("env", self._path, *BARE) if name in self.before else ()


def known_before(settings: dict[str, Any]) -> dict[str, Any]:
    """The config file as the release before has it, which refuses keys that are newer."""
    return {key: value for key, value in settings.items() if key != "metrics_listen"}


class Said:
    """Progress that is written to standard error, for whoever looks at a failure."""

    def to(self, done: int) -> None:
        """Write it."""
        sys.stderr.write(f"{done} nodes are upgraded\n")

    def say(self, text: str) -> None:
        """Write it."""
        sys.stderr.write(f"{text}\n")


@pytest.mark.thorough
def test_a_cluster_is_upgraded_node_by_node_under_load(tmp_path: Path) -> None:
    releases = Releases(tmp_path / "before")
    folder = tmp_path / "cluster"
    with Cluster(3, 3, folder, launcher=releases.words, adjust=known_before) as cluster:
        key = read_key(cluster.data / KEY_FILE)
        with connect(cluster.endpoints, cluster_key=key) as boom:
            boom.admin.create_topic("upgraded", queues=16, replicas=3)
            load = SteadyLoad(boom, "upgraded")
            try:
                wait_until(lambda: load.sent > 160, "messages flow")
                with pytest.raises(InvalidRequest):
                    boom.admin.versions()
                assert cluster.view().features == 0
                with cluster.rolling() as rolling:
                    _upgrade(rolling, releases, cluster, load)
                with pytest.raises(InvalidRequest, match="cluster upgrade finalize"):
                    boom.admin.set_broker_mode("broker-1", "maintenance")
                _finalize(cluster, key)
                boom.admin.set_broker_mode("broker-1", "maintenance")
                boom.admin.set_broker_mode("broker-1", "active")
                assert cluster.roll("brokers") == BROKERS
                sent = load.sent
                wait_until(lambda: load.sent > sent + 160, "messages flow after it")
            finally:
                load.close()
            assert load.errors == []
            assert (load.lost, load.doubled) == (0, 0)
        logs = {name: cluster.log(name) for name in SERVERS}
        assert [name for name, log in logs.items() if " ERROR " in log] == []
        _go_back_in_vain(cluster, releases)


def _upgrade(
    rolling: RollingRestart, releases: Releases, cluster: Cluster, load: SteadyLoad
) -> None:
    order = rolling.order()
    assert sorted(order[:3]) == SERVERS, "name servers go first"
    assert order[3:] == BROKERS
    rolling.progress = Said()
    releases.before.clear()
    rng, new = random.Random(1), set[str]()
    for name in rolling.run():
        new.add(name)
        # Old and new ones work together for a while, and one of them dies.
        victim = rng.choice([each for each in order if each != name])
        cluster.kill(victim)
        if victim not in new:
            releases.before.add(victim)
        cluster.start(victim)
        releases.before.discard(victim)
        goal = load.sent + 160
        wait_until(partial(_has_sent, load, goal), f"messages flow with a new {name}")
        assert cluster.view().features == 0


def _has_sent(load: SteadyLoad, goal: int) -> bool:
    return load.sent > goal


def _finalize(cluster: Cluster, key: bytes) -> None:
    with connect(cluster.endpoints, cluster_key=key) as boom:
        wait_until(
            lambda: not any(node.hinders for node in boom.admin.versions().nodes),
            "the raft leader has heard all nodes",
        )
        versions = boom.admin.versions()
        assert (versions.features, versions.offered) == (0, FEATURES)
        assert [node.id for node in versions.nodes] == [*SERVERS, *BROKERS]
        assert {node.software for node in versions.nodes} == {SOFTWARE}
        boom.admin.finalize_upgrade(versions.offered)
        wait_until(lambda: cluster.view().features == FEATURES, "the level is known")


def _go_back_in_vain(cluster: Cluster, releases: Releases) -> None:
    """A node of the release before is refused from then on, with the remedy."""
    releases.before.update(["name-1", "broker-1"])
    cluster.stop("broker-1")
    cluster.start("broker-1", wait=False)
    with open_node_client(cluster.credentials) as node_client:
        end = cluster.endpoint("broker-1")

        def refused() -> bool:
            stats = node_client.stats([end], 1.0).get(end)
            return stats is not None and "install the release" in str(stats.counters["refusal"])

        wait_until(refused, "broker-1 is refused, with the remedy")
    cluster.stop("name-1")
    with pytest.raises(StartError, match="upgrade this name server"):
        cluster.start("name-1")
