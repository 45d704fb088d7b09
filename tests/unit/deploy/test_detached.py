"""The recorded nodes of a cluster on this machine: whose broker is forgotten, how they are stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from logboom.deploy import detached, registry
from logboom.deploy.detached import (
    STATE_FILE,
    ClusterRecord,
    NodeRecord,
    down,
    forget_broker,
    processes,
    up,
)
from logboom.deploy.identity import start_ticks
from logboom.deploy.layout import REMOVED_FILE, lay_out
from logboom.deploy.ports import Ports
from logboom.deploy.process import Role
from logboom.wire.errors import StartError

NAME_SERVER, BROKER = "127.0.0.1:7701", "127.0.0.1:7711"


def record(data: Path, *nodes: tuple[str, Role, str, int]) -> Path:
    """Write a state file of nodes (id, role, endpoint, pid); the pid 0 is one that has ended."""
    for name, *_ in nodes:
        (data / name).mkdir(parents=True)
    found = [
        NodeRecord(name, role, end, pid, (pid and start_ticks(pid)) or 0)
        for name, role, end, pid in nodes
    ]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    (data / STATE_FILE).write_bytes(msgspec.json.encode(ClusterRecord(found, 7701, boot)))
    return data


def test_a_broker_of_the_same_name_in_another_cluster_is_not_forgotten(tmp_path: Path) -> None:
    broker: tuple[str, Role, str, int] = ("broker-1", "broker", BROKER, 0)
    stale = record(tmp_path / "stale", ("name-1", "name-server", NAME_SERVER, 0), broker)
    other = record(
        tmp_path / "other", ("name-1", "name-server", "127.0.0.1:9901", os.getpid()), broker
    )
    ours = record(tmp_path / "ours", ("name-1", "name-server", NAME_SERVER, os.getpid()), broker)
    folders = [stale, other, ours]
    assert forget_broker("broker-1", BROKER, {NAME_SERVER}, folders) == ours / "broker-1"
    marked = [(data / "broker-1" / REMOVED_FILE).exists() for data in folders]
    assert marked == [False, False, True]
    assert forget_broker("broker-1", BROKER, {NAME_SERVER}, [stale, other]) is None
    assert forget_broker("broker-1", "127.0.0.1:9911", {NAME_SERVER}, [ours]) is None


def test_nodes_that_run_are_not_made_to_encrypt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, ("name-1", "name-server", NAME_SERVER, os.getpid()))
    lay_out(tmp_path, 1, 1, Ports()).mark_founded()
    monkeypatch.setattr(detached, "_check_ports", lambda *_: None)
    monkeypatch.setattr(detached, "lay_out", lambda *_, **__: pytest.fail("nothing is written"))
    with pytest.raises(StartError, match="runs without encryption: stop it first"):
        up(tmp_path, secure=True)


def test_a_node_that_does_not_stop_is_killed_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "forget", lambda _: None)
    assert detached.STOP_S == 90.0, "as docs/OPERATING.md says"
    monkeypatch.setattr(detached, "STOP_S", 0.05)
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{stubborn}; signal.pause()"], stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        record(tmp_path, ("broker-1", "broker", BROKER, child.pid))
        told: list[str] = []
        assert down(tmp_path, warn=told.append) == ["broker-1"]
    assert processes(tmp_path) == []
    assert [text.partition(" within ")[0] for text in told] == ["WARNING: broker-1 did not stop"]
