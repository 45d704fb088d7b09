"""`make chaos` that is broken off leaves nothing behind: no process, no mount, no namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.links import ProxyLinks
from tests.chaos.namespaces import MARK, NamespaceLinks, obstacle


def left_over(folder: Path, pid: int) -> list[str]:
    """What there is of a run with its work in `folder` and the process id `pid`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in command and process.name != str(os.getpid()):
            found.append(command.replace(b"\0", b" ").decode())
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    found += [line for line in mounts if str(folder) in line]
    spaces = Path("/run/netns")
    if spaces.exists():
        found += [space.name for space in spaces.glob(f"{MARK}{pid}-*")]
    return found


@pytest.mark.thorough
def test_a_run_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    links = ProxyLinks.kind if obstacle() else NamespaceLinks.kind
    command = [sys.executable, "-m", "tests.chaos", "--links", links, "--seed", "1"]
    command += ["--minutes", "5", "--faults", "kill-follower", "--folder", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert "kill-follower" in process.stdout.readline()
        # With itself, six nodes and the processes of clients.
        assert len(left_over(tmp_path, process.pid)) >= 10
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)
        assert process.returncode == 130
    deadline = time.monotonic() + 200.0
    while left := left_over(tmp_path, process.pid):
        assert time.monotonic() < deadline, left
        # Processes that are not our children tell us nothing when they end.
        time.sleep(0.05)
