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
    forget_node,
    not_ready,
    processes,
    up,
)
from logboom.deploy.identity import start_ticks
from logboom.deploy.layout import REMOVED_FILE, Layout, Size, lay_out
from logboom.deploy.ports import Ports
from logboom.deploy.process import Role
from logboom.wire.errors import StartError
from logboom.wire.messages import StatsResult
from logboom.wire.view import BrokerView, View

NAME_SERVER, BROKER = "127.0.0.1:7701", "127.0.0.1:7711"


def record(data: Path, *nodes: tuple[str, Role, str, int]) -> Path:
    """Write a state file of nodes (id, role, endpoint, pid); the pid 0 is one that has ended."""
    for name, *_ in nodes:
        (data / name).mkdir(parents=True, exist_ok=True)
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
    assert forget_node("broker-1", BROKER, {NAME_SERVER}, folders) == ours / "broker-1"
    marked = [(data / "broker-1" / REMOVED_FILE).exists() for data in folders]
    assert marked == [False, False, True]
    assert forget_node("broker-1", BROKER, {NAME_SERVER}, [stale, other]) is None
    assert forget_node("broker-1", "127.0.0.1:9911", {NAME_SERVER}, [ours]) is None


def test_a_removed_name_server_is_started_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, 3, 1, Ports()).mark_founded()
    ends = [f"127.0.0.1:{port}" for port in (7701, 7702, 7703)]
    nodes: list[tuple[str, Role, str, int]] = [
        (f"name-{n}", "name-server", end, os.getpid()) for n, end in enumerate(ends, 1)
    ]
    record(tmp_path, *nodes)
    # Its own process does not tell that the group is the one of this folder.
    assert forget_node("name-2", ends[1], {ends[1]}, [tmp_path]) is None
    assert forget_node("name-2", ends[1], ends, [tmp_path]) == tmp_path / "name-2"
    assert [process.spec.id for process in processes(tmp_path)] == ["name-1", "name-3"]
    started: list[Layout] = []

    def check(data: Path, size: Size) -> None:
        started.append(lay_out(data, size.name_servers, size.brokers, Ports(size.port)))
        raise StartError("far enough")

    monkeypatch.setattr(detached, "_check_ports", check)
    with pytest.raises(StartError, match="far enough"):
        up(tmp_path)
    assert [spec.id for spec in started[0].nodes] == ["name-1", "name-3", "broker-1"]


def view(*alive: str) -> View:
    """The metadata of a cluster of these brokers."""
    brokers = [BrokerView(each, f"{each}:1", "", 1, True, 1) for each in alive]
    return View(1, True, "id", brokers, [], [], [], [], None)


def test_a_cluster_is_ready_once_its_brokers_have_registered_since_they_started() -> None:
    ends = {"n:1": "name-1", "a:1": "a", "b:1": "b"}
    views = dict.fromkeys(ends, view("a", "b"))
    registered = StatsResult(0, "", "broker", {"registered": 1})
    answers = {"a:1": registered, "b:1": registered}
    assert not_ready(ends, {"a", "b"}, views, answers) == []
    assert not_ready(ends, {"a", "b"}, {**views, "n:1": view("a")}, answers) == ["name-1"]
    assert not_ready(ends, {"a", "b"}, views, {"a:1": registered}) == ["b"]
    # The metadata has the process before it: that was killed, and not missed yet.
    answers["a:1"] = StatsResult(0, "", "broker", {"registered": 0})
    assert not_ready(ends, {"a", "b"}, views, answers) == ["a"]


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
