"""`logboom cluster restart-check`, `roll` and `upgrade`, as an operator types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logboom.deploy import detached
from logboom.deploy.polling import ask_until
from logboom.wire.features import FEATURES, SOFTWARE
from tests.integration.cli.command import Done, complaint, environment, logboom, succeed
from tests.integration.cli.test_cluster_command import free_base
from tests.integration.waiting import wait_until


class Running(NamedTuple):
    """A detached cluster of one name server and two brokers."""

    data: Path
    servers: str

    def pids(self) -> dict[str, int]:
        """The process of each node."""
        return {p.spec.id: p.pid for p in detached.processes(self.data) if p.alive}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Shared by the tests of this module; each leaves all nodes running."""
    data, base = tmp_path_factory.mktemp("cluster"), free_base()
    succeed("cluster", "up", "-n", 1, "-b", 2, "-p", base, "-d", data)
    running = Running(data, f"127.0.0.1:{base + 10},127.0.0.1:{base + 11}")
    try:
        for topic, settings in (("safe", ("--min-in-sync", 1)), ("both", ())):
            succeed("topic", "create", topic, "-q", 1, *settings, servers=running.servers)
        yield running
    finally:
        succeed("cluster", "down", "-d", data)


def check(cluster: Running, node: str, risks: int) -> Done:
    """Run `restart-check` until it finds so many: a node that is slow to answer is one more."""
    words = ("cluster", "restart-check", node, "-o", "json")
    return ask_until(
        lambda: logboom(*words, servers=cluster.servers),
        lambda done: bool(done.out) and len(done.json) == risks,
        200.0,
    )


def test_a_check_names_the_queues_and_exits_with_1(cluster: Running) -> None:
    checked = check(cluster, "broker-1", 1)
    assert checked.code == 1
    assert checked.json == [
        {
            "topic": "both",
            "queue": 0,
            "risk": "below-min-in-sync",
            "fix": "give the topic more replicas, or accept that the queue waits meanwhile: "
            "--accept-unavailable",
        }
    ]
    assert "broker-1 is not safe to stop" in checked.err
    alone = check(cluster, "name-1", 1)
    assert alone.code == 1
    assert alone.json[0]["risk"] == "no-majority"
    unknown = logboom("cluster", "restart-check", "broker-9", servers=cluster.servers)
    assert "there are name-1, broker-1, broker-2" in complaint(unknown)


def test_a_check_without_a_risk_exits_with_0(cluster: Running) -> None:
    succeed("topic", "alter", "both", "--min-in-sync", 1, servers=cluster.servers)
    checked = check(cluster, "broker-1", 0)
    assert (checked.code, checked.json) == (0, [])
    assert "broker-1 may be stopped" in checked.err
    succeed("topic", "alter", "both", "--min-in-sync", 0, servers=cluster.servers)


def test_a_roll_restarts_every_node(cluster: Running) -> None:
    before = cluster.pids()
    words = ("cluster", "roll", "-d", cluster.data)

    def roll(*more: str) -> Done:
        # A node that is slow to answer ends it before it begins.
        return ask_until(
            lambda: logboom(*words, *more),
            lambda done: done.code == 0 or "does not answer" not in done.err,
            200.0,
        )

    assert "broker-1 cannot be restarted safely: both/0" in complaint(roll("--yes"))
    assert "say --yes" in complaint(roll("--accept-unavailable"))
    assert cluster.pids() == before
    rolled = roll("--accept-unavailable", "--yes", "-o", "json")
    assert rolled.code == 0, rolled.err
    assert [row["node"] for row in rolled.json] == ["broker-1", "broker-2", "name-1"]
    assert "restarted broker-1, broker-2, name-1 in" in rolled.err
    after = cluster.pids()
    assert after.keys() == before.keys()
    assert not {*after.values()} & {*before.values()}


def test_ctrl_c_ends_a_roll_between_two_nodes(cluster: Running) -> None:
    before = cluster.pids()
    words = ["cluster", "roll", "-d", str(cluster.data), "--yes", "--accept-unavailable"]
    rolling = subprocess.Popen(
        [sys.executable, "-m", "logboom", *words],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(cluster.pids()) < 3 or cluster.pids() != before, "a node is stopped")
        os.kill(rolling.pid, signal.SIGINT)
        _, said = rolling.communicate(timeout=200)
    finally:
        rolling.kill()
        rolling.wait()
    assert rolling.returncode == 130, said
    # One, unless this process stood still meanwhile.
    told = re.search(r"ended after (broker-\d); (\d) nodes were not restarted, all run", said)
    assert told is not None, said
    after = cluster.pids()
    assert after.keys() == before.keys()
    restarted = sorted(name for name in after if after[name] != before[name])
    assert restarted == ["broker-1", "broker-2"][: 3 - int(told[2])]
    assert restarted[-1] == told[1]


def test_upgrades_are_shown_and_there_is_nothing_to_finalize(cluster: Running) -> None:
    status = succeed("cluster", "upgrade", "status", "-o", "json", servers=cluster.servers)
    assert [row["node"] for row in status.json] == ["name-1", "broker-1", "broker-2"]
    assert {row["software"] for row in status.json} == {SOFTWARE}
    assert {row["level"] for row in status.json} == {FEATURES}
    assert f"at features level {FEATURES}: there is nothing to finalize" in status.err
    key = ("--key-file", cluster.data / "cluster.key")
    done = succeed("cluster", "upgrade", "finalize", *key, servers=cluster.servers)
    assert "nothing to finalize" in done.err


def test_a_cluster_that_does_not_run_is_not_rolled(tmp_path: Path) -> None:
    refused = complaint(logboom("cluster", "roll", "-d", tmp_path, "--yes"))
    assert "does not run" in refused
    assert "`logboom cluster up --data" in refused
