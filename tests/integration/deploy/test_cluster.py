"""`Cluster`: processes that start, die, freeze and stop as told, and end with us."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.deploy.cluster import ASK_S
from logboom.deploy.identity import start_ticks
from logboom.wire.errors import InvalidRequest, StartError, UnknownResource
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three and three, shared by the tests of this module; each leaves all nodes running."""
    begun = time.monotonic()
    with Cluster(name_servers=3, brokers=3) as running:
        sys.stderr.write(f"\ncluster of 3 and 3: ready after {time.monotonic() - begun:.2f} s\n")
        yield running


def test_it_names_its_nodes_and_serves(cluster: Cluster) -> None:
    assert cluster.nodes == ["name-1", "name-2", "name-3", "broker-1", "broker-2", "broker-3"]
    assert cluster.raft_leader() in cluster.nodes[:3]
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("flights", queues=4, replicas=3)
        with boom.producer(acks="all") as producer:
            sent = producer.send("flights", b"hello", queue=2).result()
        assert boom.pull("flights", queue=2, offset=sent.offset).messages[0].value == b"hello"
    assert {cluster.leader("flights", queue) for queue in range(4)} <= set(cluster.nodes[3:])


def test_a_killed_broker_comes_back(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("killed", queues=1, replicas=3)
        victim = cluster.leader("killed", 0)
        cluster.kill(victim)
        assert not cluster.running(victim)
        begun = time.monotonic()
        assert cluster.leader("killed", 0, timeout_s=200) != victim
        with boom.producer(acks="all") as producer:
            producer.send("killed", b"hello").result()
        sys.stderr.write(f"\nbroker killed: writes after {time.monotonic() - begun:.2f} s\n")
        cluster.start(victim)
        assert cluster.running(victim)


def test_a_stopped_broker_hands_over_first(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        boom.admin.create_topic("stopped", queues=1, replicas=3)
        leaver = cluster.leader("stopped", 0)
        cluster.stop(leaver)
        begun = time.monotonic()
        # Had it not handed over, it would lead until its session ends, and then nobody.
        assert cluster.queue("stopped", 0).leader not in (leaver, None)
        with boom.producer(acks="all") as producer:
            producer.send("stopped", b"hello").result()
        sys.stderr.write(f"\nbroker stopped: writes after {time.monotonic() - begun:.2f} s\n")
        cluster.start(leaver)


def test_a_killed_raft_leader_is_replaced(cluster: Cluster) -> None:
    leader = cluster.raft_leader()
    cluster.kill(leader)
    assert cluster.raft_leader(timeout_s=200) != leader
    cluster.start(leader)


def test_a_paused_name_server_is_left_out_and_goes_on(cluster: Cluster) -> None:
    paused = next(n for n in cluster.nodes[:3] if n != cluster.raft_leader())
    cluster.pause(paused)
    cluster.wait_ready()
    assert cluster.raft_leader(timeout_s=200) != paused
    cluster.resume(paused)
    cluster.wait_ready()


def test_a_cluster_that_answers_late_is_asked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To the cluster the nodes look busy, not paused.
    monkeypatch.setattr("logboom.deploy.process.is_paused", lambda _pid: False)
    for name in cluster.nodes:
        cluster.pause(name)

    def resume_all() -> None:
        for name in cluster.nodes:
            cluster.resume(name)

    # Three times as long as one question waits.
    later = threading.Timer(3 * ASK_S, resume_all)
    later.start()
    try:
        assert {broker.id for broker in cluster.view().brokers} >= {"broker-1"}
    finally:
        later.join()
    cluster.wait_ready()


def test_what_cannot_be_is_refused(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="no node 'broker-9'"):
        cluster.kill("broker-9")
    with pytest.raises(StartError, match="runs already"):
        cluster.start("broker-1")
    with pytest.raises(UnknownResource, match="no topic 'none'"):
        cluster.leader("none", 0)


def test_a_folder_that_was_given_keeps_everything(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("kept", queues=1)
        with boom.producer() as producer:
            producer.send("kept", b"hello").result()
    with Cluster(1, 1, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        cluster.leader("kept", 0, timeout_s=200)
        result = boom.pull("kept", queue=0, offset=0, wait_ms=60_000)
        assert [message.value for message in result.messages] == [b"hello"]


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"broker-1 did not start: .*unknown key 'nonsense'"):
        Cluster(1, 1, tmp_path, broker_settings={"nonsense": 1})


def test_an_emptied_name_server_is_not_founded_anew(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path):
        pass
    data = tmp_path / "name-1" / "data"
    data.rename(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="name-1 did not start"):
        Cluster(1, 1, tmp_path)


PARENT = """
import sys, time
from logboom.deploy import Cluster
cluster = Cluster(1, 1)
print(*(cluster.pid(name) for name in cluster.nodes), flush=True)
time.sleep(600)  # until it is killed
"""


def test_the_nodes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    # Its temporary folder stays, as it is killed: let it be one of ours.
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    os.kill(pids[0], signal.SIGSTOP)
    parent.kill()
    parent.communicate()
    wait_until(lambda: all(start_ticks(pid) is None for pid in pids), "a node outlives its parent")


def test_a_launcher_becomes_the_node(tmp_path: Path) -> None:
    def launcher(name: str) -> list[str]:
        return ["env", f"LOGBOOM_CALLED={name}"]

    with Cluster(name_servers=1, brokers=1, data=tmp_path, launcher=launcher) as launched:
        for name in launched.nodes:
            environment = Path(f"/proc/{launched.pid(name)}/environ").read_bytes()
            assert f"LOGBOOM_CALLED={name}".encode() in environment.split(b"\0")
