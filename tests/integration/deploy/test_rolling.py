"""A rolling restart: nobody notices it, and what cannot be restarted safely is not stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bench.rolling import SteadyLoad
from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.deploy.layout import KEY_FILE
from logboom.deploy.rolling import Interrupted, Only
from logboom.wire.errors import InvalidRequest, Unavailable
from tests.integration.waiting import wait_until

THREE_AND_THREE = ["broker-1", "broker-2", "broker-3", "name-1", "name-2", "name-3"]


class Watched:
    """Progress that calls a function with each text."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self.say = said
        self.done: list[int] = []

    def to(self, done: int) -> None:
        """Note it."""
        self.done.append(done)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One name server and three brokers."""
    with Cluster(name_servers=1, brokers=3) as running:
        yield running


def roll_under_load(cluster: Cluster, only: Only | None) -> list[str]:
    """Restart nodes while messages flow; the nodes in their order."""
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("rolled", queues=16, replicas=3)
        load = SteadyLoad(boom, "rolled")
        try:
            wait_until(lambda: load.sent > 160, "messages flow")
            order = cluster.roll(only)
            sent = load.sent
            wait_until(lambda: load.sent > sent + 160, "messages flow after it")
        finally:
            load.close()
        assert load.errors == []
        assert load.lost == 0
        assert load.doubled == 0
        leaders = [queue.leader for queue in boom.admin.describe_topic("rolled").queues]
        assert {leaders.count(broker) for broker in THREE_AND_THREE[:3]} <= {5, 6}
        assert {broker.mode for broker in boom.admin.brokers()} == {"active"}
    assert all(cluster.running(name) for name in cluster.nodes)
    return order


def test_brokers_are_restarted_under_load_without_an_error(cluster: Cluster) -> None:
    epochs = {b.id: b.instance_epoch for b in cluster.view().brokers}
    assert roll_under_load(cluster, "brokers") == THREE_AND_THREE[:3]
    assert all(epochs[b.id] < b.instance_epoch for b in cluster.view().brokers)


@pytest.mark.thorough
def test_a_whole_cluster_is_restarted_under_load_without_an_error() -> None:
    with Cluster(name_servers=3, brokers=3) as cluster:
        last = cluster.raft_leader()
        order = roll_under_load(cluster, None)
        assert sorted(order) == THREE_AND_THREE
        assert order[:3] == THREE_AND_THREE[:3]
        assert order[-1] == last, "the raft leader is the last"


@pytest.mark.thorough
def test_what_cannot_be_restarted_safely_is_refused(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("alone", queues=1, replicas=1)
    pids = {name: cluster.pid(name) for name in cluster.nodes}
    only = cluster.leader("alone", 0)
    text = f"{only} cannot be restarted safely: alone/0 only-copy. Give the topic more replicas"
    with pytest.raises(InvalidRequest, match=text):
        cluster.roll("brokers")
    with pytest.raises(InvalidRequest, match="name-1 cannot be restarted safely"):
        cluster.roll("name-servers")
    assert pids == {name: cluster.pid(name) for name in cluster.nodes}
    # A node that does not answer hinders, too.
    with cluster.rolling(accept_unavailable=True) as rolling:
        cluster.pause("broker-2")
        with pytest.raises(Unavailable, match="broker-2 does not answer"):
            rolling.check(["broker-1"])
        cluster.resume("broker-2")
    # All the same, if that is what is asked for.
    with cluster.rolling(accept_unavailable=True) as rolling:
        assert [*rolling.run()] == [*THREE_AND_THREE[:3], "name-1"]
    assert {name for name in cluster.nodes if cluster.pid(name) == pids[name]} == set()


def test_an_interruption_ends_it_between_two_nodes(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom, cluster.rolling() as rolling:
        boom.admin.create_topic("t", queues=4, replicas=3)
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            if text.endswith("starts"):
                rolling.interrupt()

        rolling.progress = Watched(say)
        with pytest.raises(Interrupted, match="ended after broker-1; 2 nodes were not restarted"):
            [*rolling.run("brokers")]
        assert said.count("broker-1: starts") == 1
        assert all(cluster.running(name) for name in cluster.nodes)
        assert {broker.mode for broker in boom.admin.brokers()} == {"active"}


@pytest.mark.thorough
def test_a_mode_that_was_set_before_is_left(cluster: Cluster) -> None:
    key = read_key(cluster.data / KEY_FILE)
    with connect(cluster.endpoints, cluster_key=key) as boom, cluster.rolling() as rolling:
        boom.admin.create_topic("t", queues=4, replicas=3)
        boom.admin.set_broker_mode("broker-2", "maintenance")
        progress = rolling.progress = Watched(lambda _: None)
        assert [*rolling.run("brokers")] == THREE_AND_THREE[:3]
        assert progress.done == [1, 2, 3]
        modes = {broker.id: broker.mode for broker in boom.admin.brokers()}
        assert modes == {"broker-1": "active", "broker-2": "maintenance", "broker-3": "active"}
