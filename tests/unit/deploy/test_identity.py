"""A process is ours only if its start time fits: pids are given out again."""

import os
import signal
import subprocess
import sys
import time

from logboom.deploy.identity import is_paused, resident_bytes, start_ticks


def test_a_running_process_has_a_start_that_stays() -> None:
    first = start_ticks(os.getpid())
    assert first is not None
    assert start_ticks(os.getpid()) == first
    assert resident_bytes(os.getpid()) > 1_000_000


def test_a_later_process_started_later() -> None:
    mine = start_ticks(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    theirs = start_ticks(child.pid)
    assert mine is not None
    assert theirs is not None
    assert theirs > mine
    os.kill(child.pid, signal.SIGSTOP)
    while not is_paused(child.pid):
        # The kernel tells a parent of a stop by `wait`, which would also reap; so /proc is asked.
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGKILL)
    while start_ticks(child.pid) is not None:
        # It stays a zombie until it is waited for, and a zombie does not run.
        time.sleep(0.001)
    child.communicate()
    assert resident_bytes(child.pid) == 0
    assert not is_paused(child.pid)
