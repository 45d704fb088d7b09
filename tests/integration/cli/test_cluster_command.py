"""`logboom cluster`: up, status, logs, down; what runs stays, what is down comes back."""

import os
import signal
import socket
from pathlib import Path

import pytest

from logboom.deploy.identity import start_ticks
from tests.integration.cli.command import complaint, logboom, succeed

pytestmark = pytest.mark.timeout(120)


def free_base() -> int:
    """A port with free ones 10 and 20 above it."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            base: int = first.getsockname()[1]
        try:
            for port in (base, base + 10, base + 20):
                with socket.socket() as other:
                    other.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base


def test_from_up_to_down(tmp_path: Path) -> None:
    base = free_base()
    size = ["-n", "1", "-b", "1", "-p", str(base), "-d", str(tmp_path)]
    up = succeed("cluster", "up", *size, "-o", "json")
    pids = {row["node"]: row["pid"] for row in up.json}
    try:
        assert set(pids) == {"name-1", "broker-1"}
        assert f"127.0.0.1:{base + 10}" in up.err
        rows = succeed("cluster", "status", "-d", tmp_path, "-o", "json").json
        assert {row["node"]: row["state"] for row in rows} == {"name-1": "up", "broker-1": "up"}
        assert [row["leads"] for row in rows] == ["raft", 0]
        servers = f"127.0.0.1:{base + 10}"
        succeed("topic", "create", "kept", "-q", 1, servers=servers)
        succeed("produce", "kept", "hello", servers=servers)
        assert "broker-1" in succeed("cluster", "logs", "-d", tmp_path).out.decode()

        # A node that died is seen, and comes back with the next `up`; the other stays.
        os.kill(pids["broker-1"], signal.SIGKILL)
        while start_ticks(pids["broker-1"]) is not None:
            pass
        rows = succeed("cluster", "status", "-d", tmp_path, "-o", "json").json
        assert {row["node"]: row["state"] for row in rows} == {"name-1": "up", "broker-1": "down"}
        again = {r["node"]: r["pid"] for r in succeed("cluster", "up", *size, "-o", "json").json}
        assert again["name-1"] == pids["name-1"]
        assert again["broker-1"] != pids["broker-1"]
        pids = again
    finally:
        down = succeed("cluster", "down", "-d", tmp_path)
    assert "broker-1" in down.err
    assert [start_ticks(pid) for pid in pids.values()] == [None, None]
    assert "no cluster runs" in complaint(logboom("cluster", "status", "-d", tmp_path))
    assert "no cluster" in succeed("cluster", "down", "-d", tmp_path).err

    # All of it is there again after a full stop.
    succeed("cluster", "up", *size)
    try:
        read = succeed("consume", "kept", "-c", 1, servers=servers)
        assert read.lines == ["hello"]
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_a_folder_of_other_numbers_is_refused(tmp_path: Path) -> None:
    base = free_base()
    size = ["-b", "1", "-p", str(base), "-d", str(tmp_path)]
    succeed("cluster", "up", "-n", 1, *size)
    try:
        line = complaint(logboom("cluster", "up", "-n", 3, *size))
        assert "holds a cluster of 1 name servers, not 3" in line
    finally:
        succeed("cluster", "down", "-d", tmp_path)


def test_an_unreadable_state_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")
    assert "cluster.json" in complaint(logboom("cluster", "status", "-d", tmp_path))
