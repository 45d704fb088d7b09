"""Each trouble of the operator's table, made for real: it is seen as the table says, and what the table says
mends it."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.deploy.polling import ask_until
from logboom.wire.errors import LogboomError
from tests.integration.cli.command import complaint, logboom, succeed
from tests.integration.waiting import wait_until
from tests.thorough import few_of

PAGE = Path(__file__).parents[3] / "docs" / "OPERATING.md"


def table() -> list[str]:
    """What one sees, by the first column of the table."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## When something is wrong\n")
    rows = re.findall(r"^\| (.+?) \|", section.partition("\n### ")[0], re.MULTILINE)
    return [row for row in rows if row not in ("you see", "---")]


def findings(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """What the doctor says, asked by all nodes that run."""
    ends = [cluster.endpoint(name) for name in cluster.nodes if cluster.running(name)]
    done = logboom("doctor", "-o", "json", servers=",".join(ends))
    found = {row["check"]: row for row in done.json}
    assert done.code == any(row["result"] == "failed" for row in found.values())
    return found


def failed(cluster: Cluster, check: str) -> dict[str, Any] | None:
    """What the doctor found, if this check failed."""
    found = findings(cluster).get(check)
    return found if found is not None and found["result"] == "failed" else None


def wait_failed(cluster: Cluster, check: str, word: str = "") -> dict[str, Any]:
    """The same, once it fails and tells this: a node that is slow to answer is told of too."""
    found = ask_until(
        lambda: failed(cluster, check),
        lambda found: found is not None and word in found["found"],
        200.0,
    )
    assert found is not None, f"{check} does not fail"
    assert found["fix"]
    return found


def wait_well(cluster: Cluster, *checks: str) -> None:
    """Return when nothing is wrong any more with these."""
    wait_until(
        lambda: all_well(findings(cluster), *checks),
        f"not mended: {checks}",
    )


def all_well(found: dict[str, dict[str, Any]], *checks: str) -> bool:
    """True if the doctor finds nothing wrong with these."""
    return all(check in found and found[check]["result"] == "ok" for check in checks)


def status(cluster: Cluster) -> tuple[dict[str, dict[str, Any]], str]:
    """`cluster status` by node, and what it says besides."""
    ends = [cluster.endpoint(name) for name in cluster.nodes if cluster.running(name)]
    done = succeed("cluster", "status", "--servers", ",".join(ends), "-o", "json")
    return {row["node"]: row for row in done.json}, done.err


def wait_status(
    cluster: Cluster, holds: Callable[[dict[str, dict[str, Any]], str], bool]
) -> tuple[dict[str, dict[str, Any]], str]:
    """The same, once it holds: a node that is slow to answer is not up."""
    return ask_until(lambda: status(cluster), lambda told: holds(*told), 200.0)


def send(boom: Client, topic: str, queue: int = 0, timeout_s: float = 200.0) -> None:
    """One message."""
    with boom.producer(delivery_timeout_s=timeout_s) as producer:
        producer.send(topic, b"x", queue=queue).result()


def wait_refused(boom: Client, topic: str, why: str) -> None:
    """Send until a broker tells this: one that is slow to answer tells nothing in time."""

    def refused() -> bool:
        with pytest.raises(LogboomError) as told:
            send(boom, topic, timeout_s=2.0)
        return re.search(why, str(told.value)) is not None

    wait_until(refused, f"nobody says {why}")


def start_line(cluster: Cluster, name: str) -> str:
    """What a stopped node says that does not start."""
    role = "broker" if name.startswith("broker") else "name-server"
    done = logboom("node", role, "--config", cluster.data / name / "node.toml")
    return complaint(done._replace(err=done.err.splitlines()[-1]))


def not_enough_replicas(tmp_path: Path) -> None:
    with Cluster(1, 2, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("pairs", queues=2, replicas=2, min_in_sync=2)
        send(boom, "pairs")
        cluster.kill("broker-2")
        wait_failed(cluster, "queues take acks=all")
        wait_until(lambda: cluster.queue("pairs", 0).isr == ["broker-1"], "it stays in sync")
        wait_refused(boom, "pairs", "NOT_ENOUGH_REPLICAS|copies are in sync")
        wait_until(lambda: cluster.queue("pairs", 0).leader == "broker-1", "nobody leads it")
        assert len(boom.pull("pairs", 0, 0).messages) == 1, "reads go on"
        cluster.start("broker-2")
        wait_well(cluster, "queues take acks=all", "all replicas in sync")
        send(boom, "pairs")


def disk_full(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    settings = {"disk_reserve_bytes": 2 * free, "disk_reserve_percent": 0.0}
    with Cluster(1, 1, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("full", queues=1)
        send(boom, "full")
    with (
        Cluster(1, 1, tmp_path, broker_settings=settings) as cluster,
        connect(cluster.endpoints) as boom,
    ):
        found = wait_failed(cluster, "disk of broker-1")
        assert "reserved" in found["found"]
        wait_refused(boom, "full", "disk is full")
        assert len(boom.pull("full", 0, 0).messages) == 1, "reads go on"
    with Cluster(1, 1, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        wait_well(cluster, "disk of broker-1")
        send(boom, "full")


def queue_without_leader(tmp_path: Path) -> None:
    with Cluster(1, 2, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("single", queues=2, replicas=1)
        (queue,) = (n for n in (0, 1) if cluster.leader("single", n, 200.0) == "broker-2")
        cluster.kill("broker-2")
        found = wait_failed(cluster, "every queue has a leader", f"single/{queue}")
        assert f"single/{queue}" in found["found"]
        nodes, _ = status(cluster)
        assert (nodes["broker-2"]["state"], nodes["broker-2"]["leads"]) == ("down", None)
        (row,) = (
            row
            for row in succeed(
                "topic", "describe", "single", "-o", "json", servers=cluster.endpoint("broker-1")
            ).json["queues"]
            if row["queue"] == queue
        )
        assert row["replicas"] == ["broker-2"], "it names who has to be started"
        cluster.start("broker-2")
        wait_well(cluster, "every queue has a leader")


def no_raft_leader(tmp_path: Path) -> None:
    with Cluster(3, 3, tmp_path) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("goes-on", queues=3, replicas=3)
        send(boom, "goes-on")
        leader = cluster.raft_leader(200.0)
        nodes, said = wait_status(
            cluster, lambda nodes, said: nodes[leader]["leads"] == "raft" and said == ""
        )
        assert [name for name, row in nodes.items() if row["leads"] == "raft"] == [leader]
        assert said == ""
        # The leader goes, and one that could follow it; who stays is told of nobody else.
        (left, *others) = [name for name in cluster.nodes[:3] if name != leader]
        for name in (leader, *others):
            cluster.kill(name)
        found = wait_failed(cluster, "raft leader", "1 of 3")
        assert "1 of 3 name servers answer" in found["found"]
        assert all(name in found["fix"] for name in (leader, *others))
        nodes, said = wait_status(cluster, lambda nodes, said: nodes[left]["state"] == "up")
        assert [row["leads"] for name, row in nodes.items() if name.startswith("name")] == [
            None
        ] * 3
        assert "no raft leader" in said
        assert nodes[left]["state"] == "up"
        roles = succeed("name-server", "list", "-o", "json", servers=cluster.endpoint(left)).json
        assert "leader" not in [row["role"] for row in roles]
        # Meanwhile what is known goes on.
        send(boom, "goes-on")
        assert len(boom.pull("goes-on", 0, 0).messages) <= 2
        wait_well(cluster, "queues take acks=all", "every queue has a leader")

        # The metadata stands still: it names a dead broker as leader and as in sync. The doctor does not.
        cluster.kill("broker-1")
        led = [n for n in range(3) if cluster.queue("goes-on", n).leader == "broker-1"]
        found = ask_until(
            lambda: findings(cluster), lambda found: "2 of 3" in found["brokers"]["found"], 200.0
        )
        assert found["every queue has a leader"]["result"] == "failed"
        assert all(f"goes-on/{n}" in found["every queue has a leader"]["found"] for n in led)
        assert found["queues take acks=all"]["result"] == "failed"
        assert found["all replicas in sync"]["result"] == "warning"
        assert "2 of 3" in found["brokers"]["found"]
        # Nor does it lead what it led when it is there again: nobody has registered it.
        cluster.start("broker-1", wait=False)
        wait_until(lambda: status(cluster)[0]["broker-1"]["state"] == "up", "it does not answer")
        assert failed(cluster, "every queue has a leader") is not None
        assert status(cluster)[0]["broker-1"]["leads"] in (None, 0)

        cluster.start(others[0], wait=False)
        wait_well(cluster, "raft leader", "every queue has a leader", "all replicas in sync")
        nodes, said = wait_status(cluster, lambda nodes, said: said == "")
        assert [row["leads"] for row in nodes.values()].count("raft") == 1
        assert said == ""
        # One that hears nothing of the others is told too; it cannot know whether one leads.
        cluster.start(leader)
        wait_well(cluster, f"node {leader}")


def port_in_use(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path) as cluster:
        cluster.kill("broker-1")
        host, _, port = cluster.endpoint("broker-1").rpartition(":")
        with socket.socket() as taker:
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taker.bind((host, int(port)))
            taker.listen()
            assert re.search(r"port .+ is in use", start_line(cluster, "broker-1"))
        cluster.start("broker-1")
        wait_well(cluster, "node broker-1")


def wrong_data_folder(tmp_path: Path) -> None:
    with Cluster(1, 2, tmp_path) as cluster:
        for name in ("broker-1", "broker-2"):
            cluster.stop(name)
        config = cluster.data / "broker-2" / "node.toml"
        right = config.read_text()
        config.write_text(right.replace(str(tmp_path / "broker-2"), str(tmp_path / "broker-1")))
        line = start_line(cluster, "broker-2")
        assert "broker-1" in line
        assert "data" in line
        config.write_text(right)
        cluster.start("broker-1", wait=False)
        cluster.start("broker-2")
        wait_well(cluster, "node broker-2")


def newer_format(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path) as cluster:
        cluster.stop("broker-1")
        identity = cluster.data / "broker-1" / "data" / "identity.json"
        ours = identity.read_bytes()
        newer = re.sub(rb'"format":\s*\d+', b'"format":99', ours)
        assert newer != ours
        identity.write_bytes(newer)
        assert re.search("newer.*99|99.*newer", start_line(cluster, "broker-1"))
        identity.write_bytes(ours)  # read by the version that wrote it
        cluster.start("broker-1")
        wait_well(cluster, "node broker-1")


def open_to_other_machines(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path) as cluster:
        cluster.stop("broker-1")
        config = cluster.data / "broker-1" / "node.toml"
        right = config.read_text()
        endpoint = cluster.endpoint("broker-1")
        anywhere = endpoint.replace("127.0.0.1", "0.0.0.0")
        wrong = right.replace(
            f'listen = "{endpoint}"', f'listen = "{anywhere}"\nadvertise = "{endpoint}"'
        )
        assert wrong != right
        config.write_text(wrong)
        line = start_line(cluster, "broker-1")
        assert re.search("is reached by other machines, and listener .* lets everybody in", line)
        config.write_text(f"{wrong}insecure = true\n")
        cluster.start("broker-1")
        # It starts, and doctor says so for as long as it is like this.
        wait_well(cluster, "node broker-1")
        found = wait_failed(cluster, "listeners of broker-1")
        assert "insecure = true does not silence this" in found["fix"]
        cluster.stop("broker-1")
        config.write_text(right)
        cluster.start("broker-1")
        wait_well(cluster, "node broker-1")
        assert "listeners of broker-1" not in findings(cluster)


def unauthenticated(tmp_path: Path) -> None:
    with Cluster(1, 1, tmp_path) as cluster:
        cluster.stop("broker-1")
        key = cluster.data / "cluster.key"
        right = key.read_text()
        key.write_text("0" * 64)
        assert "cluster key" in start_line(cluster, "broker-1")
        key.write_text(right)
        cluster.start("broker-1")
        wait_well(cluster, "node broker-1")


TROUBLES: dict[str, Callable[[Path], None]] = {
    "`NOT_ENOUGH_REPLICAS`": not_enough_replicas,
    "`DISK_FULL`": disk_full,
    "a queue without leader": queue_without_leader,
    "no raft leader": no_raft_leader,
    "`port … is in use`": port_in_use,
    "`WRONG_DATA_FOLDER`": wrong_data_folder,
    "`NEWER_FORMAT`": newer_format,
    "`… is reached by other machines, and listener … lets everybody in`": open_to_other_machines,
    "`UNAUTHENTICATED`": unauthenticated,
}
"""Row of the table → what makes it, sees it and mends it."""


FEW = ("`DISK_FULL`", "`port … is in use`")
"""Of these, what `make test` makes."""


def test_the_table_has_no_row_that_is_not_tried() -> None:
    assert table() == list(TROUBLES)


@pytest.mark.parametrize("row", few_of(TROUBLES, FEW))
def test_a_trouble_is_seen_and_mended_as_the_table_says(row: str, tmp_path: Path) -> None:
    TROUBLES[row](tmp_path)
