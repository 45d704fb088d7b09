"""The bad machine: what was not synced goes with the power, what was stays; clocks jump."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.machine import Machine, cut_power

PYTHON = ["import os, time", "from pathlib import Path"]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with a built shim."""
    return Machine(tmp_path_factory.mktemp("machine"))


def run(machine: Machine, name: str, *lines: str) -> str:
    """Run Python on the machine, in the node's data folder, and kill it; what it printed."""
    words = machine.launcher(name)
    data = Path(words[3].partition("=")[2])
    data.mkdir(parents=True, exist_ok=True)
    code = "\n".join([*PYTHON, *lines, "import sys; sys.stdout.flush()", "os.kill(os.getpid(), 9)"])
    done = subprocess.run(
        [*words, sys.executable, "-c", code], cwd=data, capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    return done.stdout


def folder(machine: Machine, name: str) -> Path:
    """A node's data folder."""
    return Path(machine.launcher(name)[3].partition("=")[2])


def content(machine: Machine, name: str) -> dict[str, bytes]:
    """The files of a node."""
    return {path.name: path.read_bytes() for path in folder(machine, name).iterdir()}


SYNC_FOLDER = "d = os.open('.', os.O_RDONLY); os.fsync(d)"
APPEND = "f = os.open('log', os.O_CREAT | os.O_WRONLY)"


def test_what_is_appended_and_not_synced_goes(machine: Machine) -> None:
    run(
        machine, "a", APPEND, SYNC_FOLDER, "os.write(f, b'kept'); os.fsync(f); os.write(f, b'lost')"
    )
    assert content(machine, "a") == {"log": b"keptlost"}
    assert machine.cut_power("a") == 4
    assert content(machine, "a") == {"log": b"kept"}
    assert machine.cut_power("a") == 0


def test_what_is_overwritten_and_not_synced_comes_back(machine: Machine) -> None:
    lines = ["os.write(f, b'0123456789'); os.fdatasync(f)", "os.pwrite(f, b'xyz', 2)"]
    run(machine, "b", APPEND, SYNC_FOLDER, *lines, "os.pwrite(f, b'abc', 3); os.ftruncate(f, 4)")
    assert content(machine, "b") == {"log": b"01xa"}
    machine.cut_power("b")
    assert content(machine, "b") == {"log": b"0123456789"}


def test_a_second_process_does_not_sync_what_the_first_left(machine: Machine) -> None:
    run(machine, "c", APPEND, SYNC_FOLDER, "os.write(f, b'kept'); os.fsync(f); os.write(f, b'1')")
    run(machine, "c", "f = os.open('log', os.O_WRONLY); os.pwrite(f, b'2', 5)")
    assert content(machine, "c") == {"log": b"kept12"}
    machine.cut_power("c")
    assert content(machine, "c") == {"log": b"kept"}


def test_a_file_emptied_by_opening_it_comes_back(machine: Machine) -> None:
    run(machine, "d", APPEND, SYNC_FOLDER, "os.write(f, b'old'); os.fsync(f)")
    run(machine, "d", "Path('log').write_bytes(b'newer')")
    machine.cut_power("d")
    assert content(machine, "d") == {"log": b"old"}


def test_names_last_from_the_sync_of_their_folder_on(machine: Machine) -> None:
    lines = [
        "Path('one').write_bytes(b'1'); g = os.open('one', os.O_WRONLY); os.fsync(g)",
        "Path('two').write_bytes(b'2'); h = os.open('two', os.O_WRONLY); os.fsync(h)",
        SYNC_FOLDER,
        "Path('one').rename('two'); Path('three').write_bytes(b'3')",
    ]
    run(machine, "e", *lines)
    assert content(machine, "e") == {"two": b"1", "three": b"3"}
    machine.cut_power("e")
    assert content(machine, "e") == {"one": b"1", "two": b"2"}
    run(machine, "e", "Path('one').rename('two')", SYNC_FOLDER, "Path('two').unlink()")
    machine.cut_power("e")
    assert content(machine, "e") == {"two": b"1"}


def test_a_beginning_of_what_was_not_synced_may_stay(machine: Machine) -> None:
    found = set()
    for seed in range(20):
        run_folder = folder(machine, "f")
        for path in run_folder.glob("*"):
            path.unlink()
        lines = ["os.write(f, b'kept'); os.fsync(f); os.write(f, b'lost')"]
        run(machine, "f", APPEND, SYNC_FOLDER, *lines)
        cut_power(run_folder, run_folder.parent / "unsynced", random.Random(seed))
        found.add(content(machine, "f")["log"])
    assert found == {b"kept", b"keptl", b"keptlo", b"keptlos", b"keptlost"}


def test_a_clock_that_is_ahead_and_one_that_jumps_while_it_runs(machine: Machine) -> None:
    machine.launcher("g")
    machine.set_clock("g", 3_600)
    begun, begun_mono = time.time(), time.monotonic()
    printed = run(machine, "g", "print(time.time(), time.monotonic())")
    wall, mono = map(float, printed.split())
    assert begun - 1 < wall - 3_600 < time.time() + 1
    assert begun_mono < mono < time.monotonic()
    clock = folder(machine, "g").parent / "clock"
    jump = f"c = os.open({str(clock)!r}, os.O_RDWR); os.pwrite(c, bytes(8), 0)"
    before, after = map(
        float, run(machine, "g", "a = time.time()", jump, "print(a, time.time())").split()
    )
    assert before - after == pytest.approx(3_600, abs=300)


def test_a_wait_with_a_time_limit_is_as_long_as_it_was_meant(machine: Machine) -> None:
    machine.launcher("h")
    machine.set_clock("h", -100_000)
    waits = "import threading; a = time.monotonic(); threading.Event().wait(0.2)"
    assert 0.2 <= float(run(machine, "h", waits, "print(time.monotonic() - a)")) < 1_000


def test_other_folders_are_left_alone(machine: Machine, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    run(machine, "i", f"Path({str(outside)!r}).write_bytes(b'never synced')")
    machine.cut_power("i")
    assert outside.read_bytes() == b"never synced"
    assert os.listdir(folder(machine, "i")) == []  # noqa: PTH208 - names are enough


def test_connections_come_from_the_address_that_is_given(machine: Machine) -> None:
    dial = [
        "import socket",
        "listening = socket.create_server(('127.0.0.1', 0))",
        "dialled = socket.create_connection(listening.getsockname())",
        "print(dialled.getsockname()[0])",
    ]
    assert run(machine, "j", *dial).strip() == "127.0.0.1"
    assert run(machine, "j", "os.environ['CHAOS_ADDRESS'] = '127.77.0.9'", *dial).strip() == (
        "127.77.0.9"
    )
