"""Processes of rivals: their processor time, and their end with all their children."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from bench.rivals.process_tree import descendants, is_running, parents, process_cpu_s
from bench.rivals.rival import RivalFailed
from bench.rivals.servers import ServerProcesses, free_port
from logboom.deploy.ports import Ports

PARENT = """
import pathlib, socket, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; sum(range(10**6)); signal.pause()"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
child.wait()
"""


def test_children_of_children_are_found() -> None:
    tree = {1: 0, 2: 1, 3: 2, 4: 1, 9: 8}
    assert descendants([2, 9], tree) == {2, 3, 9}
    assert parents()[os.getpid()] == os.getppid()


def test_processor_time_of_a_process_is_its_own() -> None:
    before_s, clock_s = process_cpu_s(os.getpid()), time.process_time()
    while time.process_time() < clock_s + 0.03:
        pass
    assert process_cpu_s(os.getpid()) - before_s >= 0.03
    assert process_cpu_s(2**22 + 1) == 0.0


def test_servers_end_with_their_children(tmp_path: Path) -> None:
    servers, ports = ServerProcesses(), Ports("free")
    port = int(ports.broker().rpartition(":")[2])
    words = [sys.executable, "-c", PARENT, str(tmp_path / "pid"), str(port)]
    servers.start(tmp_path / "server.log", words)
    try:
        servers.wait_listening(port)
        child = int((tmp_path / "pid").read_text())
        assert is_running(child)
        while process_cpu_s(child) == 0.0:
            time.sleep(0.01)  # until it has begun
        used_s = process_cpu_s(child)
        assert servers.cpu_s() >= used_s
    finally:
        servers.close()
        ports.release()
    assert not is_running(child)


def test_a_server_that_ends_is_named_with_its_log(tmp_path: Path) -> None:
    servers = ServerProcesses()
    servers.start(tmp_path / "server.log", [sys.executable, "-c", "raise SystemExit(3)"])
    try:
        with pytest.raises(RivalFailed, match=r"\(3\): see .*server\.log"):
            servers.wait_listening(free_port())
    finally:
        servers.close()
