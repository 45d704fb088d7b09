"""Real processes under load are killed, stopped and restarted; nothing is lost, doubled or moved."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from logboom.deploy import Cluster
from tests.chaos.load import QUEUES, Load

TOPIC: Final = "flights"
AWAY_S: Final = 5.0
"""Longer than a session (3 s) and any lease (2 s)."""
PAUSE_BAR_S: Final = 20.0
"""A queue without acknowledgement for so long is unavailable, not slow. The usual is printed."""


def other_broker(cluster: Cluster) -> str:
    """A broker that does not lead queue 0."""
    leader = cluster.leader(TOPIC, 0)
    return next(n for n in cluster.nodes if n.startswith("broker-") and n != leader)


def kill_and_start(cluster: Cluster, victim: str) -> None:
    """kill -9, stay away for longer than a session, come back."""
    cluster.kill(victim)
    time.sleep(AWAY_S)
    cluster.start(victim)


def kill_a_leader(cluster: Cluster) -> None:
    """The broker that leads queue 0."""
    kill_and_start(cluster, cluster.leader(TOPIC, 0))


def kill_a_follower(cluster: Cluster) -> None:
    """A broker that leads another queue at most."""
    kill_and_start(cluster, other_broker(cluster))


def kill_the_raft_leader(cluster: Cluster) -> None:
    """The name server that leads."""
    kill_and_start(cluster, cluster.raft_leader())


def kill_everything(cluster: Cluster) -> None:
    """All processes within a moment, and all back."""
    for name in cluster.nodes:
        cluster.kill(name)
    time.sleep(0.5)
    for name in cluster.nodes:
        cluster.start(name, wait=False)
    cluster.wait_ready()


def stop_a_leader_beyond_its_lease(cluster: Cluster) -> None:
    """SIGSTOP: it wakes up believing that it still leads."""
    leader = cluster.leader(TOPIC, 0)
    cluster.pause(leader)
    time.sleep(AWAY_S)
    cluster.resume(leader)


def stop_the_raft_leader_beyond_its_lease(cluster: Cluster) -> None:
    """SIGSTOP: another leads meanwhile."""
    leader = cluster.raft_leader()
    cluster.pause(leader)
    time.sleep(AWAY_S)
    cluster.resume(leader)


def restart_all_brokers_in_turn(cluster: Cluster) -> None:
    """In good order, one after the other."""
    for name in [n for n in cluster.nodes if n.startswith("broker-")]:
        cluster.stop(name)
        cluster.start(name)
        in_sync(cluster)


def in_sync(cluster: Cluster) -> None:
    """Wait until every queue has all its replicas in sync."""
    end = time.monotonic() + 30
    while any(len(cluster.queue(TOPIC, queue).isr) < 3 for queue in range(QUEUES)):
        assert time.monotonic() < end, "the replicas did not get in sync again"
        time.sleep(0.05)


FAULTS: Final = (
    kill_a_leader,
    kill_a_follower,
    kill_the_raft_leader,
    kill_everything,
    stop_a_leader_beyond_its_lease,
    stop_the_raft_leader_beyond_its_lease,
    restart_all_brokers_in_turn,
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_nothing_acknowledged_is_lost(
    fault: Callable[[Cluster], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with Cluster(name_servers=3, brokers=3) as cluster:
        load = Load(cluster, TOPIC)
        time.sleep(1.0)
        fault(cluster)
        in_sync(cluster)
        time.sleep(0.5)
        verdict = load.finish()
    with capsys.disabled():
        figures = f"{verdict.acked} acknowledged, longest pause {verdict.longest_pause_s:.2f} s"
        print(f"\n{fault.__name__}: {figures}")  # noqa: T201 - what the run is for
    assert verdict.clean, verdict
    assert verdict.acked > 500
    assert verdict.longest_pause_s < PAUSE_BAR_S
