"""A peak counts, also when it is over by the time somebody looks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.memory import Memory, grown_mb

MB = 1024
CHILD = """
import sys
def take(mb):
    return bytearray(b"x") * (mb << 20)
take(150)
for line in sys.stdin:
    take(int(line))
    print("done", flush=True)
"""


def status(now: int, most: int) -> str:
    """What the system says of a process."""
    return f"Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t{most * MB} kB\nVmRSS:\t{now * MB} kB\n"


@pytest.mark.parametrize(
    ("now", "most", "grown"), [(100, 100, 0), (150, 150, 50), (100, 700, 600), (90, 100, 0)]
)
def test_growth_is_up_to_the_peak(now: int, most: int, grown: int) -> None:
    assert grown_mb(status(100, 100), status(now, most)) == grown


def test_what_a_process_freed_again_counts_and_what_was_before_does_not() -> None:
    command = [sys.executable, "-c", CHILD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def take(mb: int) -> None:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(f"{mb}\n")
            child.stdin.flush()
            assert child.stdout.readline() == "done\n"

        take(1)
        memory = Memory(child.pid)
        # Its 150 MB were before.
        assert memory.grown < 50
        take(200)
        assert 190 < memory.grown < 260
        child.stdin.close()
